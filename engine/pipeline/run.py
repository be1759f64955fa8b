"""One run of a subscription: from a checked start until it is stopped or a fault ends it. Each start is a new run.

Threads: intake (log → sealed batches), job (sealed → computed), commit (computed → applied), ahead (stages slices of open
transactions), early (inserts them before their commit), guard (checks the source), and one per copy. A fault in any thread ends the run.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import assert_never

import structlog

from engine.copy.orchestrator import CopyOrchestrator
from engine.copy.reload_requests import PartitionChoice
from engine.model.ddl import DdlMessage
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Ordinal, TableId, TableName
from engine.model.lag import LagCause
from engine.model.last_commit import reached_in
from engine.model.patterns import TablePattern
from engine.model.position import ZERO, Lsn
from engine.model.sizes import size
from engine.model.source import GuardReading
from engine.model.subscription import CopyPolicy, QueueMode
from engine.model.table_state import Refused, TableStateKind
from engine.pipeline.activity import RunActivity
from engine.pipeline.apply_mode import ApplyModeSelector
from engine.pipeline.commit import Applied, CommitStage
from engine.pipeline.compute import Computed, JobStage
from engine.pipeline.cross_run import CrossRunState
from engine.pipeline.cuts import CutCoordinator
from engine.pipeline.intake import Demand, Done, Flush, Intake, LogObservers, QueueRoom, Sealed, Wake
from engine.pipeline.log_reader import Confirm, Failed, Holds, ReaderConfig
from engine.pipeline.now import NowReader
from engine.pipeline.queue_start import QueueCheck, QueueStart, open_queue
from engine.pipeline.reader_process import ReaderProcess
from engine.pipeline.session_start import batching, free_reader, restore
from engine.pipeline.speculative_insert import SpeculativeInserter
from engine.pipeline.stages import RunStages
from engine.pipeline.streamed_transactions import OPEN_SLICE_RATIO, StreamedTransactionStager
from engine.pipeline.task_functions import sweep
from engine.pipeline.tickets import RunTickets
from engine.platform.failpoints import Failpoint, hit
from engine.queue import QueueCatalog
from engine.queue.durability_switch import DurabilitySwitch, Marks
from engine.safety.findings import (
    Certified,
    Finding,
    Fingerprinted,
    LogRetained,
    Park,
    Renamed,
    SchemaLearnt,
    SourceGone,
    TablesAppeared,
)
from engine.safety.log_evidence import LogEvidence
from engine.safety.observed_partitions import has_unjudged, partitions_in
from engine.safety.partition_fingerprints import PartitionFingerprints
from engine.safety.restart_watermark import RestartWatermark
from engine.safety.retention_guard import RetentionProgress
from engine.safety.source_monitor import SourceMonitor
from engine.tables import state as states
from engine.tables.context import RunContext
from engine.tables.known_catalog import Settled
from engine.tables.planner import PlannedBatch, Planner
from engine.tables.registry import TableChange
from engine.tables.reporter import BatchTimes
from engine.tables.schema_reading import SchemaReading
from engine.tables.selections import table_selections

log = structlog.get_logger(__name__)

ORDINAL_GAP = 1 << 20
"""Ordinals skipped after a log reader died: those that it may have written without a report are not used again."""
_PAUSABLE = frozenset({TableStateKind.LIVE, TableStateKind.PAUSED, TableStateKind.REGISTERED})

DDL_MESSAGES_KEPT = 64
"""Number of last DDL messages kept parsed. Each is read when it arrives and when its batch is planned, and has at most 256 KiB of text."""
READER_RESTARTS = 5
"""Consecutive deaths of log readers, without a committed batch in between, after which the run ends."""


class ReplicationRun:
    """One run. Call `execute` once, in the supervisor's thread, and `close` at the end; any thread may call the other public methods.
    The constructor queries the source and opens the queue. Raises EngineFault (see `queue_start.open_queue`)."""

    def __init__(self, parts: RunContext, kept: CrossRunState) -> None:
        self._parts = parts
        self._kept = kept
        self._spec = parts.spec
        self._book = parts.book
        self._stages = RunStages(str(parts.spec.name))
        self._stop = self._stages.stopping
        self._to_job: queue.Queue[Sealed] = queue.Queue(maxsize=1)
        self._to_commit: queue.Queue[Computed] = queue.Queue(maxsize=1)
        self._between: queue.SimpleQueue[Callable[[BatchId, Lsn], None]] = queue.SimpleQueue()
        self._reader: ReaderProcess | None = None
        self._confirming = threading.Lock()
        """Held while a position to confirm is decided and sent, so that no confirmation overtakes an order to the log reader."""
        self._checking = threading.Lock()
        """Held during a check of the source and the processing of its findings."""
        self._telling = threading.Lock()
        """Held while progress is read and reported, so that reported positions never decrease."""
        self._reported_ms = parts.clock.monotonic_ms()
        self._reader_deaths = 0
        self._verified = False
        """Whether the source's log was verified to continue the log read before. No position is reported before."""
        folder = parts.settings.queue_folder / parts.spec.reader
        status = parts.source.reader.status(parts.spec.reader)
        self._mark = RestartWatermark(parts.settings.queue_folder, parts.spec.reader, parts.source.terms)
        self._mark.begin(status, new_reader=parts.start.fresh)
        self._released = status.confirmed or ZERO
        """The last position confirmed to the source, at first by an earlier run. No lower one is confirmed: some versions would accept
        it, and a later start there would receive transactions without their beginnings."""
        found = QueueCheck(
            status, parts.source.log.current(), parts.source.terms, parts.start.fresh, parts.suspect_queue
        )
        opened = open_queue(folder, parts.spec.queue_mode, parts.start.progress.end, found)
        try:
            self._wire(opened, status.confirmed or ZERO)
        except BaseException:
            opened.close()
            raise

    def _wire(self, opened: QueueStart, confirmed: Lsn) -> None:
        parts, end = self._parts, self._parts.start.progress.end
        self._opened = opened
        if opened.damage is not None:
            resume = parts.source.terms.text(opened.resume)
            again = f"{opened.damage}; the log after {resume} is read from the source again"
            parts.reporter.event("warning", "queue_reread", parts.spec.reader, again)
        self._staging = parts.settings.staging_folder / parts.spec.reader
        sweep(self._staging)
        self._catalog: QueueCatalog = opened.catalog
        self.early = SpeculativeInserter(
            lambda: parts.target.begin_speculative_insert(parts.spec.name), parts.book, parts.clock
        )
        self.ahead = StreamedTransactionStager(
            parts.spec, parts.book, self._catalog, parts.runner, self._staging, self.early
        )
        self._chooser = ApplyModeSelector(
            parts.spec.apply,
            parts.target.in_order(),
            parts.target.in_parts(),
            lambda what: parts.reporter.event("info", "apply_mode_changed", parts.spec.reader, what),
            self._sets_aside,
        )
        self.tickets = RunTickets(self._kept.tickets, parts.clock, parts.source.tickets.write, self.demand, end)
        parse_ddl = lru_cache(maxsize=DDL_MESSAGES_KEPT)(parts.source.ddl.parse)
        self._evidence = LogEvidence(parse_ddl)
        self._intake = Intake(
            batching(parts, self._catalog, self.ahead, self._is_alone),
            QueueRoom(self._catalog, parts.spec.queue_budget_bytes),
            parts.clock,
            self._to_job,
            LogObservers(self.tickets, self._evidence),
            self,
        )
        self._switch = DurabilitySwitch(
            parts.spec.queue_mode, resumed=opened.resumed, confirmed=confirmed, pressed=self._kept.care.orders.persist
        )
        self._planner = self._make_planner(parse_ddl)
        self._jobs = JobStage(parts, self._planner, self._catalog, self._staging, self.ahead, self._chooser)
        self._commits = CommitStage(
            parts,
            end,
            parts.source.computed.compute,
            PartitionFingerprints(
                parts.source.partitioned.with_observed,
                lambda batch: partitions_in(batch, parts.book, self._evidence.truncated_together),
            ),
        )
        self._commits.begin(parts.start.progress)
        self._reported, self._reported_last = end, parts.start.progress.last
        """The position reported as applied, and the last transaction up to there. It includes a batch only after the source checks that the
        batch requires."""
        self.nows = NowReader(parts, self)
        self._monitor = SourceMonitor(parts, self._evidence, lambda: self._intake.captured)
        self.cuts = CutCoordinator(parts, self._intake, self._staging)
        # As CopyHost.
        self.end = self._stages.end
        self.cut = self.cuts.cut
        self.record_copied = self._commits.marks.record_copied
        self.copies = self._make_copies()
        self.activity = RunActivity(parts, self._intake, self.copies, self._jobs)
        parts.book.subscribe(self._table_changed)

    def _make_copies(self) -> CopyOrchestrator:
        catch_up = None if self._chooser.keeps_transactions else self._commits.copies
        return CopyOrchestrator(self._parts, self, self._staging, self._kept.reloads, catch_up)

    def _make_planner(self, parse_ddl: Callable[[bytes], DdlMessage]) -> Planner:
        parts = self._parts
        reading = SchemaReading(
            parts.source.log.resolver,
            parts.source.log.relation_name,
            lambda entry, old, new: "; ".join(parts.target.evolution(entry.table, entry.spec.target, old, new)),
            parse_ddl,
            lambda detail: parts.reporter.event("warning", "ddl_message_unreadable", parts.spec.reader, detail),
        )
        return Planner(parts.book, reading, BatchId(parts.start.progress.batch + 1), parts.spec.schema_changes)

    def _sets_aside(self, table: TableId) -> bool:
        return self._commits.sets_aside(table)

    @property
    def applied(self) -> Applied:
        """The positions up to which the target is visible and its progress record is written."""
        return self._commits.applied

    @property
    def captured(self) -> Lsn:
        """Everything committed on the source up to here was read."""
        return self._intake.captured

    @property
    def ended(self) -> bool:
        """As CheckedRun."""
        return self._stop.is_set()

    def check_source(self) -> Settled | None:
        """As CheckedRun."""
        try:
            return self._check_source()
        except EngineFault as fault:
            self._stages.end(fault)
            raise

    def _watch_source(self) -> None:
        while not self._stop.is_set():
            self._check_source()
            self._stop.wait(self._parts.settings.guard_interval_s)

    def _check_source(self) -> Settled | None:
        """Make one check and apply its findings. Raises EngineFault if changes may be missing, or the source's reader is to be dropped."""
        settled = None
        with self._checking:
            for finding in self._monitor.check():
                self._apply(finding)
                if isinstance(finding, Settled):
                    settled = finding
            self.activity.saw(self._monitor.source_end)
            # Report progress if no batch has reported it within the interval: the server takes silence for a failure.
            if self._parts.clock.monotonic_ms() - self._reported_ms >= self._parts.settings.guard_interval_s * 1000:
                self.report_progress()
            self._confirm()
        return settled

    def _apply(self, finding: Finding) -> None:
        """Apply one finding, in the thread of the check. Findings that affect the planning of batches are applied between two plannings."""
        match finding:
            case Park(table, kind, detail, known):
                self._parts.parking.park(table, kind.value, detail, known=known)
            case Renamed(old, new):
                self._rename(old, new)
            case SchemaLearnt(schema):
                self._between.put(lambda _number, _after: self._planner.learn(schema))
                self.flush(schema.seen_by)
            case Certified(schemas):
                self._between.put(lambda _number, _after: self._planner.anchor(schemas))
            case Fingerprinted(marks, as_of):
                if self._commits.marks.record_checked(marks, as_of):
                    self.flush(self._intake.captured)
            case TablesAppeared(tables):
                self._parts.reporter.found(tables)
            case SourceGone(kind, detail):
                raise EngineFault(kind, self._spec.reader, detail)
            case LogRetained(reading):
                self._limit_retained_log(reading)
            case Settled():
                # Between two plannings it is certain which batches were planned with the state that the check compared.
                self._between.put(lambda number, _after: self.nows.known.planned(finding, number))
            case _:
                assert_never(finding)

    def execute(self) -> None:
        """Replicate until `stop` is called, or raise the fault that ended the run. Waits for the run's threads: for the commit thread
        without a limit, for each of the others 30 s."""
        stages = self._stages
        threads = [
            stages.thread("intake", lambda: self._intake.run(self._stop.is_set, self._reader_failed)),
            stages.thread("job", self._run_jobs),
            stages.thread("commit", self._run_commits),
            stages.thread("ahead", lambda: self.ahead.run(self._stop)),
            stages.thread("early", lambda: self.early.run(self._stop)),
            stages.thread("guard", self._watch_source),
        ]
        try:
            restore(self._intake, self._opened, self._parts.start.progress, self._spec.origin)
            free_reader(self._parts, self._stop)
            # The log reader of an earlier process may have confirmed a position after the queue was opened.
            status = self._parts.source.reader.status(self._spec.reader)
            self._opened.check_reader(status)
            self._switch.learn_confirmed(status.confirmed or ZERO)
            self._start_reader(self._opened.next_ordinal, self._opened.resume, self._opened.relations)
            for thread in threads:
                thread.start()
            if self._kept.care.orders.hold_copies:
                self.copies.hold()
            self.copies.begin_missing()
            for entry in self._book.all():
                if states.awaits_recopy(entry.state):
                    self._renew(entry.table)
            self._stop.wait()
        finally:
            self._shut_down(threads)
        if stages.fault is not None:
            raise stages.fault

    def log_verified(self) -> None:
        """As IntakeOwner."""
        self._verified = True
        self.report_progress()

    def close(self) -> None:
        """Release the queue for the next run. Call it after `execute`, or instead of it."""
        self._opened.close()

    def stop(self) -> None:
        """End the run after the batch that is being committed. Returns at once; `execute` returns when the run has ended."""
        self._stop.set()

    def demand(self, position: Lsn) -> None:
        """A client waits for this position: batches up to it are sealed as soon as they were read."""
        self._commits.expect(position)
        self._intake.put(Demand(position))

    def flush(self, position: Lsn) -> None:
        """Seal a batch that ends at or after this position, even an empty one."""
        self._intake.put(Flush(position))

    def defer(self, event: Callable[[BatchId], states.RetainingEvent], tables: list[TableId]) -> list[TableId]:
        """Apply `event`, called with the number of the next batch, to tables and keep their changes from that batch on. Blocks until that
        is in force; returns the tables whose state allows it. Raises EngineFault(COPY_FAILED) if the run ends first."""
        deferred: queue.SimpleQueue[list[TableId]] = queue.SimpleQueue()

        def move(number: BatchId, after: Lsn) -> None:
            with self._book.lock:
                moved = [self._book.apply(table, event(number), after) for table in tables]
            taken = [entry for entry in moved if not isinstance(entry, Refused)]
            for entry in taken:
                if entry.reload is None:  # Else later batches apply to it, too.
                    self._planner.leave(entry.table)
            deferred.put([entry.table for entry in taken])

        self._between.put(move)
        while True:
            with suppress(queue.Empty):
                return deferred.get(timeout=0.1)
            if self._stop.is_set():
                raise EngineFault(FaultKind.COPY_FAILED, str(self._spec.name), "the run ended")

    def remove(self, table: TableId, *, drop: bool = False) -> None:
        """Remove a table from the subscription. Its rows on the target are kept unless `drop` is set."""
        self.copies.cancel(table)
        self._book.apply(table, states.Remove())
        self._book.forget(table)
        self.give_up(table, drop=drop)

    def give_up(self, table: TableId, *, drop: bool = False) -> None:
        """Remove the target's record of a table with the next written batch. `drop`: also drop the table there."""
        self._commits.remove(table, drop=drop)
        self.flush(self._intake.captured)

    def pause(self, table: TableId) -> None:
        """Keep a live table's changes instead of applying them, from the next batch on. Returns at once."""

        def pause(number: BatchId, after: Lsn) -> None:
            entry = self._book.get(table)
            if entry is not None and entry.kind in _PAUSABLE:
                position = after if isinstance(entry.state, states.Live) else None
                self._book.apply(table, states.Pause(number, after, taken_in=self._planner.leave(table)), position)

        self._between.put(pause)

    def resume(self, table: TableId) -> None:
        """Apply a paused table's kept changes with the next batch, or copy it again if they were not kept. May block for one batch."""
        if not isinstance(self._book.apply(table, states.AskResume()), Refused):
            self.flush(self._intake.captured)
            return
        with suppress(EngineFault):
            self.defer(states.Reload, [table])
            self.copies.begin_missing()

    def approve(self, table: TableId) -> None:
        """Apply the schema change for which a table waits, and its kept changes; if they were not kept, copy the table again."""
        if not isinstance(self._book.apply(table, states.Approve()), Refused):
            self.flush(self._intake.captured)
            return
        entry = self._book.get(table)
        if entry is not None and states.awaits_approval(entry.state):
            with suppress(EngineFault):
                self.defer(states.Reload, [table])
                self.copies.begin_missing()

    def reload(self, request: str, tables: list[TableId], only: PartitionChoice | None = None) -> None:
        """Copy tables again, or `only` some partitions of the one table, which stays live. Blocks until their changes are kept; returns
        early, without a fault, if the run ends."""
        with suppress(EngineFault):
            if only is not None:
                self.copies.reload_partitions(request, tables[0], only)
            else:
                self.copies.reload(request, tables)

    def cancel_reload(self, request: str, table: TableId | None = None) -> None:
        """As SubscriptionSupervisor.cancel_reload."""
        self.copies.cancel_reload(request, table)

    def respec(self) -> None:
        """Publish and copy the tables that were added to the registry. Others are not affected."""
        self.copies.begin_missing()

    def look_for(self, patterns: tuple[TablePattern, ...]) -> None:
        """Set the patterns by which new tables of the source are included."""
        self._monitor.look_for(patterns)

    def throttle(self, policy: CopyPolicy) -> None:
        """Set the limits of copies. They take effect at once."""
        self.copies.throttle(policy)

    def keep_queue(self, mode: QueueMode) -> None:
        """Set the queue's mode. It takes effect during the run, when the log reader and the target have reached the required positions."""
        self._switch.set(mode)
        self._confirm()

    def _table_changed(self, change: TableChange) -> None:
        """As TableListener."""
        entry = change.entry
        if change.chunk_ended:
            self.copies.chunk_void(entry.table)
        if change.ended:
            self.copies.table_ended(entry)
            if states.awaits_recopy(entry.state):
                self._renew(entry.table)

    def _renew(self, table: TableId) -> None:
        """Copy a table again whose schema change the target cannot apply in place."""

        def reload(number: BatchId, after: Lsn) -> None:
            entry = self._book.get(table)
            if entry is None or not states.awaits_recopy(entry.state):
                return
            if not isinstance(self._book.apply(table, states.Reload(number), after), Refused):
                self._planner.leave(table)
                self.copies.begin_missing()

        self._between.put(reload)

    def _rename(self, old: TableName, new: TableName) -> None:
        """Use the table's new name on the source. The target table keeps its name."""
        entry = self._book.all().by_name(old)
        if entry is not None:
            spec = replace(entry.spec, source=new)
            self._book.amend(entry.table, spec=spec)
            self._parts.reporter.renamed(spec)
            if entry.reason is not None and entry.reason.code == FaultKind.TABLE_MISSING:
                detail = "the table got another name while it was looked for"
                self._parts.parking.park(entry.table, FaultKind.TABLE_STRUCTURE_CHANGED.value, detail)

    def removals_written(self) -> bool:
        """Whether the target has no more records of removed tables."""
        return not self._commits.removals_pending

    def reader_pid(self) -> int | None:
        """Process id of the log reader, for tests and diagnosis; None before the first one."""
        return self._reader.pid if self._reader else None

    def _run_jobs(self) -> None:
        after = self._parts.start.progress.end
        while not self._stop.is_set():
            try:
                sealed: Sealed | None = self._to_job.get(timeout=0.05)
            except queue.Empty:
                sealed = None
            self._between_actions(after)
            self.copies.give_way()
            if sealed is None:
                continue
            self._intake.put(Wake())
            with self.activity.stage(LagCause.COMPUTING, sealed.batch) as work:
                computed = self._jobs.compute(sealed)
                work.skewed(computed.task_skew)
            self.tickets.computed(sealed.batch)
            after = sealed.batch.end
            self._hand_over(computed)
            self._keep_within_budget()

    def _between_actions(self, after: Lsn) -> None:
        with suppress(queue.Empty):
            while True:
                self._between.get_nowait()(self._planner.next_number, after)

    def _hand_over(self, computed: Computed) -> None:
        while not self._stop.is_set():
            with suppress(queue.Full):
                self._to_commit.put(computed, timeout=0.1)
                return

    def _run_commits(self) -> None:
        while not self._stop.is_set():
            try:
                computed = self._to_commit.get(timeout=0.1)
            except queue.Empty:
                self._commits.at_rest()
                continue
            self._commit(computed)

    def _commit(self, computed: Computed) -> None:
        planned = computed.planned
        if planned.handover:
            hit(Failpoint.HANDOVER_BEFORE)
        began = self._parts.clock.monotonic_ms()
        with self.activity.stage(LagCause.SLOW_COMMIT, planned.batch, computed.rows_by_table()) as work:
            work.skewed(computed.key_skew)
            times = self._commits.commit(computed, must_write=bool(planned.batch.cuts))
        self.tickets.applied(planned.batch, times.committed_us)
        self._reader_deaths = 0
        self.cuts.reached(planned.batch, self._commits.applied.visible)
        self.copies.committed(self._commits.handed_over, planned.batch.end)
        for table, reload in self._commits.loaded.items():
            self.copies.partitions.in_place(table, reload, planned.batch.end)
        if planned.chunks:
            hit(Failpoint.CHUNK_TAKEN)
            self.copies.look_again()
        self._jobs.committed(computed, times.committed_ms - began)
        self._intake.put(
            Done(planned.batch, self._planner.oldest_kept, self._commits.applied.written >= planned.batch.end)
        )
        for table in self._commits.handed_over | planned.resumed:
            entry = self._book.get(table)
            if entry is not None and entry.spec.paused:
                self.pause(table)
        self._look_for_leaves(planned)
        self._reported, self._reported_last = self._commits.applied.visible, self._commits.last
        self._report(planned.batch.first_commit_us if planned.batch.transactions else None, times)
        self.nows.known.committed(planned.number, planned.batch.end)
        self._confirm()

    def _look_for_leaves(self, planned: PlannedBatch) -> None:
        """Check the source if the batch has changes of a partition that no check has seen: it may have been detached since, with its rows.
        The batch is reported as applied only afterwards. The first check collects the observed partitions, the second one judges them."""
        if has_unjudged(planned.batch, self._book, self._evidence.truncated_together, self._monitor.has_met):
            self.check_source()
            self.check_source()

    def _report(self, first_commit_us: int | None, times: BatchTimes) -> None:
        hit(Failpoint.REPORT_BEFORE)
        if first_commit_us is not None:
            self.copies.record_commit_lag(self._age_s(first_commit_us) * 1000)
        self._report_progress(first_commit_us, times)

    def report_progress(self) -> None:
        """Report the current progress. From any thread. Needed for a server that was restarted and ignores positions reported before."""
        self._report_progress(self._intake.waiting_since_us)

    def _report_progress(self, since_us: int | None, times: BatchTimes | None = None) -> None:
        """`since_us`: commit time of the oldest transaction that counts as lag, in µs since 1970; None if there is none."""
        if not self._verified:
            return
        with self._telling:
            self._reported_ms = self._parts.clock.monotonic_ms()
            self._parts.reporter.progress(
                run=self._parts.number,
                applied=self._reported,
                captured=self._intake.captured,
                source=self._monitor.source_end,
                lag_seconds=self._lag_s(since_us),
                reader=self._monitor.reader,
                times=times,
                known=self.nows.known.last,
                of_logs=reached_in(self._reported_last, self._parts.source.terms.logs),
            )

    def _lag_s(self, since_us: int | None) -> float | None:
        known = since_us is not None or self._monitor.source_end is not None
        if not known or not self._book.all().in_state(TableStateKind.LIVE):
            return None
        since = [us for us in (since_us, self._monitor.looked_us(self._reported), self._monitor.held_since_us) if us]
        return self._age_s(min(since)) if since else 0.0

    def _age_s(self, since_us: int) -> float:
        return max(0.0, (self._parts.clock.wall_us() - since_us) / 1e6)

    def _confirm(self) -> None:
        """Confirm to the source the position up to which changes are durable here and the publications were checked."""
        marks = Marks(self._intake.durable, self._commits.applied.written, self._monitor.checked)
        with self._confirming:
            position, order = self._switch.confirm(marks)
            if self._reader is None:
                return
            if order is not None:
                self._reader.send(order)
                hit(Failpoint.QUEUE_SWITCH_TOLD)
            if position >= self._released:
                self._released = position
                hit(Failpoint.CONFIRM_BEFORE)
                self._reader.send(Confirm(position))

    def _is_alone(self, xid: int, size: int) -> bool:
        """Whether a streamed transaction of `size` bytes is to be a separate batch: rows of it are in the target, or it stays separate."""
        if self.ahead.alone(xid):
            return True
        large = size >= self._parts.settings.piece_bytes // OPEN_SLICE_RATIO
        return self._chooser.keeps_transactions and (large or self.ahead.knows(xid))

    def queue_holds(self, event: Holds) -> None:
        """As IntakeOwner."""
        if not self._switch.holds(event.order):
            return
        hit(Failpoint.QUEUE_SWITCHED)
        if event.order.number:
            persist = f"persist: everything up to {self._parts.source.terms.text(event.wal_end)} is on disk"
            now = persist if event.order.on else "memory: the target has passed all that was confirmed"
            self._parts.reporter.event("info", "queue_mode_changed", self._spec.reader, now)
        self._confirm()

    def _limit_retained_log(self, reading: GuardReading) -> None:
        """Take the actions of the retention guard. Raises EngineFault(SLOT_DROPPED) if the source's reader is to be dropped."""
        orders = self._kept.care.judge(reading, RetentionProgress(self._switch.may_persist, self.copies.wanted))
        self._switch.press(orders.persist)
        if orders.hold_copies:
            self.copies.hold()
        else:
            self.copies.release()
        if orders.drop is not None:
            raise EngineFault(FaultKind.SLOT_DROPPED, self._spec.reader, orders.drop)

    def _start_reader(self, first: Ordinal, start: Lsn, relations: tuple[bytes, ...]) -> None:
        spec = self._spec
        with self._confirming:
            config = ReaderConfig(
                open_source=self._parts.open_source,
                source=spec.source,
                reader=spec.reader,
                application=f"penstock-{spec.name}-{spec.epoch}"[:63],
                start=start,
                queue=self._opened.folder,
                first_ordinal=first,
                order=self._switch.order,
                relations=relations,
                origin=spec.origin,
                last=self._intake.last_commit,
                selections=table_selections(self._parts.source, self._book.all()),
            )
            self._reader = ReaderProcess(config, self._intake.from_reader)
            self._intake.attach(self._reader)

    def _keep_within_budget(self) -> None:
        """Park tables whose kept changes exceed the queue's budget, after ending partition reloads; suspended copies begin again."""
        oldest, catalog = self._planner.oldest_kept, self._catalog
        budget = self._spec.queue_budget_bytes
        if oldest is None or catalog.bytes_between(Ordinal(oldest), catalog.next_ordinal) <= budget:
            return
        detail = f"changes kept for it fill the queue's budget of {size(budget)}"
        reloads = [entry.table for entry in self._book.all() if entry.reload is not None]
        for table in reloads:
            self.copies.partitions.give_up(table, FaultKind.DEFERRED_OVER_BUDGET, detail)
        for entry in self._book.all() if not reloads else ():
            if isinstance(entry.state, states.Reloading) and self.copies.held:
                self._book.apply(entry.table, states.CopyLost(self._planner.next_number))
            elif states.kept_from(entry.state) is not None and not self._planner.takes_in(entry.table):
                self.copies.cancel(entry.table)
                self._parts.parking.park(entry.table, FaultKind.DEFERRED_OVER_BUDGET.value, detail)

    def _reader_failed(self, failed: Failed) -> None:
        """Replace a log reader whose process died. Raises any other fault, and LOG_READER_DIED after READER_RESTARTS. Intake thread."""
        self._reader_deaths += 1
        if failed.kind is not FaultKind.LOG_READER_DIED or self._reader_deaths > READER_RESTARTS:
            raise EngineFault(failed.kind, failed.subject, failed.detail)
        self._parts.reporter.event("warning", failed.kind.value, failed.subject, failed.detail)
        self._parts.source.reader.end_other(self._spec.reader, f"penstock-{self._spec.name}-")
        hit(Failpoint.READER_FREED)
        self._start_reader(Ordinal(self._catalog.next_ordinal + ORDINAL_GAP), self._intake.captured, ())

    def _shut_down(self, stages: list[threading.Thread]) -> None:
        self._stop.set()
        self.copies.stop()
        self.cuts.stop()
        for stage in stages:
            if stage.ident is not None:
                # There is no limit for a commit in progress: the next run must begin after it.
                stage.join(None if stage.name.endswith("-commit") else 30.0)
        if self._reader is not None:
            self._reader.stop()
        self.early.close()
        if not any(stage.is_alive() for stage in stages):
            # Write the visible position to the target's progress record: otherwise the next start could find a gap that does not exist.
            with suppress(EngineFault):
                self._commits.write_progress()
        if self._stages.fault is None:
            with suppress(EngineFault):
                self._mark.record(self._parts.source.reader.status(self._spec.reader))
