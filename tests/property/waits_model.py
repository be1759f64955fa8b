"""What the property test of waits runs upon: a target that can be set back, engines whose runs commit to it, and the rows of the server.

Of the engine, the book of tables, the commit stage, the reporter and the link are the product's own; of the server, all but its database.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from engine.link.client import ServerLink
from engine.link.messages import PositionBundle, Registration, Report
from engine.model.batch import SealedBatch, TableChanges, TableFault, TablePart
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, RelationId, SubscriptionName, TableId, TableName
from engine.model.position import Lsn
from engine.model.quarantine import SetAside
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.subscription import ConnectionSpec, SubscriptionSpec, TableSpec
from engine.model.subscription_state import DesiredState, Reason, SubscriptionEvent, SubscriptionState, next_state
from engine.model.table_state import Refused, TableEventKind, TableStateKind
from engine.model.table_state import next_state as next_table
from engine.model.target import BatchCommit, TableRecord, TargetProgress
from engine.pipeline.commit import CommitStage
from engine.pipeline.compute import Computed
from engine.platform.clock import SystemClock
from engine.safety.partition_fingerprints import PartitionFingerprints
from engine.sources.postgres_log.position_form import PostgresLogForm
from engine.tables.planner import CatchUpRanges, PlannedBatch
from engine.tables.registry import TableChange, TableRegistry
from engine.tables.reporter import Reporter
from engine.tables.start_point import StartPoint, entry_at_start
from engine.tables.state import AskResume, CatchingUp, ChunkPlanned, CopyStarted, Pause, Paused, Reload
from server.clock import SystemClock as ServerClock
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.session import WriteSession
from server.gateway.hub import CommandStream
from server.subscriptions.desire import declare_desired
from server.tables.service import TransitionRefused
from tests.fixtures.run_context import run_context
from tests.fixtures.table_copies import finish_copy

NAME = "s"
TABLES = (TableId("t1"), TableId("t2"))
_NOW = ServerClock().now()
_END_OF_TIME = Lsn((1 << 64) - 1)
_ROWS: Any = object()


def _schema(name: str) -> TableSchema:
    columns = (Column("id", SourceType("int4"), 1),)
    return TableSchema(TableName("public", name), RelationId(1), columns, ("id",), KeyMode.KEYED, ReplicaIdentity.FULL)


SCHEMAS = {table: _schema(table) for table in TABLES}


# The target


@dataclass(frozen=True)
class OnTarget:
    """A table there: its rows are the source's as of `at`. `ready` False: changes of it were left out since."""

    at: int
    ready: bool = True
    parked: str | None = None

    @property
    def is_followed(self) -> bool:
        return self.ready and self.parked is None


@dataclass
class ModelTarget:
    """Tables, and the record of up to where they are. A run that begins fences off those of lower epochs."""

    record: int = 10
    batch: int = 0
    epoch: int = 0
    tables: dict[TableId, OnTarget] = field(default_factory=lambda: dict.fromkeys(TABLES, OnTarget(10)))
    copies: list[tuple[int, int, int, dict[TableId, OnTarget]]] = field(default_factory=list)
    """What it was behind each commit."""

    def tuning(self) -> dict[str, float]:
        return {}

    def expect(self, subscription: SubscriptionName, position: Lsn) -> None: ...

    def reached(self, subscription: SubscriptionName, position: Lsn) -> None: ...

    def check_place(self) -> None:
        """Never raises: the target stays in its place for as long as a run lasts."""

    def commit(self, batch: BatchCommit) -> dict[TableId, SetAside]:
        if batch.epoch < self.epoch:
            raise EngineFault(FaultKind.EPOCH_LOST, NAME, "another engine has taken the subscription over")
        end = batch.end.value
        for table in batch.tables:
            before = self.tables[table.table]
            if table.parked is not None:
                self.tables[table.table] = replace(before, parked=table.parked)
            elif table.handover or table.resumed or before.is_followed:
                self.tables[table.table] = OnTarget(end)
        for stale in batch.stale:
            self.tables[stale] = replace(self.tables[stale], ready=False)
        self.pass_by(end)
        self.record, self.batch = end, batch.batch
        self.copies.append((self.record, self.batch, self.epoch, dict(self.tables)))
        return {}

    def pass_by(self, end: int) -> None:
        """No table that continues was changed up to `end`."""
        for table, found in self.tables.items():
            if found.is_followed:
                self.tables[table] = replace(found, at=end)

    def set_back(self, copy: int) -> None:
        """Put an older copy of it in its place."""
        if self.copies:
            self.record, self.batch, self.epoch, tables = self.copies[copy % len(self.copies)]
            self.tables = dict(tables)

    def progress(self) -> TargetProgress:
        records = {
            t: TableRecord(t, SCHEMAS[t].name, SCHEMAS[t], found.ready, Lsn(found.at), parked=found.parked)
            for t, found in self.tables.items()
        }
        return TargetProgress(Epoch(self.epoch), BatchId(self.batch), Lsn(self.record), "1", 1, "slot", records)


