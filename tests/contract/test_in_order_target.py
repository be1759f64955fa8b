"""Source transactions kept on the target: what lanes meet of each other, of users of the target, and of other engines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.schema import KeyMode
from engine.model.subscription import ConnectionSpec, LanePolicy, OriginFilter
from engine.model.target import BatchCommit, InOrderPlan, LogStart, TableCommit
from engine.net.copy_text import decode_copy_text
from engine.targets.postgres.target import PostgresTarget
from server.demo.embedded import EmbeddedPostgres
from tests.contract.in_order_material import (
    DELETE,
    INSERT,
    TRUNCATE,
    UPDATE,
    Change,
    staged,
    time_of,
    write_in_order,
)
from tests.contract.target_material import SLOT, SUBSCRIPTION, SYSTEM, Pipeline, fault_of, structure
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

ORDERS, NOTES = TableId("t0a"), TableId("t0b")
SCHEMAS = {
    ORDERS: structure(TableName("public", "orders"), {"id": "int4", "state": "text"}, ["id"]),
    NOTES: structure(TableName("public", "notes"), {"note": "text"}, mode=KeyMode.APPEND),
}
LOADED = [(n, "new") for n in range(1, 6)]
OPTIMISTIC, PESSIMISTIC = InOrderPlan(LanePolicy.OPTIMISTIC, lanes=2), InOrderPlan(LanePolicy.PESSIMISTIC, lanes=2)
ONE = InOrderPlan()
T = TypeVar("T")


@pytest.fixture
def mart(pg: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database]) -> Database:
    return database_on(pg)


@pytest.fixture
def opened(mart: Database) -> Iterator[Callable[[], PostgresTarget]]:
    made: list[PostgresTarget] = []

    def open_one() -> PostgresTarget:
        made.append(PostgresTarget(ConnectionSpec("mart", "postgres", mart.settings), decode_copy_text))
        return made[-1]

    yield open_one
    for target in made:
        target.close()


@pytest.fixture
def pipeline(opened: Callable[[], PostgresTarget]) -> Pipeline:
    made = Pipeline(opened()).claim()
    made.load(ORDERS, SCHEMAS[ORDERS], LOADED)
    made.load(NOTES, SCHEMAS[NOTES], [])
    return made


def put(at: int, state: str) -> Change:
    return Change(ORDERS, UPDATE, key=(at,), row=(at, state))


def note(text: str) -> Change:
    return Change(NOTES, INSERT, row=(text,))


def locks(mart: Database) -> list[tuple[Any, ...]]:
    return mart.execute(
        "SELECT * FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database"
        " WHERE datname = current_database())"
    )


def waiting_for_a_row(mart: Database, *, again: bool = False) -> None:
    """Wait until a session of ours waits for another session's row; `again`: after lanes were stopped."""
    wait_session(mart, "wait_event = 'transactionid'")
    if again:
        wait_session(mart, "query LIKE '%unlock_all()'")
        wait_session(mart, "wait_event = 'transactionid'")


def waiting_for_the_turn(mart: Database) -> None:
    """Until a lane has done what it could before its turn."""
    wait_session(mart, "wait_event = 'advisory'")


def wait_session(mart: Database, condition: str) -> None:
    """Until a session satisfies it."""
    deadline = monotonic() + 5.0
    while not mart.execute(f"SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND {condition}"):
        assert monotonic() < deadline, condition
        mart.execute("SELECT pg_sleep(0.01)")


@contextmanager
def held_up(mart: Database, at: int, work: Callable[[], object]) -> Iterator[list[EngineFault]]:
    """Begin the work while a user of the target locks this order until the end of the block; then its exception is in the list."""
    faults: list[EngineFault] = []

    def run() -> None:
        try:
            work()
        except EngineFault as fault:
            faults.append(fault)

    thread = threading.Thread(target=run)
    with mart.connect() as connection, connection.transaction():
        connection.execute("SELECT FROM orders WHERE id = %s FOR UPDATE", [at])
        thread.start()
        yield faults
    thread.join(30)
    assert not thread.is_alive()


CLASH = [
    [put(5, "held"), put(1, "first"), note("long")],
    [put(1, "second"), note("short")],
    [put(2, "other")],
]
"""While another session locks the first row of the first transaction, the second one locks a later row of the first."""


def test_a_deadlock_with_the_order_of_commits_is_found_and_done_over(pipeline: Pipeline, mart: Database) -> None:
    redone: list[int] = []
    with held_up(mart, 5, lambda: redone.append(write_in_order(pipeline, SCHEMAS, CLASH, OPTIMISTIC))) as faults:
        waiting_for_a_row(mart)
        waiting_for_the_turn(mart)
    assert faults == []
    assert redone == [1]
    assert pipeline.rows(SCHEMAS[ORDERS])[:2] == [(1, "second"), (2, "other")]
    assert sorted(pipeline.rows(SCHEMAS[NOTES])) == [("long",), ("short",)]
    assert locks(mart) == []


