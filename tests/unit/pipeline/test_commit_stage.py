"""What the commit stage makes of a table that parks while later batches are planned already, and of marks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.link.messages import Report, TableDropped
from engine.model.batch import SealedBatch, TableChanges, TableFault, TablePart
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, RelationId, SubscriptionName, TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.position import ZERO, Lsn
from engine.model.quarantine import SetAside
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.subscription import ConnectionSpec, SubscriptionSpec, TableSpec
from engine.model.subscription_state import Reason
from engine.model.table_state import Refused, TableStateKind
from engine.model.target import BatchCommit, TableRecord, TargetProgress
from engine.pipeline.commit import CommitStage
from engine.pipeline.compute import Computed
from engine.platform.clock import SystemClock
from engine.safety.partition_fingerprints import PartitionFingerprints, PartitionsByTable
from engine.sources.postgres_log.position_form import PostgresLogForm
from engine.tables.planner import CatchUpRanges, PlannedBatch
from engine.tables.registry import TableChange, TableEntry, TableRegistry
from engine.tables.reporter import Reporter
from engine.tables.state import CatchingUp, Chunk, ChunkPlanned, Copy, Live, ReadProgress, Reload, Unreadable
from tests.fixtures.run_context import run_context
from tests.fixtures.table_copies import finish_copy

KEYED, OTHER = TableId("tkeyed"), TableId("tother")


def schema(name: str) -> TableSchema:
    columns = (Column("id", SourceType("int4"), 1),)
    return TableSchema(TableName("public", name), RelationId(1), columns, ("id",), KeyMode.KEYED, ReplicaIdentity.FULL)


SCHEMAS = {KEYED: schema("keyed"), OTHER: schema("other")}


class RefusingTarget:
    """Refuses every copy whose declared key is to be checked, to drop what is `needed`, and rows of one table."""

    def __init__(self) -> None:
        self.batches: list[BatchCommit] = []
        self.needed: set[TableId] = set()
        self.refuse_rows_of: TableId | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        """Called before the refusal."""
        self.during: Callable[[], None] = lambda: None
        """Called while a batch is written."""
        self.gone = False
        self.away = False

    def expect(self, subscription: SubscriptionName, position: Lsn) -> None: ...

    def reached(self, subscription: SubscriptionName, position: Lsn) -> None: ...

    def check_place(self) -> None:
        if self.gone:
            raise EngineFault(FaultKind.TARGET_FILE_GONE, "mart.duckdb", "the file was removed while it was open")

    def tuning(self) -> dict[str, float]:
        return {"copy_setup_ms": 1.5}

    def commit(self, batch: BatchCommit) -> dict[TableId, SetAside]:
        if self.away:
            raise EngineFault(FaultKind.TARGET_UNAVAILABLE, "mart", "the connection was closed")
        self.during()
        for dropped in set(batch.dropped) & self.needed:
            raise EngineFault(FaultKind.TABLE_NOT_DROPPED, dropped, "a view shows it")
        for table in batch.tables:
            if table.handover and table.check_key:
                raise EngineFault(FaultKind.TABLE_KEY_NOT_UNIQUE, table.table, "two rows have the same key")
            if table.table == self.refuse_rows_of and table.parked is None:
                self.meanwhile()
                raise EngineFault(
                    FaultKind.NET_CHANGE_ANOMALY, table.table, "1 row to delete, of which the target has 0"
                )
        self.batches.append(batch)
        return {}


def _nothing_to_ask(table: TableId, columns: Sequence[Column], inputs: Mapping[int, str], rows: int) -> bytes:
    raise AssertionError(f"{table} has no columns that the source computes: {columns}, {inputs}, {rows}")


def _with_names(mark: str, below: Mapping[RelationId, TableName]) -> str:
    return ",".join([mark, *(name.name for name in below.values())])


def sealed(number: int) -> SealedBatch:
    """Batch `number`, whose last transaction ends where it does."""
    after, end = Lsn(number * 100), Lsn(number * 100 + 100)
    return SealedBatch(after, end, 0, (), (), 0, 0, last=LastCommit(after, end, number))


def copied(table: TableId, number: int = 0) -> CatchingUp:
    """All rows of its copy are read."""
    chunk = Chunk(number, SCHEMAS[table], ZERO, None, first=True, progress=ReadProgress.READ)
    return CatchingUp(ZERO, Copy(SCHEMAS[table], chunk=chunk))


class Bench:
    """A commit stage over two tables, of which one has a declared key."""

    def __init__(self, dropped: frozenset[TableId] = frozenset()) -> None:
        self.target = RefusingTarget()
        self.named: PartitionsByTable = {}
        """The partitions that each batch names from here on."""
        self.reports: list[Report] = []
        self.told: list[tuple[TableId, TableStateKind, Lsn]] = []
        """Changes of state as they are reported, with the position that could be reported just then."""
        self.visible: Callable[[], Lsn] = lambda: ZERO
        self.book = TableRegistry()
        self.book.subscribe(self._note_change)
        specs = tuple(
            TableSpec(table, s.name, s.name, key=("id",) if table == KEYED else ()) for table, s in SCHEMAS.items()
        )
        for one in specs:
            self.book.add(TableEntry(one, copied(KEYED) if one.table == KEYED else Live(), SCHEMAS[one.table]))
        connection = ConnectionSpec("c", "none", {})
        spec = SubscriptionSpec(SubscriptionName("s"), Epoch(1), connection, connection, specs, "slot", dropped=dropped)
        reporter = Reporter(spec, self.reports.append, SystemClock(), PostgresLogForm())
        self.context = run_context(spec, self.target, self.book, reporter, position_write_s=10)
        self.stage = CommitStage(
            self.context,
            ZERO,
            _nothing_to_ask,
            PartitionFingerprints(_with_names, lambda _: self.named),
        )
        self.visible = lambda: self.stage.applied.visible
        self.told.clear()
        self._generations = self._now()
        """When the next batch is planned: before anything of the one before is committed."""
        if not dropped:
            self.stage.begin(recorded(None))

    def _note_change(self, change: TableChange) -> None:
        if change.shown:
            self.told.append((change.entry.table, change.entry.kind, self.visible()))

    def _now(self) -> dict[TableId, int]:
        return {entry.table: entry.generation for entry in self.book.all()}

    def _planned(
        self, number: int, handover: frozenset[TableId] = frozenset(), unread: frozenset[TableId] = frozenset()
    ) -> PlannedBatch:
        batch, now = sealed(number), self._now()
        chunks = {}
        for entry in self.book.all():
            if entry.table in handover and entry.copy is not None and entry.copy.chunk is not None:
                chunks[entry.table] = entry.copy.chunk
                self.book.apply(entry.table, ChunkPlanned(entry.copy.chunk.number))
        parts = tuple(TablePart(table, (s,), batch.after) for table, s in SCHEMAS.items() if table not in chunks)
        missed = tuple(TablePart(table, (chunk.schema,), chunk.position) for table, chunk in chunks.items())
        generations = {**self._generations, **{table: now[table] for table in handover}}
        self._generations = now
        return PlannedBatch(
            BatchId(number),
            batch,
            (),
            parts,
            frozenset(),
            chunks=chunks,
            missed=CatchUpRanges((), (), missed),
            unread=unread,
            generations=generations,
        )

    def commit(
        self,
        number: int,
        handover: frozenset[TableId] = frozenset(),
        truncated: frozenset[TableId] = frozenset(),
        failed: TableId | None = None,
        unread: frozenset[TableId] = frozenset(),
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """A batch with rows for both tables, as it was planned before anything of the one before was committed.

        `meanwhile` is called between its planning and its commit.
        """
        planned = self._planned(number, handover, unread)
        rows: Any = object()
        fault = TableFault(FaultKind.VALUE_OUT_OF_DOMAIN.value, "a value does not fit")
        changes = tuple(
            TableChanges(table, table in truncated, None, rows, None, fault=fault if table == failed else None)
            for table in SCHEMAS
        )
        missed = tuple(change for change in changes if change.table in planned.chunks)
        changes = tuple(change for change in changes if change.table not in planned.chunks)
        meanwhile()
        self.stage.commit(Computed(planned, changes, 0, "driver", 0.0, 0, 0.0, missed=missed), must_write=False)

    def commit_nothing(self, number: int) -> None:
        self.stage.commit(Computed(self._planned(number), (), 0, "driver", 0.0, 0, 0.0), must_write=False)

    def marks(self) -> list[dict[TableId, str | None]]:
        return [dict(batch.marks) for batch in self.target.batches]

    def written(self) -> list[dict[TableId, str | None]]:
        return [{t.table: t.parked for t in batch.tables} for batch in self.target.batches]


def test_a_refused_copy_parks_and_batches_planned_meanwhile_leave_the_table_alone() -> None:
    bench = Bench()
    bench.commit(1, frozenset({KEYED}))
    bench.commit(2)
    code = FaultKind.TABLE_KEY_NOT_UNIQUE.value
    assert bench.written() == [{KEYED: code, OTHER: None}, {OTHER: None}]
    entry = bench.book.get(KEYED)
    assert entry is not None
    assert entry.reason is not None
    assert (entry.kind, entry.reason.code) == (TableStateKind.PARKED, code)
    assert bench.stage.applied.written == Lsn(300)


def test_a_value_that_does_not_fit_parks_its_table() -> None:
    bench = Bench()
    bench.commit(1, failed=OTHER)
    entry = bench.book.get(OTHER)
    assert entry is not None
    assert (entry.shown, bench.written()[-1][OTHER]) == (TableStateKind.PARKED, FaultKind.VALUE_OUT_OF_DOMAIN.value)


def test_a_table_that_could_not_be_read_any_more_parks_after_its_changes() -> None:
    bench = Bench()
    code = FaultKind.TABLE_NOT_READ.value
    why = Reason(code, "source_privilege: permission denied", "")
    bench.commit(1, handover=frozenset({KEYED}))
    bench.book.apply(OTHER, Unreadable(why, BatchId(3)))  # By the planner of batch 2.
    bench.commit(2, unread=frozenset({OTHER}))
    last = bench.target.batches[-1]
    assert {t.table: (t.parked, len(t.changes)) for t in last.tables}[OTHER] == (None, 1)
    assert dict(last.then_parked) == {OTHER: code}
    # That it is parked is recorded: it is no table whose changes were left out.
    bench.commit_nothing(3)
    assert all(OTHER not in batch.stale for batch in bench.target.batches)


@pytest.mark.parametrize("also", ["refused", "failed", "reloaded"])
def test_a_table_that_parks_for_another_reason_does_not_only_wait_for_its_source(also: str) -> None:
    bench = Bench()
    bench.commit(1, handover=frozenset({KEYED}))
    bench.target.refuse_rows_of = OTHER if also == "refused" else None
    reload = Reload(BatchId(3))
    bench.commit(
        2,
        unread=frozenset({OTHER}),
        failed=OTHER if also == "failed" else None,
        meanwhile=lambda: (also == "reloaded" and bool(bench.book.apply(OTHER, reload))) or None,
    )
    last = bench.target.batches[-1]
    assert OTHER not in last.then_parked
    parked = {t.table: t.parked for t in last.tables}.get(OTHER)
    kinds = {"refused": "net_change_anomaly", "failed": "value_out_of_domain", "reloaded": None}
    assert parked == kinds[also]
    assert (OTHER in last.stale) is (also == "reloaded")


def test_no_position_is_there_to_be_reported_before_the_states_of_the_tables_that_its_batch_changed() -> None:
    """The guard's thread reports it at any moment, also between a commit and the reports of what it did."""
    bench = Bench()
    bench.commit(1, failed=OTHER)
    assert bench.told == [(OTHER, TableStateKind.PARKED, ZERO)]
    assert bench.stage.applied.visible == Lsn(200)


