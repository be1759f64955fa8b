"""Finds the rows with given keys by their numbers, so that a batch does not read the keys of the whole table.

Nothing relies on it for being right. A statement that is given numbers of rows compares their keys too, and what it does not find is
searched for in the whole table: DuckDB renumbers rows when a checkpoint merges row groups, and numbers of rows that are gone stay in the
index. It is not kept: an engine that starts makes it again, for tables of which searches take longer than that. Rows with numbers from
`MOST_ROWS` on are not in it, and batches that change them search.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from engine.platform.compiled import Array
from engine.targets.duckdb.identifiers import folded
from engine.targets.duckdb.row_numbers import MOST_ROWS, RowNumbers
from engine.targets.duckdb.staging import StagingConnection

_UPPER = (1 << 64) - MOST_ROWS
"""The bits of an entry that are of the hash."""
_PIECE = 4 * 122_880
"""Rows that are read at once to add them, four row groups. So many are added without regard to time. Not measured."""
_QUICK_SECONDS = 0.02
"""A search that takes no longer is as good as the index. Not measured."""
_KEY_SECONDS = 0.0001
"""What a search may take for each key to be as good as the index. Not measured."""
_SAMPLE = 2048
"""Rows between two whose numbers are compared to find out from where on rows were renumbered: one vector of DuckDB. Not measured."""
_SAMPLES = 1000
"""Most of them. For so many numbers DuckDB reads the row groups that have them, not the table."""
_SAMPLES_LATE = 250
"""Of them those that are not thinned out: checkpoints merge what batches added, so the last rows are renumbered most often."""

_MOST_ENTRIES = 4
"""Entries for each row that the table had when the index was filled. With more, of rows that were written since, it is filled again: DuckDB
seldom uses numbers of rows again, so it would grow with the changes. Not measured."""
_MORE_ENTRIES = 1 << 20
"""Entries in addition, 8 MiB, so that those of small tables are not filled all the time. Not measured."""
_MOST_LEFT_OUT = 63
"""Most batches for which the index is left out after one whose rows it did not find: twice as many as the last time. Not measured."""


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A table as the index needs it: its full quoted name, and SQL for the hash of the key of a row `t` of it and of a staged row `s`."""

    place: str
    hashed: str
    staged: str