def test_rows_that_transactions_share_come_last_and_nobody_waits_in_a_circle(
    pipeline: Pipeline, mart: Database
) -> None:
    assert write_in_order(pipeline, SCHEMAS, CLASH, PESSIMISTIC) == 0
    assert pipeline.rows(SCHEMAS[ORDERS])[:2] == [(1, "second"), (2, "other")]
    assert locks(mart) == []


def test_transactions_tied_by_another_unique_key_wait_for_their_turn(pipeline: Pipeline, mart: Database) -> None:
    """The second one takes the value that the first one gives up at its end."""
    mart.execute("UPDATE orders SET state = id::text; CREATE UNIQUE INDEX ON orders (state)")
    swap = [[*(put(5, str(n)) for n in range(1000)), put(1, "free")], [put(2, "1")], [put(3, "2")]]
    assert write_in_order(pipeline, SCHEMAS, swap, PESSIMISTIC) == 0
    assert pipeline.rows(SCHEMAS[ORDERS])[:3] == [(1, "free"), (2, "1"), (3, "2")]


def test_what_fails_out_of_order_is_done_over_in_order(pipeline: Pipeline, mart: Database) -> None:
    """A row that is not there yet, a value that is not free yet: no fault, as long as it was not the transaction's turn."""
    mart.execute("UPDATE orders SET state = id::text; CREATE UNIQUE INDEX ON orders (state)")
    early = [
        [put(5, "held"), Change(ORDERS, INSERT, row=(9, "nine"))],
        [put(9, "found")],
        [put(1, "free")],
        [put(2, "1")],
        [Change(ORDERS, DELETE, key=(3,))],
        [Change(ORDERS, INSERT, row=(3, "again"))],
    ]
    redone: list[int] = []
    with held_up(mart, 5, lambda: redone.append(write_in_order(pipeline, SCHEMAS, early, OPTIMISTIC))) as faults:
        waiting_for_a_row(mart, again=True)
    assert faults == []
    assert redone[0] >= 1
    assert pipeline.rows(SCHEMAS[ORDERS]) == [(1, "free"), (2, "1"), (3, "again"), (4, "4"), (5, "held"), (9, "found")]


def test_each_transaction_stays_one_and_groups_are_as_large_as_said(pipeline: Pipeline, mart: Database) -> None:
    writers = "SELECT count(DISTINCT xmin::text), count(*) FROM notes"
    write_in_order(pipeline, SCHEMAS, [[note(str(n))] for n in range(20)], PESSIMISTIC)
    assert mart.execute(writers) == [(20, 20)]
    write_in_order(pipeline, SCHEMAS, [[note(str(n))] for n in range(20)], InOrderPlan(lanes=2, group=6))
    assert mart.execute(writers) == [(24, 40)]


def test_a_cleared_table_stands_between_what_was_before_and_what_comes(pipeline: Pipeline) -> None:
    around = [
        [put(1, "gone"), note("before")],
        [Change(ORDERS, TRUNCATE), Change(ORDERS, INSERT, row=(7, "first"))],
        [put(7, "second")],
        [Change(ORDERS, INSERT, row=(1, "third"))],
    ]
    write_in_order(pipeline, SCHEMAS, around, PESSIMISTIC)
    assert pipeline.rows(SCHEMAS[ORDERS]) == [(1, "third"), (7, "second")]


@pytest.mark.parametrize("way", [ONE, PESSIMISTIC])
def test_a_row_that_is_missing_is_the_tables_fault_and_what_came_before_stays(
    pipeline: Pipeline, way: InOrderPlan
) -> None:
    history = [[note("one")], [note("two")], [put(99, "nobody"), note("three")], [note("four")]]
    fault = fault_of(lambda: write_in_order(pipeline, SCHEMAS, history, way))
    assert (fault.kind, fault.subject) == (FaultKind.NET_CHANGE_ANOMALY, ORDERS)
    assert pipeline.rows(SCHEMAS[NOTES]) == [("one",), ("two",)]
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    end = pipeline.end + 20
    assert progress.end.value == end
    assert progress.last == LastCommit(Lsn(end - 10), Lsn(end), time_of(end), OriginFilter.NONE)


