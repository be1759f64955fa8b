"""Progress of one table's comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.model.identity import TableId
from engine.verify.verdict import VerifyProgress


@dataclass(slots=True)
class Progress:
    """Counts what came from the source. `expected`: estimated bytes of the table, 0 while unknown; `bytes`: those that came."""

    table: TableId
    report: Callable[[VerifyProgress], None]
    expected: int = 0
    seen: int = 0
    rows: int = 0
    bytes: int = 0

    def came(self, rows: int, size: int) -> None:
        """An answer of the source about this many rows."""
        self.rows += rows
        self.bytes += size

    def forget(self) -> None:
        """The comparison begins again."""
        self.seen = self.rows = 0

    def advance(self, estimate: int) -> None:
        """A part of the table is done, of about so many bytes."""
        self.seen += estimate
        share = min(self.seen / self.expected, 1.0) if self.expected else 1.0
        self.report(VerifyProgress(self.table, self.rows, self.bytes, round(100 * share, 1)))
