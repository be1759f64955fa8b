"""Time, handed in: the only module of the engine that asks the system for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time for durations and deadlines, wall time only for display."""

    def monotonic_ms(self) -> float:
        """Milliseconds of a clock that never jumps."""
        ...

    def wall_us(self) -> int:
        """Microseconds since 1970 UTC; may jump."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0

    def wall_us(self) -> int:
        return time.time_ns() // 1000
