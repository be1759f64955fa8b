"""Checks what the source retains for our reader while no run reads: the subscription is paused, stopped, failed, or waits to try again."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from engine.model.fault import EngineFault, FaultKind
from engine.model.source import Source
from engine.model.subscription import ConnectionSpec, SubscriptionSpec
from engine.platform.clock import Clock
from engine.platform.failpoints import Failpoint, hit
from engine.safety.reader_tombstone import ReaderTombstone
from engine.safety.retention_guard import RetentionGuard

log = structlog.get_logger(__name__)

_UNSEEN_MOST_S = 60.0
"""Longest pause between attempts to reach the source; pauses grow up to it."""


class IdleReaderMonitor:
    """Checks of the reader without a run. Used by the supervisor's thread only, so that it never checks during a run."""

    def __init__(
        self,
        open_source: Callable[[ConnectionSpec], Source],
        care: RetentionGuard,
        dropped: ReaderTombstone,
        clock: Clock,
        interval_s: float,
    ) -> None:
        self._open_source = open_source
        self._care = care
        self._dropped = dropped
        self._clock = clock
        self._interval_s = interval_s
        self._pause_s = interval_s
        self._next_ms = 0.0
        self._source: Source | None = None

    @property
    def due_in_s(self) -> float:
        """Seconds until the next check."""
        return max(0.0, (self._next_ms - self._clock.monotonic_ms()) / 1000)

    def check(self, spec: SubscriptionSpec, *, to_be_replaced: bool) -> EngineFault | None:
        """Make one check, if it is due. Returns SLOT_DROPPED if Penstock itself dropped the reader, now or earlier.

        `to_be_replaced`: a new reader was requested, so the state of the old one is ignored.
        """
        if self.due_in_s > 0:
            return None
        fault = None if to_be_replaced else self._dropped.fault()
        try:
            if self._source is None:
                self._source = self._open_source(spec.source)
            reading = self._source.safety.check_reader(spec.reader)
            if fault is None and reading.reader.exists:
                orders = self._care.judge(reading)
                fault = EngineFault(FaultKind.SLOT_DROPPED, spec.reader, orders.drop) if orders.drop else None
            if fault is not None and reading.reader.exists:
                drop_reader(self._source, self._dropped, fault)
            self._pause_s = self._interval_s
        except EngineFault as unseen:
            log.info("slot_not_seen", reader=spec.reader, code=unseen.kind.value)
            self.close()
            self._pause_s = min(self._pause_s * 2, max(_UNSEEN_MOST_S, self._interval_s))
        self._next_ms = self._clock.monotonic_ms() + self._pause_s * 1000
        return fault

    def close(self) -> None:
        """Close the source. Idempotent."""
        source, self._source = self._source, None
        if source is not None:
            source.close()


def drop_reader(source: Source, dropped: ReaderTombstone, fault: EngineFault) -> None:
    """The last level: write the tombstone, then drop the reader. One that a session still uses is dropped by the next check."""
    dropped.write(fault.detail)
    hit(Failpoint.SLOT_DROP_NOTED)
    left = source.reader.release(fault.subject)
    if left:
        log.warning("slot_not_dropped", reader=fault.subject, left=left)
    hit(Failpoint.SLOT_DROPPED)
