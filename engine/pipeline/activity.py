"""What a run is doing and did last, with times: the measurements from which lag is explained."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Protocol

from engine.model.identity import TableId
from engine.model.lag import LagCause, LagSpan
from engine.model.position import Lsn
from engine.model.sender import Sender, SenderState
from engine.model.sizes import size
from engine.model.source import GuardReading, ReaderStatus
from engine.model.table_state import TableStateKind
from engine.pipeline.stage_times import Evidence, ParallelWork, StageTimes
from engine.pipeline.unread_log import UnreadLog
from engine.tables.context import RunContext
from engine.tables.registry import TableEntry

LONG_OPEN_S = 2.0
"""Age in seconds from which an open transaction of the source counts as long. Shorter ones end before anyone acts on them. Not measured."""
SENDER_LOOKS = 3
"""How often a measurement reads what the source's sender does, which may be two things by turns: the most frequent one counts."""
_LATE_MS = 1000.0
"""Age in ms from which changes that wait for a node count as held by it. All nodes are read several times a second. Not measured."""
_COPYING = frozenset({TableStateKind.COPYING, TableStateKind.CATCHING_UP, TableStateKind.RELOADING})


class Intaking(Protocol):
    """As Intake."""

    waiting_since_us: int | None
    held_since_ms: float | None
    demanded: Lsn
    demanded_since_ms: float | None

    @property
    def captured(self) -> Lsn: ...


class Copying(Protocol):
    """As CopyOrchestrator."""

    @property
    def held(self) -> bool: ...


class RunActivity:
    """Measures one run. May be used from any thread."""

    def __init__(self, parts: RunContext, intake: Intaking, copies: Copying, jobs: ParallelWork) -> None:
        self._parts = parts
        self._intake = intake
        self._orchestrator = copies
        self._clock = parts.clock
        self._unread = UnreadLog(parts.clock)
        self._times = StageTimes(parts.book, parts.clock, jobs)
        self.stage = self._times.stage
        self._lock = threading.Lock()
        self._copying: dict[TableId, tuple[float, TableEntry]] = {}
        """Since when each table is being copied."""
        parts.book.subscribe(lambda change: self._note_table(change.entry))
        for entry in parts.book.all():
            self._note_table(entry)

    def saw(self, end: Lsn | None) -> None:
        """The source's log ends at `end` now; None if it is not known."""
        if end is not None:
            self._unread.saw(end, self._intake.captured)

    def measured(self) -> tuple[float, list[LagSpan]]:
        """The age in ms of the oldest commit that was read and is not visible, 0 if there is none; and the causes of lag that are present.

        Raises EngineFault if the source cannot be reached.
        """
        reading = self._parts.source.safety.check_reader(self._parts.spec.reader)
        spans = _open_on_source(reading)
        waits = (self._intake.waiting_since_us, reading.reader.held_since_us)
        since_us, held_since_ms = min(filter(None, waits), default=None), self._intake.held_since_ms
        lag_ms = 0.0 if since_us is None else max(0.0, (self._clock.wall_us() - since_us) / 1000)
        spans += [*self._silent_nodes(reading.reader), *self._copies(held=self._orchestrator.held)]
        if held_since_ms is not None:
            held_ms = self._clock.monotonic_ms() - held_since_ms
            budget = size(self._parts.spec.queue_budget_bytes)
            spans.append(LagSpan(LagCause.QUEUE_AT_BUDGET, held_ms, evidence={"budget": budget}))
        elif all(log.away is None for log in reading.reader.logs):
            spans += self._not_read(reading.reader.sender)
        if lag_ms:
            spans += [LagSpan(LagCause.GATHERING, lag_ms), *self._times.recent(lag_ms)]
        return lag_ms, spans

    def _silent_nodes(self, reader: ReaderStatus) -> list[LagSpan]:
        """The nodes for which changes of others wait, if the oldest of these is older than _LATE_MS."""
        held_ms = (self._clock.wall_us() - reader.held_since_us) / 1000 if reader.held_since_us else 0.0
        late = ", ".join(log.name for log in reader.logs if log.late)
        return [LagSpan(LagCause.SILENT_NODE, held_ms, evidence={"nodes": late})] if late and held_ms > _LATE_MS else []

    def _not_read(self, first: Sender | None) -> list[LagSpan]:
        """Why the log is not read up to its end, if it was not for a while. `first`: what the sender does."""
        source, intake = self._parts.source, self._intake
        end = source.log.current()
        self.saw(end)
        since = intake.demanded_since_ms
        asked_ms = 0.0 if since is None else self._clock.monotonic_ms() - since
        if intake.captured >= end or not (self._unread.age_ms(intake.captured) or asked_ms):
            return []
        looks = [first, *(source.reader.status(self._parts.spec.reader).sender for _ in range(SENDER_LOOKS - 1))]
        state = Counter(SenderState.WORKING if one is None else one.state for one in looks).most_common(1)[0][0]
        captured, age_ms = intake.captured, self._unread.age_ms(intake.captured)
        terms = source.terms
        evidence: Evidence = {"read_to": terms.text(captured), "source_end": terms.text(end)}
        for one in looks:
            if one is not None and one.state is state:
                evidence |= {"pid": one.pid, **({"sender_waits_for": one.waits_for} if one.waits_for else {})}
        if state is not SenderState.IDLE:
            cause = LagCause.SLOW_READER if state is SenderState.BLOCKED else LagCause.SLOW_SENDER
            return [LagSpan(cause, age_ms, evidence=evidence)] if age_ms else []
        if captured >= min(end, intake.demanded):
            return []
        # A position that the source has not reached is no lag, although a client waits for it.
        waiting_ms = asked_ms if intake.demanded <= end else min(asked_ms, age_ms)
        return [LagSpan(LagCause.AWAITING_KEEPALIVE, waiting_ms, evidence=evidence)] if waiting_ms else []

    def _note_table(self, entry: TableEntry) -> None:
        with self._lock:
            if entry.kind not in _COPYING:
                self._copying.pop(entry.table, None)
            else:
                since = self._copying.get(entry.table, (self._clock.monotonic_ms(), entry))[0]
                self._copying[entry.table] = (since, entry)

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


def _open_on_source(reading: GuardReading) -> list[LagSpan]:
    if reading.oldest_open is None or reading.oldest_open_s < LONG_OPEN_S:
        return []
    open_s = round(reading.oldest_open_s, 1)
    evidence: Evidence = {"transaction": reading.oldest_open, "open_s": open_s}
    if reading.oldest_open_statement:
        evidence["statement"] = reading.oldest_open_statement
    return [LagSpan(LagCause.LONG_OPEN_TRANSACTION, reading.oldest_open_s * 1000, evidence=evidence)]