@pytest.mark.parametrize("nothing", [False, True])
def test_no_position_counts_whose_target_is_not_in_its_place_any_more(*, nothing: bool) -> None:
    """Neither after a commit, which succeeds nevertheless, nor where there is nothing to commit."""
    bench = Bench()
    bench.commit(1)
    before = bench.stage.applied

    def remove() -> None:
        bench.target.gone = True

    bench.target.during = remove
    if nothing:
        remove()
    with pytest.raises(EngineFault) as caught:
        bench.commit_nothing(2) if nothing else bench.commit(2)
    assert caught.value.kind is FaultKind.TARGET_FILE_GONE
    assert bench.stage.applied == before


@pytest.mark.parametrize("begun", [False, True])
def test_what_fails_in_changes_from_before_a_new_copy_counts_for_nothing(*, begun: bool) -> None:
    bench = Bench()
    bench.context.parking.park(OTHER, FaultKind.TABLE_STRUCTURE_CHANGED.value, "column c1 changed its type")
    if begun:
        bench.book.apply(OTHER, Reload(BatchId(1)))
    bench.commit(1, failed=OTHER)
    entry = bench.book.get(OTHER)
    assert entry is not None
    assert entry.reason is not None
    assert (entry.shown, entry.reason.code) == (TableStateKind.RELOADING, FaultKind.TABLE_STRUCTURE_CHANGED.value)
    assert bench.written()[-1].get(OTHER) in {None, FaultKind.TABLE_STRUCTURE_CHANGED.value}


