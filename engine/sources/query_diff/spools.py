"""Files with the rows of a scan, for other subscriptions of the connection. They hold values, so only this user may read them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

_MOST_BYTES = 4 * 1024**3
"""Bytes of one offer's files, compressed, from which on nothing is added. Not measured."""
_LEAST_FREE = 1024**3
"""Bytes that stay free on the disk. Not measured."""
_PART = ".part"


class Spool:
    """Writes one file, which others see after `finish`. What cannot be written is given up: it is never needed."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = spool_path(folder, name)
        self._part = self._path.with_suffix(_PART)
        self._file: Any = None
        self._writer: Any = None
        self._is_lost = False

    def write(self, rows: Any) -> None:
        """Append the rows of a pyarrow.Table."""
        if self._is_lost:
            return
        try:
            if self._writer is None:
                self._open(rows.schema)
            self._writer.write_table(rows)
            if _is_full(self._path.parent):
                self.discard()
        except (OSError, pa.ArrowException):
            self.discard()

    def _open(self, schema: Any) -> None:
        descriptor = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._writer = pa.ipc.new_stream(self._file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def finish(self, schema: Any) -> bool:
        """Let others see it; False if it was given up. `schema`: of its rows, if none were written."""
        if not self._is_lost:
            self.write(schema.empty_table())
        if self._is_lost:
            return False
        try:
            self._writer.close()
            self._file.close()
            self._part.rename(self._path)
        except (OSError, pa.ArrowException):
            self.discard()
        return not self._is_lost

    def discard(self) -> None:
        """Idempotent."""
        self._is_lost = True
        for each in (self._writer, self._file):
            if each is not None:
                with suppress(OSError, ValueError, pa.ArrowException):
                    each.close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)


def spool_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.arrow"


def open_spool(path: Path) -> Iterator[Any] | None:
    """Its rows as pyarrow.Table, piece by piece; None if it is not there. Others may remove the file meanwhile."""
    try:
        file = path.open("rb")
    except OSError:
        return None
    return _read(file)


def _read(file: Any) -> Iterator[Any]:
    with file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _is_full(folder: Path) -> bool:
    with suppress(OSError):  # Others may remove files meanwhile.
        size = sum(each.stat().st_size for each in folder.iterdir())
        return size > _MOST_BYTES or shutil.disk_usage(folder).free < _LEAST_FREE
    return True
