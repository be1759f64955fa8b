"""What the stages of a run do and did last, with times, and what takes the time of each."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from engine.model.batch import SealedBatch
from engine.model.identity import TableId
from engine.model.lag import LagCause, LagSpan
from engine.model.tasks import Unfinished
from engine.pipeline.skew import Skew
from engine.platform.clock import Clock
from engine.tables.registry import TableRegistry

SPANS_KEPT = 200
"""Most finished spans of stages: those of 100 batches, more than any lag that is not caused by the stages themselves."""
HUGE_RECORDS = 10_000
"""Least number of log records of a transaction that may be named as huge."""
HUGE_SHARE = 0.5
"""Its least share of the records of its batch."""
HOT_ROWS = 1_000
"""Least number of rows of a batch that may be named as those of a hot table. Not measured."""
HOT_SHARE = 0.8
"""Its least share of the rows of its batch. Not measured."""
STARVED_SHARE = 0.5
"""Least share of a stage's time in which its thread waits for a processor, for the wait to be named as the cause."""
ALONE_MS = 1_000.0
"""Age in ms of a stage from which it is named as waiting for one task, if all others have ended. Not measured."""
SMALL_RECORDS = 100
"""Most log records of a batch, sealed early because of a wait, that counts as small: most of its cost is that of any batch. Not measured.
"""
SMALL_WITHIN_MS = 10_000.0
"""How far back committed batches are counted, in ms. Not measured."""
SMALL_COUNT = 20
"""Least number of small batches in that time for them to be named as the cause: two a second. Not measured."""
SMALL_SHARE = 0.8
"""Least share of all batches in that time that are small. Not measured."""

Evidence = dict[str, str | float]


@dataclass(frozen=True, slots=True)
class _Stage:
    """A stage of one batch; `ended_ms` is None while it lasts. `thread`: of the operating system; `waited_ns`: its wait for processors
    until the stage began, None if it is not known. `small`: its batch is small, and was sealed early because of a wait. `commits`: it
    writes the batch to the target."""

    cause: LagCause
    evidence: Evidence
    began_ms: float
    thread: int
    waited_ns: int | None
    small: bool = False
    commits: bool = False
    ended_ms: float | None = None

    def judged(self, now_ms: float) -> _Stage:
        """As CPU_STARVED if its thread waited for a processor for most of the time until now."""
        waited_ns, lasted_ms = processor_wait_ns(self.thread), now_ms - self.began_ms
        if waited_ns is None or self.waited_ns is None or lasted_ms <= 0 or self.cause is LagCause.HUGE_TRANSACTION:
            return self
        share = (waited_ns - self.waited_ns) / 1e6 / lasted_ms
        if share < STARVED_SHARE:
            return self
        return replace(self, cause=LagCause.CPU_STARVED, evidence={**self.evidence, "waiting_share": round(share, 2)})

    def alone(self, tasks: Unfinished | None, now_ms: float) -> _Stage:
        """As KEY_SKEW if it has waited for one of several tasks."""
        waits = tasks is not None and tasks.tasks > 1 and tasks.left == 1 and now_ms - self.began_ms >= ALONE_MS
        if tasks is None or not waits or self.cause is not LagCause.COMPUTING:
            return self
        return replace(self, cause=LagCause.KEY_SKEW, evidence={**self.evidence, "tasks": tasks.tasks, "tasks_left": 1})


@dataclass(frozen=True, slots=True)
class StageHandle:
    """A stage that works, for its thread."""

    times: StageTimes
    number: int

    def skewed(self, skew: Skew | None) -> None:
        """One of its tasks, or one key, has most of the batch; None: that is not so."""
        self.times.skewed(self.number, skew)


class ParallelWork(Protocol):
    """As JobStage."""

    def unfinished(self) -> Unfinished | None: ...


