"""Reports of the engine about one subscription, as messages of the control channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from engine.link.cycles import LastCyclePart
from engine.link.message import Problem
from engine.link.messages import (
    AwayPart,
    BatchReport,
    ColumnPart,
    CopyProgress,
    EventReport,
    FoundTable,
    LedgerPart,
    Progress,
    ReloadReport,
    Report,
    RowsSetAside,
    SchemaVersion,
    SubscriptionStateReport,
    TableDropped,
    TableRenamed,
    TablesFound,
    TableStateReport,
    TicketReport,
)
from engine.link.partitions import LoadedPartitionPart
from engine.model.batch import TableChanges
from engine.model.copies import CopyProgress as CopyFigures
from engine.model.cycles import LastCycle
from engine.model.fault import FaultKind
from engine.model.identity import TableId, TableName, TicketId
from engine.model.ledger import BatchLedger
from engine.model.merged_logs import Away
from engine.model.partitions import LoadReason
from engine.model.position import Lsn
from engine.model.positions import ONLY_LOG, PositionForm
from engine.model.schema import TableSchema
from engine.model.source import ReaderStatus
from engine.model.subscription import ApplyMode, SubscriptionSpec, TableSpec
from engine.model.subscription_state import Reason, SubscriptionState
from engine.model.ticket import TicketState
from engine.model.values import value_type
from engine.platform.clock import Clock
from engine.platform.fault_policy import policy
from engine.tables.known_catalog import Settled
from engine.tables.planner import PlannedBatch
from engine.tables.registry import TableChange, TableEntry

Send = Callable[[Report], None]


class Evidence(StrEnum):
    """How the engine learnt a schema."""

    COPIED = "copied"
    """A copy described the table."""
    LOG = "log"
    """A relation record in the log announced it; the catalog completed it."""
    DDL_TRIGGER = "ddl_trigger"
    """A DDL message of the source's event trigger, in the transaction that changed the table."""
    CATALOG = "catalog"
    """The catalog shows it; the log has not announced it, because no row followed the change."""
    TARGET = "target"
    """The target's record contains it when a run starts. The process that wrote it ended before it could report it."""


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Times of one batch: milliseconds of the monotonic clock (`_ms`), and wall times in microseconds since 1970 UTC (`_us`)."""

    sealed_ms: float
    job_ms: float
    committed_ms: float
    sealed_us: int
    committed_us: int
    path: Literal["driver", "spark"]
    mode: ApplyMode
    tuning: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LoadedPartition:
    """A partition that a reload loads. `generation`: number of its last load on the target."""

    name: str
    reason: LoadReason
    generation: int


@dataclass(frozen=True, slots=True)
class TicketPassage:
    """State of a ticket; fields as in `engine.link.messages.TicketReport`, wall times in microseconds since 1970 UTC."""

    position: Lsn | None = None
    until: Lsn | None = None
    written_us: int | None = None
    captured_us: int | None = None
    sealed_us: int | None = None
    computed_us: int | None = None
    applied_us: int | None = None
    transactions: int | None = None
    commands: int | None = None
    counted_since_us: int | None = None


@dataclass(frozen=True, slots=True)
class CopyTotals:
    """Estimated size of what is copied, and the rate over the last seconds; None if unknown. `goes_on`: all copies are resumed ones."""

    rows: int | None
    bytes: int | None
    rows_per_second: float | None
    goes_on: bool = False


class Reporter:
    """Sends the reports of one subscription and epoch. Calls never block on the network."""

    def __init__(self, spec: SubscriptionSpec, send: Send, clock: Clock, form: PositionForm) -> None:
        """`form`: of the positions in events."""
        self._name = str(spec.name)
        self._epoch = int(spec.epoch)
        self._send = send
        self._clock = clock
        self._form = form
        self.run = 1
        """Number of the current run, or of the next one between two runs."""

    def end_run(self) -> None:
        """The run has ended. With the next reported state its positions become invalid, also those that one of its threads reports late."""
        self.run += 1

    def state(self, state: SubscriptionState, reason: Reason | None = None) -> None:
        """Report the subscription's state."""
        self._send(
            SubscriptionStateReport(
                subscription=self._name,
                epoch=self._epoch,
                run=self.run,
                state=state.value,
                code=reason.code if reason else None,
                reason=reason.reason if reason else None,
                remedy=reason.remedy if reason else None,
            )
        )

    def table_changed(self, change: TableChange) -> None:
        """As TableListener."""
        if change.shown:
            self.table(change.entry, change.position)

    def table(self, entry: TableEntry, position: Lsn | None) -> None:
        """Report a table's state. `position`: as of which it is in this state; None if unknown."""
        self._send(
            TableStateReport(
                subscription=self._name,
                epoch=self._epoch,
                table=entry.table,
                schema=entry.spec.source.schema,
                name=entry.spec.source.name,
                state=entry.shown.value,
                code=entry.reason.code if entry.reason else None,
                reason=entry.reason.reason if entry.reason and entry.reason.known else None,
                remedy=entry.reason.remedy if entry.reason else None,
                position=position,
            )
        )

    def renamed(self, spec: TableSpec) -> None:
        """Report the new name of a table on the source."""
        self._send(
            TableRenamed(
                subscription=self._name,
                epoch=self._epoch,
                table=spec.table,
                schema=spec.source.schema,
                name=spec.source.name,
            )
        )

    def found(self, tables: Mapping[TableName, bool]) -> None:
        """Report new tables on the source, and for each whether its updates and deletes can be replicated."""
        found = tuple(FoundTable(schema=t.schema, name=t.name, identity=known) for t, known in tables.items())
        self._send(TablesFound(subscription=self._name, epoch=self._epoch, tables=found))

    def dropped(self, table: TableId, left: str | None = None) -> None:
        """Report that a removed table was dropped on the target. `left`: why it could not be; None if it was."""
        remedy = None if left is None else policy(FaultKind.TABLE_NOT_DROPPED).remedy
        self._send(TableDropped(subscription=self._name, epoch=self._epoch, table=table, left=left, remedy=remedy))

    def set_aside(self, counts: Mapping[TableId, int], *, whole: bool = False) -> None:
        """Report the number of quarantined rows per table. `whole`: tables that are not in `counts` have none."""
        found = {str(table): count for table, count in counts.items()}
        self._send(RowsSetAside(subscription=self._name, epoch=self._epoch, counts=found, whole=whole))

    def schema(
        self, entry: TableEntry, schema: TableSchema, position: Lsn, learnt: Evidence, changes: tuple[str, ...] = ()
    ) -> None:
        """Report the schema in force at `position`. `changes`: differences from the schema before, as text."""
        columns = tuple(
            ColumnPart(
                name=c.name,
                type=c.type.name,
                attnum=c.attnum,
                nullable=c.nullable,
                mapped=value_type(c).kind.value,
            )
            for c in schema.columns
        )
        self._send(
            SchemaVersion(
                subscription=self._name,
                epoch=self._epoch,
                table=entry.table,
                position=position,
                columns=columns,
                key=schema.key,
                changes=changes,
                learnt=learnt.value,
                certain=not schema.inferred,
            )
        )

    def progress(
        self,
        *,
        run: int,
        applied: Lsn,
        captured: Lsn | None,
        source: Lsn | None,
        lag_seconds: float | None,
        reader: ReaderStatus | None,
        times: BatchTimes | None,
        known: Settled | None = None,
        of_logs: Mapping[str, Lsn] = MappingProxyType({}),
    ) -> None:
        """Report the subscription's positions. `lag_seconds`: age of the oldest commit that is not visible on the target, 0 if there is
        none; None if no table is live.

        `source`: end of the source's log as last read; `captured` replaces it if that is later. `run`: the run that the positions belong
        to. `reader`: as the source reported it last. `known`: the last check of the catalog that is in force.
        `of_logs`: `applied` in each of several logs, by name.
        """
        logs = reader.logs if reader is not None else ()
        lag_bytes = self._form.lag(source, applied) if source else None
        if logs and of_logs:
            lag_bytes = sum(max(0, log.end.value - of_logs[log.name].value) for log in logs if log.name in of_logs)
        if source is not None and captured is not None:
            source = max(source, captured)
        self._send(
            Progress(
                subscription=self._name,
                epoch=self._epoch,
                run=run,
                source=source,
                captured=captured,
                applied=applied,
                source_of_logs={log.name: log.end for log in logs},
                read_of_logs={log.name: log.read for log in logs if log.read is not None},
                late_logs=tuple(log.name for log in logs if log.late),
                away_logs={log.name: _away(log.away) for log in logs if log.away is not None},
                applied_of_logs={ONLY_LOG: applied, **of_logs} if of_logs else {},
                lag_bytes=lag_bytes if source and lag_seconds is not None else None,
                lag_seconds=lag_seconds,
                retained_bytes=reader.retained_bytes if reader else None,
                sealed_at=wall_time(times.sealed_us) if times else None,
                committed_at=wall_time(times.committed_us) if times else None,
                structure=known.at.position if known else None,
                structure_at=wall_time(known.seen_us) if known else None,
                cycle=_last_cycle(reader.last_cycle if reader else None),
                at=wall_time(self._clock.wall_us()),
            )
        )

    def batch(
        self,
        planned: PlannedBatch,
        changes: list[TableChanges],
        log_bytes: int,
        times: BatchTimes,
        ledger: BatchLedger,
    ) -> None:
        """Report a committed batch. `log_bytes`: size of the queue's blocks that contain its records."""
        rows: dict[str, int] = {}
        for change in changes:
            for operation, count in change.counts.items():
                rows[operation] = rows.get(operation, 0) + count
        batch = planned.batch
        age_us = max(0, times.sealed_us - batch.first_commit_us) if batch.transactions else 0
        self._send(
            BatchReport(
                subscription=self._name,
                epoch=self._epoch,
                batch=planned.number,
                after=batch.after,
                end=batch.end,
                transactions=batch.transactions,
                rows=rows,
                net_rows=sum(change.net_rows for change in changes),
                bytes=log_bytes,
                path=times.path,
                mode=times.mode,
                demanded=batch.demanded,
                seconds={
                    "capture_age": age_us / 1e6,
                    "job": (times.job_ms - times.sealed_ms) / 1e3,
                    "commit": (times.committed_ms - times.job_ms) / 1e3,
                },
                tables=len({change.table for change in changes}),
                tuning=dict(times.tuning),
                apply_calls=apply_calls(changes),
                ledger=_ledger_part(ledger),
                committed_at=wall_time(times.committed_us),
            )
        )

    def copy(self, progress: CopyFigures) -> None:
        """Report the progress of a table's copy."""
        self._send(
            CopyProgress(
                subscription=self._name,
                epoch=self._epoch,
                table=progress.table,
                rows=progress.rows,
                bytes=progress.bytes,
                percent=progress.percent,
                eta_seconds=progress.eta_seconds,
                total_rows=progress.total_rows,
                total_bytes=progress.total_bytes,
                rows_per_second=progress.rows_per_second,
                bytes_per_second=progress.bytes_per_second,
                goes_on=progress.goes_on,
            )
        )

    def reload(
        self,
        request: str,
        state: Literal["running", "succeeded", "failed", "cancelled"],
        *,
        rows: int | None = None,
        size: int | None = None,
        percent: float | None = None,
        eta_seconds: float | None = None,
        totals: CopyTotals | None = None,
        position: Lsn | None = None,
        problem: tuple[str, str, str] | None = None,
        partitions: Sequence[LoadedPartition] | None = None,
    ) -> None:
        """Report progress or end of a reload. `size`: bytes copied; `problem`: code, detail and remedy."""
        self._send(
            ReloadReport(
                subscription=self._name,
                epoch=self._epoch,
                request_id=request,
                state=state,
                rows=rows,
                bytes=size,
                percent=percent,
                eta_seconds=eta_seconds,
                total_rows=totals.rows if totals else None,
                total_bytes=totals.bytes if totals else None,
                rows_per_second=totals.rows_per_second if totals else None,
                goes_on=totals is not None and totals.goes_on,
                position=position,
                problem=Problem(status=409, code=problem[0], detail=problem[1], remedy=problem[2]) if problem else None,
                partitions=None if partitions is None else tuple(_loaded(partition) for partition in partitions),
            )
        )

    def ticket(
        self, ticket: TicketId, state: TicketState, passage: TicketPassage, problem: tuple[str, str, str] | None = None
    ) -> None:
        """Report a ticket's state. `problem`: code, detail and remedy if it is lost."""
        code, reason, remedy = problem or (None, None, None)
        self._send(
            TicketReport(
                subscription=self._name,
                epoch=self._epoch,
                ticket_id=ticket,
                state=state,
                position=passage.position,
                until=passage.until,
                written_at=_known(passage.written_us),
                captured_at=_known(passage.captured_us),
                sealed_at=_known(passage.sealed_us),
                computed_at=_known(passage.computed_us),
                applied_at=_known(passage.applied_us),
                transactions=passage.transactions,
                commands=passage.commands,
                counted_since=_known(passage.counted_since_us),
                code=code,
                reason=reason,
                remedy=remedy,
            )
        )

    def event(self, severity: Literal["info", "warning", "error"], code: str, subject: str, detail: str) -> None:
        """Report an event. If `code` is a fault's, the fault's remedy is added."""
        remedy = policy(FaultKind(code)).remedy if code in {kind.value for kind in FaultKind} else None
        self._send(
            EventReport(
                subscription=self._name,
                epoch=self._epoch,
                severity=severity,
                code=code,
                subject=subject,
                detail=detail,
                remedy=remedy,
            )
        )


