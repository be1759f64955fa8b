"""Causes of lag, provoked alone and in pairs: the explanation names them first, and its shares add up."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from engine.control.lag import measured_lag
from engine.model.batch import TaskDescriptor, TaskResult
from engine.model.fault import EngineFault
from engine.model.lag import LagCause
from engine.model.subscription import ApplyMode, ApplyPolicy, BatchPolicy, ConnectionSpec
from engine.pipeline import compute, stage_times
from engine.pipeline.commit import CommitStage
from engine.pipeline.compute import Computed
from server.lag.explain import explained
from server.lag.schemas import LagExplanation
from tests.fixtures import replication
from tests.fixtures.local_runner import GatedRunner
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]
SHOP = """
CREATE TABLE orders (id bigint PRIMARY KEY, note text); CREATE TABLE lines (id bigint PRIMARY KEY, note text);
INSERT INTO orders VALUES (1, 'one');
"""
LONG_OPEN, LOCK, BUDGET, COPY, HUGE = (
    LagCause.LONG_OPEN_TRANSACTION,
    LagCause.TARGET_LOCK,
    LagCause.QUEUE_AT_BUDGET,
    LagCause.COPY_RUNNING,
    LagCause.HUGE_TRANSACTION,
)


def explain(replica: Replica) -> LagExplanation:
    return explained(measured_lag(replica.pipeline))


def wait_for(replica: Replica, first: LagCause, *others: LagCause) -> LagExplanation:
    """The first explanation that names this cause first, and the others too."""
    found: list[LagExplanation] = []

    def named() -> bool:
        # A commit that waits for a lock for too long ends the run; until the next one begins nothing is measured.
        with suppress(EngineFault):
            found.append(explain(replica))
        causes = [one.cause for one in found[-1].causes]
        return causes[:1] == [first] and {*others} <= {*causes}

    wait_until(named, 40, f"{first} first")
    assert sum(one.share_ms for one in found[-1].causes) == pytest.approx(found[-1].lag_ms, rel=0.2)
    return found[-1]


def wait_for_both(replica: Replica, one: LagCause, other: LagCause) -> LagExplanation:
    """The first explanation that names these two first. Which of them began first is a matter of milliseconds."""
    found: list[LagExplanation] = []

    def named() -> bool:
        found.append(explain(replica))
        return {one, other} == {each.cause for each in found[-1].causes[:2]}

    wait_until(named, 40, f"{one} and {other} first")
    return found[-1]


class Gate:
    """Commits on the target take until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found, write = Gate(), CommitStage._write

    def slow(self: CommitStage, computed: Computed, *more: Any) -> Any:
        # Not batches that only move the position: they would be named in place of the one that a test is about.
        assert not computed.planned.batch.transactions or found.open.wait(60)
        return write(self, computed, *more)

    monkeypatch.setattr(CommitStage, "_write", slow)
    yield found
    found.open.set()


@pytest.fixture
def mart(database_on: Callable[..., Database], pg16: Any) -> Database:
    return database_on(pg16)


def on_postgres(replicate: Replicate, database: Database, mart: Database, **more: Any) -> Replica:
    database.execute(SHOP)
    target = ConnectionSpec("mart", "postgres", mart.settings)
    replica = replicate(database, [table("orders"), table("lines")], target=target, **more)
    replica.assert_equal()
    return replica


def test_nothing_lags(database: Database, replicate: Replicate) -> None:
    database.execute(SHOP)
    replica = replicate(database, [table("orders"), table("lines")])
    replica.assert_equal()
    wait_until(lambda: explain(replica).lag_ms == 0, 20, "no lag")


def test_a_long_open_transaction(database: Database, replicate: Replicate) -> None:
    database.execute(SHOP)
    replica = replicate(database, [table("orders"), table("lines")])
    replica.assert_equal()
    with database.connect() as session, session.transaction():
        session.execute("UPDATE orders SET note = 'a secret' WHERE id = 1")
        found = wait_for(replica, LONG_OPEN)
        pid = session.info.backend_pid
    evidence = found.causes[0].evidence
    assert str(evidence["transaction"]).startswith(f"pid {pid}, open for")
    assert evidence["statement"] == "UPDATE orders SET note = ? WHERE id = ?"
    assert found.commit_lag_ms < found.lag_ms


def test_a_target_lock(database: Database, replicate: Replicate, mart: Database) -> None:
    replica = on_postgres(replicate, database, mart)
    with mart.connect() as session, session.transaction():
        session.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        database.execute("UPDATE orders SET note = 'two'")
        found = wait_for(replica, LOCK)
        assert found.causes[0].evidence["pid"] == session.info.backend_pid
        assert found.causes[0].evidence["statement"] == "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE"
    replica.assert_equal()


