"""Positions of PostgreSQL's log: end LSNs, byte offsets in the write-ahead log."""

from __future__ import annotations

from engine.model.position import Lsn


class PostgresLogForm:
    """`0/16B3748`, as PostgreSQL prints it."""

    example = "0/16B3748"
    origin = "SELECT pg_current_wal_insert_lsn() on the source, after the commit"
    horizon = 64 * 1024 * 1024
    """Four WAL segments of the usual size."""

    def parse(self, text: str) -> Lsn:
        return Lsn.parse(text)

    def text(self, position: Lsn) -> str:
        return str(position)

    def lag(self, source: Lsn, applied: Lsn) -> int | None:
        return max(0, source.value - applied.value)
