"""What a run is doing and did last, with times: the measurements from which lag is explained."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from engine.model.batch import SealedBatch
from engine.model.identity import TableId
from engine.model.lag import LagCause, LagSpan
from engine.model.sizes import size
from engine.model.table_state import TableStateKind
from engine.tables.context import RunContext
from engine.tables.registry import TableEntry

SPANS_KEPT = 200
"""Most finished spans of stages: those of 100 batches, more than any lag that is not caused by the stages themselves."""
LONG_OPEN_S = 2.0
"""Age in seconds from which an open transaction of the source counts as long. Shorter ones end before anyone acts on them. Not measured."""
HUGE_RECORDS = 10_000
"""Least number of log records of a transaction that may be named as huge."""
HUGE_SHARE = 0.5
"""Its least share of the records of its batch."""
_COPYING = frozenset({TableStateKind.COPYING, TableStateKind.CATCHING_UP, TableStateKind.RELOADING})


@dataclass(frozen=True, slots=True)
class _Stage:
    """A stage of one batch; `ended_ms` is None while it lasts."""

    cause: LagCause
    evidence: dict[str, str | float]
    began_ms: float
    ended_ms: float | None = None


class Intaking(Protocol):
    """As Intake."""

    waiting_since_us: int | None
    held_since_ms: float | None


class Copying(Protocol):
    """As CopyOrchestrator."""

    @property
    def held(self) -> bool: ...


class RunActivity:
    """Measures one run. May be used from any thread."""

    def __init__(self, parts: RunContext, intake: Intaking, copies: Copying) -> None:
        self._parts = parts
        self._intake = intake
        self._orchestrator = copies
        self._clock = parts.clock
        self._lock = threading.Lock()
        self._ended: deque[_Stage] = deque(maxlen=SPANS_KEPT)
        self._stages: dict[int, _Stage] = {}
        self._next = 0
        self._copying: dict[TableId, tuple[float, TableEntry]] = {}
        """Since when each table is being copied."""
        parts.book.subscribe(lambda change: self._note_table(change.entry))
        for entry in parts.book.all():
            self._note_table(entry)

    def measured(self) -> tuple[float, list[LagSpan]]:
        """The age in ms of the oldest commit that was read and is not visible, 0 if there is none; and the causes of lag that are present.

        Raises EngineFault if the source cannot be reached.
        """
        spans = self._open_on_source()
        since_us, held_since_ms = self._intake.waiting_since_us, self._intake.held_since_ms
        lag_ms = 0.0 if since_us is None else max(0.0, (self._clock.wall_us() - since_us) / 1000)
        spans += self._copies(held=self._orchestrator.held)
        if held_since_ms is not None:
            held_ms = self._clock.monotonic_ms() - held_since_ms
            budget = size(self._parts.spec.queue_budget_bytes)
            spans.append(LagSpan(LagCause.QUEUE_AT_BUDGET, held_ms, evidence={"budget": budget}))
        if lag_ms:
            spans += [LagSpan(LagCause.GATHERING, lag_ms), *self._recent(lag_ms)]
        return lag_ms, spans

    def _open_on_source(self) -> list[LagSpan]:
        reading = self._parts.source.safety.check_reader(self._parts.spec.reader)
        if reading.oldest_open is None or reading.oldest_open_s < LONG_OPEN_S:
            return []
        open_s = round(reading.oldest_open_s, 1)
        evidence: dict[str, str | float] = {"transaction": reading.oldest_open, "open_s": open_s}
        if reading.oldest_open_statement:
            evidence["statement"] = reading.oldest_open_statement
        return [LagSpan(LagCause.LONG_OPEN_TRANSACTION, reading.oldest_open_s * 1000, evidence=evidence)]

    @contextmanager
    def stage(self, cause: LagCause, batch: SealedBatch) -> Iterator[None]:
        """A stage works on a batch during the block."""
        began = _Stage(*_described(cause, batch), self._clock.monotonic_ms())
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._stages[number] = began
        try:
            yield
        finally:
            with self._lock:
                del self._stages[number]
                ended = self._clock.monotonic_ms()
                self._ended.append(_Stage(began.cause, began.evidence, began.began_ms, ended))

    def _note_table(self, entry: TableEntry) -> None:
        with self._lock:
            if entry.kind not in _COPYING:
                self._copying.pop(entry.table, None)
            else:
                since = self._copying.get(entry.table, (self._clock.monotonic_ms(), entry))[0]
                self._copying[entry.table] = (since, entry)

    def _recent(self, most_ms: float) -> list[LagSpan]:
        """What stages did in the last `most_ms` milliseconds."""
        now = self._clock.monotonic_ms()
        with self._lock:
            found = [*self._ended, *self._stages.values()]
        return [
            LagSpan(
                one.cause,
                min(now - one.began_ms, most_ms),
                0.0 if one.ended_ms is None else now - one.ended_ms,
                one.evidence,
            )
            for one in found
            if one.ended_ms is None or now - one.ended_ms < most_ms
        ]

    def _copies(self, *, held: bool) -> list[LagSpan]:
        now = self._clock.monotonic_ms()
        with self._lock:
            found = list(self._copying.values())
        more = {"held": "the source's log is near its limit"} if held else {}
        return [
            LagSpan(
                LagCause.COPY_RUNNING,
                now - since,
                evidence={"table": str(entry.spec.source), "state": entry.shown.value, **more},
            )
            for since, entry in found
        ]


def _described(cause: LagCause, batch: SealedBatch) -> tuple[LagCause, dict[str, str | float]]:
    """The cause for a stage that works on this batch, and the batch's size."""
    records = sum(one.stop - one.start for one in batch.ranges)
    evidence: dict[str, str | float] = {"transactions": batch.transactions, "records": records, "stage": cause.value}
    streamed = Counter[int]()
    for one in batch.ranges:
        if one.xid:
            streamed[one.xid] += one.stop - one.start
    if streamed:
        xid, largest = streamed.most_common(1)[0]
        if largest >= HUGE_RECORDS and largest >= HUGE_SHARE * records:
            return LagCause.HUGE_TRANSACTION, {**evidence, "transaction_id": xid, "transaction_records": largest}
    return cause, evidence
