"""The queue's folder is full, gone, cut off or damaged: noticed, read again where the source has it, a gap where it has not."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.subscription import BatchPolicy, QueueMode
from engine.model.subscription_state import DesiredState
from engine.pipeline.intake import Intake
from tests.fixtures.postgres import Database
from tests.pg.bad_days.conftest import BadDay, BadDays
from tests.pg.bad_days.small_disk import SmallDisk

pytestmark = pytest.mark.pg

ALL_MODES = pytest.mark.parametrize(
    "mode",
    [QueueMode.PERSIST, *(pytest.param(mode, marks=pytest.mark.chaos) for mode in (QueueMode.AUTO, QueueMode.MEMORY))],
)
UNHURRIED = BatchPolicy(max_age_ms=600_000)
"""Records stay in the queue until a test waits for them."""
BIG = "UPDATE orders SET note = md5(random()::text) || repeat(md5(id::text), 300)"


def reader_pid(replica: BadDay) -> int:
    assert replica.pipeline.run is not None
    pid = replica.pipeline.run.reader_pid()
    assert pid is not None
    return pid


def captured(replica: BadDay) -> None:
    """Until everything committed on the source so far lies in the queue."""
    replica.wait_captured(replica.now())


def newest(replica: BadDay, pattern: str = "*.arrow") -> Path:
    """The segment that holds the records that came last."""
    return max(replica.queue.glob(pattern), key=lambda path: (path.stat().st_size, path.name))


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_bits(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xFF]))


DAMAGES = pytest.mark.parametrize("damage", [cut_off, flip_bits, pytest.param(Path.unlink, marks=pytest.mark.chaos)])


@ALL_MODES
def test_queue_disk_full(
    shop: Database, bad_day: BadDays, small_disk: Callable[[int], SmallDisk], tmp_path: Path, mode: QueueMode
) -> None:
    disk = small_disk(16)
    replica = bad_day(shop, home=disk.path, target=tmp_path / "mart.duckdb", queue_mode=mode)
    disk.fill(leave_bytes=64 * 1024)
    shop.execute(BIG)
    assert "PENSTOCK_HOME" in (replica.wait_code("starting", "queue_disk_full").remedy or "")
    disk.free()
    replica.wait_state("running")
    replica.assert_nothing_lost()


@ALL_MODES
def test_queue_write_fails_at_a_file_size_limit(shop: Database, bad_day: BadDays, mode: QueueMode) -> None:
    """The same without a disk of its own, by the operating system's limit on the log reader."""
    replica = bad_day(shop, queue_mode=mode)
    resource.prlimit(reader_pid(replica), resource.RLIMIT_FSIZE, (64 * 1024, resource.RLIM_INFINITY))
    shop.execute(BIG)
    replica.wait_code("starting", "queue_disk_full")
    replica.assert_nothing_lost()


@ALL_MODES
def test_queue_folder_deleted_while_running(shop: Database, bad_day: BadDays, mode: QueueMode) -> None:
    replica = bad_day(shop, queue_mode=mode)
    replica.touch("before")
    replica.catch_up()
    shutil.rmtree(replica.queue)
    replica.touch("into nothing")
    replica.wait_code("starting", "queue_corrupt")
    if replica.settled_or_failed() == "failed":
        # Only where the source had removed more of the log than the target has recorded.
        assert mode is QueueMode.PERSIST
        replica.wait_code("failed", "log_gap")
        replica.reload_all()
        replica.wait_live()
    replica.assert_nothing_lost()


@ALL_MODES
def test_queue_folder_deleted_while_stopped(shop: Database, bad_day: BadDays, mode: QueueMode) -> None:
    replica = bad_day(shop, queue_mode=mode)
    replica.touch("before")
    replica.catch_up()
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    shutil.rmtree(replica.queue)
    replica.touch("behind")
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    replica.assert_nothing_lost()
    assert "log_gap" not in replica.codes()


@DAMAGES
@ALL_MODES
def test_segment_damaged_while_the_source_still_has_it(
    shop: Database, bad_day: BadDays, mode: QueueMode, damage: Callable[[Path], None]
) -> None:
    """Here, nothing is confirmed to the source after its first check."""
    replica = bad_day(shop, queue_mode=mode, batch=UNHURRIED, engine={"guard_interval_s": 600.0})
    shop.execute(BIG)
    captured(replica)
    os.kill(reader_pid(replica), signal.SIGSTOP)
    damage(newest(replica))
    os.kill(reader_pid(replica), signal.SIGCONT)
    replica.pipeline.demand(replica.now())
    assert "read from the source again" in (replica.wait_code("starting", "queue_corrupt").remedy or "")
    replica.assert_nothing_lost()
    assert "log_gap" not in replica.codes()


