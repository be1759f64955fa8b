"""What the guard makes of partitions with new storage, and what intake knows of truncating transactions."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from engine.model.batch import BlockRef, RelationSeen, SealedBatch
from engine.model.control import CONTROL_FIELDS, ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Ordinal, RelationId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import KeyMode
from engine.model.source import CatalogAt, GuardReading, Landed, PartitionRewrite, ReaderStatus, SourceTerms
from engine.model.subscription import TableSpec
from engine.model.subscription_state import Reason
from engine.model.table_state import TableStateKind
from engine.records.messages import parse_truncate
from engine.records.scan import find_controls
from engine.safety.findings import Fingerprinted, Park
from engine.safety.log_evidence import TRUNCATIONS_KEPT, LogEvidence
from engine.safety.observed_partitions import ObservedPartition, ObservedPartitionsReading
from engine.safety.source_monitor import SourceMonitor
from engine.tables.known_catalog import Settled
from engine.tables.registry import TableEntry
from engine.tables.state import (
    AwaitApproval,
    Copy,
    Copying,
    Live,
    Parked,
    Paused,
    Registered,
    Reloading,
    TableState,
)
from tests.unit.net import pgoutput_encoder as pgoutput

ROOT = TableName("public", "root")
SPEC = TableSpec(TableId(str(ROOT)), ROOT, ROOT)
SCHEMA = cast("Any", SimpleNamespace(relation=RelationId(30)))


class Log:
    """Lands chunks of records as the log reader does."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[Any, Any]] = {}
        self._next = 100
        self._stream = 0
        self.reads = 0
        self.evidence = LogEvidence(cast("Any", None), self._read)

    def _read(self, block: BlockRef) -> tuple[Any, Any]:
        self.reads += 1
        return self._blocks[int(block.first)]

    def land(self, *records: bytes) -> None:
        data, offsets = pgoutput.pack(records)
        controls, self._stream = find_controls(data, offsets, self._stream)
        controls["ordinal"] += self._next
        self._blocks[self._next] = (data, offsets)
        block = BlockRef("q", 0, 0, 0, Ordinal(self._next), len(records))
        self.evidence.landed(Landed(block, controls, {}, Lsn(1)), ())
        self._next += len(records)


def test_plain_truncates_belong_to_the_transaction_that_began_before_them() -> None:
    log = Log()
    log.land(pgoutput.begin(1, 7), pgoutput.truncate([30, 31]), pgoutput.truncate([32]), pgoutput.commit(1, 2))
    log.land(pgoutput.begin(3, 8), pgoutput.insert(30, ["a"]))
    log.land(pgoutput.insert(30, ["b"]))
    assert log.reads == 1
    log.land(pgoutput.truncate([33]), pgoutput.commit(3, 4), pgoutput.begin(5, 9), pgoutput.truncate([34]))
    assert [log.evidence.truncated_by(xid) for xid in (7, 8, 9, 10)] == [{30, 31, 32}, {33}, {34}, set()]


def test_streamed_truncates_name_their_own_savepoint() -> None:
    log = Log()
    log.land(pgoutput.begin(1, 5), pgoutput.commit(1, 2), pgoutput.stream_start(7), pgoutput.truncate([30], xid=7))
    log.land(pgoutput.truncate([31], xid=8), pgoutput.stream_stop(), pgoutput.stream_commit(7, 3, 4))
    assert [log.evidence.truncated_by(xid) for xid in (5, 7, 8)] == [set(), {30}, {31}]


def test_a_new_session_forgets_the_transaction_being_read() -> None:
    log = Log()
    log.land(pgoutput.begin(1, 7))
    session = np.zeros(1, np.dtype(CONTROL_FIELDS))
    session["kind"] = ControlKind.SESSION
    log.evidence.landed(Landed(None, session, {}, Lsn(1)), ())
    log.land(pgoutput.truncate([30]))
    assert log.evidence.truncated_by(7) == set()
    log.evidence.landed(Landed(None, session[:0], {}, Lsn(1)), ())


