"""Detects whether the open file and its write-ahead log are still the ones at their paths.

A process can continue to write a file that was removed, renamed or replaced, and no other process can open what it writes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")
_LOOKS = 20
"""Checks before the log counts as missing: one second with _LOOK_SECONDS. Not measured."""
_LOOK_SECONDS = 0.05
"""A checkpoint ends the write-ahead log and begins a new one; a difference that persists for this long is not a checkpoint."""

_Identity = tuple[int, int]


class OpenedFile:
    """Create it after the file was opened. `missing` and `log_missing` are callable from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = Path(f"{path}.wal")
        self._known_log: _Identity | None = None
        """The last write-ahead log that was found open."""
        found, held = _identity(path), _held()
        self._identity = found if held is None or found in held else None

    def missing(self) -> str | None:
        """Why the file is not at its path any more, as text; None if it is. Costs one stat call."""
        found = _identity(self._path)
        if found is not None and found == self._identity:
            return None
        how = "removed or renamed" if found is None else "replaced by another one"
        return f"the file was {how} while it was open"

    def log_missing(self) -> str | None:
        """The same for the write-ahead log, which contains commits that are not in the file yet."""
        for _ in range(_LOOKS):
            if self._log_in_place():
                return None
            time.sleep(_LOOK_SECONDS)
        return f"its write-ahead log {self._log.name} was removed, renamed or replaced while it was open"

    @property
    def log_replaced(self) -> bool:
        """Whether the write-ahead log at its path is another one than the open one."""
        return _identity(self._log) is not None and not self._log_in_place()

    def _log_in_place(self) -> bool:
        found = _identity(self._log)
        if found is not None and found == self._known_log:
            return True
        held = _held()
        if held is None:
            return True
        if found is None:
            deleted = f"{os.path.realpath(self._log.parent)}/{self._log.name} (deleted)"
            return self._known_log not in held and deleted not in held.values()
        if found in held:
            self._known_log = found
        return found in held


def _identity(path: Path) -> _Identity | None:
    """Device and inode; None if the file is missing or inaccessible."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _held() -> dict[_Identity, str] | None:
    """The files that this process has open, with their current names; None if the system does not provide this.

    No file is opened for it: closing it again would release this process's POSIX locks on the file.
    """
    try:
        descriptors = list(_DESCRIPTORS.iterdir())
    except OSError:
        return None
    held = {}
    for descriptor in descriptors:
        identity = _identity(descriptor)
        if identity is not None:
            try:
                held[identity] = str(descriptor.readlink())
            except OSError:  # it has just been closed
                continue
    return held
