"""The guard's ladder on a real source with a small budget: each rung, down to the dropped slot and the way back from it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.link.messages import EventReport
from engine.model import sizes
from engine.model.subscription import BatchPolicy, GuardPolicy, QueueMode
from engine.model.subscription_state import DesiredState
from engine.queue.durability_switch import QueueState
from engine.safety.reader_tombstone import ReaderTombstone
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.local_runner import GatedRunner
from tests.fixtures.postgres import Database
from tests.fixtures.replication import duckdb_target, subscription_spec, table
from tests.pg.bad_days.conftest import SHOP, BadDay, Circumstances

pytestmark = pytest.mark.pg

BUDGET = 4 * 1024 * 1024
RUNGS = ["slot_retains_log", "slot_persists_queue", "slot_stops_copies", "slot_held_by_transaction", "slot_dropped"]
_RETAINED = (
    "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn) FROM pg_replication_slots WHERE slot_name = %s"
)
UNHURRIED = BatchPolicy(max_age_ms=600_000)
NO_DROP = GuardPolicy(drop_slot=False)
"""While a transaction becomes old enough to be named: what else is written into the log, by autovacuum for one, may fill the small budget
before."""


class Guarded(BadDay):
    """A replica whose slot may hold back little, and whose guard looks often."""

    def events(self, *codes: str) -> list[EventReport]:
        return [e for e in self.reports.all() if isinstance(e, EventReport) and e.code in codes]

    @property
    def has_slot(self) -> bool:
        return bool(
            self.database.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [self.spec.reader])
        )

    def fill(self, share: float, budget: int = BUDGET) -> None:
        """Write log of a table that is not followed, until the slot retains this share of its budget or is gone."""
        with self.database.connect() as connection:
            while (left := share * budget - self._retained(connection)) > 0:
                rows = 20 + int(left * 0.1 / 2000)
                connection.execute(
                    "INSERT INTO junk SELECT repeat(md5(i::text), 60) FROM generate_series(1, %s::int) i", [rows]
                )

    def _retained(self, connection: psycopg.Connection[Any]) -> float:
        found = connection.execute(_RETAINED, [self.spec.reader]).fetchone()
        return float("inf") if found is None or found[0] is None else float(found[0])

    def let_go(self, share: float) -> None:
        """Until the slot holds back no more than this share: the source notes where its transactions are when asked to."""
        deadline = time.monotonic() + 30
        with self.database.connect() as connection:
            while self._retained(connection) > share * BUDGET:
                assert time.monotonic() < deadline, "the source does not let go"
                connection.execute("SELECT pg_log_standby_snapshot(), pg_sleep(0.1)")


Guard = Callable[..., Guarded]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guard]:
    """Starts subscriptions: `guarded(shop, queue_mode=QueueMode.AUTO, policy=GuardPolicy(...), patience_s=1.0)`."""
    started: list[Guarded] = []

    def start(
        database: Database,
        *,
        policy: GuardPolicy | None = None,
        budget: int = BUDGET,
        patience_s: float = 1.0,
        **given: Any,
    ) -> Guarded:
        folder = tmp_path / f"home{len(started)}"
        folder.mkdir()
        engine = {"guard_interval_s": 0.2, "guard_patience_s": patience_s}
        spec = subscription_spec(
            database,
            duckdb_target(folder),
            (table("orders"), table("lines")),
            guard=policy or GuardPolicy(),
            retained_log_budget_bytes=budget,
            **given,
        )
        replica = Guarded(database, folder, (), Circumstances(engine=engine, spec=spec))
        started.append(replica)
        replica.wait_live()
        return replica

    yield start
    for replica in started:
        replica.release()


@pytest.fixture
def shop(database: Database) -> Database:
    return with_junk(database)


def with_junk(database: Database) -> Database:
    database.execute(SHOP)
    database.execute("CREATE TABLE junk (t text); ALTER TABLE junk ALTER t SET STORAGE EXTERNAL")
    return database


def reload(replica: Guarded) -> None:
    """The remedy: a new slot and new copies, the old rows readable meanwhile."""
    readable = replica.pipeline.target is not None
    replica.pipeline.reload("all", None)
    if replica.pipeline.spec.desired != DesiredState.RUNNING:
        replica.desire(DesiredState.RUNNING)

    def reloaded(_: object) -> bool:
        assert not readable or replica.query("select count(*) from orders")[0][0] >= 200
        return done(replica)

    replica.reports.wait(reloaded, "reloaded", 30)
    replica.wait_live()
    replica.assert_nothing_lost("behind the reload")
    assert replica.has_slot


def done(replica: Guarded) -> bool:
    return any(
        getattr(r, "request_id", "") == "all" and getattr(r, "state", "") == "succeeded" for r in replica.reports.all()
    )


def test_the_whole_ladder_while_a_subscription_runs(shop: Database, guarded: Guard, gate: type[GatedRunner]) -> None:
    replica = guarded(shop, queue_mode=QueueMode.AUTO, policy=NO_DROP)
    gate.reached.clear()
    gate.gate.clear()
    replica.pipeline.reload("r1", [replica.table_id("lines")])
    assert gate.reached.wait(20)
    with shop.connect() as holder:
        holder.execute("BEGIN; INSERT INTO junk VALUES ('held open')")
        pid = holder.info.backend_pid
        replica.fill(0.55)
        warned = replica.wait_event("slot_retains_log")
        replica.fill(0.85)
        replica.wait_event("slot_stops_copies")
        gate.gate.set()
        named = replica.wait_event("slot_held_by_transaction")
        assert replica.has_slot
        assert [e.code for e in replica.events(*RUNGS)] == RUNGS[:-1]
        replica.catch_up()
        replica.respec(replace(replica.spec, guard=GuardPolicy()))
        replica.fill(1.1)
        failed = replica.wait_code("failed", "slot_dropped")
        replica.wait_event("slot_dropped")
        holder.execute("ROLLBACK")
    assert [e.code for e in replica.events(*RUNGS)] == RUNGS
    assert "is full in" in warned.detail
    assert f"pid {pid}" in named.detail
    assert f"of the {sizes.size(BUDGET)} it may" in (failed.reason or "")
    assert "reloads" in (failed.remedy or "")
    until_gone(replica)
    replica.database.execute("UPDATE orders SET note = 'while there was no slot'")
    reload(replica)


def until_gone(replica: Guarded) -> None:
    """The slot is dropped when the run that read it has ended."""
    deadline = time.monotonic() + 20
    with replica.database.connect() as connection:
        while replica.has_slot:
            assert time.monotonic() < deadline
            connection.execute("SELECT pg_sleep(0.05)")


@pytest.mark.parametrize("how", [DesiredState.PAUSED, pytest.param(DesiredState.STOPPED, marks=pytest.mark.chaos)])
def test_the_slot_of_a_subscription_that_rests_is_dropped_before_it_fills_the_source(
    shop: Database, guarded: Guard, how: DesiredState
) -> None:
    replica = guarded(shop, queue_mode=QueueMode.AUTO, policy=NO_DROP)
    replica.desire(how)
    replica.wait_state(how.value)
    replica.touch("while it rests")
    replica.fill(0.6)
    replica.wait_event("slot_retains_log")
    with shop.connect() as holder:
        holder.execute("BEGIN; INSERT INTO junk VALUES ('held open')")
        replica.fill(0.85)
        replica.wait_event("slot_held_by_transaction")
        holder.execute("ROLLBACK")
    assert replica.has_slot
    replica.respec(replace(replica.spec, guard=GuardPolicy(), desired=how))
    replica.fill(1.0)
    replica.wait_code("failed", "slot_dropped")
    assert not replica.has_slot
    assert [e.code for e in replica.events(*RUNGS)] == [RUNGS[0], RUNGS[3], RUNGS[4]]
    if how is DesiredState.PAUSED:
        assert replica.query("select count(*) from orders") == [(200,)]
    replica.desire(DesiredState.RUNNING)
    replica.wait_code("failed", "slot_dropped")
    reload(replica)


@pytest.mark.chaos
def test_a_dropped_slot_is_remembered_over_restarts_until_it_is_reloaded(shop: Database, guarded: Guard) -> None:
    replica = guarded(shop)
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    replica.fill(1.0)
    replica.wait_code("failed", "slot_dropped")
    replica.again()
    replica.wait_code("failed", "slot_dropped")
    replica.pipeline.reload("all", None)
    replica.desire(DesiredState.RUNNING)
    replica.reports.wait(lambda _: done(replica), "reloaded")
    replica.wait_live()
    replica.again()
    replica.wait_live()
    replica.assert_nothing_lost()


def test_a_drop_that_a_crash_cut_short_is_ended_at_the_next_start(shop: Database, guarded: Guard) -> None:
    """The record is written first: with the slot still there, the start drops it and says who did it."""
    replica = guarded(shop)
    replica.close()
    ReaderTombstone(replica.home / "queue", replica.spec.reader).write("the slot held back too much")
    assert replica.has_slot
    replica.again()
    assert "held back too much" in (replica.wait_code("failed", "slot_dropped").reason or "")
    until_gone(replica)
    reload(replica)


def test_what_the_source_leaves_counts_where_it_is_less_than_the_budget(
    private_cluster: Callable[..., EmbeddedPostgres],
    database_on: Callable[[EmbeddedPostgres], Database],
    guarded: Guard,
) -> None:
    """The guard is before the source, which would give the slot up at its own limit."""
    cluster = private_cluster(18, max_slot_wal_keep_size="'64MB'", checkpoint_timeout="'30min'", max_wal_size="'2GB'")
    shop = with_junk(database_on(cluster))
    replica = guarded(shop, budget=16 * 1024**3, patience_s=0.2)
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    replica.fill(1.2, budget=64 * 1024**2)
    replica.wait_code("failed", "slot_dropped")
    assert not replica.has_slot
    reload(replica)


def test_with_the_last_rung_off_the_slot_stays(shop: Database, guarded: Guard) -> None:
    replica = guarded(shop, policy=NO_DROP, patience_s=0.0)
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    replica.touch("while it rests")
    replica.fill(2.0)
    replica.wait_event("slot_retains_log")
    threading.Event().wait(1.5)
    assert replica.has_slot
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    replica.assert_nothing_lost()


@pytest.mark.chaos
def test_a_subscription_that_waits_for_its_target_is_guarded_too(shop: Database, guarded: Guard) -> None:
    """It is neither running nor paused: it tries again and again."""
    replica = guarded(shop)
    path = Path(str(replica.spec.target.settings["path"]))
    replica.close()
    away = path.with_suffix(".away")
    path.rename(away)
    path.mkdir()
    replica.again()
    replica.wait_code("starting", "target_unavailable")
    replica.fill(1.0)
    replica.wait_code("failed", "slot_dropped")
    path.rmdir()
    away.rename(path)
    replica.pipeline.reload("all", None)
    replica.reports.wait(lambda _: done(replica), "reloaded")
    replica.wait_live()
    replica.assert_nothing_lost()


@pytest.mark.chaos
def test_copies_that_were_stopped_begin_again_when_there_is_room(
    shop: Database, guarded: Guard, gate: type[GatedRunner]
) -> None:
    replica = guarded(shop, patience_s=600.0)
    gate.reached.clear()
    gate.gate.clear()
    replica.pipeline.reload("r1", [replica.table_id("lines")])
    assert gate.reached.wait(20)
    with shop.connect() as holder:
        holder.execute("BEGIN; INSERT INTO junk VALUES ('held open')")
        replica.fill(0.75)
        replica.wait_event("slot_stops_copies")
        gate.gate.set()
        replica.touch("while nothing may be copied")
        replica.catch_up()
        temporary = "SELECT 1 FROM pg_replication_slots WHERE temporary AND slot_name LIKE 'penstock_tmp_%'"
        deadline = time.monotonic() + 20
        while shop.execute(temporary):
            assert time.monotonic() < deadline, "the copy still holds its slot"
        assert replica.states()["lines"] == "reloading"
        holder.execute("ROLLBACK")
    replica.let_go(0.3)
    replica.wait_event("slot_lets_copies_go_on")
    replica.wait_table("lines", "live")
    replica.assert_nothing_lost()


@pytest.mark.chaos
def test_copies_alone_are_stopped_for_the_log_that_they_alone_hold(
    shop: Database, guarded: Guard, gate: type[GatedRunner]
) -> None:
    replica = guarded(shop, queue_mode=QueueMode.PERSIST, patience_s=600.0)
    gate.reached.clear()
    gate.gate.clear()
    replica.pipeline.reload("r1", [replica.table_id("lines")])
    assert gate.reached.wait(20)
    for _ in range(6):
        replica.fill(0.4)
        replica.let_go(0.2)
    stopped = replica.wait_event("slot_stops_copies")
    assert "copies hold back" in stopped.detail
    assert not replica.events("slot_retains_log")
    gate.gate.set()
    replica.wait_event("slot_lets_copies_go_on")
    replica.wait_table("lines", "live")
    replica.assert_nothing_lost()


def test_auto_makes_the_queue_durable_under_pressure_and_gives_that_up_when_the_target_has_passed(
    shop: Database, guarded: Guard
) -> None:
    replica = guarded(shop, queue_mode=QueueMode.AUTO, batch=UNHURRIED, patience_s=600.0)
    replica.touch("only in the queue")
    behind = replica.now()
    replica.fill(0.65)
    replica.wait_event("slot_persists_queue")
    first = replica.wait_event("queue_mode_changed")
    assert first.detail.startswith("persist")
    replica.wait_captured(behind)
    replica.wait_confirmed(behind)
    assert replica.applied() < behind
    replica.let_go(0.3)
    run = replica.pipeline.run
    assert run is not None
    replica.catch_up()
    replica.reports.wait(lambda _: len(replica.events("queue_mode_changed")) == 2, "back in memory")
    assert replica.events("queue_mode_changed")[1].detail.startswith("memory")
    assert run._switch.state is QueueState.MEMORY
    assert not (replica.queue / "durable.mark").exists()
    replica.assert_nothing_lost()


@pytest.mark.parametrize(
    "mode",
    [QueueMode.AUTO, *(pytest.param(mode, marks=pytest.mark.chaos) for mode in (QueueMode.MEMORY, QueueMode.PERSIST))],
)
def test_a_queue_that_is_needed_is_taken_in_whatever_is_set(shop: Database, guarded: Guard, mode: QueueMode) -> None:
    """The setting changed while the engine was away: what only the queue has still arrives."""
    replica = guarded(shop, queue_mode=QueueMode.AUTO, batch=UNHURRIED, patience_s=600.0)
    replica.touch("only in the queue")
    behind = replica.now()
    replica.fill(0.65)
    replica.wait_event("queue_mode_changed")
    replica.wait_captured(behind)
    replica.wait_confirmed(behind)
    run = replica.pipeline.run
    assert run is not None
    os.kill(run.reader_pid() or 0, signal.SIGSTOP)  # it cannot tidy up: as if all had been killed
    replica.close()
    replica.again(replace(replica.spec, queue_mode=mode, batch=BatchPolicy()))
    replica.wait_live()
    replica.assert_nothing_lost()
    assert "log_gap" not in replica.codes()
