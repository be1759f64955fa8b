"""Threads (lanes) that read waves of splits through the task runner while earlier waves are written to the target."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

from engine.copy.job import CopyJob, CopyTools
from engine.copy.rate_limit import read_pace
from engine.copy.split_order import PlannedSplit, SplitSchedule
from engine.copy.split_task import CopyTask, CopyTaskResult, PartResult, SplitPart, copy_task
from engine.model.identity import TableId
from engine.model.quarantine import SET_ASIDE_LIMIT, RefusedPolicy
from engine.model.schema import TableSchema

PACE_LOOK_S = 0.5
"""Seconds between two checks of a lane that waits for another one because of the rate limit."""


@dataclass(slots=True)
class Wave:
    """Some tasks that run together, each over some splits. Once the wave is reported, `results` has one entry per split, or `error`
    is set."""

    tasks: tuple[tuple[PlannedSplit, ...], ...]
    results: tuple[PartResult, ...] = ()
    error: Exception | None = None
    taken: bool = False

    @property
    def splits(self) -> tuple[PlannedSplit, ...]:
        return tuple(split for task in self.tasks for split in task)


class Lanes:
    """Reads the splits of the schedule, one wave per lane at a time; `next_wave` returns finished waves.

    A lane begins its next wave only after `taken` was called for the last one, which limits the size of the staging folder.
    """

    def __init__(self, job: CopyJob, tools: CopyTools, staging: str, schedule: SplitSchedule) -> None:
        self._job = job
        self._runner = tools.runner
        self._function: Callable[[CopyTask], CopyTaskResult] = partial(copy_task, tools.open_source, tools.decode)
        self._staging = staging
        self._schemas: dict[TableId, TableSchema] = {table.spec.table: table.schema for table in job.tables}
        aside = RefusedPolicy.SET_ASIDE
        self._setting_aside = {table.spec.table for table in job.tables if table.spec.refused_rows is aside}
        self._schedule = schedule
        self._changed = threading.Condition()
        self._in_flight = 0
        self._reading = 0
        self._stopping = False
        self._reports: queue.SimpleQueue[Wave | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for number in range(self._job.settings.lanes):
            thread = threading.Thread(target=self._read, args=(number,), name=f"copy-lane-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def next_wave(self) -> Wave | None:
        """Wait for a finished wave. Returns None once for each lane that has ended."""
        return self._reports.get()

    def taken(self, wave: Wave, again: Sequence[PlannedSplit]) -> None:
        """The wave's files are not needed any more; `again`: splits to read again."""
        with self._changed:
            for split in again:
                self._schedule.again(split)
            wave.taken = True
            self._in_flight -= 1
            self._changed.notify_all()

    def drop(self, table: TableId) -> None:
        """Read no further splits of this table."""
        with self._changed:
            self._schedule.drop(table)
            self._changed.notify_all()

    def stop(self) -> None:
        """Begin no further waves, and cancel those that are running. Returns at once; may be called from any thread, and repeatedly."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for number in range(len(self._threads)):
            self._runner.cancel(self._group(number))

    def join(self) -> None:
        """Stop all lanes and wait for them. The cancel is repeated, because a lane may have begun to run its tasks just after it."""
        self.stop()
        for thread in self._threads:
            while thread.is_alive():
                self.stop()
                thread.join(0.2)

    def _group(self, number: int) -> str:
        return f"copy-{self._job.subscription}-e{self._job.epoch}-{self._job.snapshot.name}-{number}"

    def _read(self, number: int) -> None:
        try:
            while (wave := self._take_wave()) is not None:
                self._run(wave, self._group(number))
                self._reports.put(wave)
                self._wait_taken(wave)
        finally:
            self._reports.put(None)

    def _wait_taken(self, wave: Wave) -> None:
        with self._changed:
            self._changed.wait_for(lambda: wave.taken or self._stopping)

    def _take_wave(self) -> Wave | None:
        """The next wave; None at the end. Waits while splits of other lanes may have to be read again."""
        settings = self._job.settings
        with self._changed:
            while not self._stopping:
                if self._reading and read_pace(settings.pace).limited:
                    # Concurrent tasks share the rate limit, but only those of one wave know their number: read one wave at a time.
                    self._changed.wait(PACE_LOOK_S)
                    continue
                tasks = self._schedule.next_wave(self._tasks(), settings.split_bytes)
                if tasks:
                    self._in_flight += 1
                    self._reading += 1
                    return Wave(tuple(tasks))
                if self._in_flight == 0:
                    return None
                self._changed.wait()
            return None

    def _tasks(self) -> int:
        """Number of tasks of the next wave; fewer if reading is limited to a share of the time."""
        share = read_pace(self._job.settings.pace).max_time_share
        if share == 1:
            return self._job.settings.tasks_per_wave
        return max(1, ceil(self._runner.parallelism * share))

    def _run(self, wave: Wave, group: str) -> None:
        try:
            readers = min(len(wave.tasks), max(1, self._runner.parallelism))
            descriptors = [self._descriptor(task, readers) for task in wave.tasks]
            answers = self._runner.run(self._function, descriptors, group)
        except Exception as error:
            wave.error = error
        else:
            wave.results = tuple(part for answer in answers for part in answer.parts)
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()

    def _descriptor(self, task: Sequence[PlannedSplit], readers: int) -> CopyTask:
        parts = tuple(
            SplitPart(
                split.table,
                split.number,
                split.attempt,
                self._schemas[split.table],
                split.split,
                set_aside=SET_ASIDE_LIMIT if split.table in self._setting_aside else 0,
            )
            for split in task
        )
        job = self._job
        pace = job.settings.pace
        return CopyTask(
            epoch=job.epoch,
            connection=job.connection,
            snapshot=job.snapshot.name,
            staging=self._staging,
            parts=parts,
            limits=job.settings.limits,
            pace=None if pace is None else str(pace),
            readers=readers,
        )