@pytest.mark.parametrize("renewed", [False, True])
def test_what_the_target_refuses_of_a_table_that_is_to_be_copied_anew_counts_for_nothing(*, renewed: bool) -> None:
    """Another thread found meanwhile that the table must be copied again; after a crash it is copied as well."""
    bench = Bench()
    bench.stage.begin(recorded(None))
    bench.target.refuse_rows_of = OTHER
    detail = "partition p was attached"
    if renewed:
        bench.target.meanwhile = lambda: bench.context.parking.park(
            OTHER, FaultKind.TABLE_PARTITIONS_CHANGED.value, detail
        )
    bench.commit(1)
    entry = bench.book.get(OTHER)
    assert entry is not None
    assert entry.reason is not None
    (written,) = bench.target.batches
    told = (entry.shown, entry.reason.code, [t.parked for t in written.tables if t.table == OTHER], written.stale)
    anomaly, changed = FaultKind.NET_CHANGE_ANOMALY.value, FaultKind.TABLE_PARTITIONS_CHANGED.value
    expected = (
        (TableStateKind.RELOADING, changed, [], (OTHER,))
        if renewed
        else (TableStateKind.PARKED, anomaly, [anomaly], ())
    )
    assert told == expected


def test_a_handed_over_table_takes_part_again() -> None:
    bench = Bench()
    bench.commit(1, frozenset({KEYED}))
    entry = bench.book.get(KEYED)
    assert entry is not None
    keyless = replace(entry, spec=replace(entry.spec, key=()), state=copied(KEYED))
    bench.book.add(keyless)
    bench.commit(2, frozenset({KEYED}))
    bench.commit(3)
    assert bench.written()[1:] == [{KEYED: None, OTHER: None}] * 2


