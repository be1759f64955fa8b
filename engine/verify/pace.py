"""Keeps a comparison within a share of the time, so that source, target and engine are free for other work in between."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from engine.platform.clock import Clock, SystemClock


@dataclass(slots=True)
class Pace:
    """Rests between the steps of a comparison, so that they take at most the share `budget` of the time, above 0; 1: without rests.

    Used by one thread at a time. `cancelled`, when set, ends a rest.
    """

    cancelled: threading.Event
    budget: float = 1.0
    clock: Clock = field(default_factory=SystemClock)
    _since_ms: float | None = None
    """When the present step began, by the monotonic clock."""

    def begin(self) -> None:
        """Begin a step; the time until now is not counted."""
        self._since_ms = self.clock.monotonic_ms()

    def rest(self) -> None:
        """End a step: rest in proportion to its time, and begin the next one."""
        if self.budget >= 1:
            return
        if self._since_ms is not None:
            worked_s = (self.clock.monotonic_ms() - self._since_ms) / 1000
            self.cancelled.wait(worked_s * (1 - self.budget) / self.budget)
        self.begin()
