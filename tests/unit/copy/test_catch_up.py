"""Which changes of a batch apply to an unfinished copy, if copies start again while batches are being processed."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from engine.copy.catch_up import CopyCatchUp
from engine.model.batch import SealedBatch, TableChanges, TableFault, TablePart
from engine.model.copies import KeyBound, StandingCopy
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, RelationId, TableId, TableName
from engine.model.partitions import LoadReason, RangeBound
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.subscription import TableSpec
from engine.model.target import TargetProgress
from engine.tables.copy_admission import CopyAdmission
from engine.tables.planner import PlannedBatch
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.state import (
    Chunk,
    ChunkBegun,
    Copy,
    Copying,
    CopyStarted,
    CopyVoided,
    Live,
    Partitions,
    PartitionsBegun,
    ReadProgress,
)

ORDERS = TableId("t1")
LIVE = TableId("t2")
LOW = (RangeBound(("id",), ("0",), ("10",)),)
NAME = TableName("public", "orders")
SCHEMA = TableSchema(
    NAME, RelationId(1), (Column("id", SourceType("int8"), 1),), ("id",), KeyMode.KEYED, ReplicaIdentity.DEFAULT
)
STANDING = StandingCopy(ORDERS, SCHEMA, KeyBound(("10",)), 10, 100, 1)
COPY = Copy(SCHEMA, followed=True)
ENTRY = TableEntry(TableSpec(ORDERS, NAME, NAME), Copying(COPY), SCHEMA)
BATCH = SealedBatch(Lsn(100), Lsn(200), 0, (), (), 0, 0)
PLANNED = PlannedBatch(BatchId(1), BATCH, (), (TablePart(ORDERS, (SCHEMA,), Lsn(100)),), frozenset())


@pytest.fixture
def book() -> TableRegistry:
    made = TableRegistry()
    made.add(ENTRY)
    return made


@pytest.fixture
def admission(book: TableRegistry) -> CopyAdmission:
    return CopyAdmission(book)


@pytest.fixture
def follower(book: TableRegistry, admission: CopyAdmission) -> CopyCatchUp:
    made = CopyCatchUp(book, admission, lambda table, detail: None)
    made.take_up(TargetProgress(Epoch(1), BatchId(0), Lsn(100), "1", 1, "slot", {}, {ORDERS: STANDING}))
    made.begin()
    return made


def test_a_copy_that_is_followed_goes_on(book: TableRegistry, follower: CopyCatchUp) -> None:
    planned = replace(PLANNED, followed=frozenset({ORDERS}))
    assert follower.concerns(planned, ORDERS)
    assert follower.commit_of(planned, ORDERS, [], []) is None
    assert follower.left == ()
    assert follower.standing(ORDERS) == STANDING


def test_a_batch_planned_as_if_the_last_chunk_were_in_is_for_the_copy(follower: CopyCatchUp) -> None:
    assert follower.concerns(PLANNED, ORDERS)
    restructured = replace(PLANNED, restructured=frozenset({ORDERS}))
    assert follower.commit_of(restructured, ORDERS, [], []) is not None
    assert follower.left == ()


def test_a_copy_that_was_given_up_is_left_and_hides_no_other(book: TableRegistry, follower: CopyCatchUp) -> None:
    book.apply(ORDERS, CopyVoided())
    book.apply(ORDERS, CopyStarted(BatchId(1)))
    book.apply(ORDERS, ChunkBegun(Chunk(1, SCHEMA, Lsn(100), None, first=True)))
    assert not follower.concerns(PLANNED, ORDERS)
    assert follower.left == (ORDERS,)
    follower.written({})
    assert follower.left == ()
    assert follower.standing(ORDERS) is None


def test_a_batch_planned_for_the_copy_before_does_nothing_to_its_successor(
    book: TableRegistry, follower: CopyCatchUp
) -> None:
    book.apply(ORDERS, CopyVoided())
    book.add(ENTRY)
    planned = replace(PLANNED, followed=frozenset({ORDERS}), restructured=frozenset({ORDERS}))
    assert follower.concerns(planned, ORDERS)
    assert follower.commit_of(planned, ORDERS, [], []) is None
    assert follower.left == (ORDERS,)


@pytest.mark.parametrize("void", [False, True])
def test_a_chunk_that_is_void_is_not_taken_in(admission: CopyAdmission, follower: CopyCatchUp, *, void: bool) -> None:
    begun = admission.begin_chunk(ORDERS, SCHEMA, Lsn(150), KeyBound(("20",)))
    assert begun is not None
    chunk = replace(begun, number=begun.number + void, progress=ReadProgress.READ, rows=5, bytes=50)
    planned = replace(PLANNED, followed=frozenset({ORDERS}), chunks={ORDERS: chunk})
    commit = follower.commit_of(planned, ORDERS, [], [])
    if not void:
        assert commit is not None
        assert commit.copy == StandingCopy(ORDERS, SCHEMA, KeyBound(("20",)), 15, 150, 2)
    else:
        assert commit is None
    assert follower.left == ()


def live_with_chunk(book: TableRegistry) -> tuple[PlannedBatch, TablePart]:
    """A live table of which partition 'low' is read again, and the batch that takes the rows."""
    book.add(TableEntry(TableSpec(LIVE, NAME, NAME), Live(Lsn(1)), SCHEMA))
    book.apply(LIVE, PartitionsBegun("r1", BatchId(1)))
    chunk = CopyAdmission(book).begin_partitions(
        LIVE, SCHEMA, Lsn(150), Partitions("r1", (LOW,), {"low": LoadReason.ASKED})
    )
    assert chunk is not None
    part = TablePart(LIVE, (SCHEMA,), Lsn(100))
    return replace(PLANNED, parts=(part,), chunks={LIVE: chunk}), part


def missed_rows(*ids: int, fault: FaultKind | None = None) -> TableChanges:
    rows = pa.table({"c0": pa.array(ids, pa.int64())})
    return TableChanges(LIVE, truncated=False, inserts=rows, fault=TableFault(fault, "trouble") if fault else None)


def test_a_chunk_of_partitions_is_exchanged_with_what_its_rows_missed(
    book: TableRegistry, follower: CopyCatchUp
) -> None:
    planned, part = live_with_chunk(book)
    swap = follower.swap_of(planned, part, [missed_rows(5, 15)], aside=False)
    assert swap is not None
    assert (swap.request, swap.reasons) == ("r1", {"low": LoadReason.ASKED})
    assert swap.load == f"r1-{planned.chunks[LIVE].number}"
    assert [one.inserts["c0"].to_pylist() for one in swap.changes if one.inserts is not None] == [[5]]


@pytest.mark.parametrize("cause", ["another chunk", "rows in quarantine", "another structure"])
def test_a_void_chunk_of_partitions_leaves_the_table_live(
    book: TableRegistry, follower: CopyCatchUp, *, cause: str
) -> None:
    planned, part = live_with_chunk(book)
    chunk = planned.chunks[LIVE]
    if cause == "another chunk":
        planned = replace(planned, chunks={LIVE: replace(chunk, number=chunk.number + 1)})
    missed = [missed_rows(5, fault=FaultKind.TABLE_STRUCTURE_CHANGED)] if cause == "another structure" else []
    assert follower.swap_of(planned, part, missed, aside=cause == "rows in quarantine") is None
    entry = book.get(LIVE)
    assert entry is not None
    assert isinstance(entry.state, Live)
    assert (entry.chunk is not None) == (cause == "another chunk")


def test_a_table_parks_over_what_a_chunk_of_partitions_missed(book: TableRegistry, follower: CopyCatchUp) -> None:
    planned, part = live_with_chunk(book)
    with pytest.raises(EngineFault) as raised:
        follower.swap_of(planned, part, [missed_rows(fault=FaultKind.VALUE_OUT_OF_DOMAIN)], aside=False)
    assert (raised.value.kind, raised.value.subject) == (FaultKind.VALUE_OUT_OF_DOMAIN, LIVE)