def _loaded(partition: LoadedPartition) -> LoadedPartitionPart:
    return LoadedPartitionPart(name=partition.name, reason=partition.reason, generation=partition.generation)


def _ledger_part(ledger: BatchLedger) -> LedgerPart:
    tables = {
        str(table): {outcome: count for outcome, count in asdict(entry).items() if count}
        for table, entry in ledger.tables.items()
    }
    return LedgerPart(captured=ledger.captured, left_out=ledger.left_out, tables=tables)


def apply_calls(changes: Sequence[TableChanges]) -> dict[str, dict[str, dict[str, int]]]:
    """Number of write calls, as table: operation: size: calls. `size` is a power of ten as text: the call wrote at least that many rows.

    All buckets of a batch slice are written in one call.
    """
    rows: Counter[tuple[str, str, int]] = Counter()
    for change in changes:
        for operation, count in change.staged.items():
            rows[operation, change.table, change.piece] += count
    calls: dict[str, dict[str, dict[str, int]]] = {}
    for (operation, table, _), count in rows.items():
        size = "1" + "0" * (len(str(count)) - 1)
        of = calls.setdefault(table, {}).setdefault(operation, {})
        of[size] = of.get(size, 0) + 1
    return calls


def _known(wall_us: int | None) -> datetime | None:
    return None if wall_us is None else wall_time(wall_us)


def _away(away: Away) -> AwayPart:
    return AwayPart(since=wall_time(away.since_us), code=away.code, reason=away.reason)


def _last_cycle(cycle: LastCycle | None) -> LastCyclePart | None:
    if cycle is None:
        return None
    return LastCyclePart(
        number=cycle.number,
        taken_at=wall_time(cycle.taken_us),
        seconds=cycle.seconds,
        bytes_read=cycle.bytes_read,
        failures=cycle.failures,
        unread=cycle.unread,
    )


def wall_time(wall_us: int) -> datetime:
    """A wall time in microseconds since 1970 as a datetime in UTC, as messages contain it."""
    return datetime.fromtimestamp(wall_us / 1e6, tz=UTC)
