"""Named places where a test may kill the process or raise. Inert unless the environment says otherwise.

`PENSTOCK_FAILPOINTS="commit.before=kill@3,report.before=raise"`: at the third passing kill the process; at the first raise.
Every process that starts with it is armed anew.

`PENSTOCK_FAILPOINTS_FOLDER=/path`: a file of that folder named like a failpoint and holding `kill@3` arms it in processes
that run already. Whichever process is first at its third passing removes the file and dies: it happens once. With `hold` it
renames the file to `NAME.held` instead, and goes on when that is removed: what others do meanwhile happens between the two steps.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind


class Failpoint(StrEnum):
    """Every failpoint; the name says what is about to happen or has just happened."""

    SLOT_CREATED = "slot.created"
    READER_FREED = "reader.freed"
    """A log reader died and its session is ended; the slot is free."""
    READER_BEFORE_OPEN = "reader.before_open"
    """A log reader is about to open its session."""
    READER_OPENED = "reader.opened"
    """The session is open and checked; nothing of it is in the queue."""
    READER_BEFORE_APPEND = "reader.before_append"
    READER_AFTER_APPEND = "reader.after_append"
    READER_AFTER_CONFIRM = "reader.after_confirm"
    READER_BEFORE_MARK = "reader.before_mark"
    """The queue is on disk, and nothing says so yet."""
    READER_AFTER_MARK = "reader.after_mark"
    READER_AFTER_UNMARK = "reader.after_unmark"
    QUEUE_SWITCH_TOLD = "queue.switch_told"
    """The log reader was told to change what the queue's durable end is."""
    QUEUE_SWITCHED = "queue.switched"
    SLOT_DROP_NOTED = "slot.drop_noted"
    """It is on disk that the guard drops the slot; the slot is still there."""
    SLOT_DROPPED = "slot.dropped"
    BATCH_BEFORE_JOB = "batch.before_job"
    BATCH_AFTER_JOB = "batch.after_job"
    TASK_RUNNING = "task.running"
    EARLY_INSERTED = "early.inserted"
    """Rows of an open transaction are in the target, and nobody sees them."""
    EARLY_COMMIT = "early.commit"
    """Such rows are about to be committed."""
    COMMIT_BEFORE = "commit.before"
    COMMIT_AFTER = "commit.after"
    PARTS_PREPARED = "parts.prepared"
    """Every part of a batch is prepared on the target; nothing is decided."""
    PARTS_DECIDED = "parts.decided"
    """The batch counts; none of its parts is committed yet."""
    CONFIRM_BEFORE = "confirm.before"
    REPORT_BEFORE = "report.before"
    COPY_RUNNING = "copy.running"
    STRETCH_READ = "copy.stretch_read"
    """The rows of a stretch are in the hidden table; no batch has taken them in."""
    STRETCH_TAKEN = "copy.stretch_taken"
    PARTITIONS_READ = "copy.partitions_read"
    """The rows of partitions are in the hidden table; no batch has put them into place."""
    HANDOVER_BEFORE = "handover.before"
    HANDOVER_AFTER = "handover.after"


_HOLD_POLL_S = 0.02


@dataclass
class _Armed:
    action: str
    countdown: int


_lock = threading.Lock()
_armed: dict[str, _Armed] = {}
_folder: Path | None = None
_from_files: dict[str, tuple[int, _Armed]] = {}
"""By failpoint: when its file was written, and what is left of its count in this process."""
_environment_read = False


def arm(text: str) -> None:
    """Arm failpoints from the environment's form; an unknown name or action is a ValueError."""
    known = {point.value for point in Failpoint}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = entry.partition("=")
        parsed = _parsed(action)
        if name not in known or parsed is None or parsed.action == "hold":
            raise ValueError(
                f"{entry!r} is not a failpoint; write NAME=kill or NAME=raise, with @N for the Nth passing"
            )
        with _lock:
            _armed[name] = parsed


def watch(folder: Path | None) -> None:
    """Let files of this folder arm failpoints from now on; None ends it."""
    global _folder  # noqa: PLW0603 - a process has one set of failpoints
    _folder = folder


def hit(point: Failpoint) -> None:
    """Pass a failpoint: nothing happens unless it is armed and its turn has come."""
    if not _armed and _folder is None:
        return
    action = _due(point.value) or _due_by_file(point.value)
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "hold":
        while _folder is not None and held_file(_folder, point).exists():
            time.sleep(_HOLD_POLL_S)
    elif action is not None:
        raise EngineFault(FaultKind.INTERNAL, point.value, "failpoint raised")


def held_file(folder: Path, point: Failpoint) -> Path:
    """What is there for as long as a process is held at this failpoint."""
    return folder / f"{point.value}.held"


def arm_from_environment() -> None:
    """Arm what the environment names in this process. Safe to repeat: counts go on."""
    global _environment_read  # noqa: PLW0603 - as above
    if _environment_read:
        return
    _environment_read = True
    arm(os.environ.get("PENSTOCK_FAILPOINTS", ""))
    folder = os.environ.get("PENSTOCK_FAILPOINTS_FOLDER")
    watch(Path(folder) if folder else None)


def _parsed(text: str) -> _Armed | None:
    action, _, count = text.strip().partition("@")
    return _Armed(action, int(count or "1")) if action in {"kill", "raise", "hold"} else None


def _due(name: str) -> str | None:
    with _lock:
        entry = _armed.get(name)
        if entry is None:
            return None
        entry.countdown -= 1
        if entry.countdown > 0:
            return None
        del _armed[name]
        return entry.action


def _due_by_file(name: str) -> str | None:
    if _folder is None:
        return None
    file = _folder / name
    try:
        written, parsed = file.stat().st_mtime_ns, _parsed(file.read_text())
    except FileNotFoundError:
        return None
    if parsed is None:
        raise ValueError(f"{file} must hold kill, raise or hold, with @N for the Nth passing")
    with _lock:
        known = _from_files.get(name)
        entry = known[1] if known is not None and known[0] == written else parsed
        _from_files[name] = (written, entry)
        entry.countdown -= 1
        if entry.countdown > 0:
            return None
    try:
        if entry.action == "hold":
            file.rename(file.with_name(f"{name}.held"))
        else:
            file.unlink()
    except FileNotFoundError:
        return None  # another process was first
    return entry.action