@DAMAGES
def test_segment_damaged_that_only_the_queue_has(
    shop: Database, bad_day: BadDays, damage: Callable[[Path], None]
) -> None:
    replica = bad_day(shop, queue_mode=QueueMode.PERSIST, batch=UNHURRIED)
    shop.execute(BIG)
    behind = replica.now()
    captured(replica)
    replica.wait_confirmed(behind)
    damage(newest(replica))
    replica.pipeline.demand(behind)
    replica.wait_code("starting", "queue_corrupt")
    replica.wait_code("failed", "log_gap")
    replica.reload_all()
    replica.wait_live()
    replica.assert_nothing_lost()


@DAMAGES
@pytest.mark.parametrize("pattern", ["*.arrow", pytest.param("*.index", marks=pytest.mark.chaos)])
def test_queue_damaged_while_stopped(
    shop: Database, bad_day: BadDays, damage: Callable[[Path], None], pattern: str
) -> None:
    """What the target has not got and the source no longer has is a gap, never skipped in silence."""
    replica = bad_day(shop, queue_mode=QueueMode.PERSIST, batch=UNHURRIED)
    shop.execute(BIG)
    behind = replica.now()
    captured(replica)
    replica.wait_confirmed(behind)
    replica.close()
    damage(newest(replica, pattern))
    replica.again()
    replica.wait_code("failed", "log_gap")
    assert replica.query("select count(*) from orders where note like 'note %'") == [(200,)]
    replica.reload_all()
    replica.wait_live()
    replica.assert_nothing_lost()


def test_persisted_queue_is_taken_in_again(shop: Database, bad_day: BadDays) -> None:
    """What only the queue has arrives after the engine was gone."""
    replica = bad_day(shop, queue_mode=QueueMode.PERSIST, batch=UNHURRIED)
    replica.touch("only in the queue")
    behind = replica.now()
    captured(replica)
    replica.wait_confirmed(behind)
    os.kill(reader_pid(replica), signal.SIGSTOP)  # it cannot tidy up: as if all had been killed
    replica.close()
    replica.again()
    replica.wait_live()
    replica.assert_nothing_lost()
    assert "log_gap" not in replica.codes()


def test_persisted_queue_that_begins_within_a_transaction(shop: Database, bad_day: BadDays) -> None:
    """One transaction spans two segments, of which the first is deleted when the target has it."""
    replica = bad_day(shop, queue_mode=QueueMode.PERSIST)
    (first,) = replica.queue.glob("*.arrow")
    shop.execute("INSERT INTO orders SELECT 1000 + i, 1, repeat('x', 1000000) FROM generate_series(1, 80) i")
    replica.catch_up()
    for _ in range(20):
        replica.touch("behind it")
        replica.catch_up()
        if not first.exists():
            break
    assert not first.exists()
    os.kill(reader_pid(replica), signal.SIGSTOP)
    replica.close()
    replica.again()
    replica.wait_live()
    replica.assert_nothing_lost()
    assert replica.codes() == []


def test_queue_is_given_up_whatever_a_start_stumbles_over(
    shop: Database, bad_day: BadDays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that fails after it has taken the queue's lock does not block the next start."""
    replica = bad_day(shop)
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    with monkeypatch.context() as patched:
        stumbling = EngineFault(FaultKind.INTERNAL, "a stone", "in the way")
        patched.setattr(Intake, "restore", lambda *_: (_ for _ in ()).throw(stumbling))
        replica.desire(DesiredState.RUNNING)
        replica.wait_code("starting", "internal")
    replica.wait_state("running")
    replica.assert_nothing_lost()
    assert "slot_in_use" not in replica.codes()


def test_persisted_position_without_changes_of_ours(shop: Database, bad_day: BadDays) -> None:
    """Others' traffic moves the confirmed position too; killed then, the engine finds no gap where there is none."""
    replica = bad_day(shop, queue_mode=QueueMode.PERSIST, engine={"position_write_s": 600.0})
    replica.touch("ours")
    replica.catch_up()
    shop.execute("CREATE TABLE other AS SELECT i FROM generate_series(1, 5000) i")
    behind = replica.now()
    captured(replica)
    replica.wait_confirmed(behind)
    os.kill(reader_pid(replica), signal.SIGSTOP)
    replica.close()
    replica.again()
    replica.wait_live()
    replica.assert_nothing_lost()
    assert "log_gap" not in replica.codes()