def table_of(bench: Bench, table: TableId) -> TableEntry:
    entry = bench.book.get(table)
    assert entry is not None
    return entry


def copied_anew(bench: Bench, table: TableId) -> None:
    bench.context.parking.park(table, FaultKind.TABLE_STRUCTURE_CHANGED.value, "a column changed its type")
    bench.book.apply(table, Reload(BatchId(1)))


@pytest.mark.parametrize("complete", [False, True])
def test_a_copy_in_place_of_the_one_that_was_planned_is_not_handed_over(*, complete: bool) -> None:
    """Neither in the middle nor when it is complete: its position would be after the end of the batch."""
    bench = Bench()
    bench.book.amend(KEYED, spec=replace(table_of(bench, KEYED).spec, key=()))

    def another() -> None:
        copied_anew(bench, KEYED)
        assert bench.context.admission.begin_chunk(KEYED, SCHEMAS[KEYED], Lsn(450), None)
        assert not (complete and isinstance(finish_copy(bench.book, KEYED), Refused))

    bench.commit(3, frozenset({KEYED}), meanwhile=another)
    state = TableStateKind.CATCHING_UP if complete else TableStateKind.RELOADING
    assert (table_of(bench, KEYED).kind, bench.written()) == (state, [{OTHER: None}])
    if complete:
        bench.commit(4, frozenset({KEYED}))
        assert (table_of(bench, KEYED).kind, bench.written()[-1]) == (TableStateKind.LIVE, {KEYED: None, OTHER: None})


def test_no_copy_begins_where_one_is_being_handed_over() -> None:
    bench = Bench()
    bench.book.amend(KEYED, spec=replace(table_of(bench, KEYED).spec, key=()))
    began: list[bool] = []

    def during() -> None:
        copied_anew(bench, KEYED)
        began.append(bench.context.admission.begin_chunk(KEYED, SCHEMAS[KEYED], Lsn(450), None) is not None)
        began.append(bench.context.admission.begin_chunk(KEYED, SCHEMAS[KEYED], Lsn(450), None) is not None)

    bench.target.during = during
    bench.commit(3, frozenset({KEYED}))
    handover = {t.table: t.handover for t in bench.target.batches[0].tables}
    assert (began, handover) == ([False, False], {KEYED: True, OTHER: False})
    assert bench.context.admission.begin_chunk(KEYED, SCHEMAS[KEYED], Lsn(450), None)


