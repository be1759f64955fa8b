"""States of long work that the engine does on request: verifications and reloads."""

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


def may_follow(before: str, after: str) -> bool:
    """Whether a report that says `after` may change work that is `before`: what has ended stays as it is."""
    return before in UNENDED and after != WorkState.QUEUED.value
