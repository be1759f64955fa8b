"""The commit stage of one run: a computed batch becomes one target transaction, then it counts as applied."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from engine.copy.catch_up import CopyCatchUp
from engine.model.batch import TableChanges, TablePart
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, TableId
from engine.model.last_commit import CommitTimes, LastCommit
from engine.model.ledger import BatchLedger
from engine.model.position import Lsn
from engine.model.quarantine import SET_ASIDE_LIMIT, RefusedPolicy, SetAside
from engine.model.target import BatchCommit, TableCommit, TargetProgress
from engine.pipeline.apply_mode import AS_BATCH, ApplyPlan
from engine.pipeline.compute import Computed
from engine.pipeline.generated_columns import Ask, with_computed
from engine.pipeline.ledger import Decided, balanced, with_quarantined, with_refused
from engine.pipeline.speculative_insert import rest_of
from engine.platform.failpoints import Failpoint, hit
from engine.platform.fault_policy import Action, policy
from engine.safety.partition_fingerprints import PartitionFingerprints
from engine.tables.context import RunContext
from engine.tables.planner import PlannedBatch
from engine.tables.registry import TableEntry
from engine.tables.reporter import BatchTimes, Evidence
from engine.tables.schema_change import differences
from engine.tables.state import (
    AwaitApproval,
    AwaitSource,
    CaughtUp,
    Chunk,
    Live,
    Parked,
    Paused,
    Resume,
)

CHECK_PLACE_MS = 500.0
"""How often the place of the target is checked while no batch is committed. A query of a moved file may answer for this long."""

_OF_ROWS = frozenset({FaultKind.VALUE_OUT_OF_DOMAIN, FaultKind.ROW_REFUSED, FaultKind.TOO_MANY_SET_ASIDE})
"""Faults of single rows: the rows are kept in the quarantine."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Where the target is: `visible` for readers and waits, `written` in its own progress record."""

    visible: Lsn
    written: Lsn


@dataclass(frozen=True, slots=True)
class _Goal:
    """What a target transaction moves the progress record to."""

    number: BatchId
    end: Lsn
    last: LastCommit | None
    """The last transaction up to `end`."""
    times: CommitTimes | None = None
    """Of the transactions that are written."""
    then_parked: frozenset[TableId] = frozenset()
    """Tables that could not be read up to `end`."""