# Engines


class Run:
    """One run of an engine, of which a test makes the steps. `meanwhile` is called before each state of a table is reported."""

    def __init__(self, engine: Engine, target: ModelTarget) -> None:
        self._reporter = reporter = engine.reporter
        self._target = target
        target.epoch = engine.epoch
        self.number = reporter.run
        self.end = target.record
        self.meanwhile: Callable[[], None] = lambda: None
        self.book = TableRegistry()
        self.book.subscribe(self._table)
        spec, progress = engine.spec, target.progress()
        point = StartPoint(cast("Any", None), progress, fresh=False)
        self._context = run_context(spec, target, self.book, reporter, position_write_s=10)
        self.stage = CommitStage(
            self._context,
            progress.end,
            cast("Any", None),
            PartitionFingerprints(lambda mark, _: mark, lambda _: {}),
        )
        self.stage.begin(progress)
        for table in spec.tables:
            self.book.add(entry_at_start(table, point))
        self._next = BatchId(target.batch + 1)

    def _table(self, change: TableChange) -> None:
        if change.shown:
            self.meanwhile()
            self._reporter.table(change.entry, change.position)

    def report_position(self) -> None:
        """Any thread of a run may read the position and report it."""
        self._reporter.progress(
            run=self.number,
            applied=self.stage.applied.visible,
            captured=None,
            source=None,
            lag_seconds=0.0,
            reader=None,
            times=None,
        )

    def commit(self, more: int, parks: TableId | None, *, rows: bool) -> None:
        """A batch with changes of every table that follows (`rows`), or with nothing that concerns them."""
        after, self.end = self.end, self.end + more
        number, self._next = self._next, BatchId(self._next + 1)
        batch = SealedBatch(Lsn(after), Lsn(self.end), 0, (), (), 0, 0)
        entries = {entry.table: entry for entry in self.book.all()}
        chunks = {
            table: entry.chunk
            for table, entry in entries.items()
            if isinstance(entry.state, CatchingUp) and entry.chunk is not None
        }
        handover = chunks.keys()
        resumed = {t for t, entry in entries.items() if isinstance(entry.state, Paused) and entry.state.resuming}
        live = {t for t, entry in entries.items() if entry.kind is TableStateKind.LIVE}
        taking = sorted(live | handover | resumed)
        if not rows and not (handover or resumed):
            taking = []
        waiting = {t: e.state.applied for t, e in entries.items() if isinstance(e.state, CatchingUp | Paused)}
        every = [TablePart(t, (SCHEMAS[t],), batch.after if t in live else waiting[t]) for t in taking]
        parts = tuple(part for part in every if part.table not in handover)
        missed = CatchUpRanges((), (), tuple(part for part in every if part.table in handover))
        for table, chunk in chunks.items():
            self.book.apply(table, ChunkPlanned(chunk.number))
        planned = PlannedBatch(
            number,
            batch,
            (),
            parts,
            frozenset(),
            frozenset(resumed),
            chunks=chunks,
            missed=missed,
            generations={entry.table: entry.generation for entry in entries.values()},
        )
        fault = TableFault(FaultKind.VALUE_OUT_OF_DOMAIN.value, "a value does not fit")
        found = [TableChanges(t, False, None, _ROWS, None, fault=fault if t == parks else None) for t in taking]
        changes = tuple(change for change in found if change.table not in handover)
        of_copies = tuple(change for change in found if change.table in handover)
        if not taking and live:
            # None of its changes concerns them, so they are part of it and as they were.
            parts = tuple(TablePart(t, (SCHEMAS[t],), batch.after) for t in sorted(live))
            planned = replace(planned, parts=parts)
        self.stage.commit(Computed(planned, changes, 0, "driver", 0.0, 0, 0.0, missed=of_copies), must_write=False)
        if self.stage.applied.written < batch.end:
            self._target.pass_by(self.end)
        for table in sorted(handover | resumed):
            entry = self.book.get(table)
            if entry is not None and entry.spec.paused:
                self.pause(table)

    def pause(self, table: TableId) -> None:
        self.book.apply(table, Pause(self._next, Lsn(self.end), taken_in=False))

    def resume(self, table: TableId) -> None:
        if isinstance(self.book.apply(table, AskResume()), Refused):
            self.book.apply(table, Reload(self._next), Lsn(self.end))

    def reload(self, table: TableId) -> None:
        self.book.apply(table, Reload(self._next), Lsn(self.end))

    def copy(self, table: TableId) -> None:
        """Its copy is made, and waits for the batch that puts it into place."""
        entry = self.book.get(table)
        if entry is not None and entry.kind is TableStateKind.REGISTERED:
            self.book.apply(table, CopyStarted(self._next))
        if self._context.admission.begin_chunk(table, SCHEMAS[table], Lsn(self.end), None):
            finish_copy(self.book, table)


