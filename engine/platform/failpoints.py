"""Named places where a test can kill the process or raise. No effect unless armed through the environment.

`PENSTOCK_FAILPOINTS="commit.before=kill@3,report.before=raise"`: kill the process at the third pass; raise at the first.
Each process that starts with this variable counts from zero.

`PENSTOCK_FAILPOINTS_FOLDER=/path`: a file in that folder, named like a failpoint and with the content `kill@3`, arms it in running
processes. The process that first reaches its third pass removes the file and dies, so it happens once. With `hold` the process renames
the file to `NAME.held`, and continues when that file is removed; a test can act in between.
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
    """A log reader died and its session has ended; the slot is free."""
    READER_BEFORE_OPEN = "reader.before_open"
    """A log reader is about to open its session."""
    READER_OPENED = "reader.opened"
    """The session is open and checked; none of its records is in the queue."""
    READER_BEFORE_APPEND = "reader.before_append"
    READER_AFTER_APPEND = "reader.after_append"
    READER_AFTER_CONFIRM = "reader.after_confirm"
    READER_BEFORE_MARK = "reader.before_mark"
    """The queue is on disk; the durability mark is not written yet."""
    READER_AFTER_MARK = "reader.after_mark"
    READER_AFTER_UNMARK = "reader.after_unmark"
    CYCLE_WRITTEN = "cycle.written"
    """The changes that a cycle found are on disk; the rows that it read are not."""
    SCAN_OFFERED = "scan.offered"
    """Other subscriptions see the snapshot of a cycle, whose reads they may use; nothing was read."""
    SCAN_SPOOLED = "scan.spooled"
    """The rows of a table are there for other subscriptions; the cycle that read them has not ended."""
    SCAN_JOINED = "scan.joined"
    """A cycle is about to use the reads of another subscription's cycle."""
    JOIN_WRITTEN = "join.written"
    """The copy of a table on the source is like the table, in a transaction that is not committed."""
    JOIN_COMMITTED = "join.committed"
    """The copy of a table on the source is like the table; the rows that the cycle read are not on disk."""
    CYCLE_COMMITTED = "cycle.committed"
    """The rows that a cycle read are on disk; it is not published."""
    QUEUE_SWITCH_TOLD = "queue.switch_told"
    """The log reader got an order to turn the queue's durability on or off."""
    QUEUE_SWITCHED = "queue.switched"
    SLOT_DROP_NOTED = "slot.drop_noted"
    """The slot's tombstone is on disk; the slot still exists."""
    SLOT_DROPPED = "slot.dropped"
    BATCH_BEFORE_JOB = "batch.before_job"
    BATCH_AFTER_JOB = "batch.after_job"
    TASK_RUNNING = "task.running"
    EARLY_INSERTED = "early.inserted"
    """Rows of a speculative insert are in the target, uncommitted."""
    EARLY_COMMIT = "early.commit"
    """A speculative insert is about to be committed."""
    REPAIR_BEFORE = "repair.before"
    """The target is at the position of a repair, which is about to be written."""
    REPAIR_AFTER = "repair.after"
    """A repair is durable on the target; nothing was reported of it."""
    COMMIT_BEFORE = "commit.before"
    COMMIT_AFTER = "commit.after"
    PARTS_PREPARED = "parts.prepared"
    """Every part of a batch is prepared on the target (two-phase commit); the batch is not decided."""
    PARTS_DECIDED = "parts.decided"
    """The batch's commit is recorded; none of its parts is committed yet."""
    CONFIRM_BEFORE = "confirm.before"
    REPORT_BEFORE = "report.before"
    COPY_RUNNING = "copy.running"
    CHUNK_READ = "copy.chunk_read"
    """The rows of a copy chunk are in the hidden table; no batch has recorded them."""
    CHUNK_TAKEN = "copy.chunk_taken"
    PARTITIONS_READ = "copy.partitions_read"
    """The rows of partitions are in the hidden table; no batch has swapped them in."""
    HANDOVER_BEFORE = "handover.before"
    HANDOVER_AFTER = "handover.after"
    SNAPSHOT_TABLE = "snapshot.table"
    """A table of a snapshot is in its file."""
    SNAPSHOT_WRITTEN = "snapshot.written"
    """All files of a snapshot are written, under a temporary name."""
    SNAPSHOT_PUBLISHED = "snapshot.published"
    """A snapshot has its final name, and was not reported."""


_HOLD_POLL_S = 0.02
"""Interval in seconds between two checks of the file that holds a process; tests only. Not measured."""


@dataclass
class _Armed:
    action: str
    countdown: int


_lock = threading.Lock()
_armed: dict[str, _Armed] = {}
_folder: Path | None = None
_from_files: dict[str, tuple[int, _Armed]] = {}
"""By failpoint: modification time of its file, and the remaining count in this process."""
_environment_read = False


def arm(text: str) -> None:
    """Arm failpoints from the text form of PENSTOCK_FAILPOINTS. Raises ValueError on an unknown name or action."""
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
    """Let files in this folder arm failpoints from now on; None turns that off."""
    global _folder  # noqa: PLW0603 - a process has one set of failpoints
    _folder = folder


def hit(point: Failpoint) -> None:
    """Pass a failpoint. No effect unless it is armed and its count is reached."""
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
    """The file that exists while a process is held at this failpoint."""
    return folder / f"{point.value}.held"


def arm_from_environment() -> None:
    """Arm this process from the environment. Idempotent: counts are kept."""
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
