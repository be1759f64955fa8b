"""Copies tables into hidden tables of the target under one snapshot of the source, and reports the outcome of each.

A copy that does not complete leaves nothing: its files and the hidden table that it created are deleted. The caller hands over completed
copies, in a batch that includes the changes since the snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from engine.copy.fault_handling import Consequence, consequence, last_consequence
from engine.copy.job import CopyJob, CopyListener, CopyOutcome, CopyTable, CopyTools
from engine.copy.lanes import Lanes, Wave
from engine.copy.progress import ProgressMeter
from engine.copy.rate_limit import in_pieces, read_pace
from engine.copy.split_order import PlannedSplit, SplitSchedule
from engine.copy.split_task import PartResult
from engine.copy.staging import delete_staged, read_staged, staging_folder
from engine.model.batch import TableFault
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.quarantine import SET_ASIDE_LIMIT
from engine.model.source import TableSplit


class _State(StrEnum):
    OPEN = "open"
    COPIED = "copied"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class _Copy:
    """One table's copy. `begun`: its hidden table exists on the target. `left`: number of splits that are not written yet."""

    table: CopyTable
    state: _State = _State.OPEN
    begun: bool = False
    left: int = 0


class CopyCoordinator:
    """Copies the tables of one job. `run` is called once, by a thread of its own; `cancel` by any thread."""

    def __init__(self, job: CopyJob, tools: CopyTools, listener: CopyListener) -> None:
        self._job = job
        self._tools = tools
        self._listener = listener
        self._copies = {table.spec.table: _Copy(table) for table in job.tables}
        self._meter = ProgressMeter(listener.on_progress, tools.monotonic, job.settings.progress_interval_s)
        self._lock = threading.Lock()
        self._cancelled: set[TableId] = set()
        self._lanes: Lanes | None = None

    def cancel(self, tables: Iterable[TableId] | None = None) -> None:
        """Stop copying these tables (None: all); their hidden tables are discarded before `run` returns.

        A table that was already reported as copied stays copied.
        """
        with self._lock:
            self._cancelled.update(self._copies if tables is None else tables)
            lanes, everything = self._lanes, self._cancelled.issuperset(self._copies)
            dropped = tuple(self._cancelled)
        if lanes is None:
            return
        for table in dropped:
            lanes.drop(table)
        if everything:
            lanes.stop()

    def run(self) -> CopyOutcome:
        """Copy every table. Returns when each is copied, failed, lost or cancelled.

        Raises EngineFault for faults that concern more than one table (target, staging disk, tasks that fail repeatedly). Tables that were
        not reported before are then discarded and have to be copied again.
        """
        try:
            with staging_folder(self._job.staging, self._job.epoch) as folder:
                self._run_lanes(str(folder))
        finally:
            self._discard_open()
        return self._outcome()

    def _run_lanes(self, folder: str) -> None:
        schedule = SplitSchedule(self._job.settings.open_tables)
        schedule.fill(self._plan())
        lanes = Lanes(self._job, self._tools, folder, schedule)
        with self._lock:
            self._lanes = lanes
            already = tuple(self._cancelled)
        for table in already:
            schedule.drop(table)
        lanes.start()
        try:
            running = self._job.settings.lanes
            while running:
                wave = lanes.next_wave()
                if wave is None:
                    running -= 1
                    continue
                lanes.taken(wave, self._take_in(wave, lanes))
                if not any(self._is_open(copy) for copy in self._copies.values()):
                    lanes.stop()
        finally:
            lanes.join()

    def _plan(self) -> list[tuple[TableId, list[TableSplit]]]:
        """The splits of every table. A table that cannot be cut into splits is reported, and an empty one is completed, before this
        returns."""
        planned = []
        for table, copy in self._copies.items():
            if not self._is_open(copy):
                continue
            try:
                splits = self._splits_of(copy.table)
                copy.left = len(splits)
                size, rows = (
                    sum(split.bytes_estimate for split in splits),
                    sum(split.rows_estimate for split in splits),
                )
                self._meter.expect(table, size, len(splits), rows)
                if not splits:
                    self._end_rows(copy)
            except EngineFault as fault:
                self._end(copy, TableFault(fault.kind.value, fault.detail))
                continue
            if splits:
                planned.append((table, splits))
            else:
                self._finish(copy)
        return [(table, splits) for table, splits in planned if self._is_open(self._copies[table])]

    def _splits_of(self, table: CopyTable) -> list[TableSplit]:
        if table.splits is not None:
            return list(table.splits)
        return self._tools.source.copies.splits(table.schema, table.spec, self._job.settings.split_bytes)

    def _take_in(self, wave: Wave, lanes: Lanes) -> list[PlannedSplit]:
        """Write a wave's rows to the target. Returns the splits that have to be read again."""
        if wave.error is not None:
            return self._wave_failed(wave)
        again = []
        for split, result in zip(wave.splits, wave.results, strict=True):
            copy = self._copies[split.table]
            fault = self._take_part(copy, split, result)
            if fault is None:
                continue
            if consequence(FaultKind(fault.code)) is Consequence.READ_AGAIN and self._attempts_left(split):
                again.append(replace(split, attempt=split.attempt + 1))
                continue
            for ended in self._end(copy, fault):
                lanes.drop(ended)
        return [split for split in again if self._is_open(self._copies[split.table])]

    def _take_part(self, copy: _Copy, split: PlannedSplit, result: PartResult) -> TableFault | None:
        try:
            if not self._is_open(copy):
                return None
            if result.fault is not None:
                return result.fault
            self._append(copy, result)
            if copy.left == 1:
                self._end_rows(copy)
        except EngineFault as fault:
            if consequence(fault.kind) in {Consequence.STOP, Consequence.READ_AGAIN}:
                raise
            return TableFault(fault.kind.value, fault.detail)
        finally:
            delete_staged(result.files)
        self._meter.add(split.table, split.split.bytes_estimate, result.rows, result.bytes)
        copy.left -= 1
        if copy.left == 0:
            self._finish(copy)
        return None

    def _end_rows(self, copy: _Copy) -> None:
        self._begin(copy)
        with self._tools.writing():
            self._tools.target.finish_copy(copy.table.spec.table)

    def _append(self, copy: _Copy, result: PartResult) -> None:
        self._begin(copy)
        expected = sum(file.rows for file in result.files)
        files = (read_staged(file) for file in result.files)
        taken = 0
        for piece in in_pieces(files, lambda: read_pace(self._job.settings.pace), over=lambda: not self._is_open(copy)):
            with self._tools.writing():
                taken += self._tools.target.append_copy(result.table, piece)
        if taken != expected:
            detail = f"the target took {taken} of {expected} copied rows"
            raise EngineFault(FaultKind.COPY_FAILED, str(result.table), detail)
        if result.refused:
            with self._tools.writing():
                self._tools.target.set_aside_of_copy(result.table, result.refused, SET_ASIDE_LIMIT)

    def _begin(self, copy: _Copy) -> None:
        if copy.begun:
            return
        spec, keyed = copy.table.spec, copy.table.splits is not None
        if copy.table.begin:
            with self._tools.writing():
                self._tools.target.begin_copy(
                    self._job.subscription,
                    spec.table,
                    spec.target,
                    copy.table.schema,
                    keyed=keyed,
                    load=copy.table.load,
                )
        copy.begun = True
        self._meter.started(spec.table)

    def _finish(self, copy: _Copy) -> None:
        copy.state = _State.COPIED
        table = copy.table.spec.table
        self._listener.on_table_copied(table, self._job.snapshot.position, self._meter.rows(table))

    def _wave_failed(self, wave: Wave) -> list[PlannedSplit]:
        """Handle the failure of a whole wave, by a lost worker or a cancel. Returns the splits to read again; raises the wave's error if
        another attempt would not help, or if a split has none left."""
        error = wave.error
        open_splits = [split for split in wave.splits if self._is_open(self._copies[split.table])]
        if not open_splits:
            return []
        retry = isinstance(error, EngineFault) and consequence(error.kind) is Consequence.READ_AGAIN
        if error is not None and not (retry and all(self._attempts_left(split) for split in open_splits)):
            raise error
        return [replace(split, attempt=split.attempt + 1) for split in open_splits]

    def _end(self, copy: _Copy, fault: TableFault) -> list[TableId]:
        """End the copies that a fault concerns; returns their tables. Raises EngineFault if it concerns more than the tables of the job."""
        kind = FaultKind(fault.code)
        decision = last_consequence(kind)
        if decision is Consequence.STOP:
            raise EngineFault(kind, str(copy.table.spec.source), fault.detail)
        if decision is Consequence.FAIL_TABLE:
            self._discard(copy, _State.FAILED)
            self._listener.on_table_failed(copy.table.spec.table, fault)
            return [copy.table.spec.table]
        lost = [copy] if decision is not Consequence.START_ALL_AGAIN else list(self._copies.values())
        ended = [each for each in lost if self._is_open(each)]
        for each in ended:
            self._discard(each, _State.LOST)
            self._listener.on_table_lost(each.table.spec.table, f"{fault.code}: {fault.detail}")
        return [each.table.spec.table for each in ended]

    def _discard(self, copy: _Copy, state: _State) -> None:
        copy.state = state
        if copy.begun and copy.table.begin:
            copy.begun = False
            with self._tools.writing():
                self._tools.target.discard_copy(copy.table.spec.table)

    def _discard_open(self) -> None:
        """Discard the copies that are not complete. If the target cannot be reached, its next `claim` deletes them."""
        for copy in self._copies.values():
            if copy.state is _State.OPEN:
                with suppress(EngineFault):
                    self._discard(copy, _State.CANCELLED)

    def _attempts_left(self, split: PlannedSplit) -> bool:
        return split.attempt < self._job.settings.attempts

    def _is_cancelled(self, table: TableId) -> bool:
        with self._lock:
            return table in self._cancelled

    def _is_open(self, copy: _Copy) -> bool:
        return copy.state is _State.OPEN and not self._is_cancelled(copy.table.spec.table)

    def _outcome(self) -> CopyOutcome:
        def tables_in(state: _State) -> tuple[TableId, ...]:
            return tuple(table for table, copy in self._copies.items() if copy.state is state)

        return CopyOutcome(
            tables_in(_State.COPIED), tables_in(_State.FAILED), tables_in(_State.LOST), tables_in(_State.CANCELLED)
        )
