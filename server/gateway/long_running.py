"""States of long-running work that an engine does on request: reloads, verifications."""

from __future__ import annotations

from enum import StrEnum


class WorkState(StrEnum):
    """State of long-running work. The values are those of the REST interface."""

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