class CommitStage:
    """Commits batches one after another. Used by one thread; `applied` may be read, and marks noted, from any."""

    def __init__(
        self,
        context: RunContext,
        start: Lsn,
        ask: Ask,
        marks: PartitionFingerprints,
    ) -> None:
        """`ask` has the source compute columns that its log does not carry."""
        self._ask = ask
        self._spec = context.spec
        self._target = context.target
        self._book = context.book
        self._admission = context.admission
        self._parking = context.parking
        self._reporter = context.reporter
        self._clock = context.clock
        self._position_write_ms = context.settings.position_write_s * 1000
        self._written_ms = self._clock.monotonic_ms()
        self._place_ms = self._clock.monotonic_ms()
        """When the place of the target was last checked."""
        self._removed: list[TableId] = []
        self._last: LastCommit | None = None
        self._dropping = set(self._spec.dropped)
        """Tables that were or will be removed and whose tables on the target are to be dropped."""
        self._staying: dict[TableId, str] = {}
        """Those of them that the target does not drop, with the reason."""
        self._stale: set[TableId] = set()
        self._number: BatchId | None = None
        self._complete: set[TableId] = set()
        self._known_parked: set[TableId] = set()
        self.marks = marks
        self.applied = Applied(start, start)
        self.copies = CopyCatchUp(self._book, self._admission, self._copy_begins_anew)
        self._aside: dict[TableId, int] = {}
        """The number of rows in quarantine of each table that has some."""
        self._tried: dict[TableId, TableCommit] = {}
        """The changes that tables park for, of which the refused rows are recorded."""
        self._ledger = BatchLedger(None, 0, {})
        """Of the batch at hand."""
        self.handed_over: frozenset[TableId] = frozenset()
        """Tables whose copies the last batch handed over."""
        self.loaded: Mapping[TableId, Chunk] = {}
        """The chunks of partitions that it took."""

    def begin(self, progress: TargetProgress) -> None:
        """Read the target's record of each table when the run begins."""
        members = {table.table for table in self._spec.tables}
        self._number = progress.batch
        self._last = progress.last
        known = [*progress.tables, *progress.copies, *progress.reserved, *self._dropping]
        self._removed = [table for table in dict.fromkeys(known) if table not in members]
        if self._removed:
            self._put(_Goal(progress.batch, progress.end, progress.last), {})
        self.copies.take_up(progress)
        self._complete = {t for t, record in progress.tables.items() if record.ready}
        self._aside = {t: record.set_aside for t, record in progress.tables.items() if record.set_aside}
        self._reporter.set_aside(self._aside, whole=True)
        self._known_parked = {t for t, record in progress.tables.items() if record.parked is not None}
        self.marks.begin(progress)

    @property
    def last(self) -> LastCommit | None:
        """The last transaction of the log up to what is visible; None before the first batch."""
        return self._last

    def write_progress(self) -> None:
        """Write what is visible but not yet in the progress record. Call when no batch is being committed."""
        parked = self._newly_parked()
        if self._number is not None and (self.applied.visible > self.applied.written or parked or self.marks.pending):
            self._put(_Goal(self._number, self.applied.visible, self._last), parked)
            self.applied = Applied(self.applied.visible, self.applied.visible)

    def at_rest(self) -> None:
        """While there is no batch: check that the target which holds what was reported as applied is still in place."""
        if self._clock.monotonic_ms() - self._place_ms >= CHECK_PLACE_MS:
            self._check_place()

    def _check_place(self) -> None:
        """Raises EngineFault(TARGET_FILE_GONE)."""
        self._target.check_place()
        self._place_ms = self._clock.monotonic_ms()

    def remove(self, table: TableId, *, drop: bool) -> None:
        """Forget a table's record with the next written batch; `drop`: and the table itself, else its rows stay."""
        if drop:
            self._dropping.add(table)
        self._removed.append(table)

    def expect(self, position: Lsn) -> None:
        """A client waits for this position. From any thread."""
        if position > self.applied.visible:
            self._target.expect(self._spec.name, position)

    def commit(self, computed: Computed, *, must_write: bool) -> BatchTimes:
        """Commit one batch; returns its times. `must_write`: write the position even where nothing changed (a cut)."""
        end, parts = computed.planned.batch.end, 1
        with self._admission.handing_over(computed.planned.handover):
            taking = self._taking_part(computed.planned)
            commits, faults = self._commits(computed, taking)
            commits |= self._newly_parked(computed.planned.number)
            self._ledger = balanced(computed, Decided(commits, faults.keys(), taking.keys(), self.copies.taken))
            self.marks.next(computed.planned.batch)
            self._stale |= self._left_out(taking)
            self._stale -= commits.keys()
            then_parked = self._then_parked(computed.planned, taking, faults)
            changed = bool(
                commits or then_parked or self._removed or self._stale or self.marks.pending or self.copies.left
            )
            due = self._clock.monotonic_ms() - self._written_ms >= self._position_write_ms
            written = changed or must_write or (due and end > self.applied.written)
            if written:
                hit(Failpoint.COMMIT_BEFORE)
                refused, parts = self._write(computed, commits, then_parked)
                faults |= refused
                hit(Failpoint.COMMIT_AFTER)
            elif computed.early is not None:
                computed.early.roll_back()
        self._check_place()
        self.handed_over = frozenset(t for t, commit in commits.items() if commit.handover) - faults.keys()
        loaded = {t for t, commit in commits.items() if commit.swap is not None} - faults.keys()
        self.loaded = {t: reload for t, reload in computed.planned.reloads.items() if t in loaded}
        times = self._times(computed, parts)
        self._announce(computed, faults, end)
        # Last: another thread reports this position, and the tables that the batch parked must be known before.
        self.applied = Applied(end, end if written else self.applied.written)
        self._target.reached(self._spec.name, end)
        self._number, self._last = computed.planned.number, computed.planned.batch.last
        if computed.planned.batch.transactions:
            self._reporter.batch(
                computed.planned, list(computed.applied_changes), computed.log_bytes, times, self._ledger
            )
        for path in computed.files:
            Path(path).unlink(missing_ok=True)
        return times

    def _taking_part(self, planned: PlannedBatch) -> dict[TableId, tuple[TablePart, TableEntry]]:
        """Tables whose readers see the batch's changes."""
        found = {}
        for part in planned.parts:
            entry = self._book.get(part.table)
            if entry is None or self.copies.concerns(planned, part.table) or planned.is_outdated(entry):
                continue
            found[part.table] = (part, entry)
        return found

    def _then_parked(
        self, planned: PlannedBatch, taking: Container[TableId], faults: Container[TableId]
    ) -> frozenset[TableId]:
        """Tables that are recorded as parked after their changes in the batch: the planner has parked them."""
        return frozenset(table for table in planned.unread if table in taking and table not in faults)

    def _left_out(self, taking: Container[TableId]) -> set[TableId]:
        """Complete tables whose changes the batch keeps for later or drops. They lack changes from here on, which a restart must know.

        Decided by what the target has, not by generations: a paused table has no part in the batch, and continues from its rows.
        """
        left = (table for table in self._complete - self._known_parked if table not in taking)
        return {table for table in left if self._book.get(table) is not None}

    def _commits(
        self, computed: Computed, taking: Mapping[TableId, tuple[TablePart, TableEntry]]
    ) -> tuple[dict[TableId, TableCommit], dict[TableId, tuple[str, str]]]:
        """One TableCommit per table that has something to write, and the tables that park with their fault."""
        planned = computed.planned
        faults = dict(planned.parked)
        self.copies.begin()
        by_table: dict[TableId, list[TableChanges]] = {}
        whole = planned.whole
        for found in computed.applied_changes:
            visible = found.table in whole or not self.copies.concerns(planned, found.table)
            aside = found.refused is not None and self._sets_aside(found.table) and visible
            change = replace(found, fault=None) if aside else found
            if change.fault is not None and not self._left_to_its_copy(planned, change.table):
                faults.setdefault(change.table, (change.fault.code, change.fault.detail))
            by_table.setdefault(change.table, []).append(change)
        commits: dict[TableId, TableCommit] = {}
        for table in dict.fromkeys([*(part.table for part in planned.parts), *planned.chunks]):
            changes = by_table.get(table, [])
            if table in faults or _failed(changes):
                continue
            try:
                commit = self._commit_of(computed, table, changes, taking.get(table))
            except EngineFault as fault:
                if policy(fault.kind).action is not Action.PARK_TABLE:
                    raise
                faults[table] = (fault.kind.value, fault.detail)
                continue
            if commit is not None:
                commits[table] = commit
        self._tried = self._refused_of(planned, by_table, faults)
        for table, (code, _) in faults.items():
            parked = self._parked(table, code)
            if parked is not None:
                commits[table] = parked
        return {table: with_computed(commit, self._ask) for table, commit in commits.items()}, faults

    def _refused_of(
        self, planned: PlannedBatch, by_table: Mapping[TableId, list[TableChanges]], faults: Container[TableId]
    ) -> dict[TableId, TableCommit]:
        """The changes with refused rows of tables that park over them."""
        tried = {}
        for table, changes in by_table.items():
            refused = [change for change in changes if change.refused is not None]
            entry, part = self._book.get(table), planned.part(table)
            if table in faults and refused and entry is not None and part is not None:
                tried[table] = TableCommit(table, part.versions[-1], entry.spec.target, tuple(refused))
        return tried

    def _commit_of(
        self,
        computed: Computed,
        table: TableId,
        changes: Sequence[TableChanges],
        taking: tuple[TablePart, TableEntry] | None,
    ) -> TableCommit | None:
        """What the batch writes of one table, None where that is nothing. `taking`: for a table that readers see, else for its copy.

        Raises EngineFault where the table cannot continue.
        """
        planned = computed.planned
        missed = [change for change in computed.missed if change.table == table]
        if self.copies.concerns(planned, table):
            if table in planned.whole:
                changes, missed = [], list(changes)
            commit = self.copies.commit_of(planned, table, changes, missed)
            entry = self._book.get(table)
            if commit is None or entry is None or not commit.handover:
                return commit
            commit = replace(commit, check_key=bool(entry.spec.key) or commit.schema.scattered)
        elif taking is not None:
            part, entry = taking
            kept = tuple(change for change in changes if not change.is_empty)
            resumed = table in planned.resumed
            swap = self.copies.swap_of(planned, part, missed, aside=table in self._aside)
            if not (kept or resumed or table in planned.restructured or swap is not None):
                return None
            commit = TableCommit(table, part.versions[-1], entry.spec.target, kept, resumed=resumed, swap=swap)
        else:
            return None
        limit = SET_ASIDE_LIMIT if self._sets_aside(table) else 0
        return replace(commit, set_aside=limit, aside=table in self._aside)

    def _is_put_right(self, planned: PlannedBatch, table: TableId) -> bool:
        """Whether another copy of the table, requested after the planning, replaces what the batch has of it.

        False of a table that is parked without a way on: a later fault may be one that requests a copy.
        """
        entry = self._book.get(table)
        if entry is None or (isinstance(entry.state, Parked) and entry.state.then is None):
            return False
        return planned.is_outdated(entry)

    def _left_to_its_copy(self, planned: PlannedBatch, table: TableId) -> bool:
        """Leave out what failed of a table that waits for a new copy, and record it as stale with this batch. False of others."""
        if not self._is_put_right(planned, table):
            return False
        if table in self._complete:
            self._stale.add(table)
        return True

    def _copy_begins_anew(self, table: TableId, detail: str) -> None:
        self._reporter.event("warning", "copy_begins_anew", str(table), detail)

    def _parked(self, table: TableId, code: str) -> TableCommit | None:
        entry = self._book.get(table)
        if entry is None or entry.schema is None:
            return None
        tried = self._tried.pop(table, None)
        return TableCommit(table=table, schema=entry.schema.whole, target=entry.spec.target, parked=code, tried=tried)

    def sets_aside(self, table: TableId) -> bool:
        """Whether refused rows of the table go to the quarantine, or some are there. From any thread."""
        return self._sets_aside(table) or table in self._aside

    def _sets_aside(self, table: TableId) -> bool:
        entry = self._book.get(table)
        return entry is not None and entry.spec.refused_rows is RefusedPolicy.SET_ASIDE

    @property
    def removals_pending(self) -> bool:
        """True while a removed table is still recorded on the target."""
        return bool(self._removed)

    def _write(
        self, computed: Computed, commits: dict[TableId, TableCommit], then_parked: Collection[TableId]
    ) -> tuple[dict[TableId, tuple[str, str]], int]:
        """Write; a table that the target refuses is parked and the batch written without it.

        Returns those tables, and in how many parts the batch was written.
        """
        if self._commit_early(computed, commits):
            return {}, 1
        refused: dict[TableId, tuple[str, str]] = {}
        while True:
            try:
                batch = computed.planned.batch
                after = frozenset(table for table in then_parked if table not in refused)
                goal = _Goal(computed.planned.number, batch.end, batch.last, batch.times, after)
                parts = self._put(goal, commits, computed.applying, self.copies.left)
            except EngineFault as fault:
                table = TableId(fault.subject)
                if policy(fault.kind).action is not Action.PARK_TABLE or table not in commits or table in refused:
                    raise
                tried, commits = commits[table], {k: v for k, v in commits.items() if k != table}
                self.copies.refused(table)
                left = self._left_to_its_copy(computed.planned, table)
                self._ledger = with_refused(self._ledger, table, parked=not left)
                if left:
                    continue
                refused[table] = (fault.kind.value, fault.detail)
                if fault.kind in _OF_ROWS:
                    self._tried[table] = tried
                parked = self._parked(table, fault.kind.value)
                if parked is not None:
                    commits[table] = parked
                continue
            self.copies.written(commits)
            return refused, parts

    def _commit_early(self, computed: Computed, commits: Mapping[TableId, TableCommit]) -> bool:
        """Commit the rows inserted ahead with the rest of the batch. False where that is impossible: they are rolled back.

        Noted marks wait for the next target transaction, as they do with a batch that changes nothing.
        """
        early = computed.early
        if early is None:
            return False
        planned = computed.planned
        more = self._removed or self._stale or planned.restructured or self.copies.left or planned.reloads
        more = more or planned.unread
        rest = None if more or self.marks.lacking else rest_of(commits, early.close())
        if rest is not None:
            hit(Failpoint.EARLY_COMMIT)
        if rest is None or not early.commit(
            BatchCommit(
                self._spec.name, self._spec.epoch, planned.number, planned.batch.end, rest, last=planned.batch.last
            )
        ):
            early.roll_back()
            return False
        self._written_ms = self._clock.monotonic_ms()
        return True

    def _put(
        self,
        goal: _Goal,
        commits: dict[TableId, TableCommit],
        applying: ApplyPlan = AS_BATCH,
        left: tuple[TableId, ...] = (),
    ) -> int:
        """One target transaction, or as `applying` says. Returns in how many parts it was written.

        A table that is to be dropped and that the target cannot drop stays there; only its record is deleted.
        """
        while True:
            try:
                return self._put_once(goal, commits, applying, left)
            except EngineFault as fault:
                if fault.kind is not FaultKind.TABLE_NOT_DROPPED or TableId(fault.subject) not in self._dropping:
                    raise
                self._dropping.remove(TableId(fault.subject))
                self._staying[TableId(fault.subject)] = fault.detail

    def _put_once(
        self,
        goal: _Goal,
        commits: dict[TableId, TableCommit],
        applying: ApplyPlan,
        left: tuple[TableId, ...],
    ) -> int:
        parts = 1
        removed = tuple(self._removed)
        marks = self.marks.due(commits, goal.end)
        batch = BatchCommit(
            subscription=self._spec.name,
            epoch=self._spec.epoch,
            batch=goal.number,
            end=goal.end,
            tables=tuple(commits.values()),
            removed=removed,
            dropped=tuple(table for table in dict.fromkeys(removed) if table in self._dropping),
            stale=tuple(self._stale),
            marks=marks,
            then_parked=dict.fromkeys(goal.then_parked, FaultKind.TABLE_NOT_READ.value),
            left=left,
            last=goal.last,
            times=goal.times,
            now_us=self._clock.wall_us(),
        )
        in_order = self._target.in_order() if applying.way is not None else None
        schemas = [commit.schema for commit in commits.values()]
        whole = any(c.set_aside or c.aside for c in commits.values())
        whole = whole or any(s.soft_delete or s.history or s.staging or s.keeps_rows or s.scattered for s in schemas)
        in_parts = self._target.in_parts() if applying.parts > 1 and not (whole or goal.then_parked) else None
        if applying.way is not None and in_order is not None:
            in_order.commit_in_order(batch, applying.way)
        elif in_parts is not None:
            parts = in_parts.commit_in_parts(batch, applying.parts)
        else:
            self._take_aside(self._target.commit(batch))
        self.marks.written(marks)
        handed = {t for t, commit in commits.items() if commit.handover or commit.resumed}
        self._complete = (self._complete | handed) - self._stale
        self._known_parked = (self._known_parked - handed) | {t for t, c in commits.items() if c.parked is not None}
        self._known_parked |= goal.then_parked
        del self._removed[: len(removed)]  # In place: others are added from other threads.
        for table in batch.dropped:
            self._dropping.remove(table)
            self._reporter.dropped(table)
        for table in self._staying.keys() & set(removed):
            self._reporter.dropped(table, self._staying.pop(table))
        self._stale.clear()
        self._written_ms = self._clock.monotonic_ms()
        return parts

    def _take_aside(self, found: Mapping[TableId, SetAside]) -> None:
        """Report the rows that the target refused."""
        self._ledger = with_quarantined(self._ledger, {table: now.fresh for table, now in found.items()})
        for table, now in found.items():
            if now.fresh and now.cause is not None:
                detail = f"{now.fresh} rows were quarantined, {now.count} are in quarantine now; {now.cause.detail}"
                self._reporter.event("warning", "rows_set_aside", str(table), detail)
            if now.count:
                self._aside[table] = now.count
            else:
                self._aside.pop(table, None)
        if found:
            # Also where nothing changed: users may have retried or skipped some rows meanwhile.
            self._reporter.set_aside({table: now.count for table, now in found.items()})

    def _newly_parked(self, number: BatchId | None = None) -> dict[TableId, TableCommit]:
        """Complete tables that were parked by something other than a batch. Unless that is written, the next start takes them as live.

        `number`: the batch that is being committed. Tables that wait for an approval from a later batch on are not parked yet.
        """
        found = {}
        for entry in self._book.all():
            if not isinstance(entry.state, Parked) or (number is not None and _is_held_after(entry.state, number)):
                continue
            if entry.table in self._complete - self._known_parked:
                parked = self._parked(entry.table, entry.state.reason.code)
                if parked is not None:
                    found[entry.table] = parked
        return found

    def _announce(self, computed: Computed, faults: dict[TableId, tuple[str, str]], end: Lsn) -> None:
        planned = computed.planned
        for table, (code, detail) in faults.items():
            if not self._is_put_right(planned, table):
                self._parking.park(table, code, detail, planned.batch.after)
        for table in self.handed_over:
            hit(Failpoint.HANDOVER_AFTER)
            self._book.apply(table, CaughtUp(), end)
        for table in planned.resumed - faults.keys():
            entry, part = self._book.get(table), planned.part(table)
            paused = entry.state if entry is not None and isinstance(entry.state, Paused) else None
            if paused is None or not paused.resuming or part is None or paused.applied != part.after:
                # Paused again meanwhile, possibly also resumed: its changes since are kept. The generation does not show it, since a pause
                # does not make an earlier plan stale.
                continue
            self._book.apply(table, Resume())
            self._book.apply(table, CaughtUp(), end)
        self._tell_structures(planned, faults.keys(), end)

    def _tell_structures(self, planned: PlannedBatch, parked: Container[TableId], end: Lsn) -> None:
        for table in self.handed_over:
            entry, part = self._book.get(table), planned.part(table)
            if entry is not None and part is not None:
                self._reporter.schema(entry, part.versions[-1], end, Evidence.COPIED)
        for table, schemas in planned.announced.items():
            entry = self._book.get(table)
            if entry is None or table in parked or table in planned.handover:
                continue
            if not isinstance(entry.state, Live | Paused):
                continue  # A copy has the structure of its snapshot.
            for before, schema in pairwise(schemas):
                changes = differences(before, schema)
                if changes:
                    last = schema is schemas[-1]
                    how = Evidence.CATALOG if last and table in planned.learnt else Evidence.LOG
                    how = how if schema.told_at is None else Evidence.DDL_TRIGGER
                    self._reporter.schema(entry, schema.whole, schema.told_at or end, how, changes)

    def _times(self, computed: Computed, parts: int) -> BatchTimes:
        in_parts = {"parts": float(parts)} if computed.applying.parts > 1 else {}
        return BatchTimes(
            sealed_ms=computed.sealed_ms,
            job_ms=computed.job_ms,
            committed_ms=self._clock.monotonic_ms(),
            sealed_us=computed.sealed_us,
            committed_us=self._clock.wall_us(),
            path=computed.path,
            mode=computed.applying.mode,
            tuning={**computed.tuning, **self._target.tuning(), **in_parts},
        )


def _is_held_after(state: Parked, number: BatchId) -> bool:
    """Whether the table waits for approval, or for its source, from a later batch on, and is part of this one."""
    held = state.then
    if isinstance(held, AwaitSource):
        return number < held.since
    return isinstance(held, AwaitApproval) and held.kept_from is not None and number < held.kept_from


def _failed(changes: Iterable[TableChanges]) -> bool:
    return any(change.fault is not None for change in changes)