@pytest.mark.parametrize("declared", [False, True])
def test_only_a_declared_key_is_checked(*, declared: bool) -> None:
    bench = Bench()
    table = KEYED if declared else OTHER
    bench.book.add(replace(table_of(bench, table), state=copied(table, 2)))
    bench.commit(1, frozenset({table}))
    assert [t.table for t in bench.target.batches[0].tables if t.handover or t.parked] == [table]
    assert ({KEYED: FaultKind.TABLE_KEY_NOT_UNIQUE.value, OTHER: None} in bench.written()) is declared


def recorded(mark: str | None, *, ready: bool = True) -> TargetProgress:
    """The record of a target that holds the other table."""
    name = SCHEMAS[OTHER].name
    record = TableRecord(OTHER, name, SCHEMAS[OTHER], ready, ZERO, mark=mark)
    return TargetProgress(Epoch(1), BatchId(0), ZERO, "1", 1, "slot", {OTHER: record})


def test_a_mark_is_written_once_and_makes_an_empty_batch_a_change() -> None:
    bench = Bench()
    bench.stage.begin(recorded(None))
    assert bench.stage.marks.record_checked({OTHER: "a"}, Lsn(1))
    assert not bench.stage.marks.record_checked({OTHER: "a"}, Lsn(2))
    bench.commit_nothing(1)
    bench.commit_nothing(2)
    assert not bench.stage.marks.record_checked({OTHER: "a"}, Lsn(300))
    bench.commit_nothing(3)
    assert bench.marks() == [{OTHER: "a"}]
    assert bench.stage.marks.record_checked({OTHER: "b"}, Lsn(400))
    bench.commit_nothing(4)
    assert bench.marks() == [{OTHER: "a"}, {OTHER: "b"}]


def test_what_the_target_has_already_is_not_written() -> None:
    bench = Bench()
    bench.stage.begin(recorded("a"))
    assert not bench.stage.marks.record_checked({OTHER: "a"}, Lsn(1))
    assert bench.stage.marks.record_checked({OTHER: "b"}, Lsn(1))
    assert not bench.stage.marks.record_checked({OTHER: "a"}, Lsn(1))
    bench.commit_nothing(1)
    assert bench.marks() == []


def test_a_mark_of_a_table_that_is_not_complete_counts_for_nothing() -> None:
    bench = Bench()
    bench.stage.begin(recorded("a", ready=False))
    assert bench.stage.marks.record_checked({OTHER: "a"}, Lsn(1))


def test_a_truncate_takes_the_mark_away_and_looks_from_before_do_not_bring_it_back() -> None:
    bench = Bench()
    bench.stage.begin(recorded("a"))
    assert bench.stage.marks.record_checked({OTHER: "b"}, Lsn(1))
    bench.commit(1, truncated=frozenset({OTHER}))
    assert not bench.stage.marks.record_checked({OTHER: "a"}, Lsn(199))
    bench.commit(2)
    assert bench.stage.marks.record_checked({OTHER: "c"}, Lsn(200))
    bench.commit(3)
    assert bench.marks() == [{OTHER: None}, {}, {OTHER: "c"}]


@pytest.mark.parametrize("way", ["handover", "parked"])
def test_a_hand_over_and_parking_take_the_mark_away(way: str) -> None:
    bench = Bench()
    bench.stage.begin(recorded("a"))
    if way == "parked":
        bench.context.parking.park(OTHER, FaultKind.TABLE_PARTITIONS_CHANGED.value, "detached")
        bench.commit_nothing(1)
    else:
        bench.book.apply(OTHER, Reload(BatchId(1)))
        bench.context.admission.begin_chunk(OTHER, SCHEMAS[OTHER], Lsn(150), None)
        finish_copy(bench.book, OTHER)
        bench.commit(1, frozenset({OTHER}))
    assert bench.marks() == [{OTHER: None}]
    assert [t.parked for t in bench.target.batches[0].tables if t.table == OTHER] == [
        FaultKind.TABLE_PARTITIONS_CHANGED.value if way == "parked" else None
    ]


def test_a_mark_noted_last_is_written_when_the_run_ends() -> None:
    bench = Bench()
    bench.commit(1)
    bench.stage.marks.record_checked({OTHER: "a"}, Lsn(200))
    bench.stage.write_progress()
    bench.stage.write_progress()
    assert bench.marks() == [{}, {OTHER: "a"}]


