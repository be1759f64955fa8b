"""Databases that neither hash rows nor know stamps: all rows are read, and hashed here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from engine.model.fault import EngineFault, FaultKind
from engine.model.row_filter import RowFilter
from engine.model.source import TableSplit
from engine.sources.query_diff.database import ComparedTable, Method
from engine.sources.query_diff.key_ranges import ALL_KEYS, DigestedRange, KeyRange, Page
from engine.sources.query_diff.source_copies import NoSourceCopies, SourceCopies
from engine.sources.query_diff.stamps import Since, Stamp


class UnhashedRows:
    """The parts of `ComparedDatabase` for methods by checksum, by stamps and by a copy, of a database that has none."""

    copies: SourceCopies = NoSourceCopies()

    def adopted(self, snapshot: str) -> AbstractContextManager[str] | None:
        """None: one session has the snapshot and reads for all, one after another, so it would wait for the others' reads."""
        del snapshot
        return None

    def flagged_splits(self, table: ComparedTable, filters: Sequence[RowFilter | None]) -> list[TableSplit] | None:
        del table, filters
        return None

    def methods(self, table: ComparedTable) -> frozenset[Method]:
        del table
        return frozenset({Method.INCREMENTAL})

    def hashed_rows(
        self,
        table: ComparedTable,
        snapshot: str,
        ranges: Sequence[KeyRange] | None = None,
        since: Since | None = None,
    ) -> Iterator[bytes]:
        del snapshot, ranges, since
        raise _impossible(table)

    def placed_rows(
        self, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]]
    ) -> Iterator[bytes] | None:
        del snapshot, firsts
        raise _impossible(table)

    def range_digests(
        self, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]], within: KeyRange = ALL_KEYS
    ) -> list[DigestedRange]:
        del snapshot, firsts, within
        raise _impossible(table)

    def page(self, table: ComparedTable, snapshot: str, page: Page, *, hashed: bool) -> Iterator[bytes]:
        del snapshot, page, hashed
        raise _impossible(table)

    def rows_since(self, table: ComparedTable, snapshot: str, since: Since) -> Iterator[bytes]:
        del snapshot, since
        raise _impossible(table)

    def left_since(self, table: ComparedTable, snapshot: str, since: Stamp) -> Iterator[bytes]:
        del snapshot, since
        raise _impossible(table)

    def newest_stamp(self, table: ComparedTable, snapshot: str, column: str, overlap_s: float) -> str | None:
        del snapshot, column, overlap_s
        raise _impossible(table)

    def open_for_s(self) -> float:
        return 0.0


def _impossible(table: ComparedTable) -> EngineFault:
    return EngineFault(FaultKind.INTERNAL, str(table.schema.name), "the database neither hashes rows nor knows stamps")
