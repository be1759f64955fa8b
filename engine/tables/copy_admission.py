"""Which copies of a run's tables may begin their next chunk. A check and the change that it permits are one step, under the registry's
lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count

from engine.model.copies import KeyBound
from engine.model.identity import BatchId, TableId
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.table_state import Refused
from engine.tables.registry import TableChange, TableEntry, TableRegistry
from engine.tables.state import Chunk, ChunkBegun, Copying, CopyVoided, Partitions, Reloading, kept_from


class CopyAdmission:
    """Begins the chunks of copies and of partition reloads. Safe to use from any thread."""

    def __init__(self, book: TableRegistry) -> None:
        self._book = book
        self._numbers = count(1)
        """Of chunks. Each number is used once in a run."""
        self._whole: set[TableId] = set()
        self._handing_over: frozenset[TableId] = frozenset()
        self._kept_from: dict[TableId, BatchId | None] = {}
        """First retained batch by table when the last snapshot for copies was taken."""
        book.subscribe(self._end_whole_copy)

    @contextmanager
    def handing_over(self, tables: frozenset[TableId]) -> Iterator[None]:
        """While a batch may be replacing these tables by their copies, no other copy of them begins. One batch at a time.

        A generation is not sufficient: it invalidates what was planned too early, while this prevents a copy from beginning too early.
        """
        with self._book.lock:
            self._handing_over = tables
        try:
            yield
        finally:
            with self._book.lock:
                self._handing_over = frozenset()

    def snapshot_follows(self, tables: Iterable[TableId]) -> None:
        """A snapshot for copies of these tables is taken next. What is retained for them must begin before it; `begin_chunk` checks
        that."""
        with self._book.lock:
            self._kept_from = {t: kept_from(entry.state) for t in tables if (entry := self._book.get(t)) is not None}

    def begin_chunk(self, table: TableId, schema: TableSchema, position: Lsn, upto: KeyBound | None) -> Chunk | None:
        """Begin to read the next rows of a copy, up to and including the key `upto` (None: all), under the snapshot at `position`.

        Returns None if the table does not wait for a chunk under this snapshot.
        """
        with self._book.lock:
            entry = self._book.get(table)
            if entry is None or not self._may_begin(entry):
                return None
            first = entry.copy is None or not entry.copy.followed
            return self._begin(table, Chunk(next(self._numbers), schema, position, upto, first))

    def _may_begin(self, entry: TableEntry) -> bool:
        """Whether the table's copy may begin a chunk now, under the last snapshot."""
        if not isinstance(entry.state, Copying | Reloading) or entry.table in self._handing_over:
            return False
        # Compared by the first retained batch, not by generation: a copy that continues keeps its generation, but may have released its
        # changes and begun to retain them again since the snapshot. The changes between the two would be missing.
        kept = kept_from(entry.state)
        return kept == self._kept_from.get(entry.table, kept)

    def begin_partitions(
        self, table: TableId, schema: TableSchema, position: Lsn, partitions: Partitions
    ) -> Chunk | None:
        """Begin to read these partitions under the snapshot at `position`. Returns None if their reload has ended."""
        with self._book.lock:
            chunk = Chunk(next(self._numbers), schema, position, None, first=False, partitions=partitions)
            return self._begin(table, chunk)

    def _begin(self, table: TableId, chunk: Chunk) -> Chunk | None:
        return None if isinstance(self._book.apply(table, ChunkBegun(chunk)), Refused) else chunk

    def restart_copy(self, table: TableId) -> None:
        """Discard an unfinished copy that cannot be resumed. The new copy is made as one chunk, under one snapshot."""
        with self._book.lock:
            self._whole.add(table)
            self._book.apply(table, CopyVoided())

    def is_whole(self, table: TableId) -> bool:
        """Whether the table is to be copied as one chunk, under one snapshot."""
        with self._book.lock:
            return table in self._whole

    def _end_whole_copy(self, change: TableChange) -> None:
        if change.became_live:
            self._whole.discard(change.entry.table)