def test_what_is_written_after_a_failed_batch_names_the_last_transaction_before_it() -> None:
    """The target is back when the run ends. A later transaction on record than the position would be missed by every session."""
    bench = Bench()
    bench.commit(1)
    bench.commit_nothing(2)
    bench.target.away = True
    with pytest.raises(EngineFault):
        bench.commit(3)
    bench.target.away = False
    bench.stage.write_progress()
    assert [(b.batch, b.end, b.last) for b in bench.target.batches[1:]] == [(BatchId(2), Lsn(300), sealed(2).last)]


NAMED = {OTHER: {RelationId(77): TableName("public", "leaf")}}


def test_a_partition_that_a_batch_names_is_written_with_it_until_a_look_behind_it() -> None:
    bench = Bench()
    bench.stage.begin(recorded("a"))
    bench.named = NAMED
    bench.commit(1)
    bench.named = {}
    assert not bench.stage.marks.record_checked({OTHER: "a"}, Lsn(199))
    bench.commit(2)
    assert bench.stage.marks.record_checked({OTHER: "a"}, Lsn(200))
    bench.stage.write_progress()
    assert bench.marks() == [{OTHER: "a,leaf"}, {}, {OTHER: "a"}]


def test_a_partition_that_a_batch_names_is_added_to_what_was_noted() -> None:
    bench = Bench()
    bench.stage.begin(recorded("a"))
    bench.stage.marks.record_checked({OTHER: "b"}, Lsn(100))
    bench.named = NAMED
    bench.commit(1)
    assert bench.marks() == [{OTHER: "b,leaf"}]
    assert not bench.stage.marks.pending


@pytest.mark.parametrize("marked", [True, False])
def test_a_copy_is_handed_over_with_the_partitions_that_were_named_meanwhile(*, marked: bool) -> None:
    bench = Bench()
    bench.stage.begin(recorded("a"))
    bench.book.apply(OTHER, Reload(BatchId(1)))
    bench.context.admission.begin_chunk(OTHER, SCHEMAS[OTHER], Lsn(150), None)
    if marked:
        bench.stage.marks.record_copied({OTHER: "c"})
    bench.named = NAMED
    bench.commit(1)
    bench.named = {}
    finish_copy(bench.book, OTHER)
    bench.commit(2, frozenset({OTHER}))
    assert bench.marks()[-1] == {OTHER: "c,leaf" if marked else None}


def dropped_tables(bench: Bench) -> list[tuple[str, str | None]]:
    return [(report.table, report.left) for report in bench.reports if isinstance(report, TableDropped)]


def test_a_table_that_was_removed_is_dropped_with_the_batch_that_says_so() -> None:
    bench = Bench()
    bench.stage.remove(OTHER, drop=True)
    bench.stage.remove(KEYED, drop=False)
    assert dropped_tables(bench) == []
    bench.commit_nothing(1)
    bench.stage.remove(TableId("tmore"), drop=False)
    bench.commit_nothing(2)
    assert [(batch.removed, batch.dropped) for batch in bench.target.batches] == [
        ((OTHER, KEYED), (OTHER,)),
        ((TableId("tmore"),), ()),
    ]
    assert dropped_tables(bench) == [(OTHER, None)]


def test_a_table_that_cannot_be_dropped_is_forgotten_and_told() -> None:
    bench = Bench()
    bench.target.needed = {OTHER}
    bench.stage.remove(OTHER, drop=True)
    bench.stage.remove(KEYED, drop=True)
    bench.commit_nothing(1)
    assert [(batch.removed, batch.dropped) for batch in bench.target.batches] == [((OTHER, KEYED), (KEYED,))]
    assert sorted(dropped_tables(bench)) == [(KEYED, None), (OTHER, "a view shows it")]
    assert not bench.stage.removals_pending


def test_what_was_to_be_dropped_while_nothing_ran_is_dropped_at_the_start() -> None:
    gone = TableId("tgone")
    bench = Bench(frozenset({gone}))
    bench.stage.begin(recorded("a"))
    assert [(batch.removed, batch.dropped, batch.end) for batch in bench.target.batches] == [
        ((gone,), (gone,), recorded("a").end)
    ]
    assert dropped_tables(bench) == [(gone, None)]
