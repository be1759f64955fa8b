"""The clock that is passed to the engine's parts: the only module of the engine that reads the system time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time for durations and deadlines; wall time for display only."""

    def monotonic_ms(self) -> float:
        """Milliseconds of a monotonic clock."""
        ...

    def wall_us(self) -> int:
        """Microseconds since 1970 UTC; may jump."""
        ...


class SystemClock:
    """The system's clocks."""

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0

    def wall_us(self) -> int:
        return time.time_ns() // 1000
