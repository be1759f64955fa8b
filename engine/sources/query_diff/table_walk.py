"""Compares a large table in steps along its key, so that a cycle of several snapshots continues after its last step.

What a step read, it read under one snapshot, and it counts as a whole or not at all: nothing is recorded before its last read has ended. If
the connection is lost, or a statement is ended, the next step is read under a new snapshot. Why that is sound, and where it is not done:

- A step is a part of the key's order: ranges with the bounds that the store knows, or the rows after the greatest key so far. So each key
  belongs to exactly one step, whatever was inserted, deleted or moved between two snapshots, and is compared once. A part of the table's
  pages would not do: an update may move a row that was not read to a page that was, and it would be taken for deleted.
- Rows whose hash differs are read, by their keys, in the step that read their hashes. Under another snapshot a row could be sent that has
  not the hash which is stored: if it became later what it had been, no cycle would find the difference.
- The digest of a range is compared under one snapshot, and its rows may be read under a later one. What is stored is made of the rows.
- A row whose key changes between two snapshots may be in a part that was read and in one that was not, or the other way round: then it is
  found twice, or is missing, until the next cycle. Both keys were compared, as each belongs to one part. To read the keys that were found
  once more would not show it, but only to read the earlier parts as a whole. It does no harm as long as nothing but the key is unique:
  tables with a further unique index, or an exclusion constraint, begin again, since a target with the same index would refuse both rows.
- Stamps are those of the first snapshot, and so is the position: later rows are at least as new as both say.
- The structure, the form of the hashes and the method are those of the first step, or the table begins again.
- A page is read by one session, so a large table takes longer than where two read it.
- Tables begin again too that are read for the first time, whose hashes change their form, or which are small. Those whose rows do not lie
  in the order of their key do: each step would read pages all over the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.sources.query_diff.cycle_files import TableFile
from engine.sources.query_diff.database import ComparedTable, Method
from engine.sources.query_diff.key_ranges import ALL_KEYS, RANGE_ROWS, Cutter, DigestedRange, KeyRange, Page
from engine.sources.query_diff.row_store import Known, RowComparison, RowStore, StoredRange
from engine.sources.query_diff.table_reading import PIECE_BYTES, TableReading, key_texts

WALKED = frozenset({Method.RANGE_CHECKSUM, Method.ROW_CHECKSUM, Method.INCREMENTAL})
"""Methods by which a table can be compared in steps."""
LEAST_BYTES = 32 * 1024 * 1024
"""Bytes of a table from which it is compared in steps; smaller ones are read within a second, as a whole. Not measured."""
DIGESTS_AT_ONCE = 256
"""Ranges whose digests are a step: half a million rows, or about a second of one session. Not measured."""
RANGES_AT_ONCE = 64
"""Ranges whose rows are read in one step, at most. Not measured."""
_FIRST_ROWS, _MOST_ROWS = 1_000, 200_000
"""Rows of the first page of a table, after which their size is known, and of the largest one. Not measured."""
CUT_AGAIN = 2
"""A range with more times RANGE_ROWS rows is cut when it is read."""


@dataclass(frozen=True, slots=True)
class Walked:
    """What a walk depends on. `known`, `now`: the table in the store, and as it will be there."""

    table: ComparedTable
    known: Known | None
    now: Known


class TableWalk:
    """The comparison of one table. Its files and the store's temporary tables outlast a fault; `go_on` methods may be called again.

    `file`: gets the changed rows, through `write`. `counts`: as of TableReading. `snapshots`: those that steps were read under.
    """

    def __init__(self, of: Walked, rows: RowStore, file: TableFile, write: Callable[[TableFile, Any], None]) -> None:
        self.of = of
        self.file = file
        self._rows = rows
        self._relation = int(of.table.schema.relation)
        self._write = write
        self._digests: list[DigestedRange] = []
        self._places: list[int] | None = None
        self.cutter = Cutter([], 0)
        self.counts: dict[str, Any] = {"rows_read": 0, "rows_hashed": 0, "bytes_read": 0}
        self.snapshots: set[str] = set()
        self._comparison: RowComparison | None = None
        self._done = 0
        """Of the ranges that differ."""
        self._after: tuple[str, ...] | None = None
        """The greatest key that was read of what is read in pages: the table, or a range."""
        self._page_rows = _FIRST_ROWS
        self._is_read = False
        self._steps = self._seen = 0

    @property
    def comparison(self) -> RowComparison:
        """Of all rows, or of those in the ranges that differ."""
        if self._comparison is None:
            self._comparison = self._rows.comparison(self._relation)
        return self._comparison

    def has_moved(self) -> bool:
        """Whether a step has ended since this was called."""
        before, self._seen = self._seen, self._steps
        return self._steps > before

    def go_on_by_pages(self, reading: TableReading, *, hashed: bool) -> None:
        """Read all rows; `hashed`: their hashes, and then those that differ."""
        while not self._is_read:
            self._is_read = self._page(reading, ALL_KEYS, None, hashed=hashed)

    def go_on_by_ranges(self, reading: TableReading, known: Sequence[StoredRange], *, whole: bool) -> list[int]:
        """Read digests of all ranges, and then the rows of those that differ; `whole`: of all. Returns the places of these."""
        while len(self._digests) < len(known):
            begin = len(self._digests)
            end = min(begin + DIGESTS_AT_ONCE, len(known))
            firsts = [each.first for each in known[begin + 1 : end] if each.first is not None]
            self._digests += reading.digests(firsts, _within(known, begin, end))
            self._end_step(reading)
        again = self._again(known, whole=whole)
        while self._done < len(again):
            taken = self._few(again, len(known))
            if taken:
                places = again[self._done : self._done + taken]
                pieces = list(reading.hashes([_within(known, place, place + 1) for place in places]))
                self._compare_hashed(reading, pieces, self._done)
                self._done += taken
                self._end_step(reading)
            elif self._page(reading, _within(known, again[self._done], again[self._done] + 1), self._done, hashed=True):
                self._done, self._after = self._done + 1, None
        return again

    def _again(self, known: Sequence[StoredRange], *, whole: bool) -> list[int]:
        """The places of ranges that differ; the same in each call."""
        if self._places is None:
            self._places = differing(known, self._digests, whole=whole)
            rows = [self._digests[place].rows for place in self._places]
            limits = [RANGE_ROWS if count > CUT_AGAIN * RANGE_ROWS else sys.maxsize for count in rows]
            # The last range has no end: it may have grown since.
            limits = [
                RANGE_ROWS if place == len(known) - 1 else n for place, n in zip(self._places, limits, strict=True)
            ]
            self.cutter = Cutter(limits, 1 + max(each.part for each in known))
            self._comparison = self._rows.comparison(self._relation, [known[place].part for place in self._places])
        return self._places

    def _few(self, again: Sequence[int], ranges: int) -> int:
        """How many of the next ranges are one step; 0 if the next one is read in pages."""
        rows, found = 0, 0
        for place in again[self._done : self._done + RANGES_AT_ONCE]:
            rows += self._digests[place].rows
            if place == ranges - 1 or rows > _MOST_ROWS:
                break
            found += 1
        return found

    def _page(self, reading: TableReading, keys: KeyRange, interval: int | None, *, hashed: bool) -> bool:
        """Read the next page of `keys`; returns whether it was the last one. `interval`: number of the range, for ranges only."""
        before = self.counts["bytes_read"]
        pieces = list(reading.page(Page(self._page_rows, self._after, keys), hashed=hashed))
        rows = sum(piece.num_rows for piece in pieces)
        if hashed:
            self._compare_hashed(reading, pieces, interval)
        else:
            for piece in pieces:
                self._write(self.file, self.comparison.changes(piece))
        is_last = bool(rows < self._page_rows)
        if rows:
            last = pieces[-1].column("key")[-1].as_py()
            (self._after,) = key_texts([last], len(self.of.table.schema.key))
            row_bytes = max(1, (self.counts["bytes_read"] - before) // rows)
            self._page_rows = max(1, min(_MOST_ROWS, PIECE_BYTES // row_bytes))
        self._end_step(reading)
        return is_last

    def _compare_hashed(self, reading: TableReading, pieces: Sequence[Any], first: int | None) -> None:
        """Compare rows of one snapshot, and read those that differ. `first`: number of the first range, for ranges only."""
        comparison = self.comparison
        with comparison.held() as held:
            for piece in pieces:
                held.look(piece)
            for piece in reading.rows_with(held.keys()):
                held.add(piece)
            # Nothing is read from here on.
            for piece in pieces:
                comparison.changes(piece if first is None else self.cutter.cut(_numbered(piece, first)))
            for rows in held.rows():
                self._write(self.file, rows)

    def _end_step(self, reading: TableReading) -> None:
        self._steps += 1
        self.snapshots.add(reading.snapshot)


def differing(known: Sequence[StoredRange], digests: Sequence[DigestedRange], *, whole: bool) -> list[int]:
    """The places of ranges whose digests are not those that are known; `whole`: of all."""
    return [
        place
        for place, (old, new) in enumerate(zip(known, digests, strict=True))
        if whole or (old.rows, old.low, old.high) != (new.rows, new.low, new.high)
    ]


def _within(known: Sequence[StoredRange], begin: int, end: int) -> KeyRange:
    return KeyRange(known[begin].first, known[end].first if end < len(known) else None)


def _numbered(piece: Any, first: int) -> Any:
    """The piece with the numbers of its ranges among all that are read."""
    numbers = pc.add(piece.column("interval"), pa.scalar(first, pa.int64()))
    return piece.set_column(piece.column_names.index("interval"), "interval", numbers)
