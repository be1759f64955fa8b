"""That our own guard dropped a subscription's slot, and from where on changes are missing: a file of the engine's, written before the drop.

So a start behind it, and one behind a crash in the middle, can tell our own doing from somebody else's.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.queue.files import sync_folder


class SlotTombstone:
    """The record of one slot. Any thread may use it; it is written by whoever owns the slot at that time."""

    def __init__(self, folder: Path, slot: str) -> None:
        self._path = folder / f"{slot}.dropped"
        self._slot = slot

    def note(self, detail: str) -> None:
        """Write it, durably. What was noted first stays. A disk that is full keeps no source from being saved: then it is not noted."""
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
        """What the subscription fails with until it is reloaded; None where the guard dropped nothing."""
        try:
            detail = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            detail = "the guard dropped it; what it noted cannot be read"
        return EngineFault(FaultKind.SLOT_DROPPED, self._slot, detail)

    def forget(self) -> None:
        """A new slot is made, or the subscription is gone."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
