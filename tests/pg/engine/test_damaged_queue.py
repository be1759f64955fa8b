"""A queue that is damaged while its records are still needed, and one whose mode is changed: nothing is lost, and damage is reported."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.link.messages import ReloadReport
from engine.model.position import Lsn
from engine.model.subscription import QueueMode
from engine.model.subscription_state import DesiredState
from engine.pipeline import compute as jobs
from engine.pipeline import run
from engine.pipeline.log_reader import Confirm, ReaderCommand
from engine.pipeline.queue_start import QueueStart
from engine.pipeline.reader_process import ReaderProcess
from engine.platform.failpoints import Failpoint
from engine.queue import is_durable
from engine.queue.durability_switch import QueueState
from engine.safety.source_monitor import SourceMonitor
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE orders (id bigint PRIMARY KEY, note text);
CREATE TABLE lines (order_id bigint, n int, sku text, PRIMARY KEY (order_id, n));
INSERT INTO orders SELECT i, 'note ' || i FROM generate_series(1, 300) i;
INSERT INTO lines SELECT i, 1, 'sku' || i FROM generate_series(1, 300) i;
"""
NEEDED = "UPDATE orders SET note = md5(random()::text) || repeat(md5(id::text), 200)"
LATER = "UPDATE lines SET sku = 'later ' || order_id; DELETE FROM orders WHERE id > 250"
SLOT = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


class JobStage:
    """The place before each batch's job; while it is held no batch passes, and what it needs stays in the queue."""

    def __init__(self) -> None:
        self.waiting = threading.Event()
        self._open = threading.Event()
        self._open.set()

    def pass_by(self, point: Failpoint) -> None:
        if point is Failpoint.BATCH_BEFORE_JOB and not self._open.is_set():
            self.waiting.set()
            self._open.wait(60.0)

    @contextmanager
    def held(self) -> Iterator[None]:
        self.waiting.clear()
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()


@pytest.fixture
def job_stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobStage]:
    stage = JobStage()
    monkeypatch.setattr(jobs, "hit", stage.pass_by)
    yield stage
    stage._open.set()


def queue_of(replica: Replica) -> Path:
    return replica.folder / "queue" / replica.spec.reader


def captured(replica: Replica, position: Lsn) -> None:
    def read() -> bool:
        current = replica.pipeline.run
        replica.database.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        return current is not None and current.captured >= position

    wait_until(read)


def confirmed(replica: Replica) -> Lsn:
    return Lsn.parse(str(replica.database.execute(SLOT, [replica.spec.reader])[0][0]))