def test_a_target_lock_and_a_long_open_transaction(database: Database, replicate: Replicate, mart: Database) -> None:
    replica = on_postgres(replicate, database, mart)
    with (
        mart.connect() as session,
        session.transaction(),
        database.connect() as writer,
        writer.transaction(),
    ):
        writer.execute("INSERT INTO lines VALUES (1, 'open')")
        session.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        database.execute("UPDATE orders SET note = 'two'")
        wait_for(replica, LONG_OPEN, LOCK)
    replica.assert_equal()


def test_a_huge_transaction(shop: Database, replicate: Replicate, gate: Gate) -> None:
    replica = replicate(shop, [table("orders"), table("log")], batch=BatchPolicy(small_rows=0))
    replica.assert_equal()
    gate.open.clear()
    shop.execute("UPDATE orders SET note = note || ' changed'")
    found = wait_for(replica, HUGE)
    assert found.causes[0].evidence["transaction_records"] >= 20_000
    gate.open.set()
    replica.assert_equal()


def test_a_hot_table(database: Database, replicate: Replicate, gate: Gate) -> None:
    database.execute(SHOP)
    replica = replicate(database, [table("orders"), table("lines")])
    replica.assert_equal()
    gate.open.clear()
    with database.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO orders SELECT i, 'x' FROM generate_series(10, 3009) i")
        connection.execute("INSERT INTO lines SELECT i, 'x' FROM generate_series(10, 59) i")
    found = wait_for(replica, LagCause.HOT_TABLE)
    assert found.causes[0].evidence.items() >= {"table": "public.orders", "rows": 3000, "of_rows": 3050}.items()
    gate.open.set()
    replica.assert_equal()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process does not run during the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_log_reader_that_takes_nothing(database: Database, replicate: Replicate) -> None:
    database.execute(SHOP)
    replica = replicate(database, [table("orders"), table("lines")])
    replica.assert_equal()
    run = replica.pipeline.run
    assert run is not None
    reader = run.reader_pid()
    assert reader is not None
    with stopped(reader):
        # More than the buffers of the connection hold.
        database.execute("INSERT INTO lines SELECT i, repeat('x', 1000) FROM generate_series(1, 15000) i")
        found = wait_for(replica, LagCause.SLOW_READER)
    assert found.causes[0].evidence["pid"] == sender_pid(replica)
    assert found.commit_lag_ms < found.lag_ms
    replica.assert_equal()


def sender_pid(replica: Replica) -> int:
    sql = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
    ((pid,),) = replica.database.execute(sql, [replica.spec.reader])
    assert isinstance(pid, int)
    return pid


def test_a_sender_that_waits_on_the_source_and_a_long_open_transaction(
    database: Database, replicate: Replicate
) -> None:
    """The sender prints a value of an enum, for which it reads a table of the catalog."""
    database.execute(SHOP)
    database.execute("CREATE TYPE mood AS ENUM ('good'); CREATE TABLE moods (id int PRIMARY KEY, mood mood)")
    replica = replicate(database, [table("orders"), table("moods")])
    replica.assert_equal()
    with database.connect() as writer, database.connect() as session:
        with suppress(InterruptedError), writer.transaction():
            writer.execute("INSERT INTO moods VALUES (1, 'good')")
            raise InterruptedError
        # What the sender has not read before the lock would make it slow for longer than the transaction is open.
        wait_until(lambda: explain(replica).lag_ms == 0, 20, "no lag")
        with session.transaction():
            session.execute("LOCK TABLE pg_catalog.pg_enum IN ACCESS EXCLUSIVE MODE")
            writer.execute("INSERT INTO moods VALUES (1, 'good')")
            found = wait_for(replica, LagCause.SLOW_SENDER)
            both = wait_for_both(replica, LONG_OPEN, LagCause.SLOW_SENDER)
            open_ms, slow_ms = (both.causes[n].share_ms for n in (0, 1))
            assert open_ms == pytest.approx(slow_ms, rel=0.2)
    assert found.causes[0].evidence["pid"] == sender_pid(replica)
    assert found.causes[0].evidence["sender_waits_for"] == "Lock relation"
    replica.assert_equal()


def test_a_keepalive_that_does_not_come(database: Database, replicate: Replicate) -> None:
    database.execute(SHOP)
    replica = replicate(database, [table("orders"), table("lines")])
    replica.assert_equal()
    wait_until(lambda: explain(replica).lag_ms == 0, 20, "no lag")
    with stopped(sender_pid(replica)):
        database.execute("CREATE TABLE others (id int)")
        position = replica.now()
        replica.pipeline.demand(position)
        found = wait_for(replica, LagCause.AWAITING_KEEPALIVE)
        assert found.commit_lag_ms == 0
    replica.wait_applied(position)
    wait_until(lambda: explain(replica).lag_ms == 0, 20, "no lag")


