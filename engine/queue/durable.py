"""Whether a queue is durable: a fact on disk, not a setting. A mark in the folder says that all that lies in it was made durable.

The mark is set behind the last fsync of what was there before, and is taken away, durably, before anything is written without fsync.
Who finds it may go on from the queue's end; who does not must not take the queue for more than a guess.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.model.position import Lsn
from engine.queue.files import SegmentName, fault_of, list_segments, sync_folder

_MARK = "durable.mark"
_WHOLE_FROM = "whole_from.mark"


def is_durable(folder: Path) -> bool:
    """Whether everything that was told of this queue is on disk."""
    return (folder / _MARK).exists()


def mark_durable(folder: Path) -> None:
    """Note it, durably. Everything in the folder must be on disk already. Safe to repeat."""
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
    """Take the mark away, durably. Safe to repeat."""
    path = folder / _MARK
    try:
        path.unlink(missing_ok=True)
        if folder.exists():
            sync_folder(folder)
    except OSError as error:
        raise fault_of(error, path) from error


def note_whole_from(folder: Path, position: Lsn) -> None:
    """Note that segments are about to go: of transactions that end at or before `position` the rest may be only a part.

    On disk before it returns, where the queue is.
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
    """Transactions that end behind this lie wholly in the queue; None where nothing was deleted yet.

    Raises EngineFault(QUEUE_CORRUPT) where the note cannot be read, ValueError where it makes no sense.
    """
    path = folder / _WHOLE_FROM
    try:
        return Lsn.parse(path.read_text().strip())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise fault_of(error, path) from error


class Backlog:
    """Segments that were written without fsync, made durable one by one, so that the writer can do other things in between."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done: set[SegmentName] = set()

    def sync_next(self, open_segment: Path | None = None) -> bool:
        """Make one more segment durable, the oldest first; the writer's open one is its own to sync. False where none is left."""
        for name in list_segments(self._folder):
            if name in self._done or name.segment(self._folder) == open_segment:
                continue
            self._done.add(name)
            for path in (name.segment(self._folder), name.index(self._folder)):
                _sync(path)
            return True
        return False


def _sync(path: Path) -> None:
    """Retention may have deleted it meanwhile: then nobody needs it."""
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
