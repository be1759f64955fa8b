"""Planner, book and commit stage under whatever can happen to tables, in any order, with kills.

Batches are planned ahead of their commits, as in a run; in between tables are paused, resumed, held for approval, reloaded, copied and
parked. Each batch holds two changes of each table. What readers see of a table must at all times be the changes up to some position,
each once and in order; up to the end of what is committed, where the table is live or a start would take it for complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.link.messages import Report
from engine.model.batch import LogRange, RelationSeen, SealedBatch, TableChanges, TablePart
from engine.model.identity import BatchId, Epoch, Ordinal, RelationId, SubscriptionName, TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.quarantine import SetAside
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.subscription import ConnectionSpec, SchemaPolicy, SubscriptionSpec, TableSpec
from engine.model.table_state import Refused, TableStateKind
from engine.model.target import BatchCommit, TableRecord, TargetProgress
from engine.pipeline.commit import CommitStage
from engine.pipeline.compute import Computed
from engine.platform.clock import SystemClock
from engine.safety.partition_fingerprints import PartitionFingerprints
from engine.sources.postgres_log.position_form import PostgresLogForm
from engine.tables.planner import PlannedBatch, Planner
from engine.tables.registry import TableRegistry
from engine.tables.reporter import Reporter
from engine.tables.schema_reading import SchemaReading
from engine.tables.start_point import StartPoint, entry_at_start
from engine.tables.state import (
    Approve,
    AskResume,
    ChunkVoided,
    CopyLost,
    CopyStarted,
    Pause,
    Reload,
    awaits_approval,
    awaits_recopy,
)
from tests.fixtures.run_context import run_context
from tests.fixtures.table_copies import finish_copy

TABLES = (TableId("ta"), TableId("tb"))
LENGTH = 100
"""Bytes of log that a batch is long; its changes lie at a quarter and three quarters of it."""
AHEAD = 3
RENEWED, FINAL = "table_partitions_changed", "value_out_of_domain"
NOTHING_TO_COMPUTE = cast("Any", None)
tables = st.sampled_from(TABLES)


def up_to(position: int) -> list[int]:
    """Positions of the changes of a table up to this one."""
    return [
        at
        for batch in range(position // LENGTH + 1)
        for at in (batch * LENGTH + 25, batch * LENGTH + 75)
        if at <= position
    ]


def _changes(ranges: Sequence[LogRange], parts: Sequence[TablePart]) -> tuple[TableChanges, ...]:
    positions = [at for r in ranges for at in (r.start // 10 * LENGTH + 25, r.start // 10 * LENGTH + 75)]
    return tuple(
        TableChanges(part.table, False, None, cast("Any", [at for at in positions if at > part.after.value]), None)
        for part in parts
    )


class MemoryTarget:
    """Keeps for each table the positions of the changes that it has, and its record."""

    def __init__(self) -> None:
        self.rows: dict[TableId, list[int]] = {}
        self.hidden: dict[TableId, list[int] | None] = {}
        """None: not all of it is there yet."""
        self.records: dict[TableId, TableRecord] = {}
        self.end, self.batch = ZERO, BatchId(0)

    def tuning(self) -> dict[str, float]:
        return {}

    def expect(self, subscription: SubscriptionName, position: Lsn) -> None: ...

    def reached(self, subscription: SubscriptionName, position: Lsn) -> None: ...

    def check_place(self) -> None: ...

    def commit(self, batch: BatchCommit) -> dict[TableId, SetAside]:
        assert batch.end >= self.end
        for one in batch.tables:
            record = self.records.get(one.table)
            if one.parked is not None:
                if record is not None:
                    self.records[one.table] = replace(record, parked=one.parked)
                continue
            if one.handover:
                copied = self.hidden.pop(one.table)
                assert copied is not None, "a copy was handed over before it was complete"
                self.rows[one.table] = copied
            else:
                assert record is not None, "changes for a table that does not exist on the target"
                assert one.resumed or (record.ready and record.parked is None), "changes for a table that lacks some"
            self.rows[one.table] = self.rows[one.table] + [
                at for change in one.changes for at in cast("Any", change.inserts)
            ]
            self.records[one.table] = TableRecord(one.table, one.target, one.schema, ready=True, applied=batch.end)
        for table in batch.stale:
            self.records[table] = replace(self.records[table], ready=False)
        self.end, self.batch = batch.end, batch.batch
        return {}


class TableLife(RuleBasedStateMachine):
    """One subscription of two tables."""

    @initialize(
        policy=st.sampled_from([SchemaPolicy.APPLY, SchemaPolicy.ASK]), altered=st.sets(st.integers(0, 30), max_size=4)
    )
    def begin(self, policy: SchemaPolicy, altered: set[int]) -> None:
        self.policy, self.altered = policy, altered
        self.target = MemoryTarget()
        self.specs = {table: TableSpec(table, _name(table), _name(table)) for table in TABLES}
        self._start()

    def _start(self) -> None:
        """A run begins with what the target knows."""
        self.planned: deque[PlannedBatch] = deque()
        self.copying: dict[TableId, Lsn] = {}
        """Copies that are being read under the last snapshot."""
        self.waiting: list[TableId] = []
        """Those that are to begin under it."""
        self.snapshot = ZERO
        self.book = TableRegistry()
        progress = TargetProgress(
            Epoch(1), self.target.batch, self.target.end, "1", 1, "slot", dict(self.target.records)
        )
        for table in TABLES:
            entry = entry_at_start(self.specs[table], StartPoint(cast("Any", None), progress, fresh=False))
            if entry.kind is TableStateKind.LIVE:
                assert self.target.rows[table] == up_to(self.target.end.value), "a start took a table for complete"
            self.book.add(entry)
        self.sealed = self.target.end.value
        self.planner = Planner(
            self.book,
            SchemaReading(
                lambda _payloads: lambda payload, *_: self._schema(TableId(payload[4:].decode()), int(payload[:4])),
                lambda payload: _name(TableId(payload[4:].decode())),
            ),
            BatchId(progress.batch + 1),
            self.policy,
        )
        connection = ConnectionSpec("c", "none", {})
        spec = SubscriptionSpec(
            SubscriptionName("s"), Epoch(1), connection, connection, tuple(self.specs.values()), "slot"
        )
        spec = replace(spec, schema_changes=self.policy)
        reporter = Reporter(spec, list[Report]().append, SystemClock(), PostgresLogForm())
        self.context = run_context(spec, self.target, self.book, reporter, position_write_s=1e-9)
        self.stage = CommitStage(
            self.context,
            progress.end,
            NOTHING_TO_COMPUTE,
            PartitionFingerprints(lambda mark, _: mark, lambda _: {}),
        )
        self.stage.begin(progress)

    def _schema(self, table: TableId, batch: int) -> TableSchema:
        """The structure of a table in a batch: one column more since each that alters it."""
        count = 2 + sum(altering <= batch for altering in self.altered)
        columns = tuple(Column(f"c{n}", SourceType("int4"), n) for n in range(1, count + 1))
        relation = RelationId(1 + TABLES.index(table))
        return TableSchema(_name(table), relation, columns, ("c1",), KeyMode.KEYED, ReplicaIdentity.DEFAULT)

    def _renew(self) -> None:
        """Between two plannings. In a run a table to be copied again waits for that from the next planning on; here, from the next rule
        on."""
        for table in TABLES:
            entry = self.book.get(table)
            if entry is not None and awaits_recopy(entry.state):
                self._defer(Reload, table)

    def _defer(self, event: type[CopyStarted | CopyLost | Reload], table: TableId) -> None:
        if not isinstance(self.book.apply(table, event(self.planner.next_number), Lsn(self.sealed)), Refused):
            self.planner.leave(table)

    def _state(self, table: TableId) -> TableStateKind:
        entry = self.book.get(table)
        assert entry is not None
        return entry.kind

    # What the pipeline does.

    @precondition(lambda self: len(self.planned) < AHEAD)
    @rule(meanwhile=st.none() | tables)
    def plan(self, meanwhile: TableId | None) -> None:
        """`meanwhile`: a copy of this table ends after what a run does between two plannings, and before this planning."""
        self._renew()
        if meanwhile is not None:
            self.end_copy(meanwhile)
        number, after = self.sealed // LENGTH, self.sealed
        self.sealed += LENGTH
        seen = tuple(
            RelationSeen(Ordinal(10 * number), RelationId(1 + TABLES.index(table)), f"{number:04}{table}".encode())
            for table in TABLES
            if number in self.altered or not self.planned
        )
        ranges = (LogRange(Ordinal(10 * number), Ordinal(10 * number + 10), Lsn(self.sealed)),)
        batch = SealedBatch(Lsn(after), Lsn(self.sealed), 2, ranges, seen, 1, 1)
        self.planned.append(self.planner.plan(batch))

    @precondition(lambda self: self.planned)
    @rule()
    def commit(self) -> None:
        planned = self.planned.popleft()
        changes = _changes(planned.ranges, planned.parts)
        missed = () if planned.missed is None else _changes(planned.missed.ranges, planned.missed.parts)
        self.stage.commit(Computed(planned, changes, 0, "driver", 0.0, 0, 0.0, missed=missed), must_write=False)
        for table in TABLES:
            if table in self.stage.handed_over | planned.resumed and self.specs[table].paused:
                self.pause(table)

    @rule()
    def kill(self) -> None:
        self._start()

    # What copies do.

    @precondition(lambda self: not self.copying)
    @rule(ahead=st.integers(0, 3), begun_late=st.booleans())
    def take_snapshot(self, ahead: int, begun_late: bool) -> None:
        missing = [
            t
            for t in TABLES
            if self._state(t) in {TableStateKind.REGISTERED, TableStateKind.RELOADING, TableStateKind.COPYING}
        ]
        missing = [t for t in missing if not self.specs[t].paused]
        for table in missing:
            self._defer(CopyStarted, table)
        self.context.admission.snapshot_follows(missing)
        self.snapshot = Lsn(self.sealed + ahead * LENGTH // 2)
        self.waiting = missing
        if not begun_late:
            self.begin_copies()

    @rule()
    def begin_copies(self) -> None:
        for table in self.waiting:
            schema = self._schema(table, max(0, self.snapshot.value - 1) // LENGTH)
            if self.context.admission.begin_chunk(table, schema, self.snapshot, None):
                self.target.hidden[table] = None
                self.copying[table] = self.snapshot
        self.waiting = []

    @rule(table=tables)
    def end_copy(self, table: TableId) -> None:
        """Its last rows were written, maybe while something else called for another copy."""
        position = self.copying.pop(table, None)
        if position is None:
            return
        self.target.hidden[table] = up_to(position.value)
        if isinstance(finish_copy(self.book, table), Refused):
            del self.target.hidden[table]

    @rule(table=tables, held=st.booleans())
    def lose_copy(self, table: TableId, *, held: bool) -> None:
        """`held`: since the source's log has no room for it, so that it waits."""
        if self.copying.pop(table, None) is not None:
            self.target.hidden.pop(table, None)
            self.book.apply(table, ChunkVoided())
            if held and self._state(table) in {TableStateKind.COPYING, TableStateKind.RELOADING}:
                self._defer(CopyLost, table)

    # What people ask for, and what is found.

    @rule(table=tables)
    def pause(self, table: TableId) -> None:
        self._declare(table, paused=True)
        if self._state(table) in {TableStateKind.LIVE, TableStateKind.PAUSED, TableStateKind.REGISTERED}:
            taken_in = self.planner.leave(table)
            self.book.apply(table, Pause(self.planner.next_number, Lsn(self.sealed), taken_in))

    @rule(table=tables)
    def resume(self, table: TableId) -> None:
        self._declare(table, paused=False)
        if isinstance(self.book.apply(table, AskResume()), Refused):
            self._defer(Reload, table)

    def _declare(self, table: TableId, *, paused: bool) -> None:
        self.specs[table] = replace(self.specs[table], paused=paused)
        self.book.amend(table, spec=self.specs[table])

    @rule(table=tables)
    def approve(self, table: TableId) -> None:
        entry = self.book.get(table)
        assert entry is not None
        if awaits_approval(entry.state) and isinstance(self.book.apply(table, Approve()), Refused):
            self._defer(Reload, table)

    @rule(table=tables)
    def reload(self, table: TableId) -> None:
        self._defer(Reload, table)

    @rule(table=tables, code=st.sampled_from([RENEWED, FINAL]), at_once=st.booleans())
    def park(self, table: TableId, code: str, at_once: bool) -> None:
        self.context.parking.park(table, code, "something was found")
        if at_once:
            self._renew()

    # What holds.

    @invariant()
    def readers_see_all_changes_up_to_some_position(self) -> None:
        for rows in self.target.rows.values() if hasattr(self, "target") else ():
            assert rows == up_to(rows[-1] if rows else 0)

    @invariant()
    def live_tables_are_as_of_the_last_commit(self) -> None:
        for table in TABLES if hasattr(self, "target") else ():
            if self._state(table) is TableStateKind.LIVE:
                assert self.target.rows[table] == up_to(self.target.end.value), table

    def teardown(self) -> None:
        """No table is stuck: whatever its state was, it becomes live when no further rule interferes."""
        if not hasattr(self, "target"):
            return
        self.altered = {batch for batch in self.altered if batch < self.sealed // LENGTH}
        for _ in range(3):
            for table in TABLES:
                self.approve(table)
                if self._state(table) is TableStateKind.PARKED:
                    self.reload(table)
                if self.specs[table].paused:
                    self.resume(table)
            self._go_on()
        assert [self._state(table) for table in TABLES] == [TableStateKind.LIVE] * 2, [self.book.get(t) for t in TABLES]
        self.live_tables_are_as_of_the_last_commit()

    def _go_on(self) -> None:
        for table in TABLES:
            self.end_copy(table)
        for _ in range(8):
            self.plan(None)
            if not self.copying:
                self.take_snapshot(0, begun_late=False)
            for table in TABLES:
                self.end_copy(table)
            while self.planned:
                self.commit()


def _name(table: TableId) -> TableName:
    return TableName("public", table)


TestTableLife = TableLife.TestCase
TestTableLife.settings = settings(max_examples=150, stateful_step_count=40)
