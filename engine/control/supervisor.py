"""One subscription in this engine: its desired state, its consecutive runs, and the requests that outlast a run."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

import structlog

from engine.connectors import as_held, terms_of
from engine.control.leftovers import remove_leftovers
from engine.control.retry_pauses import RetryPauses
from engine.control.target_registry import TargetRegistry
from engine.copy.reload_requests import PartitionChoice, ReloadRequests
from engine.model.batch import TableFault
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TicketId
from engine.model.position import ZERO, Lsn
from engine.model.schema import TableSchema
from engine.model.source import Source
from engine.model.subscription import ConnectionSpec, SubscriptionSpec, TableSpec
from engine.model.subscription_state import (
    DesiredState,
    Reason,
    SubscriptionEvent,
    SubscriptionState,
    next_state,
)
from engine.model.table_state import Refused, TableStateKind
from engine.model.target import Target
from engine.model.tasks import TaskRunner
from engine.pipeline.cross_run import CrossRunState
from engine.pipeline.run import ReplicationRun
from engine.pipeline.tickets import TicketTracker
from engine.platform.clock import Clock
from engine.platform.fault_policy import Action, policy
from engine.platform.settings import EngineSettings
from engine.queue import unmark_durable
from engine.safety.idle_reader_monitor import IdleReaderMonitor, drop_reader
from engine.safety.reader_tombstone import ReaderTombstone
from engine.safety.retention_guard import RetentionGuard
from engine.tables.context import RunContext
from engine.tables.copy_admission import CopyAdmission
from engine.tables.parking import TableParking
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.reporter import Evidence, Reporter
from engine.tables.schema_change import change_of_rows
from engine.tables.selections import needs_new_run
from engine.tables.start_point import (
    StartPoint,
    entry_at_start,
    known_marks,
    reset_point,
    start_point,
    why_not_described,
)
from engine.tables.state import (
    Live,
    Parked,
    Paused,
    Registered,
    awaits_approval,
    awaits_recopy,
)

log = structlog.get_logger(__name__)

_OPENED_ANEW = {FaultKind.TARGET_UNAVAILABLE, FaultKind.TARGET_DISK_FULL, FaultKind.TARGET_FILE_GONE}
DECODING_TRIES = 6
"""Number of failures to decode the log at one position after which the subscription fails instead of starting again."""


@dataclass(frozen=True, slots=True)
class EngineContext:
    """Dependencies shared by the supervisors of one engine."""

    open_source: Callable[[ConnectionSpec], Source]
    targets: TargetRegistry
    runner: TaskRunner
    settings: EngineSettings
    clock: Clock


class SubscriptionSupervisor:
    """Runs one subscription in a thread of its own, from `start` to `close`, and starts it again after faults that may pass.

    Public methods may be called from any thread, and return at once unless they say otherwise.
    """

    def __init__(self, spec: SubscriptionSpec, parts: EngineContext, reporter: Reporter) -> None:
        self._spec = spec = as_held(spec, parts.settings.cycles_folder)
        self._parts = parts
        self._reporter = reporter
        self.event = reporter.event
        self._desired = DesiredState(spec.desired)
        self._state = SubscriptionState.CREATED
        self._reset = False
        self._retry_now = False
        """A change was requested that the current attempt may not have seen: the next attempt begins without delay."""
        self._pauses = RetryPauses(parts.clock)
        self._suspect_queue = False
        self._reason: Reason | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._run: ReplicationRun | None = None
        self._source: Source | None = None
        self._target: Target | None = None
        self._open_book(spec)
        self._demands: list[Lsn] = []
        """Heap of demanded positions, kept for a run that starts later."""
        self._whole_reloads: list[str] = []
        self._undecoded = ZERO, 0
        """The position up to which the source could decode its log when it last failed, and the number of failures there."""
        self._table_reloads: list[tuple[str, list[TableId], PartitionChoice | None]] = []
        """Reloads requested while a run was starting; they begin with it."""
        self._not_copied: frozenset[TableId] = frozenset()
        """Tables whose reload was cancelled while no run was active; the next run does not copy them."""
        self._reloads = ReloadRequests(reporter)
        self.tickets = TicketTracker(reporter)
        settings = parts.settings
        self._care = RetentionGuard(spec, reporter, parts.clock, settings.guard_patience_s, terms_of(spec.source))
        self._dropped = ReaderTombstone(settings.queue_folder, spec.reader)
        self._resting = IdleReaderMonitor(
            parts.open_source, self._care, self._dropped, parts.clock, settings.guard_interval_s
        )
        self._thread = threading.Thread(target=self._live, name=f"{spec.name}-pipeline", daemon=True)

    @property
    def spec(self) -> SubscriptionSpec:
        return self._spec

    @property
    def run(self) -> ReplicationRun | None:
        """The current run; None while none is active."""
        return self._run

    @property
    def target(self) -> Target | None:
        """The open target; None while the subscription is stopped or has not opened it yet."""
        return self._target

    @property
    def query_memory(self) -> int:
        """Memory of each process that runs readers' statements, in bytes."""
        return self._parts.settings.query_memory_mb << 20

    @property
    def book(self) -> TableRegistry:
        return self._book

    def start(self) -> None:
        self._thread.start()

    def desire(self, desired: DesiredState) -> None:
        """Set the desired state. A failed subscription that is to run starts again without delay."""
        with self._changed:
            self._desired = desired
            self._spec = replace(self._spec, desired=desired.value)
            if self._state is SubscriptionState.FAILED:
                self._state, self._reason = SubscriptionState.CREATED, None
            self._retry_now = True
            self._changed.notify_all()
        if desired is not DesiredState.RUNNING and self._run is not None:
            self._run.stop()

    def reset(self) -> None:
        """Reload everything: a new reader on the source, and a copy of every table. Old rows stay readable until each table's swap."""
        with self._changed:
            self._reset = self._retry_now = True
            if self._state is SubscriptionState.FAILED:
                self._state, self._reason = SubscriptionState.CREATED, None
            self._changed.notify_all()
        if self._run is not None:
            self._run.stop()

    def reload(self, request: str, tables: list[TableId] | None, only: PartitionChoice | None = None) -> None:
        """Copy tables again; their old rows stay readable until the swap. The result is reported under `request`.

        Args:
            request: a request that is already known is ignored.
            tables: None reloads everything, as `reset`. Otherwise the request fails if the subscription neither runs nor starts.
            only: partitions of the only table in `tables`.
        """
        with self._changed:
            asked = {one for one, *_ in self._table_reloads}.union(self._whole_reloads)
            if request in asked or self._reloads.knows(request):
                return  # The server repeats open requests on each new connection.
            run = self._run
            starting = self._desired is DesiredState.RUNNING and self._state is not SubscriptionState.FAILED
            if tables is None:
                self._whole_reloads.append(request)
                self._reset = True
            elif run is None and starting:
                self._table_reloads.append((request, tables, only))
        if tables is None:
            self.reset()
        elif run is not None:
            self._begin_reload(run, request, tables, only)
        elif not starting:
            problem = (
                "subscription_not_running",
                "the subscription does not run",
                "Set desired_state to running, then reload.",
            )
            self._reporter.reload(request, "failed", problem=problem)

    def approve(self, table: TableId, reason: str | None = None) -> None:
        """Approve the schema change for which a table waits. Blocks for one batch at most. Ignored if the table does not wait.

        `reason`: as it was shown to the user. If the table waits for another reason now, it continues to wait, and a warning is reported.
        """
        run, entry = self._run, self._book.get(table)
        if entry is None or not awaits_approval(entry.state):
            return
        found = entry.reason
        if found is not None and found.known and reason is not None and found.reason != reason:
            self._reporter.event("warning", "approval_outdated", str(entry.spec.source), "it waits for more by now")
            return
        if run is not None:
            run.approve(table)
            return
        detail = "the subscription does not run; approve again when it does"
        self._reporter.event("warning", "approval_not_taken", str(table), detail)

    @staticmethod
    def _begin_reload(run: ReplicationRun, request: str, tables: list[TableId], only: PartitionChoice | None) -> None:
        threading.Thread(target=run.reload, args=(request, tables, only), daemon=True).start()

    def cancel_reload(self, request: str, table: TableId | None = None) -> None:
        """Cancel one reload; others continue. `table`: the table that was being copied for it, possibly by an earlier engine."""
        with self._changed:
            self._table_reloads = [asked for asked in self._table_reloads if asked[0] != request]
            if (run := self._run) is None:
                self._not_copied |= self._reloads.cancelled(request, table)
        if run is not None:
            run.cancel_reload(request, table)

    def demand(self, position: Lsn) -> None:
        """A client waits for this position: the current run, or the next one, makes it visible as early as possible."""
        with self._changed:
            if (run := self._run) is not None:
                while self._demands and self._demands[0] <= run.applied.visible:
                    heapq.heappop(self._demands)
            heapq.heappush(self._demands, position)
        if run is not None:
            run.demand(position)

    def demand_current(self) -> None:
        """As `demand`, for everything that the source has now. Raises EngineFault if it cannot be asked."""
        if (run := self._run) is not None:
            self.demand(run.nows.current())

    def update(self, spec: SubscriptionSpec) -> None:
        """Apply a newer version of the same assignment: tables are added, removed, paused and resumed; queue mode, copy limits, patterns
        and the guard's policy change at once; everything else takes effect at the next start."""
        spec = as_held(spec, self._parts.settings.cycles_folder)
        with self._changed:
            before = {t.table: t for t in self._spec.tables}
            patterns = self._spec.patterns
            after = {t.table: t for t in spec.tables}
            self._spec = spec
            run = self._run
        self._care.configure(spec)
        self._report_again()
        for table in before.keys() - after.keys():
            self.remove(table, drop=table in spec.dropped)
        added = [after[t] for t in after.keys() - before.keys()]
        # The log reader of the next run selects columns as declared now, and its start publishes tables as declared. This run must not
        # publish the new tables: its log reader would write all their columns.
        outdated = run is not None and needs_new_run(before, after)
        for spec_added in () if outdated else added:
            self._book.add(TableEntry(spec_added, Paused() if spec_added.paused else Registered()))
        if run is not None and outdated:
            run.stop()
        elif run is not None:
            run.keep_queue(spec.queue_mode)
            run.throttle(spec.copies)
            if spec.patterns != patterns:
                run.look_for(spec.patterns)
            for known in before.keys() & after.keys():
                self._pause_or_resume(run, before[known], after[known])
            if added:
                run.respec()
        self.desire(DesiredState(spec.desired))

    def _report_again(self) -> None:
        """Report the current states again: a server that was restarted may show the engine as lost. Repeated values have no effect."""
        with self._changed:
            state, reason, run = self._state, self._reason, self._run
        self._book.report()
        self._reporter.state(state, reason)
        if run is not None:
            run.report_progress()

    def remove(self, table: TableId, *, drop: bool = False) -> None:
        """Remove a table that left the subscription. `drop`: also drop its table on the target. Without a run, the next start drops it."""
        if self._run is not None:
            self._run.remove(table, drop=drop)
        else:
            self._book.forget(table)
            self._reloads.failed(table, TableFault(FaultKind.TABLE_MISSING.value, "it was removed"))

    def send_ticket(self, ticket: TicketId) -> None:
        """Write the marker of a registered ticket to the source; without a run, the next one does. Blocks for a round trip."""
        run = self._run
        if run is not None:
            run.tickets.send(ticket)

    def close(self) -> None:
        """End the subscription in this engine; the source's reader and the target are kept. Blocks until it has ended, 60 s at most."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._run is not None:
            self._run.stop()
        if self._thread.ident is not None:
            self._thread.join(60.0)

    def forget(self) -> list[str]:
        """End a deleted subscription, and remove what belongs to it. Returns what could not be removed, as text. Blocks."""
        self.close()
        left = remove_leftovers(self._spec, self._parts.open_source, self._parts.targets, self._parts.settings)
        self._dropped.forget()
        return left

    def _pause_or_resume(self, run: ReplicationRun, before: TableSpec, after: TableSpec) -> None:
        entry = self._book.get(after.table)
        if entry is not None and after.source == before.source:
            # The declaration does not contain a rename that the engine has found.
            after = replace(after, source=entry.spec.source)
        self._book.amend(after.table, spec=after)
        if after.paused and not before.paused:
            run.pause(after.table)
        elif before.paused and not after.paused:
            run.resume(after.table)

    def _live(self) -> None:
        while True:
            self._wait_for(self._has_work)
            with self._changed:
                if self._closed:
                    break
                if not self._has_work():
                    continue
                desired = self._desired
            self._resting.close()
            if desired is DesiredState.RUNNING:
                self._attempt()
            else:
                self._rest(desired)
        self._let_go()

    def _wait_for(self, over: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait until `over()` is true or the time is up, and check the source's reader meanwhile; return early if the guard drops it."""
        clock = self._parts.clock
        deadline = None if timeout_s is None else clock.monotonic_ms() / 1000 + timeout_s
        while True:
            left = None if deadline is None else deadline - clock.monotonic_ms() / 1000
            wait = self._resting.due_in_s if left is None else min(left, self._resting.due_in_s)
            with self._changed:
                if self._changed.wait_for(over, max(0.0, wait)) or (left is not None and left <= 0):
                    return
            if self._check_reader():
                return

    def _check_reader(self) -> bool:
        """Check the source's reader if it is due. Returns whether the guard has just dropped it and the subscription failed."""
        fault = self._resting.check(self._spec, to_be_replaced=self._reset)
        with self._changed:
            # A reset that was requested during the check creates a new reader, so the loss of the old one is no fault.
            known = self._state is SubscriptionState.FAILED and self._gave_up
            if fault is None or known or self._reset:
                return False
            self._fail(fault)
        return True

    @property
    def _gave_up(self) -> bool:
        return self._reason is not None and self._reason.code == FaultKind.SLOT_DROPPED.value

    def _has_work(self) -> bool:
        if self._closed:
            return True
        if self._desired is DesiredState.RUNNING:
            return self._state is not SubscriptionState.FAILED
        resting = {DesiredState.PAUSED: SubscriptionState.PAUSED, DesiredState.STOPPED: SubscriptionState.STOPPED}
        return self._state not in {resting[self._desired], SubscriptionState.FAILED}

    def _attempt(self) -> None:
        """Start and run once, and wait before the next attempt if this one failed."""
        self._move(SubscriptionEvent.START)
        self._pauses.begin()
        try:
            self._run_once()
        except EngineFault as fault:
            run, self._run = self._run, None
            for_good = self._cannot_decode(fault, ZERO if run is None else run.captured)
            self._after_fault(fault, None if run is None else run.applied.visible, for_good=for_good)
        except Exception as error:  # A defect is logged and retried; it must not end the subscription's thread.
            self._run = None
            log.exception("run_failed", subscription=self._spec.name, error=type(error).__name__)
            self._after_fault(EngineFault(FaultKind.INTERNAL, "run", type(error).__name__), None)
        else:
            self._run = None
            self._pauses.reset()

    def _run_once(self) -> None:
        with self._changed:
            declared, self._retry_now = self._spec, False
            reset, self._reset = self._reset, False
            requests = list(self._whole_reloads)
        try:
            source = self._open_source()
            target = self._open_target()
            spec = self._with_names(declared, source, target)
            point = self._new_point(spec, source, target) if reset else self._resumed_point(spec, source, target)
            self._refuse_renamed(spec, source, target)
        except BaseException:
            self._reset |= reset
            raise
        self._book.retire()
        self._open_book(spec)
        spec = self._without_removed(spec)
        self._fill_book(spec, source, point)
        parts = RunContext(
            spec=spec,
            source=source,
            open_source=self._parts.open_source,
            target=target,
            start=point,
            runner=self._parts.runner,
            settings=self._parts.settings,
            clock=self._parts.clock,
            reporter=self._reporter,
            book=self._book,
            admission=CopyAdmission(self._book),
            parking=self._parking,
            number=self._reporter.run,
            suspect_queue=self._suspect_queue,
        )
        with closing(ReplicationRun(parts, CrossRunState(self._reloads, self._care, self.tickets))) as run:
            self._suspect_queue = False
            try:
                self._begin(run, declared, requests)
                run.execute()
            finally:
                self._reporter.end_run()

    def _open_book(self, spec: SubscriptionSpec) -> None:
        book = TableRegistry()
        book.subscribe(self._reporter.table_changed)
        self._book, self._parking = book, TableParking(book, spec.schema_changes)

    def _begin(self, run: ReplicationRun, declared: SubscriptionSpec, requests: list[str]) -> None:
        """Give the run what was requested before it existed. `requests`: reloads of everything, which its new reader serves."""
        with self._changed:
            self._run = run
            run.keep_queue(self._spec.queue_mode)
            run.throttle(self._spec.copies)
            overtaken = self._reset or self._spec.tables != declared.tables
            if self._closed or self._desired is not DesiredState.RUNNING or overtaken:
                run.stop()  # A change that was declared during the start needs another start.
            table_reloads, self._table_reloads = self._table_reloads, []
            not_copied, self._not_copied = self._not_copied, frozenset()
            run.copies.park_cancelled(not_copied)
            self._take_up_reloads(run, requests)
        for asked in table_reloads:
            self._begin_reload(run, *asked)
        for position in list(self._demands):
            run.demand(position)
        threading.Thread(target=run.tickets.send_all, daemon=True).start()
        self._move(SubscriptionEvent.STARTED)

    def _take_up_reloads(self, run: ReplicationRun, requests: list[str]) -> None:
        """Continue reloads that an earlier run left open, and begin `requests`."""
        self._reloads.take_up()
        for request, table in self._reloads.waiting():
            entry = self._book.get(table)
            if entry is None:
                self._reloads.failed(table, TableFault(FaultKind.TABLE_MISSING.value, "it was removed"))
            elif (
                isinstance(entry.state, Live)
                or (isinstance(entry.state, Parked) and not awaits_recopy(entry.state))
                or (isinstance(entry.state, Paused) and entry.state.kept_from is not None)
            ):
                # The earlier run ended before any chunk of the copy was on the target.
                self._begin_reload(run, request, [table], None)
        tables = [e.table for e in self._book.all().in_state(TableStateKind.REGISTERED, TableStateKind.RELOADING)]
        self._whole_reloads = [request for request in self._whole_reloads if request not in requests]
        for request in requests:
            self._reloads.begin(request, tables)

    def _resumed_point(self, spec: SubscriptionSpec, source: Source, target: Target) -> StartPoint:
        """Continue from the target's position. Raises EngineFault(SLOT_DROPPED) if the engine's own guard dropped the reader."""
        fault = self._dropped.fault()
        if fault is not None:
            raise fault
        return start_point(spec, source, target)

    def _new_point(self, spec: SubscriptionSpec, source: Source, target: Target) -> StartPoint:
        """Begin with a new reader. Records about the old one, and the durability mark of its queue, are removed first."""
        self._dropped.forget()
        self._undecoded = ZERO, 0
        unmark_durable(self._parts.settings.queue_folder / spec.reader)
        point = reset_point(spec, source, target)
        self._care.begin_again()
        return point

    def _without_removed(self, spec: SubscriptionSpec) -> SubscriptionSpec:
        """`spec` without tables that were removed since the start began, so that they are not added to the new registry."""
        with self._changed:
            declared, dropped = {table.table for table in self._spec.tables}, self._spec.dropped
        return replace(spec, tables=tuple(table for table in spec.tables if table.table in declared), dropped=dropped)

    def _fill_book(self, subscription: SubscriptionSpec, source: Source, point: StartPoint) -> None:
        """Register every table in the state that the target's record implies; tables that are not ready there are copied. The source
        monitor's first check reports changes of the source's partitions since the last run."""
        described = source.describe(subscription.tables)
        for spec in subscription.tables:
            entry = entry_at_start(spec, point)
            self._book.add(entry)
            now = described.get(spec.source)
            record = point.progress.tables.get(spec.table)
            if record is not None and record.ready and record.parked is None:
                self._reporter.schema(entry, record.schema, record.applied, Evidence.TARGET)
            if isinstance(entry.state, Parked):
                self._renew(entry, now, source)
                continue
            if now is None:
                fault = why_not_described(source, spec)
                self._parking.park(spec.table, fault.kind.value, fault.detail)
            elif entry.schema is not None and entry.schema.relation != now.relation:
                detail = "the table was dropped and created again"
                self._parking.park(spec.table, FaultKind.TABLE_STRUCTURE_CHANGED.value, detail)
            elif entry.schema is not None and (change := change_of_rows(entry.schema, now)) is not None:
                self._parking.park(spec.table, FaultKind.TABLE_STRUCTURE_CHANGED.value, change)
        followed = self._book.all().in_state(TableStateKind.LIVE, TableStateKind.PAUSED)
        source.safety.remember(known_marks([entry.spec for entry in followed], point.progress))

    def _refuse_renamed(self, spec: SubscriptionSpec, source: Source, target: Target) -> None:
        """Raise EngineFault(SOURCE_TIMEOUT) if a table was renamed during this start; the next one uses its new name."""
        if self._with_names(spec, source, target) != spec:
            detail = "a table was renamed while the subscription started"
            raise EngineFault(FaultKind.SOURCE_TIMEOUT, spec.reader, detail)

    def _with_names(self, spec: SubscriptionSpec, source: Source, target: Target) -> SubscriptionSpec:
        """`spec` with the new names of tables that were renamed while no run was active; each rename is reported. A table keeps its old
        name if another table on the source has it now, even one that cannot be replicated, or if the new name belongs to another table
        of the subscription."""
        progress = target.progress(spec.name)
        if progress is None or progress.reader != spec.reader:
            return spec
        described = source.describe(spec.tables)
        known = {table: copy.schema for table, copy in progress.copies.items()}
        known |= {table: record.schema for table, record in progress.tables.items()}
        away = {t.table: known[t.table] for t in spec.tables if t.table in known}
        away = {
            t.table: away[t.table]
            for t in spec.tables
            if t.table in away
            and t.source not in described
            and why_not_described(source, t).kind is FaultKind.TABLE_MISSING
        }
        names = source.names([schema.relation for schema in away.values()]) if away else {}
        taken = {table.source for table in spec.tables}
        names = {relation: name for relation, name in names.items() if name not in taken}
        renamed = []
        for table in spec.tables:
            new = names.get(away[table.table].relation) if table.table in away else None
            renamed.append(table if new is None else replace(table, source=new))
            if new is not None and new != table.source:
                self._reporter.renamed(renamed[-1])
        return replace(spec, tables=tuple(renamed))

    def _renew(self, entry: TableEntry, now: TableSchema | None, source: Source) -> None:
        """Park a parked table again with a fault that requires a copy, if a copy corrects it or if the dropped table exists again. One that
        exists again but cannot be replicated as declared is parked for that reason."""
        kind = FaultKind(entry.reason.code) if entry.reason is not None else None
        replaced = kind is FaultKind.TABLE_NOT_READ and entry.schema and now and now.relation != entry.schema.relation
        if now is not None and (kind is FaultKind.TABLE_MISSING or replaced):
            self._parking.park(entry.table, FaultKind.TABLE_STRUCTURE_CHANGED.value, "the table was created again")
        elif kind is FaultKind.TABLE_MISSING:
            fault = why_not_described(source, entry.spec)
            if fault.kind is not kind:
                self._parking.park(entry.table, fault.kind.value, fault.detail)
        elif kind is FaultKind.NET_CHANGE_ANOMALY and now is not None and now.relfilenode == 0:
            # The log does not contain rows that come or go with a partition, and the partitions seen earlier are not known any more.
            if self._parking.renews(FaultKind.TABLE_PARTITIONS_CHANGED):
                detail = "rows of its partitions may have come or gone with them before the last start"
                self._parking.park(entry.table, FaultKind.TABLE_PARTITIONS_CHANGED.value, detail)
        elif kind is not None and self._parking.renews(kind):
            self._parking.park(entry.table, kind.value, "its structure changed before the last start")

    def _open_source(self) -> Source:
        if self._source is not None:
            self._source.close()
        self._source = self._parts.open_source(self._spec.source)
        return self._source

    def _open_target(self) -> Target:
        if self._target is None:
            self._target = self._parts.targets.acquire(self._spec.target)
        return self._target

    def _rest(self, desired: DesiredState) -> None:
        """Pause (the target stays open and answers queries) or stop (the target is closed)."""
        if desired is DesiredState.PAUSED:
            self._move(SubscriptionEvent.PAUSE)
            try:
                self._open_target()
            except EngineFault as fault:
                self._fail(fault)
                return
            self._move(SubscriptionEvent.PAUSED)
            return
        self._move(SubscriptionEvent.STOP)
        self._let_go()
        self._move(SubscriptionEvent.STOPPED)

    def _let_go(self) -> None:
        self._resting.close()
        if self._source is not None:
            self._source.close()
            self._source = None
        if self._target is not None:
            self._target = None
            self._parts.targets.release(self._spec.target)

    def _cannot_decode(self, fault: EngineFault, captured: Lsn) -> bool:
        """Whether the source has failed DECODING_TRIES times to decode its log at one position. Counts this failure."""
        if fault.kind is not FaultKind.LOG_NOT_DECODED:
            return False
        place, tries = self._undecoded
        self._undecoded = max(captured, place), tries + 1 if captured <= place else 1
        return self._undecoded[1] >= DECODING_TRIES

    def _after_fault(self, fault: EngineFault, applied: Lsn | None, *, for_good: bool = False) -> None:
        """Fail the subscription, or wait if this kind of fault is retried and not `for_good`. `applied`: as RetryPauses."""
        if fault.kind in _OPENED_ANEW and self._target is not None:
            self._target = None
            self._parts.targets.release(self._spec.target)
        if for_good or policy(fault.kind).action is not Action.RETRY:
            self._fail(fault)
            if fault.kind is FaultKind.SLOT_DROPPED:
                self._give_up_reader(fault)
            with self._changed:
                if self._reset:  # Requested during this attempt: a new reader and new copies are the remedy.
                    self._state, self._reason = SubscriptionState.CREATED, None
            self._pauses.reset()
            return
        self._suspect_queue |= fault.kind is FaultKind.QUEUE_CORRUPT
        self._reporter.event("warning", fault.kind.value, fault.subject, fault.detail)
        self._reporter.state(SubscriptionState.STARTING, _reason(fault))
        with self._changed:
            self._state, self._reason = SubscriptionState.STARTING, _reason(fault)
        self._wait_for(self._wait_is_over, self._pauses.after_failure(applied))

    def _give_up_reader(self, fault: EngineFault) -> None:
        """Drop the reader, as the last escalation level, after the run that used it has ended. If it fails, the next check tries again."""
        try:
            source = self._parts.open_source(self._spec.source)
            try:
                drop_reader(source, self._dropped, fault)
            finally:
                source.close()
        except EngineFault as left:
            log.warning("slot_not_dropped", reader=fault.subject, code=left.kind.value)

    def _wait_is_over(self) -> bool:
        return self._closed or self._retry_now or self._desired is not DesiredState.RUNNING

    def _fail(self, fault: EngineFault) -> None:
        self._reporter.event("error", fault.kind.value, fault.subject, fault.detail)
        with self._changed:
            self._state = SubscriptionState.FAILED
            self._reason = _reason(fault)
        self._reporter.state(SubscriptionState.FAILED, self._reason)

    def _move(self, event: SubscriptionEvent) -> None:
        with self._changed:
            after = next_state(self._state, event)
            if isinstance(after, Refused) or after is self._state:
                return
            self._state, self._reason = after, None
        self._reporter.state(after)


def _reason(fault: EngineFault) -> Reason:
    return Reason(fault.kind.value, f"{fault.subject}: {fault.detail}", policy(fault.kind).remedy)