class Engine:
    """An engine process, of which nothing is sent but by the test."""

    def __init__(self, number: int, epoch: int, rows: ControlRows) -> None:
        self.id = f"e{number}"
        self.epoch = epoch
        self.alive = True
        self.stream: CommandStream | None = None
        self.desired = DesiredState.RUNNING
        self.paused: set[TableId] = set()
        self.reloads: dict[str, TableId] = {}
        """Reloads that were asked for and have not ended."""
        self.heard: set[str] = set()
        self.state = SubscriptionState.CREATED
        self.run: Run | None = None
        self.holds = False
        """It has the target open, also while it is paused."""
        self.link = ServerLink(
            "http://127.0.0.1:1", "", Registration(instance=self.id, name="e", version=""), lambda _: None
        )
        self.reporter = Reporter(self.spec, self.link.report, SystemClock(), PostgresLogForm())
        self.ended: list[Run] = []
        """Runs that have ended; a thread of theirs may still report."""
        self.sequence = 0
        self.in_flight: tuple[int, list[Report]] | None = None
        self.hear(rows)

    @property
    def is_to_run(self) -> bool:
        return self.desired is DesiredState.RUNNING and self.state is not SubscriptionState.FAILED

    @property
    def spec(self) -> SubscriptionSpec:
        connection = ConnectionSpec("c", "none", {})
        specs = tuple(
            TableSpec(t, TableName("public", t), TableName("public", t), paused=t in self.paused) for t in TABLES
        )
        return SubscriptionSpec(SubscriptionName(NAME), Epoch(self.epoch), connection, connection, specs, "slot")

    def move(self, event: SubscriptionEvent) -> None:
        after = next_state(self.state, event)
        if not isinstance(after, Refused) and after is not self.state:
            self.state = after
            self.reporter.state(after)

    def begin(self, target: ModelTarget) -> None:
        """A start and the beginning of its run."""
        self.move(SubscriptionEvent.START)
        if target.epoch > self.epoch:
            self.end(FaultKind.EPOCH_LOST)
            return
        self.holds = True
        if self.ended:
            self.ended[-1].book.retire()
        self.run = run = Run(self, target)
        self.move(SubscriptionEvent.STARTED)
        for table in self.reloads.values():
            entry = run.book.get(table)
            if entry is not None and entry.kind in {TableStateKind.LIVE, TableStateKind.PARKED}:
                run.reload(table)
        run.report_position()

    def commit(self, more: int, parks: TableId | None, *, rows: bool) -> None:
        """Commit a batch of its run, then report the position. An engine that lost its epoch finds that out here."""
        assert self.run is not None
        try:
            self.run.commit(more, parks, rows=rows)
        except EngineFault as fault:
            self.end(fault.kind)
            return
        for request, table in list(self.reloads.items()):
            entry = self.run.book.get(table)
            if entry is not None and entry.kind in {TableStateKind.LIVE, TableStateKind.PAUSED, TableStateKind.PARKED}:
                del self.reloads[request]
                self.reporter.reload(request, "failed" if entry.kind is TableStateKind.PARKED else "succeeded")
        self.run.report_position()

    def end(self, fault: FaultKind | None) -> None:
        """The run ends: as was declared, or with a fault that is tried again, or with one that is not."""
        if self.run is not None:
            self.ended.append(self.run)
            self.run = None
            self.reporter.end_run()
        if fault is None:
            return
        again = fault is FaultKind.SOURCE_UNREACHABLE
        self.state = SubscriptionState.STARTING if again else SubscriptionState.FAILED
        self.holds = False
        self.reporter.state(self.state, Reason(fault.value, "s: it is", "Mend it."))

    def rest(self) -> None:
        """Do as was declared where that is not to run."""
        if self.desired is DesiredState.PAUSED:
            self.move(SubscriptionEvent.PAUSE)
            self.holds = True
            self.move(SubscriptionEvent.PAUSED)
        elif self.desired is DesiredState.STOPPED:
            self.move(SubscriptionEvent.STOP)
            self.holds = False
            self.move(SubscriptionEvent.STOPPED)

    def hear(self, rows: ControlRows) -> None:
        """Take in what was declared and asked for."""
        desired, paused = DesiredState(rows.subscription.desired_state), rows.paused
        if self.state is SubscriptionState.FAILED and rows.tried_again:
            self.state = SubscriptionState.CREATED
        rows.tried_again, self.desired = False, desired
        resumed, newly, self.paused = self.paused - paused, paused - self.paused, set(paused)
        asked = {request: table for request, table in rows.reloads.items() if request not in self.heard}
        self.heard |= asked.keys()
        self.reloads |= asked
        if self.run is not None:
            for spec in self.spec.tables:
                self.run.book.amend(spec.table, spec=spec)
            for table in newly:
                self.run.pause(table)
            for table in resumed:
                self.run.resume(table)
            for table in asked.values():
                self.run.reload(table)
        if desired is not DesiredState.RUNNING:
            self.end(None)
            self.rest()

    def tell_all(self) -> None:
        """As at the beginning of a stream."""
        last = self.run or (self.ended[-1] if self.ended else None)
        if last is not None:
            last.book.report()
        self.reporter.state(self.state)
        if self.run is not None:
            self.run.report_position()

    def take(self, most: int) -> tuple[int, list[Report]] | None:
        """The bundle that is on its way, or the next one."""
        if self.in_flight is None:
            outgoing = self.link._outgoing
            if not len(outgoing):
                return None
            self.sequence += 1
            self.in_flight = self.sequence, outgoing.take_reports(most)
            self.link._let_overtake(*self.in_flight)
        return self.in_flight

    def taken_in(self) -> None:
        """The server's answer to the bundle that is on its way has arrived."""
        self.in_flight, self.link._overtaken = None, None

    def take_positions(self) -> PositionBundle | None:
        """Positions that the link sends while a bundle is on its way. A wait needs each."""
        self.link._demanded[NAME] = _END_OF_TIME
        return self.link._positions_ahead() if self.in_flight is not None else None


