"""Positions of PostgreSQL's log: end LSNs, byte offsets in the write-ahead log."""

from __future__ import annotations

from engine.model.position import Lsn
from engine.model.positions.marks import Marks, single_mark


class PostgresLogForm:
    """`0/16B3748`, as PostgreSQL prints it."""

    example = "0/16B3748"
    origin = "SELECT pg_current_wal_insert_lsn() on the source, after the commit"
    horizon = 64 * 1024 * 1024
    """Four WAL segments of the usual size."""

    def parse(self, text: str) -> Marks:
        return single_mark(Lsn.parse(text))

    def text(self, marks: Marks) -> str:
        return str(marks[0].position)

    def lag(self, source: Lsn, applied: Lsn) -> int | None:
        return max(0, source.value - applied.value)