class StageTimes:
    """Records what the stages do. May be used from any thread."""

    def __init__(self, book: TableRegistry, clock: Clock, jobs: ParallelWork) -> None:
        self._book = book
        self._clock = clock
        self._jobs = jobs
        self._lock = threading.Lock()
        self._ended: deque[_Stage] = deque(maxlen=SPANS_KEPT)
        self._stages: dict[int, _Stage] = {}
        self._next = 0

    @contextmanager
    def stage(
        self, cause: LagCause, batch: SealedBatch, rows: Mapping[TableId, int] | None = None
    ) -> Iterator[StageHandle]:
        """A stage of this thread works on a batch during the block. `rows`: those that it writes, by table."""
        thread = threading.get_native_id()
        described = self._with_hot_table(*_described(cause, batch), rows or {})
        began = _Stage(
            *described,
            self._clock.monotonic_ms(),
            thread,
            processor_wait_ns(thread),
            batch.demanded and _records(batch) <= SMALL_RECORDS,
            cause is LagCause.SLOW_COMMIT,
        )
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._stages[number] = began
        try:
            yield StageHandle(self, number)
        finally:
            with self._lock:
                stage = self._stages.pop(number)
                ended = self._clock.monotonic_ms()
                self._ended.append(replace(stage.judged(ended), ended_ms=ended))

    def skewed(self, number: int, skew: Skew | None) -> None:
        """As `StageHandle.skewed`, for the stage with this number."""
        entry = None if skew is None else self._book.get(skew.table)
        if skew is None or entry is None:
            return
        with self._lock:
            stage = self._stages[number]
            if stage.cause is not LagCause.HUGE_TRANSACTION:
                more: Evidence = {
                    "table": str(entry.spec.source),
                    "rows": skew.rows,
                    "of_rows": skew.of_rows,
                    "tasks": skew.tasks,
                }
                self._stages[number] = replace(stage, cause=LagCause.KEY_SKEW, evidence={**stage.evidence, **more})

    def recent(self, most_ms: float) -> list[LagSpan]:
        """What stages did in the last `most_ms` milliseconds."""
        tasks, now = self._jobs.unfinished(), self._clock.monotonic_ms()
        with self._lock:
            ended = list(self._ended)
            found = [*ended, *(one.alone(tasks, now).judged(now) for one in self._stages.values())]
        small = _small_batches(ended, now)
        return [
            LagSpan(
                one.cause,
                min(now - one.began_ms, most_ms),
                0.0 if one.ended_ms is None else now - one.ended_ms,
                one.evidence,
            )
            for one in (_by_waits(each, small) for each in found)
            if one.ended_ms is None or now - one.ended_ms < most_ms
        ]

    def _with_hot_table(
        self, cause: LagCause, evidence: Evidence, rows: Mapping[TableId, int]
    ) -> tuple[LagCause, Evidence]:
        """The cause HOT_TABLE if one of several tables has most of the rows, and the batch is not a huge transaction."""
        all_rows = sum(rows.values())
        if cause is LagCause.HUGE_TRANSACTION or all_rows < HOT_ROWS or len(self._book.all()) < 2:
            return cause, evidence
        table, most = max(rows.items(), key=lambda one: one[1])
        entry = self._book.get(table)
        if most < HOT_SHARE * all_rows or entry is None:
            return cause, evidence
        return LagCause.HOT_TABLE, {**evidence, "table": str(entry.spec.source), "rows": most, "of_rows": all_rows}


def processor_wait_ns(thread: int) -> int | None:
    """How long a thread of this process has been ready and waited for a processor, in nanoseconds. None if the system does not say."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _small_batches(ended: list[_Stage], now_ms: float) -> Evidence | None:
    """The number of batches that were committed lately, and how many of them were small; None unless most were, and many."""
    times = [one for one in ended if one.commits and now_ms - (one.ended_ms or 0.0) <= SMALL_WITHIN_MS]
    small = sum(one.small for one in times)
    if small < SMALL_COUNT or small < SMALL_SHARE * len(times):
        return None
    seconds = (now_ms - min(one.began_ms for one in times)) / 1000
    return {"batches": len(times), "small_batches": small, "seconds": round(seconds, 1)}


def _by_waits(stage: _Stage, small: Evidence | None) -> _Stage:
    """As SMALL_BATCHES if its batch is one of these."""
    if small is None or not stage.small or stage.cause not in {LagCause.COMPUTING, LagCause.SLOW_COMMIT}:
        return stage
    return replace(stage, cause=LagCause.SMALL_BATCHES, evidence={**stage.evidence, **small})


def _records(batch: SealedBatch) -> int:
    return sum(one.stop - one.start for one in batch.ranges)


def _described(cause: LagCause, batch: SealedBatch) -> tuple[LagCause, Evidence]:
    """The cause for a stage that works on this batch, and the batch's size."""
    records = _records(batch)
    evidence: Evidence = {"transactions": batch.transactions, "records": records, "stage": cause.value}
    streamed = Counter[int]()
    for one in batch.ranges:
        if one.xid:
            streamed[one.xid] += one.stop - one.start
    if streamed:
        xid, largest = streamed.most_common(1)[0]
        if largest >= HUGE_RECORDS and largest >= HUGE_SHARE * records:
            return LagCause.HUGE_TRANSACTION, {**evidence, "transaction_id": xid, "transaction_records": largest}
    return cause, evidence