def flip_a_byte(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


def flip_in_the_middle(path: Path) -> None:
    flip_a_byte(path, path.stat().st_size // 2)


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def only_in_the_queue(replica: Replica, job_stage: JobStage) -> Lsn:
    """Change rows while the job stage is held, and return the position after them once it is confirmed to the source."""
    replica.database.execute(NEEDED)
    behind = replica.now()
    captured(replica, behind)
    wait_until(lambda: confirmed(replica) >= behind)
    assert job_stage.waiting.wait(30)
    assert replica.applied() < behind
    return behind


class Confirms:
    """The positions that log readers are commanded to confirm from now on, by the name of the reader's thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sent: list[tuple[str, Lsn]] = []
        real = ReaderProcess.send

        def send(reader: ReaderProcess, command: ReaderCommand) -> None:
            if isinstance(command, Confirm):
                self._sent.append((reader._thread.name, command.position))
            real(reader, command)

        monkeypatch.setattr(ReaderProcess, "send", send)

    def of(self, replica: Replica, after: int = 0) -> list[Lsn]:
        """Those of this subscription, without the first `after`: a run of another test may still be ending."""
        return [position for name, position in self._sent if name == f"reader-{replica.spec.reader}"][after:]


def largest(replica: Replica) -> Path:
    """The segment that holds what was changed last."""
    return max(queue_of(replica).glob("*.arrow"), key=lambda path: path.stat().st_size)


def reload_all(replica: Replica) -> None:
    replica.pipeline.reload("all", None)
    replica.reports.wait(
        lambda reports: any(isinstance(r, ReloadReport) and r.state == "succeeded" for r in reports), "all reloaded"
    )


@pytest.mark.parametrize("damage", [flip_in_the_middle, cut_off, Path.unlink])
def test_what_the_source_still_has_is_read_from_it_again(
    shop: Database, replicate: Replicate, job_stage: JobStage, damage: Callable[[Path], None]
) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    with job_stage.held():
        shop.execute(NEEDED)
        behind = replica.now()
        captured(replica, behind)
        assert job_stage.waiting.wait(30)
        assert replica.applied() < behind
        damage(largest(replica))
        shop.execute(LATER)
    replica.reports.wait(lambda _: replica.events_of("queue_reread"), "the log is read again")
    replica.wait_state("running")
    replica.assert_equal()
    assert len(replica.events_of("queue_corrupt")) == 1
    assert "read from the source again" in (replica.events_of("queue_corrupt")[0].remedy or "")
    assert not replica.events_of("log_gap")
    assert replica.query("select count(*) from lines where sku like 'later %'") == [(300,)]


def test_what_only_the_queue_had_fails_the_subscription_and_a_reload_repairs_it(
    shop: Database, replicate: Replicate, job_stage: JobStage
) -> None:
    replica = replicate(shop, [table("orders"), table("lines")], queue_mode=QueueMode.PERSIST)
    with job_stage.held():
        only_in_the_queue(replica, job_stage)
        flip_in_the_middle(largest(replica))
    failed = replica.wait_state("failed")
    assert failed.code == "log_gap"
    assert "damaged" in (failed.reason or "")
    assert "reloads" in (failed.remedy or "")
    assert len(replica.events_of("queue_corrupt")) == 1
    assert replica.query("select count(*) from orders where note like 'note %'") == [(300,)]
    shop.execute(LATER)
    reload_all(replica)
    replica.wait_state("running")
    replica.wait_live()
    replica.assert_equal()


def test_a_persisted_queue_keeps_what_lies_before_the_damage(
    shop: Database, replicate: Replicate, job_stage: JobStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source has removed what is whole in the queue, and still has what is damaged."""
    replica = replicate(shop, [table("orders"), table("lines")], queue_mode=QueueMode.PERSIST)
    with job_stage.held():
        shop.execute("UPDATE lines SET sku = 'only in the queue'")
        whole = replica.now()
        captured(replica, whole)
        wait_until(lambda: confirmed(replica) >= whole)
        assert job_stage.waiting.wait(30)
        rests = threading.Event()

        def check(_monitor: SourceMonitor) -> Iterator[Any]:
            rests.set()
            return iter(())

        monkeypatch.setattr(SourceMonitor, "check", check)
        assert rests.wait(30)  # nothing more is confirmed to the source, by a check that had begun either
        ends = largest(replica).stat().st_size
        shop.execute(NEEDED)
        behind = replica.now()
        captured(replica, behind)
        assert whole <= confirmed(replica) < behind
        flip_a_byte(largest(replica), ends + 1000)
    replica.reports.wait(lambda _: replica.events_of("queue_reread"), "the log is read again")
    monkeypatch.undo()
    replica.wait_state("running")
    replica.assert_equal()
    assert not replica.events_of("log_gap")
    assert replica.query("select distinct sku from lines") == [("only in the queue",)]


def test_persist_is_left_only_when_the_target_has_what_was_confirmed(
    shop: Database, replicate: Replicate, job_stage: JobStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed to `memory` while only the queue has some of the log: that is still taken from it, and nothing earlier is confirmed."""
    told = Confirms(monkeypatch)
    replica = replicate(shop, [table("orders"), table("lines")], queue_mode=QueueMode.PERSIST)
    with job_stage.held():
        behind = only_in_the_queue(replica, job_stage)
        replica.desire(DesiredState.PAUSED)
        wait_until(lambda: replica.pipeline.run is None or replica.pipeline.run._stop.is_set())
    replica.wait_state("paused")
    assert replica.applied() < behind
    released = confirmed(replica)
    before = len(told.of(replica))
    with job_stage.held():
        replica.spec = replace(replica.spec, queue_mode=QueueMode.MEMORY)
        replica.pipeline.update(replica.spec)
        assert job_stage.waiting.wait(30)
        shop.execute(LATER)
        captured(replica, replica.now())
        assert confirmed(replica) == released
    replica.assert_equal()
    wait_until(lambda: bool(told.of(replica, before)))
    assert min(told.of(replica, before)) >= released
    replica.restart()
    replica.wait_live()
    replica.assert_equal()
    assert not replica.events_of("log_gap")


def test_nothing_earlier_is_confirmed_when_persist_is_left_during_a_run(
    shop: Database, replicate: Replicate, job_stage: JobStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the target has what was confirmed, also a log reader that replaces a killed one, which remembers no confirmed position."""
    told = Confirms(monkeypatch)
    replica = replicate(shop, [table("orders"), table("lines")], queue_mode=QueueMode.PERSIST)
    current = replica.pipeline.run
    assert current is not None
    with job_stage.held():
        only_in_the_queue(replica, job_stage)
        replica.spec = replace(replica.spec, queue_mode=QueueMode.MEMORY)
        replica.pipeline.update(replica.spec)
        wait_until(lambda: current._switch.state is QueueState.LEAVING)
        reader = current.reader_pid()
        assert reader is not None
        os.kill(reader, signal.SIGKILL)
        wait_until(lambda: current.reader_pid() not in {None, reader})
        shop.execute(LATER)
        captured(replica, replica.now())
        assert current._switch.state is QueueState.LEAVING
    wait_until(lambda: current._switch.state is QueueState.MEMORY)
    assert replica.pipeline.run is current
    assert told.of(replica) == sorted(told.of(replica))
    assert told.of(replica)
    replica.assert_equal()


def test_what_nobody_has_made_durable_does_not_count_as_that_when_the_mode_changes(
    shop: Database, replicate: Replicate, job_stage: JobStage
) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    with job_stage.held():
        shop.execute(NEEDED)
        captured(replica, replica.now())
        replica.desire(DesiredState.PAUSED)
        wait_until(lambda: replica.pipeline.run is None or replica.pipeline.run._stop.is_set())
    replica.wait_state("paused")
    assert not is_durable(queue_of(replica))
    replica.spec = replace(replica.spec, queue_mode=QueueMode.PERSIST)
    replica.pipeline.update(replica.spec)
    replica.wait_state("running")
    replica.assert_equal()
    wait_until(lambda: is_durable(queue_of(replica)))
    assert not replica.events_of("queue_reread")


def test_a_start_where_the_slot_was_confirmed_meanwhile_is_a_gap(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier reader's last confirmation may reach the source after the queue was opened."""
    replica = replicate(shop, [table("orders"), table("lines")])
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    real = run.open_queue

    def then_confirmed(*given: Any) -> QueueStart:
        opened = real(*given)
        shop.execute("UPDATE orders SET note = 'skipped'")
        shop.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [replica.spec.reader])
        return opened

    monkeypatch.setattr(run, "open_queue", then_confirmed)
    replica.desire(DesiredState.RUNNING)
    assert replica.wait_state("failed").code == "log_gap"
    monkeypatch.setattr(run, "open_queue", real)
    reload_all(replica)
    replica.wait_live()
    replica.assert_equal()
