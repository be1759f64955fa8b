"""The source's process that sends the log to a reader."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SenderState(StrEnum):
    """What the source's process that sends the log to a reader does."""

    WORKING = "working"
    """It reads or decodes the log, or waits for something on the source."""
    BLOCKED = "blocked"
    """It waits for the reader to take what was sent."""
    IDLE = "idle"
    """It has sent everything, and waits for more log."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The process that sends the log: its pid, and what it waits for in the source's own words, empty if it does not wait."""

    state: SenderState
    pid: int
    waits_for: str = ""