def test_a_value_that_is_refused_is_the_tables_fault_and_the_others_go_on_without_it(
    pipeline: Pipeline, mart: Database
) -> None:
    mart.execute("ALTER TABLE orders ADD CONSTRAINT short CHECK (length(state) < 8)")
    history = [[put(1, "ok"), note("one")], [put(2, "a secret"), note("two")], [put(3, "never"), note("three")]]
    fault = fault_of(lambda: write_in_order(pipeline, SCHEMAS, history, ONE))
    assert (fault.kind, fault.subject) == (FaultKind.ROW_REFUSED, ORDERS)
    assert "short" in fault.detail
    assert "secret" not in str(fault)
    notes = [(1 + 2 * t, pipeline.end + 10 * (t + 1), changes[1]) for t, changes in enumerate(history)]
    parked = TableCommit(ORDERS, SCHEMAS[ORDERS], SCHEMAS[ORDERS].name, parked=fault.kind.value)
    rest = TableCommit(NOTES, SCHEMAS[NOTES], SCHEMAS[NOTES].name, (staged(NOTES, SCHEMAS[NOTES], notes),))
    end = Lsn(pipeline.end + 40)
    in_order = pipeline.target.in_order()
    assert in_order is not None
    in_order.commit_in_order(
        BatchCommit(SUBSCRIPTION, pipeline.epoch, BatchId(pipeline.batch + 1), end, (parked, rest)), ONE
    )
    assert pipeline.rows(SCHEMAS[NOTES]) == [("one",), ("three",), ("two",)]
    assert pipeline.rows(SCHEMAS[ORDERS])[:3] == [(1, "ok"), (2, "new"), (3, "new")]
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    assert (progress.end, progress.tables[ORDERS].parked) == (end, fault.kind.value)


@pytest.mark.parametrize("way", [ONE, PESSIMISTIC, OPTIMISTIC])
def test_an_engine_that_is_overtaken_in_the_middle_writes_nothing_more(
    pipeline: Pipeline, mart: Database, opened: Callable[[], PostgresTarget], way: InOrderPlan
) -> None:
    history = [[note("one")], [put(3, "late"), note("two")], [note("three")]]
    with held_up(mart, 3, lambda: write_in_order(pipeline, SCHEMAS, history, way)) as faults:
        waiting_for_a_row(mart)
        opened().claim(SUBSCRIPTION, Epoch(2), LogStart(SYSTEM, 1, SLOT, Lsn(1)))
    assert [fault.kind for fault in faults] == [FaultKind.EPOCH_LOST]
    assert pipeline.rows(SCHEMAS[NOTES]) == [("one",)]
    assert pipeline.rows(SCHEMAS[ORDERS]) == LOADED
    assert locks(mart) == []


def retried(work: Callable[[], T], times: int) -> T:
    """What it returns, in spite of so many sessions that were lost."""
    for _ in range(times):
        try:
            return work()
        except EngineFault as fault:
            if fault.kind is not FaultKind.TARGET_UNAVAILABLE:
                raise
    return work()


@pytest.mark.parametrize("way", [ONE, PESSIMISTIC])
def test_lost_sessions_lose_nothing_and_the_batch_is_gone_on_with(
    pipeline: Pipeline, mart: Database, way: InOrderPlan
) -> None:
    history = [[note("one")], [put(3, "late"), note("two")], [note("three")]]
    with held_up(mart, 3, lambda: write_in_order(pipeline, SCHEMAS, history, way)) as faults:
        waiting_for_a_row(mart)
        mart.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'penstock%' AND pid <> pg_backend_pid()"
        )
    assert [fault.kind for fault in faults] == [FaultKind.TARGET_UNAVAILABLE]
    # A session that the server ended while idle is detected by its next use, which the engine retries.
    assert retried(lambda: pipeline.rows(SCHEMAS[NOTES]), 1 + way.lanes) == [("one",)]
    retried(lambda: write_in_order(pipeline, SCHEMAS, history, way), 1 + way.lanes)
    assert pipeline.rows(SCHEMAS[NOTES]) == [("one",), ("three",), ("two",)]
    assert pipeline.rows(SCHEMAS[ORDERS])[2] == (3, "late")


def test_names_of_any_kind_mean_the_column(pipeline: Pipeline) -> None:
    """Also those that the procedure uses itself."""
    odd = TableId("t0c")
    names = {"k": "int4", "v": "text", "e": "text", 'a"$penstock$': "text", "r": "text", "position": "text"}
    schema = structure(TableName("public", "penstock_lane"), names, ["k", "e"])
    pipeline.load(odd, schema, [(1, "a", "b", "c", "d", "e")])
    history = [
        [Change(odd, UPDATE, key=(1, "b"), row=(1, "A", "b", "C", "D", "E"))],
        [Change(odd, INSERT, row=(2, None, "x", "y", "", "\\"))],
        [Change(odd, UPDATE, key=(1, "b"), row=(5, "A", "q", "C", "D", "E"))],
        [Change(odd, DELETE, key=(2, "x"))],
    ]
    write_in_order(pipeline, {odd: schema}, history, ONE)
    assert pipeline.rows(schema) == [(5, "A", "q", "C", "D", "E")]


def test_rates_of_the_targets_commits_are_measured(pipeline: Pipeline) -> None:
    in_order = pipeline.target.in_order()
    assert in_order is not None
    rates = in_order.commit_rates()
    assert 0 < rates.low <= rates.high