def test_only_the_last_truncating_transactions_are_kept() -> None:
    log = Log()
    for low in range(0, TRUNCATIONS_KEPT + 1, 1000):
        records = [(pgoutput.begin(x, x), pgoutput.truncate([1])) for x in range(low + 1, low + 1001)]
        log.land(*[record for pair in records for record in pair])
    assert log.evidence.truncated_by(1) == set()
    assert log.evidence.truncated_by(1001) == {1}


@pytest.mark.parametrize(
    "record", [b"T", b"T\0\0\0\2\0\0\0\0\1", pgoutput.insert(1, ["a"]), pgoutput.truncate([1])[:-1]]
)
def test_a_damaged_truncate_is_a_fault(record: bytes) -> None:
    with pytest.raises(EngineFault) as caught:
        parse_truncate(record, streamed=False)
    assert caught.value.kind is FaultKind.LOG_UNREADABLE


class WatchedEntries(list[TableEntry]):
    """Empty, except for searches."""

    def __init__(self, watched: Watched) -> None:
        super().__init__()
        self._watched = watched

    def by_name(self, _: TableName) -> TableEntry:
        return TableEntry(SPEC, self._watched.state, SCHEMA)

    def by_relation(self, relation: int) -> TableEntry | None:
        return self._watched.entry if relation == 30 else None

    def in_state(self, *kinds: TableStateKind) -> list[TableEntry]:
        return [self._watched.entry] if kinds == (self._watched.entry.kind,) else []


class Watched:
    """A guard over a source that answers with `reading`."""

    def __init__(self) -> None:
        self.captured = Lsn(10)
        self.truncated: dict[int, set[int]] = {}
        self.parked: list[str] = []
        self.codes: list[str] = []
        self.noted: list[tuple[dict[str, str], Lsn]] = []
        self.accepted: list[tuple[TableName, int]] = []
        self.state: TableState = Live()
        self.reading = self._reading()
        self.leaves = ObservedPartitionsReading(Lsn(10))
        self.described: dict[TableName, Any] = {}
        self.entry = TableEntry(SPEC, Live(Lsn(10)))
        self.settled: list[Settled] = []
        parts = SimpleNamespace(
            spec=SimpleNamespace(tables=(), reader="s", patterns=()),
            clock=SimpleNamespace(wall_us=lambda: 5),
            source=SimpleNamespace(
                terms=SourceTerms(),
                safety=SimpleNamespace(check=lambda *_: self.reading, accept=lambda *told: self.accepted.append(told)),
                log=SimpleNamespace(
                    current=lambda: Lsn(99), catalog_at=lambda *_, now: CatalogAt(Lsn(98), f"mark, {now=}")
                ),
                describe=lambda _: self.described,
                preflight=lambda *_: [],
                ddl=SimpleNamespace(mark=lambda: ""),
            ),
            book=SimpleNamespace(all=lambda: WatchedEntries(self)),
            parking=SimpleNamespace(renews=lambda _: True),
        )
        evidence = SimpleNamespace(
            truncated_by=lambda xid: self.truncated.get(xid, ()),
            made_below=lambda _: (),
            take_partitions=self._take_leaves,
        )
        self._monitor = SourceMonitor(cast("Any", parts), cast("Any", evidence), lambda: self.captured)

    def _take_leaves(self) -> ObservedPartitionsReading:
        taken, self.leaves = self.leaves, ObservedPartitionsReading(Lsn(10))
        return taken

    def _check(self) -> None:
        for found in self._monitor.check():
            if isinstance(found, Park):
                assert found.known is None or found.known is self.entry
                assert found.table == str(ROOT)
                self.parked.append(found.detail)
                self.codes.append(found.kind.value)
            elif isinstance(found, Fingerprinted):
                self.noted.append(({str(t): m for t, m in found.marks.items()}, found.as_of))
            elif isinstance(found, Settled):
                self.settled.append(found)

    @staticmethod
    def _reading(**found: Any) -> GuardReading:
        return GuardReading(ReaderStatus(exists=True), **found)

    def look(self, detail: str = "", writers: frozenset[int] = frozenset()) -> list[str]:
        """One look that finds this change; what is parked after it."""
        faults = {ROOT: detail} if detail else {}
        rewrites = {ROOT: PartitionRewrite(RelationId(30), writers, Lsn(20))} if writers else {}
        self.reading = self._reading(partition_faults=faults, partition_rewrites=rewrites, marks={ROOT: "m"})
        self._check()
        return self.parked

    def look_below(self, *met: int, **found: Any) -> list[str]:
        """One look that meets these partitions, or met them before; what is parked after it."""
        self.reading = self._reading(**{"below": {ROOT: frozenset(map(RelationId, met))}, **found})
        self._check()
        return self.parked

    def look_at_replaced(self, relation: int) -> list[str]:
        """One look that finds the table gone, with this one in its place; the codes of what is parked after it."""
        replaced = {ROOT: RelationId(relation)}
        self.reading = self._reading(partition_faults={ROOT: "gone"}, replaced=replaced, marks={ROOT: "m"})
        self._check()
        return self.codes


