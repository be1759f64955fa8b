"""Copies of one run: which tables need one, the snapshots they are made under, and how each one ends.

A copy is made chunk by chunk, each under a snapshot of its own (`chunks.py`). A chunk that no batch has taken is read again under
another snapshot; chunks that were taken stay. A small table is one chunk, so its copy starts from the beginning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import structlog

from engine.copy.catch_up import CopyCatchUp
from engine.copy.chunks import ChunkPlanner
from engine.copy.coordinator import CopyCoordinator
from engine.copy.fault_handling import Consequence, consequence
from engine.copy.host import CopyHost
from engine.copy.job import CopyJob, CopyListener, CopySettings, CopyTable, CopyTools
from engine.copy.partition_reload import PartitionReloader
from engine.copy.rate_limit import write_pace
from engine.copy.reload_requests import CANCELLED, PartitionChoice, ReloadRequests
from engine.copy.split_task import staging_fault
from engine.copy.throttle import AdaptiveThrottle
from engine.model.batch import TableFault
from engine.model.copies import CopyProgress
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import KeyMode, TableSchema
from engine.model.source import Earlier, ExportedSnapshot
from engine.model.subscription import CopyPolicy, TableSpec
from engine.model.table_state import TableStateKind
from engine.net import decode_copy_text
from engine.platform.failpoints import Failpoint, hit
from engine.platform.fault_policy import Action, policy
from engine.tables.context import RunContext
from engine.tables.registry import TableChange, TableEntry
from engine.tables.start_point import why_not_described
from engine.tables.state import (
    ChunkVoided,
    Copying,
    CopyLost,
    CopyStarted,
    KeptReleased,
    ReadProgress,
    Registered,
    Reload,
    Reloading,
    awaits_recopy,
)

SPARK_START_S = 120.0
"""Longest wait of a copy for Spark in seconds. A cold start was measured at 5 to 13 s; the rest is for a slow cluster or a further
attempt."""
RETRY_S = 2.0
"""Pause in seconds after a copy failed by a fault that ends by itself, or found no table to copy. Not measured."""
LOOK_AGAIN_S = 0.2
"""Between two reads of the catalog while the log has not reached the structure that the catalog shows."""
_BEING_COPIED = frozenset(
    {TableStateKind.REGISTERED, TableStateKind.COPYING, TableStateKind.RELOADING, TableStateKind.CATCHING_UP}
)
log = structlog.get_logger(__name__)
_WAITED_FOR = frozenset({FaultKind.SOURCE_TIMEOUT, FaultKind.SOURCE_SNAPSHOT_TOO_LARGE, FaultKind.COPY_LOST})
_NO_ROOM = frozenset({FaultKind.SOURCE_NO_SLOTS, FaultKind.SOURCE_NO_SENDERS})
"""The source has no slot or sender left for the copy. Where other tables are live the copy alone waits, else the subscription does."""

T = TypeVar("T")


class CopyOrchestrator:
    """Makes the copies of one run in a thread of its own, one copy of several tables at a time."""

    def __init__(
        self,
        parts: RunContext,
        host: CopyHost,
        staging: Path,
        reloads: ReloadRequests,
        catch_up: CopyCatchUp | None,
    ) -> None:
        """`catch_up`: the state of unfinished copies on the target; None: each table is copied as one chunk."""
        self.partitions = PartitionReloader(parts, reloads, host)
        self._chunks = ChunkPlanner(parts, None if catch_up is None else catch_up.standing)
        self._parts = parts
        self._host = host
        self._staging = staging / "copy"
        self._coordinator: CopyCoordinator | None = None
        self._pace = staging / "copies.pace"
        self._pacing = threading.Lock()
        self._paced: CopyPolicy | None = None
        self._declared = parts.spec.copies
        self._way = AdaptiveThrottle()
        self.throttle(parts.spec.copies)
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._held = threading.Event()
        """Set while the source's log has no room for copies."""
        self.reloads = reloads
        self._served: dict[TableId, frozenset[str]] = {}
        """The reloads that each hand-over of the batch at hand ends. A reload that is requested after it needs another copy."""
        parts.book.subscribe(self._note_live)
        self._thread = threading.Thread(target=self._work, name=f"{parts.spec.name}-copy", daemon=True)

    def begin_missing(self) -> None:
        """Copy every table that needs it. Returns at once; safe to repeat."""
        if self._thread.ident is None:
            self._thread.start()
        self._wake.set()

    def reload(self, request: str, tables: list[TableId]) -> None:
        """Copy these tables again while the others are replicated; their old rows stay readable until the handover."""
        self.reloads.begin(request, tables, in_force=False)

        def reload(number: BatchId) -> Reload:
            self.reloads.put_in_force(request, tables)
            return Reload(number)

        self._host.defer(reload, tables)
        # Where it was cancelled before the tables were moved, the cancellation saw none of them wait.
        if self.reloads.is_cancelled(request):
            self.park_cancelled(tables)
        for table in tables:
            if self._parts.book.get(table) is None:
                detail = "the table is not part of the subscription"
                self.reloads.failed(table, TableFault(FaultKind.TABLE_MISSING.value, detail))
        self.begin_missing()

    def reload_partitions(self, request: str, table: TableId, choice: PartitionChoice) -> None:
        """Reload some partitions of a live table."""
        self.partitions.ask(request, table, choice)
        self.begin_missing()

    def cancel_reload(self, request: str, table: TableId | None = None) -> None:
        """End a reload. One of partitions leaves the table unchanged. Whole tables park: their changes since it began are not kept."""
        of_partitions = self.partitions.cancel(request)
        if of_partitions is not None:
            self.cancel(of_partitions)
        else:
            self.park_cancelled(self.reloads.cancelled(request, table))

    def park_cancelled(self, tables: Iterable[TableId]) -> None:
        """Park those of the tables that are being copied, or wait for their copy."""
        code = FaultKind.TABLE_COPY_CANCELLED.value
        for table in tables:
            while (entry := self._parts.book.get(table)) is not None and (
                entry.kind in _BEING_COPIED or awaits_recopy(entry.state)
            ):
                if self._parts.parking.park(table, code, CANCELLED, known=entry):
                    break  # Else its state changed since it was read.

    def cancel(self, table: TableId) -> None:
        """Stop copying one table."""
        coordinator = self._coordinator
        if coordinator is not None:
            coordinator.cancel([table])

    @property
    def held(self) -> bool:
        return self._held.is_set()

    @property
    def wanted(self) -> bool:
        """Whether tables are being copied, or wait for their copy."""
        return self.partitions.wanted or bool(self._waiting())

    def throttle(self, policy: CopyPolicy) -> None:
        """Set the limits of reading, also for the copy under way."""
        self._declared = policy
        self.give_way()
        self._chunks.throttle(policy)

    def record_commit_lag(self, lag_ms: float) -> None:
        """A batch was committed. `lag_ms`: how long its oldest source commit waited to become readable."""
        self._way.record_commit(self._parts.clock.monotonic_ms(), lag_ms, copying=self._coordinator is not None)

    def give_way(self) -> None:
        """Adapt the share of time for reading to the lag of replication. Called periodically; safe from any thread."""
        policy = self._declared
        if policy.give_way:
            share = self._way.share(self._parts.clock.monotonic_ms(), copying=self._coordinator is not None)
            policy = replace(policy, max_time_share=min(policy.max_time_share, round(share, 2)))
        self._pace_by(policy)

    def _pace_by(self, policy: CopyPolicy) -> None:
        with self._pacing:
            if policy == self._paced:
                return
            try:
                write_pace(self._pace, policy)
            except OSError as error:
                fault = staging_fault(error, str(self._pace))
                self._parts.reporter.event("warning", fault.kind.value, fault.subject, fault.detail)
                return
            self._paced = policy

    def hold(self) -> None:
        """End the copy under way and begin no other until `release`: its snapshot and slot hold the source's log. Safe to repeat."""
        if self._held.is_set():
            return
        self._held.set()
        coordinator = self._coordinator
        if coordinator is not None:
            coordinator.cancel()

    def release(self) -> None:
        """The log has room again: copies that were ended or waited begin. Safe to repeat."""
        if self._held.is_set():
            self._held.clear()
            self._wake.set()

    def look_again(self) -> None:
        """In the commit thread: a chunk was taken, or is void, and the next one may begin."""
        self._wake.set()

    def chunk_void(self, table: TableId) -> None:
        """The chunk that is being read of a table is void."""
        self.cancel(table)
        self._wake.set()

    def committed(self, tables: Iterable[TableId], position: Lsn) -> None:
        """In the commit thread: these tables were handed over."""
        for table in tables:
            served = self._served.get(table, frozenset())
            self.partitions.whole_in_place(table, served)
            self.reloads.finished(table, position, served)
        self._served.clear()

    def _note_live(self, change: TableChange) -> None:
        """As TableListener. In the commit thread if the table became live."""
        if change.became_live:
            self._served[change.entry.table] = self.reloads.served_by(change.entry.table)

    def stop(self) -> None:
        """End the copy under way. Blocks until its tasks are done or cancelled."""
        self._stopped.set()
        self._wake.set()
        coordinator = self._coordinator
        if coordinator is not None:
            coordinator.cancel()
        if self._thread.ident is not None:
            self._thread.join(30.0)

    def table_ended(self, entry: TableEntry) -> None:
        """A table parked or was removed: its copy ends, and a reload of it fails."""
        self.cancel(entry.table)
        if awaits_recopy(entry.state):
            return
        reason = entry.reason
        fault = (
            TableFault(reason.code, reason.reason)
            if reason
            else TableFault(FaultKind.TABLE_MISSING.value, "it was removed")
        )
        self.reloads.failed(entry.table, fault)

    def _work(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait()
            self._wake.clear()
            try:
                while not self._ended():
                    if missing := self._missing():
                        self._copy(missing)
                    elif (table := self.partitions.next()) is not None:
                        self._load(table)
                    else:
                        break
            except EngineFault as fault:
                if not self._stopped.is_set():
                    self._host.end(fault)
                return
            except Exception as error:  # a defect of ours must end the run visibly, not the copies alone
                log.exception("copy_failed", error=type(error).__name__)
                self._host.end(EngineFault(FaultKind.INTERNAL, "copy", type(error).__name__))
                return

    def _ended(self) -> bool:
        return self._stopped.is_set() or self._held.is_set()

    def _put_back(self, entries: list[TableEntry]) -> None:
        """Tables whose copy `hold` ended wait again. Their kept changes are released: a later copy has a later snapshot."""
        self._void_unread(entry.table for entry in entries)
        found = [now for entry in entries if (now := self._parts.book.get(entry.table)) is not None]
        waiting = [e.table for e in found if isinstance(e.state, Copying | Reloading) and not _copy_continues(e)]
        if waiting and not self._stopped.is_set():
            self._host.defer(CopyLost, waiting)

    def _void_unread(self, tables: Iterable[TableId]) -> None:
        """Void the chunks of which the reading ended early."""
        for table in tables:
            chunk = self._chunks.under_way(table)
            if chunk is not None and chunk.progress is ReadProgress.READING:
                self._parts.book.apply(table, ChunkVoided())

    def _waiting(self) -> list[TableEntry]:
        """Tables whose rows are to be read, or are being read."""
        entries = (e for e in self._parts.book.all() if isinstance(e.state, Registered | Copying | Reloading))
        return [entry for entry in entries if not entry.spec.paused]

    def _missing(self) -> list[TableEntry]:
        """Tables whose rows are to be read next. A table whose chunk waits for its batch also holds back those of lower priority."""
        waiting = self._waiting()
        first = max((entry.spec.priority for entry in waiting), default=0)
        free = [entry for entry in waiting if entry.copy is None or entry.copy.chunk is None]
        return [entry for entry in free if entry.spec.priority == first]

    def _copy(self, missing: list[TableEntry]) -> None:
        while not self._host.removals_written():
            # A removed table may have had the target name that one of these gets.
            if self._stopped.wait(0.05):
                return
        adopted = [entry for entry in missing if _copy_continues(entry) or self._adopt(entry)]
        if not adopted:
            return
        self._host.defer(CopyStarted, [entry.table for entry in adopted])
        self._parts.admission.snapshot_follows(entry.table for entry in adopted)
        if not self._parts.runner.wait_ready(SPARK_START_S):
            raise EngineFault(FaultKind.SPARK_FAILED, "spark", "Spark did not start in time")
        try:
            self._publish()
            # Before the snapshot: a later change of the partitions is in the copy, or found by the next check or start.
            marks = self._parts.source.partitioned.fingerprints([entry.spec for entry in adopted])
            self._parts.source.safety.remember(marks)
            self._host.record_copied({e.table: marks[e.spec.source] for e in adopted if e.spec.source in marks})
            with self._parts.source.copies.snapshot(self._parts.settings.snapshot_timeout_s) as snapshot:
                if not self._ended():
                    self._copy_under(snapshot, adopted)
        except EngineFault as fault:
            no_room = fault.kind in _NO_ROOM and self._others_live()
            if fault.kind not in _WAITED_FOR and not no_room and not self._is_node_away(fault):
                raise
            self._parts.reporter.event("warning", fault.kind.value, fault.subject, fault.detail)
            self._stopped.wait(RETRY_S)
        if self._held.is_set():
            self._put_back(adopted)
        for entry in adopted:
            now = self._parts.book.get(entry.table)
            if now is not None and _copy_continues(now) and now.copy is not None and now.copy.chunk is None:
                self._parts.book.apply(entry.table, KeptReleased())

    def _is_node_away(self, fault: EngineFault) -> bool:
        """Whether a copy waits for one of several nodes. Replication continues without it; a log reader without a node ends the run."""
        return fault.kind is FaultKind.SOURCE_UNREACHABLE and bool(self._parts.source.terms.logs)

    def _load(self, table: TableId) -> None:
        """Read some partitions of a live table."""
        if not self._parts.runner.wait_ready(SPARK_START_S):
            raise EngineFault(FaultKind.SPARK_FAILED, "spark", "Spark did not start in time")
        try:
            made = self.partitions.make(
                table,
                lambda snapshot, copied: self._run(snapshot, [copied], self.partitions),
                lambda request, whole: self.reload(request, [whole]),
            )
            if not made:
                self._stopped.wait(LOOK_AGAIN_S)
        except EngineFault as fault:
            if fault.kind not in _WAITED_FOR | _NO_ROOM:
                raise
            self._parts.reporter.event("warning", fault.kind.value, fault.subject, fault.detail)
            self._stopped.wait(RETRY_S)

    def _unhurried(self, look: Callable[[], T]) -> T:
        """Query the source, then rest. A copy begins with many catalog queries; the rests keep their load on the source low."""
        began = self._parts.clock.monotonic_ms()
        found = look()
        if self._declared.give_way:
            self._stopped.wait(self._way.rest_ms(self._parts.clock.monotonic_ms() - began) / 1000)
        return found

    def _publish(self) -> None:
        """Have the log carry every table: one may have been added, or got its replica identity, since the run began."""
        self._unhurried(self._host.check_source)
        entries = [e for e in self._parts.book.all() if e.kind is not TableStateKind.REMOVED]
        specs = [entry.spec for entry in entries]
        reader = self._parts.spec.reader
        published = self._unhurried(lambda: self._parts.source.sent_tables.prepare(specs, reader, earlier=Earlier.OURS))
        described = self._unhurried(lambda: self._parts.source.describe(specs))
        complete = [
            e for e in entries if e.kind in {TableStateKind.LIVE, TableStateKind.PAUSED} and e.schema is not None
        ]
        away = [e.schema.relation for e in complete if e.schema is not None and e.spec.source not in described]
        names = self._parts.source.names(away) if away else {}
        for entry in complete:
            now = described.get(entry.spec.source)
            if entry.schema is None or names.get(entry.schema.relation, entry.spec.source) != entry.spec.source:
                continue  # It was renamed, which the source monitor finds.
            if now is None:
                self._park_undescribed(entry)
            elif now.relation != entry.schema.relation:
                detail = "the table was dropped and created again"
                self._parts.parking.park(entry.table, FaultKind.TABLE_STRUCTURE_CHANGED.value, detail)
            elif now.relation not in published:
                detail = "it had no replica identity for a moment, and changes of it may be missing"
                self._parts.parking.park(entry.table, FaultKind.TABLE_STRUCTURE_CHANGED.value, detail)

    def _park_undescribed(self, looked_for: TableEntry) -> None:
        """Park a table that the source's description lacks, unless its declared name changed since."""
        fault = why_not_described(self._parts.source, looked_for.spec)
        now = self._parts.book.get(looked_for.table)
        if now is not None and now.spec.source == looked_for.spec.source:
            self._parts.parking.park(now.table, fault.kind.value, fault.detail, known=now)

    def _others_live(self) -> bool:
        return bool(self._parts.book.all().in_state(TableStateKind.LIVE))

    def _adopt(self, entry: TableEntry) -> bool:
        try:
            self._parts.target.adopt(
                self._parts.spec.name,
                entry.table,
                entry.spec.target,
                into_existing=entry.spec.into_existing,
                shared=entry.spec.shared,
            )
        except EngineFault as fault:
            if policy(fault.kind).action is not Action.PARK_TABLE:
                raise
            self._parts.parking.park(entry.table, fault.kind.value, fault.detail)
            return False
        if self._parts.book.get(entry.table) is None:
            # It was removed meanwhile, possibly before `adopt` reserved its name.
            self._host.give_up(entry.table)
            return False
        return True

    def _copy_under(self, snapshot: ExportedSnapshot, entries: list[TableEntry]) -> None:
        described = self._unhurried(lambda: self._parts.source.describe([entry.spec for entry in entries]))
        self._unhurried(lambda: self._refuse_unsent([entry.spec for entry in entries], described))
        tables = []
        for entry in entries:
            schema = described.get(entry.spec.source)
            if schema is None:
                self._park_undescribed(entry)
                continue
            if not _identified(schema) and not entry.spec.insert_only:
                detail = f"{entry.spec.source} has no replica identity: updates and deletes could not be followed"
                self._parts.parking.park(entry.table, FaultKind.TABLE_NO_IDENTITY.value, detail)
                continue
            copied = self._copy_of(entry, schema, snapshot.position)
            if copied is not None:
                tables.append(copied)
        if not tables:
            self._stopped.wait(RETRY_S)
            return
        try:
            self._run(snapshot, tables, self)
        finally:
            self._void_unread(table.spec.table for table in tables)

    def _run(self, snapshot: ExportedSnapshot, tables: list[CopyTable], listener: CopyListener) -> None:
        self._way.begin(self._parts.clock.monotonic_ms(), goes_on=not any(table.begin for table in tables))
        self._coordinator = CopyCoordinator(self._job(snapshot, tables), self._tools(), listener)
        self.give_way()
        try:
            if not self._ended():
                self._coordinator.run()
        finally:
            self._coordinator = None

    def _refuse_unsent(self, specs: Sequence[TableSpec], described: Mapping[TableName, TableSchema]) -> None:
        """Raise SOURCE_TIMEOUT where a table got another's name since `_publish`: its changes are not in the log."""
        followed = [s for s in specs if s.source in described and (s.insert_only or _identified(described[s.source]))]
        relations = {spec.source: described[spec.source].relation for spec in followed}
        if self._parts.source.sent_tables.unpublished(followed, self._parts.spec.reader, relations):
            detail = "a table got the name of another while its copy began"
            raise EngineFault(FaultKind.SOURCE_TIMEOUT, self._parts.spec.reader, detail)

    def _copy_of(self, entry: TableEntry, schema: TableSchema, position: Lsn) -> CopyTable | None:
        """What to read of a table under the snapshot of `position`; None = nothing."""
        if self._stopped.is_set():
            return None
        try:
            now = self._parts.book.get(entry.table)
            return self._chunks.next(now or entry, schema, position)
        except EngineFault as fault:
            if (
                consequence(fault.kind) is not Consequence.FAIL_TABLE
                and policy(fault.kind).action is not Action.PARK_TABLE
            ):
                raise
            self._parts.parking.park(entry.table, fault.kind.value, fault.detail)
            return None

    def _job(self, snapshot: ExportedSnapshot, tables: list[CopyTable]) -> CopyJob:
        spec = self._parts.spec
        settings = CopySettings(split_bytes=self._parts.settings.copy_chunk_bytes, pace=self._pace)
        return CopyJob(spec.name, spec.epoch, spec.source, snapshot, tuple(tables), self._staging, settings)

    def _tools(self) -> CopyTools:
        return CopyTools(
            source=self._parts.source,
            target=self._parts.target,
            runner=self._parts.runner,
            open_source=self._parts.open_source,
            decode=decode_copy_text,
            writing=nullcontext,
            monotonic=lambda: self._parts.clock.monotonic_ms() / 1000,
        )

    # CopyListener, called by the copy thread.

    def on_table_copied(self, table: TableId, position: Lsn, rows: int) -> None:
        """The next batch that reaches `position` adds the chunk to the copy; the last one hands the table over."""
        hit(Failpoint.CHUNK_READ)
        chunk = None if self._stopped.is_set() else self._chunks.read(table, rows)
        if chunk is None:
            entry = self._parts.book.get(table)
            if entry is None or not _copy_continues(entry):
                self._parts.target.discard_copy(table)
            return
        if chunk.upto is None:
            detail = f"{self._chunks.rows(table, rows)} rows as of {self._parts.source.terms.text(position)}"
            self._parts.reporter.event("info", "table_copied", str(table), detail)
        self._host.flush(position)

    def on_table_failed(self, table: TableId, fault: TableFault) -> None:
        if self._chunks.under_way(table) is not None:  # Else the chunk is void already.
            self._parts.parking.park(table, fault.code, fault.detail)

    def on_table_lost(self, table: TableId, detail: str) -> None:
        self._chunks.lost(table)
        self._parts.reporter.event("warning", FaultKind.COPY_LOST.value, str(table), detail)

    def on_progress(self, progress: CopyProgress) -> None:
        if progress.begun:
            hit(Failpoint.COPY_RUNNING)
        progress = self._chunks.progress(progress)
        self._parts.reporter.copy(progress)
        self.reloads.progressed(progress)


def _copy_continues(entry: TableEntry) -> bool:
    """Whether batches have taken chunks of its copy, which stay."""
    return entry.copy is not None and entry.copy.followed


def _identified(schema: TableSchema) -> bool:
    return schema.mode is not KeyMode.APPEND
