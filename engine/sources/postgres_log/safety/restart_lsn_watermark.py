"""How far the source's slot is known to have come: one that lies behind that was brought back from a backup.

The source keeps a slot's restart position on disk before it acts on it, so it never goes back, not even when the source crashes. The
end of a restored log tells nothing any more once new transactions have filled it up to where the old one ended; this still does.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn, MalformedPosition
from engine.model.source import SlotStatus


class RestartLsnWatermark:
    """The furthest restart position seen of one slot, in a file of the engine's. Without the file nothing is known, and nothing checked."""

    def __init__(self, folder: Path, slot: str) -> None:
        self._path = folder / f"{slot}.mark"
        self._slot = slot

    def begin(self, slot: SlotStatus, *, new_slot: bool) -> None:
        """Check a slot that existed before, and note the position of any; raises `EngineFault` as `check`."""
        if not new_slot:
            self.check(slot)
        self.note(slot, new_slot=new_slot)

    def check(self, status: SlotStatus) -> None:
        """Raises EngineFault(LOG_GAP) where the slot lies behind what was seen of it."""
        seen = self._read()
        if seen is not None and status.restart is not None and status.restart < seen:
            detail = f"the slot begins at {status.restart}, it had come to {seen} already: the source was set back"
            raise EngineFault(FaultKind.LOG_GAP, self._slot, detail)

    def note(self, status: SlotStatus, *, new_slot: bool = False) -> None:
        """Remember where the slot is. A disk that is full keeps what was known before, which still holds."""
        seen = None if new_slot else self._read()
        if status.restart is None or (seen is not None and status.restart <= seen):
            return
        fresh = self._path.with_suffix(".mark.new")
        with suppress(OSError):
            fresh.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(str(status.restart))
            fresh.replace(self._path)

    def forget(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _read(self) -> Lsn | None:
        try:
            return Lsn.parse(self._path.read_text())
        except (OSError, UnicodeDecodeError, MalformedPosition):
            return None