def test_waits_that_make_batches_small(
    database: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    # Whatever else the machine does meanwhile.
    monkeypatch.setattr(stage_times, "SMALL_WITHIN_MS", 600_000.0)
    monkeypatch.setattr(stage_times, "processor_wait_ns", lambda _: None)
    database.execute(SHOP)
    # Only waits have batches sealed.
    replica = replicate(database, [table("orders"), table("lines")], batch=BatchPolicy(max_age_ms=60_000))
    for number in range(stage_times.SMALL_COUNT):
        database.execute(f"INSERT INTO lines VALUES ({number}, 'x')")
        replica.catch_up()
    gate.open.clear()
    database.execute("UPDATE orders SET note = 'two'")
    replica.pipeline.demand(replica.now())
    evidence = wait_for(replica, LagCause.SMALL_BATCHES).causes[0].evidence
    assert stage_times.SMALL_COUNT <= float(evidence["small_batches"]) <= float(evidence["batches"])
    gate.open.set()
    replica.assert_equal()


UPDATES = "DO $$ BEGIN FOR i IN 1..1200 LOOP UPDATE orders SET note = i::text WHERE id = 1; END LOOP; END $$"


def test_a_key_with_most_of_a_batch(database: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch) -> None:
    database.execute(SHOP)
    replica = replicate(database, [table("orders"), table("lines")], batch=BatchPolicy(small_rows=0, tasks=2))
    replica.assert_equal()
    opened, real = threading.Event(), compute.net_task

    def slow(descriptor: TaskDescriptor) -> TaskResult:
        found = real(descriptor)
        assert sum(sum(one.counts.values()) for one in found.tables) < 1000 or opened.wait(60)
        return found

    monkeypatch.setattr(compute, "net_task", slow)
    database.execute(UPDATES)
    found = wait_for(replica, LagCause.KEY_SKEW)
    assert found.causes[0].evidence.items() >= {"tasks": 2, "tasks_left": 1}.items()
    opened.set()
    replica.assert_equal()


def test_a_key_whose_changes_are_written_in_order(
    database: Database, replicate: Replicate, mart: Database, gate: Gate
) -> None:
    apply = ApplyPolicy(mode=ApplyMode.TRANSACTIONAL, lanes=2)
    replica = on_postgres(replicate, database, mart, apply=apply)
    gate.open.clear()
    database.execute(UPDATES)
    found = wait_for(replica, LagCause.KEY_SKEW)
    evidence = found.causes[0].evidence
    assert evidence.items() >= {"table": "public.orders", "rows": 1200, "of_rows": 1200, "tasks": 2}.items()
    gate.open.set()
    replica.assert_equal()


def test_the_queue_at_its_budget(database: Database, replicate: Replicate, gate: Gate) -> None:
    database.execute(SHOP)
    replica = replicate(database, [table("orders"), table("lines")], queue_budget_bytes=1 << 16)
    replica.assert_equal()
    gate.open.clear()
    for number in range(40):
        database.execute(
            f"INSERT INTO lines SELECT {number} * 100 + i, repeat('x', 100) FROM generate_series(1, 100) i"
        )
    found = wait_for(replica, BUDGET)
    assert found.causes[0].evidence == {"budget": "64 KiB"}
    gate.open.set()
    replica.assert_equal()


@pytest.mark.chaos
def test_the_queue_at_its_budget_because_of_a_target_lock(
    database: Database, replicate: Replicate, mart: Database
) -> None:
    replica = on_postgres(replicate, database, mart, queue_budget_bytes=1 << 16)
    with mart.connect() as session, session.transaction():
        session.execute("LOCK TABLE lines IN ACCESS EXCLUSIVE MODE")
        for number in range(40):
            database.execute(
                f"INSERT INTO lines SELECT {number} * 100 + i, repeat('x', 100) FROM generate_series(1, 100) i"
            )
        wait_for(replica, LOCK, BUDGET)
    replica.assert_equal()


@pytest.fixture
def held_copy(
    database: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Replica]:
    """`lines` is being copied, and its copy does not continue."""
    GatedRunner.gate.set()
    monkeypatch.setattr(replication, "LocalRunner", GatedRunner)
    database.execute(SHOP)
    replica = replicate(database, [table("orders")])
    replica.assert_equal()
    GatedRunner.gate.clear()
    GatedRunner.reached.clear()
    replica.replace(*replica.spec.tables, table("lines"))
    yield replica
    GatedRunner.gate.set()
    replica.wait_live("orders", "lines")


def test_a_copy_that_does_not_continue(held_copy: Replica) -> None:
    found = wait_for(held_copy, COPY)
    assert found.causes[0].evidence["table"] == "public.lines"
    assert found.commit_lag_ms <= found.lag_ms


def test_a_copy_and_a_long_open_transaction(held_copy: Replica) -> None:
    wait_for(held_copy, COPY)
    with held_copy.database.connect() as session, session.transaction():
        session.execute("UPDATE orders SET note = 'open'")
        found = wait_for(held_copy, COPY, LONG_OPEN)
    assert len(found.causes) >= 2