@dataclass(slots=True)
class _Entries:
    """What is known of one table."""

    numbers: RowNumbers
    unread: list[tuple[int, int]] = field(default_factory=lambda: [(0, MOST_ROWS)])
    """Ranges of numbers of rows that are not in the index: the first number and the one after the last. The last range is of rows that the
    table will get."""
    samples: list[tuple[int, int]] = field(default_factory=list)
    """Number and hash of some rows, in order."""
    spent: float = 0.0
    """Seconds of searches that were not yet spent on adding rows."""
    search: float = 0.0
    """Seconds of the last search in the whole table."""
    filled: int | None = None
    """Number of entries when first all rows were in the index."""
    missed: int = 0
    """For how many batches it was left out when it was last used, if that was in vain."""
    left_out: int = 0
    """For how many batches it is still left out."""

    @property
    def overgrown(self) -> bool:
        count = self.numbers.bytes // 8
        return self.filled is not None and count > _MOST_ENTRIES * self.filled + _MORE_ENTRIES

    def add(self, read: Array) -> int:
        """Add rows that were read (entries, in the order of rows); returns the number of the last one."""
        rows = (read & np.uint64(MOST_ROWS - 1)).astype(np.int64)
        step = max(_SAMPLE, len(read) // _SAMPLES_LATE)
        for sample in zip(rows[::step].tolist(), (read[::step] >> np.uint64(32)).tolist(), strict=True):
            at = bisect_left(self.samples, sample)
            if not at or sample[0] >= self.samples[at - 1][0] + _SAMPLE:
                self.samples.insert(at, sample)
        if len(self.samples) > _SAMPLES:
            self.samples = self.samples[:-_SAMPLES_LATE:2] + self.samples[-_SAMPLES_LATE:]
        self.numbers.add(read.copy())
        return int(rows[-1])

    def forget_around(self, moved: Callable[[tuple[int, int]], bool | None]) -> bool:
        """Forget the rows between two samples that are where they were, of which others between them are not, and those after the last one.
        `moved`: None if that is unknown. Returns whether there are any."""
        stale, start, doubt = [], 0, False
        for sample in self.samples:
            state = moved(sample)
            if state is False:
                if doubt:
                    stale.append((start, sample[0]))
                start, doubt = sample[0] + 1, False
            doubt = doubt or state is True
        end = self.unread[-1][0]
        stale += [(start, end)] if start < end else []
        for first, after in stale:
            self.numbers.cut(first, after)
            self.samples = [sample for sample in self.samples if not first <= sample[0] < after]
        self.unread = sorted([*self.unread[:-1], *stale, (end, MOST_ROWS)])
        return bool(stale)


class KeyIndex:
    """The index of all tables of one file, for the thread that writes. Adding rows to it takes no longer than the searches before, and none
    where they are quick. If its files have no room it is given up until the target's file is opened again."""

    def __init__(self, connection: StagingConnection, folder: Path) -> None:
        """`folder`: where its files are."""
        self._connection = connection
        self._folder = folder
        self._tables: dict[str, _Entries] = {}
        self._broken = False
        self._changed: set[str] | None = None
        """Tables that the batch has changed; None outside of a batch."""
        self.found = self.searched = 0
        """Keys that statements of the last batch found by numbers of rows, and keys for which they read those of a whole table."""

    @property
    def bytes(self) -> int:
        """Of all tables. From any thread."""
        return sum(entries.numbers.bytes for entries in list(self._tables.values()))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Around the statements of a batch. Only within it there are `attempts`, and `found` and `searched` are of the last one."""
        self._changed, self.found, self.searched = set(), 0, 0
        try:
            yield
        finally:
            self._changed = None

    def note_changes(self, place: str) -> None:
        """Rows were inserted into a table: there are no further `attempts` in it before the next batch. DuckDB 2.0 may omit rows that are
        searched for by their numbers in a transaction that has inserted others."""
        if self._changed is not None:
            self._changed.add(folded(place))

    def forget(self, place: str) -> None:
        """Forget a table."""
        self._tables.pop(folded(place), None)

    def give_up(self) -> None:
        """Forget all tables, and do without an index from now on. From any thread."""
        self._broken = True
        self._tables.clear()

    def attempts(self, table: KeyedTable, keys: Any) -> Iterator[Any]:
        """Staged rows with columns k0 … km, each as often as there are rows that may have its key, whose numbers are in a further column
        `r`. None, or one after the other until a caller has found all: the second one after rows were renumbered."""
        entries = self._entries_of(table.place)
        changed = self._changed is None or folded(table.place) in self._changed
        if changed or self._broken or not self._pays(entries, keys.num_rows):
            return
        if entries.left_out:
            entries.left_out -= 1
            return
        hashes = self._hashes(table, keys)
        if not self._complete(table, entries):
            return
        missed = min(2 * entries.missed + 1, _MOST_LEFT_OUT)
        for _ in range(2):
            entries.missed = entries.left_out = 0
            self.found += keys.num_rows
            yield self._located(entries, keys, hashes)
            self.found -= keys.num_rows  # the caller has not found all
            entries.missed = entries.left_out = missed
            if not (self._forget_renumbered(table, entries) and self._complete(table, entries)):
                return

    @contextmanager
    def searching(self, table: KeyedTable, keys: int) -> Iterator[None]:
        """Around a statement that searches in the whole table."""
        began = perf_counter()
        try:
            yield
        finally:
            self.searched += keys
            if entries := self._tables.get(folded(table.place)):
                entries.search = perf_counter() - began
                entries.spent += max(0.0, entries.search - _QUICK_SECONDS)

    def _entries_of(self, place: str) -> _Entries:
        known = self._tables.get(folded(place))
        if known is None or known.overgrown:
            fresh = _Entries(RowNumbers(self._folder))
            if known is not None:
                fresh.spent, fresh.search = known.spent, known.search
            known = self._tables[folded(place)] = fresh
        return known

    def _pays(self, entries: _Entries, keys: int) -> bool:
        """Whether finding rows by their numbers is expected to be quicker than the last search, and there was a slow one."""
        return entries.search > _QUICK_SECONDS + keys * _KEY_SECONDS

    def _complete(self, table: KeyedTable, entries: _Entries) -> bool:
        """Add rows that the table has got, as far as time may be spent on it; whether all are in the index."""
        began = perf_counter()
        sql = f"SELECT ({table.hashed} & {_UPPER}::UBIGINT) | CAST(t.rowid AS UBIGINT) AS entry FROM {table.place} AS t"
        while True:
            first, end = entries.unread[0]
            read = self._connection.read(f"{sql} WHERE t.rowid >= {first} AND t.rowid < {end} LIMIT {_PIECE}")
            try:
                if read.num_rows:
                    entries.unread[0] = (entries.add(read.column("entry").to_numpy()) + 1, end)
            except (OSError, MemoryError):
                self.give_up()
                return False
            took = perf_counter() - began
            if read.num_rows < _PIECE and end == MOST_ROWS:
                entries.spent = 0.0
                if entries.filled is None:
                    entries.filled = entries.numbers.bytes // 8
                return True
            if read.num_rows < _PIECE:
                del entries.unread[0]
            if took > entries.spent + entries.search:
                entries.spent = 0.0
                return False

    def _forget_renumbered(self, table: KeyedTable, entries: _Entries) -> bool:
        """Find out which rows may have been renumbered, and forget them; whether there are any."""
        numbers = pa.table({"r": pa.array([row for row, _ in entries.samples], pa.int64())})
        with self._connection.staged(numbers) as source:
            read = self._connection.read(
                f"SELECT t.rowid AS r, {table.hashed} >> 32 AS hash FROM {table.place} AS t JOIN {source} AS s ON t.rowid = s.r"
            )
        found = dict(zip(*(read.column(name).to_pylist() for name in ("r", "hash")), strict=True))
        # A row that is not found was deleted, or is among those that were renumbered.
        return entries.forget_around(lambda sample: found[sample[0]] != sample[1] if sample[0] in found else None)

    def _hashes(self, table: KeyedTable, keys: Any) -> Array:
        with self._connection.staged(keys) as source:
            read = self._connection.read(f"SELECT {table.staged} >> 32 AS hash FROM {source} AS s")
        hashes: Array = read.column("hash").to_numpy()
        return hashes

    @staticmethod
    def _located(entries: _Entries, keys: Any, hashes: Array) -> Any:
        positions, rows = entries.numbers.find(hashes)
        return keys.take(pa.array(positions)).append_column("r", pa.array(rows))