def test_a_change_that_no_truncate_explains_parks_at_once() -> None:
    assert Watched().look("attached") == ["attached"]


def test_new_storage_waits_for_the_log_and_parks_when_it_does_not_tell() -> None:
    watched = Watched()
    assert watched.look("rewritten", frozenset({7})) == []
    watched.captured = Lsn(19)
    assert watched.look() == []
    watched.captured = Lsn(20)
    assert watched.look() == ["rewritten"]
    assert watched.look() == ["rewritten"]


@pytest.mark.parametrize("late", [False, True])
def test_new_storage_by_a_truncate_of_the_root_is_fine(*, late: bool) -> None:
    watched = Watched()
    if late:
        watched.look("rewritten", frozenset({7, 8}))
    watched.truncated = {7: {30, 31}, 8: {30}}
    watched.captured = Lsn(25)
    assert watched.look(*(() if late else ("rewritten", frozenset({7, 8})))) == []
    watched.truncated = {}
    assert watched.look() == []


@pytest.mark.parametrize("truncated", [{7: {30}}, {7: {30}, 8: {31}}, {9: {30}}])
def test_every_writer_must_have_truncated_this_root(truncated: dict[int, set[int]]) -> None:
    watched = Watched()
    watched.captured = Lsn(20)
    watched.truncated = truncated
    assert watched.look("rewritten", frozenset({7, 8})) == ["rewritten"]


def test_each_kind_of_change_has_its_code() -> None:
    assert Watched().look_at_replaced(0) == [FaultKind.TABLE_MISSING.value]
    assert Watched().look_at_replaced(31) == [FaultKind.TABLE_STRUCTURE_CHANGED.value]
    for writers in (frozenset[int](), frozenset({7})):
        watched = Watched()
        watched.captured = Lsn(20)
        watched.look("changed", writers)
        assert watched.codes == [FaultKind.TABLE_PARTITIONS_CHANGED.value]


def test_a_table_made_again_that_is_followed_already_is_accepted() -> None:
    watched = Watched()
    assert watched.look_at_replaced(30) == []
    assert watched.accepted == [(ROOT, 30)]
    assert watched.noted == []


@pytest.mark.parametrize(
    ("state", "relation", "settles"),
    [
        (Live(), 30, False),
        (Reloading(copy=Copy(SCHEMA)), 30, False),
        (Copying(Copy(SCHEMA)), 30, False),
        (Reloading(), 0, True),
        (Reloading(), 31, True),
        (Registered(), 0, True),
    ],
)
def test_only_a_table_without_rows_to_compare_is_settled_by_the_look_that_accepts_it(
    state: TableState, relation: int, settles: bool
) -> None:
    """What was done to one that is followed, or whose copy has begun, only the next look compares."""
    watched = Watched()
    watched.state = state
    assert watched.look_at_replaced(relation) == []
    assert watched.accepted == [(ROOT, relation)]
    assert len(watched.settled) == settles


