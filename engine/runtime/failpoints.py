"""Named places where a test may kill the process or raise. Inert unless PENSTOCK_FAILPOINTS names them.

`PENSTOCK_FAILPOINTS="commit.before=kill@3,report.before=raise"`: at the third passing kill the process; at the first raise.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from enum import StrEnum

from engine.model.fault import EngineFault, FaultKind


class Failpoint(StrEnum):
    """Every failpoint; the name says what is about to happen or has just happened."""

    SLOT_CREATED = "slot.created"
    READER_BEFORE_APPEND = "reader.before_append"
    READER_AFTER_APPEND = "reader.after_append"
    READER_AFTER_CONFIRM = "reader.after_confirm"
    BATCH_BEFORE_JOB = "batch.before_job"
    BATCH_AFTER_JOB = "batch.after_job"
    TASK_RUNNING = "task.running"
    COMMIT_BEFORE = "commit.before"
    COMMIT_AFTER = "commit.after"
    CONFIRM_BEFORE = "confirm.before"
    REPORT_BEFORE = "report.before"
    COPY_RUNNING = "copy.running"
    HANDOVER_BEFORE = "handover.before"
    HANDOVER_AFTER = "handover.after"


@dataclass
class _Armed:
    action: str
    countdown: int


_lock = threading.Lock()
_armed: dict[str, _Armed] = {}


def arm(text: str) -> None:
    """Arm failpoints from the environment's form; an unknown name or action is a ValueError."""
    known = {point.value for point in Failpoint}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = entry.partition("=")
        action, _, count = action.partition("@")
        if name not in known or action not in {"kill", "raise"}:
            raise ValueError(
                f"{entry!r} is not a failpoint; write NAME=kill or NAME=raise, with @N for the Nth passing"
            )
        with _lock:
            _armed[name] = _Armed(action, int(count or "1"))


def hit(point: Failpoint) -> None:
    """Pass a failpoint: nothing happens unless it is armed and its turn has come."""
    if not _armed:
        return
    with _lock:
        entry = _armed.get(point.value)
        if entry is None:
            return
        entry.countdown -= 1
        if entry.countdown > 0:
            return
        del _armed[point.value]
    if entry.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise EngineFault(FaultKind.INTERNAL, point.value, "failpoint raised")


def arm_from_environment() -> None:
    """Arm what PENSTOCK_FAILPOINTS names in this process."""
    arm(os.environ.get("PENSTOCK_FAILPOINTS", ""))
