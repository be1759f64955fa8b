"""The durability mark of a queue: a file in its folder. It records that everything in the folder was synced to disk.

The mark is written after the last fsync of existing files, and removed durably before anything is written without fsync. With the mark a
process may continue from the queue's end; without it the contents of the queue cannot be relied on after a crash.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.model.position import Lsn
from engine.queue.files import SegmentName, fault_of, list_segments, sync_folder

_MARK = "durable.mark"
_WHOLE_FROM = "whole_from.mark"


def is_durable(folder: Path) -> bool:
    """Whether the folder has the durability mark: every landing that was reported is on disk."""
    return (folder / _MARK).exists()


def mark_durable(folder: Path) -> None:
    """Write the mark durably. Everything in the folder must be on disk already. Idempotent."""
    path = folder / _MARK
    try:
        if not path.exists():
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_folder(folder)
    except OSError as error:
        raise fault_of(error, path) from error


def unmark_durable(folder: Path) -> None:
    """Remove the mark durably. Idempotent."""
    path = folder / _MARK
    try:
        path.unlink(missing_ok=True)
        if folder.exists():
            sync_folder(folder)
    except OSError as error:
        raise fault_of(error, path) from error


def note_whole_from(folder: Path, position: Lsn) -> None:
    """Record, before segments are deleted, that transactions which end at or before `position` may be incomplete in the queue.

    Durable when it returns, if the queue is.
    """
    path = folder / _WHOLE_FROM
    draft = path.with_suffix(".draft")
    try:
        with draft.open("w") as file:
            file.write(str(position))
            if is_durable(folder):
                file.flush()
                os.fsync(file.fileno())
        draft.rename(path)
        if is_durable(folder):
            sync_folder(folder)
    except OSError as error:
        raise fault_of(error, path) from error


def whole_from(folder: Path) -> Lsn | None:
    """Transactions that end after this position are complete in the queue; None if no segment was deleted yet.

    Raises EngineFault(QUEUE_CORRUPT) if the file cannot be read, ValueError if its content is not a position.
    """
    path = folder / _WHOLE_FROM
    try:
        return Lsn.parse(path.read_text().strip())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise fault_of(error, path) from error


class Backlog:
    """Segments that were written without fsync. They are synced one per call, so that the writer can read the log in between."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done: set[SegmentName] = set()

    def sync_next(self, open_segment: Path | None = None) -> bool:
        """Sync one more segment, the oldest first; False if none is left. `open_segment` is left to the writer."""
        for name in list_segments(self._folder):
            if name in self._done or name.segment(self._folder) == open_segment:
                continue
            self._done.add(name)
            for path in (name.segment(self._folder), name.index(self._folder)):
                _sync(path)
            return True
        return False


def _sync(path: Path) -> None:
    """Sync one file. It may be missing: retention has deleted it since, so it is not needed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise fault_of(error, path) from error
    try:
        os.fsync(fd)
    except OSError as error:
        raise fault_of(error, path) from error
    finally:
        os.close(fd)
