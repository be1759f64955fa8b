"""The file with its logs, locked against writers, and copies of it.

DuckDB locks a file for as long as a program has it open. Its locks belong to processes, and end when a process closes any descriptor of the
file; ours belong to one descriptor, so what this process opens and closes elsewhere ends none of them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.platform.temporary_copies import CopyNames

_LOGS = (".wal", ".wal.checkpoint", ".wal.recovery")
"""Endings that follow the name of the file: its write-ahead log; what was committed during a checkpoint; both in one, while a program that
opens the file after a crash writes them so. DuckDB reads the second one only if the first one is there."""
COPIES = CopyNames("penstock-duckdb-", ".duckdb", _LOGS)
"""How copies are named."""
_WAIT_S = 10.0
"""Seconds to wait for a program that has the file open for writing, as for other writers of SQLite files. Not measured."""
_LOOK_S = 0.05
"""Seconds between two tries to lock it. Not measured."""
_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
"""`struct flock` of a shared lock of the whole file."""
_PIECE = 1 << 26
"""Bytes that are copied at once."""
_CANNOT_SHARE = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
"""Errors of file systems between which the system copies nothing by itself."""
_HELD = "a program has the file open for writing"


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What shows that a file, and its logs, were not changed: device, inode, size and time of the last change in nanoseconds of each, by
    the ending of its name; the file's own is empty."""

    files: Mapping[str, tuple[int, int, int, int]]

    @property
    def changed_ns(self) -> int:
        return max(found[3] for found in self.files.values())

    @property
    def size(self) -> int:
        return sum(found[2] for found in self.files.values())


def stamp_of(path: Path, subject: str) -> FileStamp:
    """Raises EngineFault(SOURCE_UNREACHABLE) if there is no such file."""
    try:
        files = {"": _stamp(path.stat())}
    except OSError as error:
        raise EngineFault(FaultKind.SOURCE_UNREACHABLE, subject, f"the file {path} cannot be opened") from error
    for ending in _LOGS:
        with suppress(FileNotFoundError):
            files[ending] = _stamp(Path(f"{path}{ending}").stat())
    return FileStamp(files)


def _stamp(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def locked(path: Path, subject: str) -> Iterator[int]:
    """A descriptor of the file, which no program opens for writing while the block runs.

    Raises EngineFault: SOURCE_UNREACHABLE, SOURCE_PRIVILEGE, SOURCE_TIMEOUT if one has it open.
    """
    deadline = time.monotonic() + _WAIT_S
    while True:
        _check_not_ours(path, subject)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            detail = f"the engine's user may not read the file {path}"
            raise EngineFault(FaultKind.SOURCE_PRIVILEGE, subject, detail) from error
        except OSError as error:
            raise EngineFault(FaultKind.SOURCE_UNREACHABLE, subject, f"the file {path} cannot be opened") from error
        try:
            if _is_locked(descriptor, subject) and _is_at(descriptor, path):
                yield descriptor
                return
        finally:
            os.close(descriptor)
        if time.monotonic() >= deadline:
            raise EngineFault(FaultKind.SOURCE_TIMEOUT, subject, _HELD)
        time.sleep(_LOOK_S)


def _is_locked(descriptor: int, subject: str) -> bool:
    """Lock it; False if a program has it open for writing."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        detail = "its file system has no locks; put the file on a disk of the engine's machine"
        raise EngineFault(FaultKind.SOURCE_UNREACHABLE, subject, detail) from error
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether it is the file at the path, by which its write-ahead log is found."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _check_not_ours(path: Path, subject: str) -> None:
    """Raise EngineFault(SOURCE_TIMEOUT) if this process writes to the file, as a target: to close another descriptor would end its lock."""
    with suppress(OSError):
        wanted = path.stat()
        for each in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(each.stat(), wanted) and _writes(each.name):
                    detail = (
                        "this engine has the file open as a target; choose another file, or a snapshot of the target"
                    )
                    raise EngineFault(FaultKind.SOURCE_TIMEOUT, subject, detail)


def _writes(descriptor: str) -> bool:
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii").splitlines()
    flags = next(line.split()[1] for line in lines if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


@contextmanager
def copied(path: Path, folder: str | None, subject: str) -> Iterator[str]:
    """The path of a copy of the file and its logs as they are at one moment, which is removed after the block.

    Raises EngineFault as `locked`; COPY_FAILED if the disk has no room, COPY_LOST if the file was overwritten without a lock.
    """
    copy = COPIES.claim(folder, stamp_of(path, subject).size, subject)
    try:
        with locked(path, subject) as descriptor:
            before = stamp_of(path, subject)
            try:
                _copy(descriptor, Path(copy))
                for ending in before.files.keys() & set(_LOGS):
                    log = os.open(f"{path}{ending}", os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        _copy(log, Path(f"{copy}{ending}"))
                    finally:
                        os.close(log)
            except OSError as error:
                if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                    raise EngineFault(
                        FaultKind.COPY_FAILED, subject, "the disk has no room for a copy of the file"
                    ) from error
                raise EngineFault(
                    FaultKind.SOURCE_UNREACHABLE, subject, f"it cannot be copied: {type(error).__name__}"
                ) from error
            if stamp_of(path, subject) != before or not _is_at(descriptor, path):
                raise EngineFault(FaultKind.COPY_LOST, subject, "the file was overwritten while it was copied")
        yield copy
    finally:
        COPIES.remove(copy)


def _copy(source: int, path: Path) -> None:
    left = os.fstat(source).st_size
    with path.open("wb") as target:
        try:
            while left > 0:
                done = os.copy_file_range(source, target.fileno(), min(left, _PIECE))
                if not done:
                    break
                left -= done
        except OSError as error:
            if error.errno not in _CANNOT_SHARE:
                raise
            with os.fdopen(os.dup(source), "rb") as plain:
                plain.seek(target.seek(0, os.SEEK_END))
                shutil.copyfileobj(plain, target, 1 << 20)
