"""Watermark of the reader's restart position: a reader below it was restored from a backup.

The source writes the restart position (on PostgreSQL restart_lsn) to disk before it acts on it, so it never decreases, even after a
crash. The end of the log does not show a restore once new transactions have filled the log up to the old end; the watermark still does.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn, MalformedPosition
from engine.model.source import ReaderStatus, SourceTerms


class RestartWatermark:
    """The highest restart position seen of one reader, in a file of the engine. Without either, nothing is checked."""

    def __init__(self, folder: Path, reader: str, terms: SourceTerms) -> None:
        self._terms = terms
        self._path = folder / f"{reader}.mark"
        self._reader = reader

    def begin(self, status: ReaderStatus, *, new_reader: bool) -> None:
        """Check a reader that existed before (`new_reader` False), and record its position. Raises as `check`."""
        if not new_reader:
            self.check(status)
        self.record(status, new_reader=new_reader)

    def check(self, status: ReaderStatus) -> None:
        """Raises EngineFault(LOG_GAP) if the reader's restart position is below the watermark."""
        seen = self._read()
        if seen is not None and status.restart is not None and status.restart < seen:
            now, before = self._terms.text(status.restart), self._terms.text(seen)
            detail = (
                f"the {self._terms.reader} begins at {now}, it had come to {before} already: the source was set back"
            )
            raise EngineFault(FaultKind.LOG_GAP, self._reader, detail)

    def record(self, status: ReaderStatus, *, new_reader: bool = False) -> None:
        """Record the reader's restart position. If the disk is full the old watermark stays, which is still a lower bound."""
        seen = None if new_reader else self._read()
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
