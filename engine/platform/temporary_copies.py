"""Temporary copies of database files, each as it was at one moment, for sources whose earlier states other processes cannot read."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.platform.process_sessions import started


def _free_bytes(folder: str) -> int:
    """Bytes that this user can write there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@dataclass(frozen=True, slots=True)
class CopyNames:
    """How copies of one kind of file are named. `endings`: of the files that belong to one, besides itself."""

    prefix: str
    suffix: str
    endings: Sequence[str]

    def claim(self, folder: str | None, size: int, subject: str) -> str:
        """The path of a new empty file with room for so many bytes; its name holds the process, so that copies of processes that ended
        are removed. `folder`: None for the system's folder.

        Raises EngineFault(COPY_FAILED).
        """
        folder = folder or tempfile.gettempdir()
        for left in Path(folder).glob(f"{self.prefix}*{self.suffix}"):
            owner = left.name.removeprefix(self.prefix).split("-")
            if len(owner) == 3 and owner[0].isdecimal() and owner[1] != started(int(owner[0])):
                self.remove(str(left))
        if not Path(folder).is_dir() or _free_bytes(folder) < size:
            detail = f"{folder} has no room for a copy of the file, {size} bytes; see the connection's setting snapshot_folder"
            raise EngineFault(FaultKind.COPY_FAILED, subject, detail)
        name = f"{self.prefix}{os.getpid()}-{started(os.getpid())}-{uuid.uuid4().hex}{self.suffix}"
        path = str(Path(folder) / name)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            detail = f"no copy of the file can be created in {folder}; see the connection's setting snapshot_folder"
            raise EngineFault(FaultKind.COPY_FAILED, subject, detail) from error
        return path

    def remove(self, path: str) -> None:
        """Remove a copy, if it is there."""
        for ending in ("", *self.endings):
            with suppress(OSError):
                Path(path + ending).unlink()
