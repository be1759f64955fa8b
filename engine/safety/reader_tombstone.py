"""Tombstone file: records that Penstock itself dropped a subscription's reader, and from which position changes are missing.

It is written before the drop, so that a later start, also after a crash in between, can distinguish it from a drop by a user.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.queue.files import sync_folder


class ReaderTombstone:
    """The tombstone of one reader. Any thread may use it; only the current owner of the reader (run or idle monitor) writes it."""

    def __init__(self, folder: Path, reader: str) -> None:
        self._path = folder / f"{reader}.dropped"
        self._reader = reader

    def write(self, detail: str) -> None:
        """Write the tombstone durably; an existing one stays. If the disk is full it is not written, so that the drop still protects the
        source."""
        if self._path.exists():
            return
        fresh = self._path.with_suffix(".dropped.new")
        with suppress(OSError):
            fresh.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("w", encoding="utf-8") as file:
                file.write(detail)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
            sync_folder(self._path.parent)

    def fault(self) -> EngineFault | None:
        """The fault of the subscription until it is reloaded; None if Penstock has not dropped the reader."""
        try:
            detail = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            detail = "the guard dropped it; what it noted cannot be read"
        return EngineFault(FaultKind.SLOT_DROPPED, self._reader, detail)

    def forget(self) -> None:
        """Remove the tombstone: a new reader is created, or the subscription was deleted."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
