"""Which transaction's rows go into the target before their commit, until when, and what a batch may do with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from engine.model.batch import LogRange, StagedRows, TableChanges, TableFault
from engine.model.identity import BatchId, Epoch, Ordinal, RelationId, SubscriptionName, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.subscription import TableSpec
from engine.model.target import BatchCommit, TableCommit
from engine.pipeline.batch_slices import Staged
from engine.pipeline.speculative_insert import (
    OPEN_MS,
    SpeculativeCounts,
    SpeculativeInserter,
    SpeculativeLot,
    SpeculativeRows,
    rest_of,
)
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.state import Live
from tests.fixtures.waiting import wait_until

T = TableId("t0a")
NAME = TableName("public", "orders")
SCHEMA = TableSchema(
    NAME, RelationId(1), (Column("id", SourceType("int4"), 1),), ("id",), KeyMode.KEYED, ReplicaIdentity.DEFAULT
)


def rows_of(path: str) -> StagedRows:
    return StagedRows(path, 0, 1)


def change(path: str | None, **other: Any) -> TableChanges:
    rows = None if path is None else rows_of(path)
    return TableChanges(T, **({"truncated": False, "deletes": None, "inserts": rows, "partials": None} | other))


def piece(path: str, **other: Any) -> Staged:
    ranges = (LogRange(Ordinal(1), Ordinal(2), Lsn(1), 7),)
    return Staged(ranges, frozenset({7}), {T: SCHEMA}, (change(path, **other),))


def commit_of(*changes: TableChanges, **other: Any) -> dict[TableId, TableCommit]:
    return {T: TableCommit(T, SCHEMA, NAME, changes, **other)}


def batch(tables: Sequence[TableCommit] = ()) -> BatchCommit:
    return BatchCommit(SubscriptionName("s"), Epoch(1), BatchId(1), Lsn(1), tuple(tables))


class FakeRows:
    """Rows in a target that takes them as long as `refuse` is not set."""

    def __init__(self) -> None:
        self.over = False
        self.overdue = False
        self.refuse = False
        self.ended = ""
        self.files: list[str] = []

    def insert(self, table: TableCommit) -> bool:
        if not self.refuse:
            self.files += [one.inserts.path for one in table.changes if one.inserts is not None]
        return not self.refuse

    def commit(self, batch: BatchCommit) -> bool:
        self.over, self.ended = True, "committed"
        return True

    def roll_back(self) -> None:
        if not self.over:
            self.over, self.ended = True, "rolled back"


class Bench:
    """A running inserter over a target that has one place, with a clock that only the test advances."""

    def __init__(self) -> None:
        self.begun: list[FakeRows] = []
        self.now_ms = 0.0
        book = TableRegistry()
        book.add(TableEntry(TableSpec(T, NAME, NAME), Live(), SCHEMA))
        self.inserter = SpeculativeInserter(self.begin, book, self)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.inserter.run, args=(self.stop,))

    def begin(self) -> FakeRows | None:
        if self.begun and not self.begun[-1].over:
            return None
        self.begun.append(FakeRows())
        return self.begun[-1]

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_us(self) -> int:
        return 0

    def inserted(self, *files: str) -> FakeRows:
        """Wait until the target holds just these."""
        wait_until(lambda: bool(self.begun) and self.begun[-1].files == list(files))
        return self.begun[-1]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.thread.start()
    yield made
    made.stop.set()
    made.thread.join(10)
    assert not made.thread.is_alive()
    made.inserter.close()
    assert all(rows.over for rows in made.begun)


def test_pieces_go_in_as_they_come_and_the_batch_ends_them(bench: Bench) -> None:
    lot = SpeculativeLot(7)
    bench.inserter.add(lot, piece("a"))
    bench.inserter.add(lot, piece("b"))
    rows = bench.inserted("a", "b")
    assert bench.inserter.holds(7)
    assert not bench.inserter.holds(8)
    early = bench.inserter.take_rows([lot], alone=True)
    assert early is not None
    assert early.close() == {rows_of("a"), rows_of("b")}
    assert not early.insert(list(commit_of(change("c")).values()))
    assert not rows.over
    assert early.commit(batch())
    wait_until(lambda: not bench.inserter.holds(7))
    other = SpeculativeLot(9)
    bench.inserter.add(other, piece("d"))
    bench.inserted("d")
    assert bench.inserter.counts == SpeculativeCounts(inserted=3, committed=1)


def test_what_waits_when_a_batch_takes_the_rows_still_goes_in_and_is_not_given_up(bench: Bench) -> None:
    lot = SpeculativeLot(7)
    bench.inserter.add(lot, piece("a"))
    rows = bench.inserted("a")
    early = bench.inserter.take_rows([lot], alone=True)
    assert early is not None
    bench.inserter.add(lot, piece("b"))
    bench.inserted("a", "b")
    assert early.close() == {rows_of("a"), rows_of("b")}
    bench.inserter.add(lot, piece("c"))
    wait_until(lambda: not lot.waiting)
    bench.now_ms = 2 * OPEN_MS
    rows.overdue = True
    assert early.commit(batch())
    assert rows.ended == "committed"


@pytest.mark.parametrize(
    "why", ["rolled back", "savepoint", "update", "truncate", "fault", "refused", "too old", "overdue", "not alone"]
)
def test_rows_are_given_up_and_their_transaction_is_left_alone_from_then_on(bench: Bench, why: str) -> None:
    lot = SpeculativeLot(7)
    bench.inserter.add(lot, piece("a"))
    rows = bench.inserted("a")
    if why == "rolled back":
        bench.inserter.end(lot)
    elif why == "savepoint":
        bench.inserter.spoil(lot)
    elif why == "update":
        bench.inserter.add(lot, piece("b", deletes="d"))
    elif why == "truncate":
        bench.inserter.add(lot, piece("b", truncated=True))
    elif why == "fault":
        bench.inserter.add(lot, piece("b", fault=TableFault("x", "y")))
    elif why == "refused":
        rows.refuse = True
        bench.inserter.add(lot, piece("b"))
    elif why == "too old":
        bench.now_ms = OPEN_MS + 1
    elif why == "overdue":
        rows.overdue = True
    else:
        assert bench.inserter.take_rows([lot], alone=False) is None
    wait_until(lambda: rows.over)
    wait_until(lambda: bench.inserter.counts.given_up == 1)
    assert rows.ended == "rolled back"
    bench.inserter.add(lot, piece("c"))
    assert bench.inserter.take_rows([lot], alone=True) is None
    bench.inserter.add(SpeculativeLot(9), piece("z"))
    bench.inserted("z")
    assert len(bench.begun) == 2


def test_the_largest_that_only_inserts_comes_next(bench: Bench) -> None:
    first, small, large, updating = SpeculativeLot(7), SpeculativeLot(8), SpeculativeLot(9), SpeculativeLot(10)
    bench.inserter.add(first, piece("a"))
    bench.inserted("a")
    bench.inserter.add(small, piece("s"))
    for n in range(3):
        bench.inserter.add(updating, piece(f"u{n}", partials="p"))
    for n in range(2):
        bench.inserter.add(large, piece(f"l{n}"))
    bench.inserter.end(first)
    bench.inserted("l0", "l1")
    assert bench.inserter.take_rows([small], alone=True) is None
    bench.inserter.end(large)
    wait_until(lambda: bench.begun[-1].over)
    assert len(bench.begun) == 2


def test_the_rest_of_a_batch_is_what_is_not_in_the_target() -> None:
    done, left = change("a"), change("b")
    rest = rest_of(commit_of(done, left), frozenset({rows_of("a")}))
    assert rest is not None
    assert [one.changes for one in rest] == [(left,)]
    whole = rest_of(commit_of(done), frozenset({rows_of("a")}))
    assert whole is not None
    assert [(one.table, one.changes) for one in whole] == [(T, ())]


@pytest.mark.parametrize(
    "commits",
    [
        commit_of(change("b")),
        commit_of(change("a"), change(None, deletes="d")),
        commit_of(change("a"), change("b", partials="p")),
        commit_of(change("a"), change(None, truncated=True)),
        commit_of(change("a"), handover=True),
        commit_of(change("a"), resumed=True),
        commit_of(change("a"), parked="x"),
        {},
    ],
)
def test_a_batch_that_does_more_or_lacks_a_file_has_no_rest(commits: dict[TableId, TableCommit]) -> None:
    assert rest_of(commits, frozenset({rows_of("a")})) is None


def test_nothing_in_the_target_is_nothing_to_commit() -> None:
    rows = FakeRows()
    early = SpeculativeRows(rows, SpeculativeCounts())
    assert rest_of(commit_of(change("b")), early.close()) is None
