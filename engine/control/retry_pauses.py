"""The pauses between attempts to run a subscription."""

from __future__ import annotations

from engine.model.position import Lsn
from engine.platform.clock import Clock

FIRST_S = 0.5
"""Pause after the first failed attempt in seconds; each further one takes twice as long. Not measured."""
LAST_S = 30.0
"""Longest pause between attempts in seconds: a database that is back is used again after at most this time. Not measured."""


class RetryPauses:
    """They begin with FIRST_S again after an attempt that applied changes, or lasted longer than LAST_S: connections that are ended now and
    then, as by a pooler or an administrator, keep readers waiting for the time of a start only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_s = FIRST_S
        self._began_ms = clock.monotonic_ms()
        self._applied: Lsn | None = None

    def begin(self) -> None:
        """An attempt begins."""
        self._began_ms = self._clock.monotonic_ms()

    def after_failure(self, applied: Lsn | None) -> float:
        """The pause in seconds after an attempt that failed. `applied`: its target is visible up to here; None if it had not opened it."""
        lasted = self._clock.monotonic_ms() - self._began_ms > LAST_S * 1000
        if lasted or applied not in {None, self._applied}:
            self._next_s = FIRST_S
        if applied is not None:
            self._applied = applied
        pause_s, self._next_s = self._next_s, min(self._next_s * 2, LAST_S)
        return pause_s

    def reset(self) -> None:
        """Begin with FIRST_S again."""
        self._next_s = FIRST_S