def test_a_root_whose_changes_are_in_the_log_again_is_copied_when_its_partitions_were_looked_at_since() -> None:
    watched = Watched()
    watched.entry = TableEntry(SPEC, Parked(Reason(FaultKind.TABLE_NOT_LOGGED.value, "", "")))
    mended = SimpleNamespace(relfilenode=0, mode=KeyMode.KEYED)
    looks: list[tuple[dict[TableName, Any], int]] = [
        ({}, 0),
        ({ROOT: mended}, 0),
        ({}, 0),
        ({ROOT: mended}, 0),
        ({ROOT: mended}, 1),
    ]
    for described, parked in looks:
        watched.described = described
        assert len(watched.look()) == parked
    assert watched.codes == [FaultKind.TABLE_PARTITIONS_CHANGED.value]


def reading_of(end: int, leaf: int = 33) -> ObservedPartitionsReading:
    return ObservedPartitionsReading(
        Lsn(end), {RelationId(30): {RelationId(leaf): ObservedPartition(TableName("public", "leaf"), Lsn(end))}}
    )


GONE = ["partition public.leaf was attached and detached between two checks, and the log holds rows of it"]


def test_a_partition_that_the_log_names_and_no_look_meets_parks_its_root_at_the_look_behind_the_next() -> None:
    watched = Watched()
    watched.leaves = reading_of(20)
    assert watched.look_below(31) == []
    assert watched.look_below(31) == GONE
    assert watched.look_below(31) == GONE
    watched = Watched()
    watched.leaves = reading_of(20)
    assert watched.look_below() == []
    assert watched.look_below(33) == []
    assert watched.look_below() == []


@pytest.mark.parametrize(
    ("state", "parks"),
    [
        (Live(Lsn(10)), True),
        (Live(Lsn(20)), False),
        (Paused(Lsn(20), BatchId(1)), True),
        (Parked(Reason("", "", ""), AwaitApproval(Lsn(20), BatchId(1))), True),
        (Reloading(), False),
    ],
    ids=["live", "copied_since", "paused", "waiting", "to_be_copied"],
)
def test_a_copy_begun_behind_it_has_no_rows_of_a_partition_that_is_gone(state: TableState, *, parks: bool) -> None:
    watched = Watched()
    watched.leaves = reading_of(20)
    watched.look_below()
    watched.entry = TableEntry(SPEC, state)
    assert watched.look_below() == (GONE if parks else [])


def test_a_table_is_no_partition_of_itself() -> None:
    watched = Watched()
    watched.leaves = reading_of(20, leaf=30)
    watched.look_below()
    assert watched.look_below() == []


def test_a_root_that_is_being_renamed_is_judged_when_it_was_looked_at() -> None:
    watched = Watched()
    watched.leaves = reading_of(20)
    watched.look_below()
    assert watched.look_below(below={}, renamed={TableName("public", "before"): ROOT}) == []
    assert watched.look_below() == GONE


def seen(ordinal: int, relation: int, *types: int) -> RelationSeen:
    columns = b"".join(b"\0c%d\0" % number + struct.pack(">Ii", kind, -1) for number, kind in enumerate(types))
    head = b"R" + struct.pack(">I", relation) + b"public\0r%d\0d" % relation + struct.pack(">h", len(types))
    return RelationSeen(Ordinal(ordinal), RelationId(relation), head + columns)


def batch_of(end: int, *relations: RelationSeen) -> SealedBatch:
    return cast("SealedBatch", SimpleNamespace(relations=relations, end=Lsn(end)))


class Truncating(LogEvidence):
    """Knows of TRUNCATE records by their ordinal, without their blocks."""

    def __init__(self, truncated: Mapping[Ordinal, frozenset[int]] = MappingProxyType({})) -> None:
        super().__init__(cast("Any", None))
        self._truncated = truncated

    def truncated_together(self, ordinal: Ordinal) -> frozenset[int]:
        return self._truncated.get(ordinal, frozenset())


