"""States of long-running work that an engine does on request: reloads, verifications."""

from __future__ import annotations

from enum import StrEnum


class WorkState(StrEnum):
    """What long work is doing; the value is what REST shows."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNENDED = (WorkState.QUEUED.value, WorkState.RUNNING.value)
"""Values of the states that are not final."""


def may_follow(before: str, after: str) -> bool:
    """Whether a report of the state `after` applies to work in the state `before`: final states stay."""
    return before in UNENDED and after != WorkState.QUEUED.value
