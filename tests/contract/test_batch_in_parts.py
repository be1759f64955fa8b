"""Batches written in parts: whole for our readers, fenced, and brought to an end after every failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, TableId, TableName
from engine.model.position import Lsn
from engine.model.subscription import ConnectionSpec
from engine.model.target import BatchCommit, LogStart, QueryRefused, TableCommit
from engine.net.copy_text import decode_copy_text
from engine.targets.postgres.target import Passage, PostgresTarget
from engine.targets.postgres.two_phase.recovery import PartId, database_of
from server.demo.embedded import EmbeddedPostgres
from tests.contract.target_material import (
    SLOT,
    SUBSCRIPTION,
    SYSTEM,
    Pipeline,
    Row,
    changes,
    inserts,
    keys,
    structure,
)
from tests.fixtures.answers import answered
from tests.fixtures.postgres import Database
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

ORDERS, NOTES = TableId("t0a"), TableId("t0b")
orders = structure(TableName("public", "orders"), {"id": "int4", "state": "text"}, ["id"])
notes = structure(TableName("public", "notes"), {"id": "int4", "note": "text"}, ["id"])
ROWS = 60
LOADED = [(n, "new") for n in range(ROWS)]
DEADLINE_S = 30.0
PREPARED = "SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'penstock%'"


class Lost(Exception):
    """The engine dies here."""


class Passages:
    """What happens at which passage, once."""

    def __init__(self) -> None:
        self.at: dict[Passage, Callable[[], None]] = {}
        self.seen: list[Passage] = []

    def __call__(self, passage: Passage) -> None:
        self.seen.append(passage)
        self.at.pop(passage, lambda: None)()


@pytest.fixture
def mart(pg: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database]) -> Database:
    return database_on(pg)


@pytest.fixture
def opened(mart: Database) -> Iterator[Callable[..., PostgresTarget]]:
    made: list[PostgresTarget] = []

    def open_one(passages: Passages | None = None, rows: int = 1) -> PostgresTarget:
        spec = ConnectionSpec("mart", "postgres", mart.settings)
        made.append(PostgresTarget(spec, decode_copy_text, passages or Passages(), parts_from_rows=rows))
        return made[-1]

    yield open_one
    for target in made:
        target.close()


@pytest.fixture
def passages() -> Passages:
    return Passages()


@pytest.fixture
def pipeline(opened: Callable[..., PostgresTarget], passages: Passages) -> Pipeline:
    made = Pipeline(opened(passages)).claim()
    made.load(ORDERS, orders, LOADED)
    made.load(NOTES, notes, [])
    return made


def batch_of(pipeline: Pipeline, state: str) -> BatchCommit:
    """Every order in this state but for two: the first is gone, and one is new; and a note of each."""
    kept = list(range(1, ROWS))
    of_orders = changes(
        ORDERS,
        delete=keys(orders, [*((n,) for n in kept), (0,)]),
        insert=inserts(orders, [*((n, state) for n in kept), (ROWS, state)]),
        paired=len(kept),
    )
    of_notes = changes(NOTES, insert=inserts(notes, [(n, state) for n in range(ROWS)]))
    tables = (
        TableCommit(ORDERS, orders, orders.name, (of_orders,)),
        TableCommit(NOTES, notes, notes.name, (of_notes,)),
    )
    return BatchCommit(SUBSCRIPTION, pipeline.epoch, BatchId(pipeline.batch + 1), Lsn(pipeline.end + 100), tables)


def in_parts(pipeline: Pipeline, batch: BatchCommit, lanes: int) -> int:
    target = pipeline.target.in_parts()
    assert target is not None
    return target.commit_in_parts(batch, lanes)


def behind(state: str) -> tuple[list[Row], list[Row]]:
    return [(n, state) for n in range(1, ROWS + 1)], [(n, state) for n in range(ROWS)]


def held(mart: Database) -> tuple[list[Row], list[Row]]:
    """The rows of both tables as any session sees them."""
    return (
        mart.execute("SELECT id, state FROM orders ORDER BY id"),
        mart.execute("SELECT id, note FROM notes ORDER BY id"),
    )


def held_notes(mart: Database) -> int:
    return int(mart.execute("SELECT count(*) FROM notes")[0][0])


def prepared(mart: Database) -> int:
    return int(mart.execute(PREPARED)[0][0])


def dies() -> None:
    raise Lost


def test_a_batch_in_parts_is_the_same_batch(pipeline: Pipeline, passages: Passages, mart: Database) -> None:
    batch = batch_of(pipeline, "paid")
    assert in_parts(pipeline, batch, 3) == 3
    assert held(mart) == behind("paid")
    assert passages.seen == [Passage.PARTS_PREPARED, Passage.PARTS_DECIDED]
    assert prepared(mart) == 0
    progress = pipeline.target.progress(SUBSCRIPTION)
    assert progress is not None
    assert (progress.batch, progress.end) == (batch.batch, batch.end)
    assert progress.tables[ORDERS].applied == batch.end


def test_small_batches_and_tied_tables_are_written_as_one(
    opened: Callable[..., PostgresTarget], pipeline: Pipeline, mart: Database, passages: Passages
) -> None:
    other = opened(passages, rows=1_000)
    assert other.commit_in_parts(batch_of(pipeline, "paid"), 3) == 1
    mart.execute(
        "DELETE FROM notes; CREATE UNIQUE INDEX ON orders (state, id); CREATE UNIQUE INDEX ON notes (note, id)"
    )
    pipeline.batch, pipeline.end = pipeline.batch + 1, pipeline.end + 100
    mart.execute("DELETE FROM orders; INSERT INTO orders SELECT n, 'new' FROM generate_series(0, 59) n")
    assert in_parts(pipeline, batch_of(pipeline, "sent"), 3) == 1
    assert held(mart) == behind("sent")
    assert passages.seen == []


def test_a_table_that_changes_its_structure_is_written_with_the_record(pipeline: Pipeline, mart: Database) -> None:
    wider = structure(orders.name, {"id": "int4", "state": "text", "by": "text"}, ["id"])
    more = changes(ORDERS, insert=inserts(wider, [(n, "new", "me") for n in range(100, 200)]))
    first = batch_of(pipeline, "paid")
    batch = replace(first, tables=(TableCommit(ORDERS, wider, orders.name, (more,)), first.tables[1]))
    assert in_parts(pipeline, batch, 3) == 3
    assert mart.execute('SELECT count(*), count("by") FROM orders') == [(ROWS + 100, 100)]
    assert (prepared(mart), held_notes(mart)) == (0, ROWS)


@pytest.mark.parametrize("passage", list(Passage))
def test_an_engine_lost_among_the_parts_leaves_a_whole_batch_or_none(
    opened: Callable[..., PostgresTarget], pipeline: Pipeline, passages: Passages, mart: Database, passage: Passage
) -> None:
    """Its parts remain prepared on the server, invisible, until the next engine claims the subscription."""
    batch = batch_of(pipeline, "paid")
    target = pipeline.target
    assert isinstance(target, PostgresTarget)
    if passage is Passage.PARTS_PREPARED:
        # A process that is dead rolls nothing back; one that cannot reach the server neither.
        passages.at[passage] = lambda: _shut(mart)
    else:
        passages.at[passage] = dies
    with pytest.raises((Lost, EngineFault)):
        target.commit_in_parts(batch, 3)
    mart.cluster.execute(f'ALTER DATABASE "{mart.name}" ALLOW_CONNECTIONS true')
    decided = passage is Passage.PARTS_DECIDED
    assert prepared(mart) == 2
    if decided:
        with pytest.raises(QueryRefused) as refused:
            answered(target, "SELECT 1", 1, 5.0, SUBSCRIPTION)
        assert refused.value.code == "query_unavailable"
    newer = opened()
    newer.claim(SUBSCRIPTION, Epoch(2), LogStart(SYSTEM, 1, SLOT, Lsn(1000)))
    assert prepared(mart) == 0
    assert held(mart) == (behind("paid") if decided else (LOADED, []))
    progress = newer.progress(SUBSCRIPTION)
    assert progress is not None
    assert progress.end == (batch.end if decided else Lsn(pipeline.end))
    assert answered(newer, "SELECT count(*) AS n FROM orders", 1, 5.0, SUBSCRIPTION).position == progress.end


def _shut(mart: Database) -> None:
    """No session is connected, and none can connect."""
    mart.cluster.execute(f'ALTER DATABASE "{mart.name}" ALLOW_CONNECTIONS false')
    ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
    mart.cluster.execute(ended, [mart.name])


def _cut(mart: Database) -> None:
    mart.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


def test_the_same_engine_ends_what_it_could_not_commit(pipeline: Pipeline, passages: Passages, mart: Database) -> None:
    batch = batch_of(pipeline, "paid")
    passages.at[Passage.PARTS_DECIDED] = lambda: _cut(mart)
    with pytest.raises(EngineFault) as caught:
        in_parts(pipeline, batch, 3)
    assert caught.value.kind is FaultKind.TARGET_UNAVAILABLE
    assert prepared(mart) == 2
    with pytest.raises(EngineFault):
        # The session that knows is gone as well.
        in_parts(pipeline, batch, 3)
    in_parts(pipeline, batch, 3)
    assert (prepared(mart), held(mart)) == (0, behind("paid"))
    assert passages.seen.count(Passage.PARTS_DECIDED) == 1


def test_an_engine_that_was_taken_over_decides_nothing(
    opened: Callable[..., PostgresTarget], pipeline: Pipeline, passages: Passages, mart: Database
) -> None:
    """The newer engine comes while the parts are prepared and the record is not yet moved: it waits, then finds the batch counting."""
    newer = opened()
    claimed = threading.Event()

    def claim() -> None:
        newer.claim(SUBSCRIPTION, Epoch(2), LogStart(SYSTEM, 1, SLOT, Lsn(1000)))
        claimed.set()

    thread = threading.Thread(target=claim)

    def meanwhile() -> None:
        thread.start()
        wait_until(lambda: mart.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")[0][0] > 0, DEADLINE_S)
        assert not claimed.is_set()

    passages.at[Passage.PARTS_PREPARED] = meanwhile
    batch = batch_of(pipeline, "paid")
    in_parts(pipeline, batch, 3)
    thread.join(DEADLINE_S)
    assert claimed.is_set()
    assert (prepared(mart), held(mart)) == (0, behind("paid"))
    pipeline.batch, pipeline.end = pipeline.batch + 1, pipeline.end + 100
    with pytest.raises(EngineFault) as caught:
        in_parts(pipeline, batch_of(pipeline, "late"), 3)
    assert caught.value.kind is FaultKind.EPOCH_LOST
    assert (prepared(mart), held(mart)) == (0, behind("paid"))


def test_a_part_that_an_older_engine_left_behind_the_claim_is_rolled_back(
    opened: Callable[..., PostgresTarget], pipeline: Pipeline, mart: Database
) -> None:
    """It had read the epoch before the claim, so the claim does not return before it has ended."""
    with mart.connect() as session:
        part = PartId(database_of(session), SUBSCRIPTION, Epoch(1), Lsn(pipeline.end + 100), 1)
    newer = opened()
    thread = threading.Thread(target=lambda: newer.claim(SUBSCRIPTION, Epoch(2), LogStart(SYSTEM, 1, SLOT, Lsn(1000))))
    with mart.connect() as older:
        older.execute("BEGIN")
        older.execute("SELECT FROM penstock.progress FOR KEY SHARE")
        older.execute("UPDATE orders SET state = 'half'")
        thread.start()
        wait_until(lambda: mart.execute("SELECT epoch FROM penstock.progress") == [(2,)], DEADLINE_S)
        older.execute(f"PREPARE TRANSACTION '{part.gid}'".encode())
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert (prepared(mart), held(mart)) == (0, (LOADED, []))


def test_a_row_that_is_not_there_is_its_tables_fault_and_nothing_stays(pipeline: Pipeline, mart: Database) -> None:
    mart.execute("DELETE FROM orders WHERE id = 58")
    with pytest.raises(EngineFault) as caught:
        in_parts(pipeline, batch_of(pipeline, "paid"), 3)
    assert (caught.value.kind, caught.value.subject) == (FaultKind.NET_CHANGE_ANOMALY, ORDERS)
    assert (prepared(mart), held(mart)[1]) == (0, [])


def test_our_readers_see_no_half_batch(pipeline: Pipeline, passages: Passages, mart: Database) -> None:
    """A query that comes while some parts are visible waits for the others; a stranger sees the half that there is."""
    batch = batch_of(pipeline, "paid")
    asked: list[object] = []
    begun = threading.Event()

    def ask() -> None:
        begun.set()
        asked.append(
            answered(pipeline.target, "SELECT count(*) AS n FROM notes", 1, 20.0, SUBSCRIPTION).table.to_pylist()
        )

    thread = threading.Thread(target=ask)
    strange: list[int] = []

    def meanwhile() -> None:
        thread.start()
        begun.wait(DEADLINE_S)
        strange.append(len(held(mart)[1]))

    passages.at[Passage.PARTS_DECIDED] = meanwhile
    in_parts(pipeline, batch, 3)
    thread.join(DEADLINE_S)
    assert 0 < strange[0] < ROWS
    assert asked == [[{"n": ROWS}]]


def test_a_database_without_prepared_transactions_says_what_to_set(
    private_cluster: Callable[..., EmbeddedPostgres], database_on: Callable[..., Database]
) -> None:
    mart = database_on(private_cluster(18, max_prepared_transactions="1"))
    target = PostgresTarget(ConnectionSpec("mart", "postgres", mart.settings), decode_copy_text, parts_from_rows=1)
    try:
        missing = target.parts_missing(3)
        assert missing is not None
        assert "max_prepared_transactions" in missing
        pipeline = Pipeline(target).claim()
        pipeline.load(ORDERS, orders, LOADED)
        pipeline.load(NOTES, notes, [])
        # It is tried all the same where others have used up what there is.
        assert target.commit_in_parts(batch_of(pipeline, "paid"), 3) == 1
        assert held(mart) == behind("paid")
    finally:
        target.close()