def test_tables_that_are_truncated_together_are_no_partitions_of_each_other() -> None:
    truncated = {Ordinal(4): frozenset({30, 40, 50}), Ordinal(13): frozenset({30, 60})}
    leaves = Truncating(truncated)
    together = [seen(1, 30, 23), seen(2, 40, 23), seen(3, 50, 23)]
    leaves.sealed(batch_of(20, *together, seen(6, 30, 23), seen(7, 40, 23), seen(11, 30, 23), seen(12, 50, 23)))
    assert {root: set(below) for root, below in leaves.take_partitions().below.items()} == {30: {40, 50}}


def test_what_lies_right_behind_another_record_is_its_partition() -> None:
    leaves = Truncating()
    leaves.sealed(batch_of(20, seen(1, 30, 23), seen(2, 31, 23), seen(5, 30, 23), seen(6, 32, 23), seen(9, 40, 23)))
    leaves.sealed(batch_of(30, seen(20, 30, 23, 9999), seen(21, 31, 23, 9999), seen(30, 50, 23), seen(32, 51, 23)))
    name = {number: TableName("public", f"r{number}") for number in (31, 32)}
    below = {30: {31: ObservedPartition(name[31], Lsn(30)), 32: ObservedPartition(name[32], Lsn(20))}}
    assert leaves.take_partitions() == ObservedPartitionsReading(Lsn(30), below)
    assert leaves.take_partitions() == ObservedPartitionsReading(Lsn(30))


def test_types_that_are_told_between_a_root_and_its_partition_count() -> None:
    leaves = Truncating()
    leaves.sealed(batch_of(20, seen(1, 30, 23, 16400, 10000), seen(4, 31, 23, 16400, 10000)))
    leaves.sealed(batch_of(20, seen(11, 30, 23, 16400), seen(14, 40, 23, 16400)))
    assert {root: set(below) for root, below in leaves.take_partitions().below.items()} == {30: {31}}


def test_a_mark_is_noted_when_what_the_log_named_below_it_was_looked_for() -> None:
    watched = Watched()
    watched.entry = TableEntry(SPEC, Live(), SCHEMA)
    for met, noted in (((31,), 0), ((31, 33), 1)):
        watched.leaves = reading_of(20)
        watched.look_below(*met, marks={ROOT: "m"})
        assert len(watched.noted) == noted
    assert watched.noted == [({str(ROOT): "m"}, Lsn(20))]


def test_marks_are_noted_of_live_tables_without_a_doubt() -> None:
    watched = Watched()
    watched.look()
    assert watched.noted.pop() == ({str(ROOT): "m"}, Lsn(10))
    watched.look("rewritten", frozenset({7}))
    watched.look()
    assert watched.noted == []
    watched.truncated = {7: {30}}
    watched.look()
    assert len(watched.noted) == 1
    watched.look("attached")
    watched.state = Parked(Reason("", "", ""))
    watched.look()
    assert len(watched.noted) == 1


def test_a_look_that_finds_nothing_vouches_for_the_catalog_when_it_began() -> None:
    watched = Watched()
    watched.look()
    assert watched.settled == [Settled(CatalogAt(Lsn(98), "mark, now=False"), frozenset(), 5)]


def test_a_look_that_leaves_something_to_the_next_one_vouches_for_nothing() -> None:
    watched = Watched()
    watched.look("rewritten", frozenset({7}))
    watched.look()
    assert watched.settled == []
    watched.captured = Lsn(20)
    assert watched.look() == ["rewritten"]
    assert watched.settled == []
    watched.look()
    assert len(watched.settled) == 1


def test_a_look_vouches_for_nothing_while_the_log_names_partitions_that_it_has_not_met() -> None:
    watched = Watched()
    watched.leaves = ObservedPartitionsReading(
        Lsn(10), {RelationId(30): {RelationId(31): ObservedPartition(ROOT, Lsn(20))}}
    )
    watched.look_below(32)
    assert watched.settled == []
    assert len(watched.look_below(32)) == 1
    assert watched.settled == []
    watched.leaves = ObservedPartitionsReading(
        Lsn(10), {RelationId(30): {RelationId(32): ObservedPartition(ROOT, Lsn(20))}}
    )
    watched.look_below(32)
    assert len(watched.settled) == 1
