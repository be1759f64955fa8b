"""The server's clock: the only module that reads the time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Source of time. Thread-safe."""

    def now(self) -> datetime:
        """The time of day, in UTC. May jump: not for durations."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)