# The server's rows


class _Session:
    """What `declare_desired` needs of a session."""

    def now(self) -> datetime:
        return _NOW

    def __getattr__(self, _: str) -> Any:
        return lambda *_args: None


class ControlRows:
    """What survives a restart of the server."""

    def __init__(self) -> None:
        running, created = DesiredState.RUNNING.value, SubscriptionState.CREATED.value
        self.subscription = SubscriptionRow(
            id=1, name=NAME, source_id=1, target_id=1, slot="slot", desired_state=running, state=created, state_at=_NOW,
            stamp="", created_at=_NOW, updated_at=_NOW,
        )  # fmt: skip
        self.tables = {
            table: TableRow(
                id=table, subscription_id=1, schema_name="public", name=table, target_schema="public",
                target_name=table, desired_state=running, state=TableStateKind.REGISTERED.value, state_at=_NOW, stamp="",
                created_at=_NOW,
            )
            for table in TABLES
        }  # fmt: skip
        self.owner = ""
        self.sequences: dict[str, int] = {}
        self.reloads: dict[str, TableId] = {}
        """Those that have not ended."""
        self.asked = 0
        self.tried_again = False

    @property
    def paused(self) -> set[TableId]:
        return {table for table, row in self.tables.items() if row.desired_state == "paused"}

    def desire(self, desired: DesiredState) -> None:
        failed = self.subscription.state == SubscriptionState.FAILED
        with suppress(TransitionRefused):
            declare_desired(cast("WriteSession", _Session()), self.subscription, desired)
            self.tried_again |= failed

    def pause(self, table: TableId, *, paused: bool) -> None:
        """As a PATCH of the table does, where it is not refused."""
        row = self.tables[table]
        state = TableStateKind(row.state)
        refused = state is TableStateKind.PARKED
        if paused:
            refused = state is not TableStateKind.PAUSED and isinstance(
                next_table(state, TableEventKind.PAUSE), Refused
            )
        if not refused:
            row.desired_state = "paused" if paused else "running"

    def reload(self, table: TableId) -> None:
        """As a POST of a reload does, where it is not refused."""
        row = self.subscription
        resting = row.desired_state != "running" or row.state == SubscriptionState.FAILED
        refused = isinstance(next_table(TableStateKind(self.tables[table].state), TableEventKind.RELOAD), Refused)
        if not (resting or refused or table in self.reloads.values()):
            self.asked += 1
            self.reloads[f"l{self.asked}"] = table

    def lose_engine(self) -> None:
        row = self.subscription
        after = next_state(SubscriptionState(row.state), SubscriptionEvent.LOST)
        if not isinstance(after, Refused):
            row.state, row.code, row.reason, row.remedy = after.value, None, None, None
