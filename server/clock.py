"""The server's clock: the only module that reads the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Source of time. Thread-safe."""

    def now(self) -> datetime:
        """The time of day, in UTC. May jump: not for durations."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; for durations. The event loop's own time is not: it is read once a turn, in milliseconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
