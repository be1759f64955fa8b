"""How long the end of the source's log has not been read: it is known only when the end was where."""

from __future__ import annotations

import threading
from collections import deque

from engine.model.position import Lsn
from engine.platform.clock import Clock

ENDS_KEPT = 1_000
"""Most ends that are kept. Beyond, every second one is dropped, which makes ages less exact, never too large."""


class UnreadLog:
    """The ends of the source's log that were seen and not read yet. Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ends: deque[tuple[float, Lsn]] = deque()

    def saw(self, end: Lsn, captured: Lsn) -> None:
        """The log ends at `end` now, and is read up to `captured`."""
        with self._lock:
            self._drop(captured)
            if end > max(captured, self._ends[-1][1] if self._ends else captured):
                self._ends.append((self._clock.monotonic_ms(), end))
            if len(self._ends) > ENDS_KEPT:
                self._ends = deque(list(self._ends)[::2])

    def age_ms(self, captured: Lsn) -> float:
        """For how long the log has at least reached beyond `captured`, in milliseconds; 0 if no end beyond it was seen before."""
        with self._lock:
            self._drop(captured)
            return self._clock.monotonic_ms() - self._ends[0][0] if self._ends else 0.0

    def _drop(self, captured: Lsn) -> None:
        while self._ends and self._ends[0][1] <= captured:
            self._ends.popleft()
