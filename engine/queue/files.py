"""Names, locks and faults of the queue's files: one folder per queue, two files per segment."""

from __future__ import annotations

import errno
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
SEGMENT_SUFFIX = ".arrow"
INDEX_SUFFIX = ".index"
_DIGITS = 20
"""Decimal digits of the largest unsigned 64-bit number, so that the order of names is that of ordinals."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """Names a segment by the ordinal of its first record, which is unique in the queue."""

    first: int

    @property
    def stem(self) -> str:
        return f"{self.first:0{_DIGITS}d}"

    def segment(self, folder: Path) -> Path:
        return folder / (self.stem + SEGMENT_SUFFIX)

    def index(self, folder: Path) -> Path:
        return folder / (self.stem + INDEX_SUFFIX)


def list_segments(folder: Path) -> list[SegmentName]:
    """The folder's segments in order of ordinals. A segment is listed if either of its files exists."""
    try:
        paths = list(folder.iterdir())
    except OSError as error:
        raise fault_of(error, folder) from error
    stems = {p.stem for p in paths if p.suffix in {SEGMENT_SUFFIX, INDEX_SUFFIX}}
    return sorted(SegmentName(int(stem)) for stem in stems if stem.isdecimal() and len(stem) == _DIGITS)


def delete_segment(folder: Path, name: SegmentName) -> None:
    """Delete both files, the index last: after a crash in between, recovery recognises the segment as deleted."""
    try:
        name.segment(folder).unlink(missing_ok=True)
        name.index(folder).unlink(missing_ok=True)
    except OSError as error:
        raise fault_of(error, folder) from error


def sync_folder(folder: Path) -> None:
    """Sync the folder, so that created and deleted file names are durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: Path, content: bytes, *, durable: bool = False, private: bool = False) -> None:
    """Replace a file as a whole; `durable`: it is on disk when this returns; `private`: no other user may read it."""
    fresh = path.with_name(f"{path.name}.new")
    with open(fresh, "wb", opener=_private if private else None) as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)
    if durable:
        sync_folder(path.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`, with as many calls as needed."""
    view = memoryview(data)
    while view.nbytes:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written


def fault_of(error: OSError, path: Path) -> EngineFault:
    """The EngineFault for an OSError on a queue file."""
    kind = FaultKind.QUEUE_DISK_FULL if error.errno in _DISK_FULL else FaultKind.QUEUE_CORRUPT
    return EngineFault(kind, str(path), errno.errorcode.get(error.errno or 0, "unknown error"))


class FolderLock:
    """An exclusive file lock, released at the end of the process. Raises EngineFault(SLOT_IN_USE) if another process holds it."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise fault_of(error, path) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise EngineFault(FaultKind.SLOT_IN_USE, str(folder), "another process uses this queue") from error

    def close(self) -> None:
        """Release the lock. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def open_folder(folder: Path) -> FolderLock:
    """Create the queue's folder if it is missing, and lock it for this process until `close`."""
    return FolderLock(folder, "owner.lock")


def lock_writer(folder: Path) -> FolderLock:
    """Lock for the process that appends. Distinct from `open_folder`'s lock, which the parent process may hold."""
    return FolderLock(folder, "writer.lock")
