"""Causes of lag, provoked alone and in pairs: the explanation names them first, and its shares add up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.control.lag import measured_lag
from engine.model.fault import EngineFault
from engine.model.lag import LagCause
from engine.model.subscription import BatchPolicy, ConnectionSpec
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
