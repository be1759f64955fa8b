"""Copies in chunks: which rows of a table are read next under a snapshot, and how far each copy is.

Batches also apply to the rows of the chunks that a copy includes (`catch_up.py`). So after a chunk neither its snapshot nor retained
changes are needed, and a restarted engine continues with the next chunk. A whole copy is a single chunk without an upper bound. A chunk is
read in splits, one for each task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.copy.job import CopyTable
from engine.copy.key_range_filter import key_row
from engine.copy.progress import Course
from engine.model.copies import CopyProgress, StandingCopy
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.model.quarantine import RefusedPolicy
from engine.model.schema import TableSchema
from engine.model.source import KeyWalk
from engine.model.subscription import CopyPolicy
from engine.model.table_state import Refused
from engine.net import decode_copy_text
from engine.tables.context import RunContext
from engine.tables.registry import TableEntry
from engine.tables.schema_change import RecopyRequired, Unchanged, judge
from engine.tables.state import Chunk, ChunkRead, ChunkVoided

TRIES = 3
"""Most consecutive chunks of a table that may be lost. After that the table is copied as one chunk."""


LEAST_BYTES = 64 * 1024
"""Smallest size of a chunk in bytes under a limit of rows: a smaller one would cost more for its snapshot and its batch than for its rows.
Not measured."""
SLOW_S = 60
"""Longest time to read one chunk when the rate of rows is limited, if a row has SLOW_ROW_BYTES."""
SLOW_ROW_BYTES = 100
"""Assumed bytes of a row, which turn a limit of rows per second into the size of a chunk: as `key_walk.ROW_BYTES`. Not measured."""
STORED_ROW_BYTES = 28
"""Bytes of storage that a row needs in addition to its values: tuple header and line pointer."""


@dataclass(slots=True)
class _Way:
    """Progress of one table's copy along its key. Its share is that of its rows, because the key does not show how much of the storage was
    read."""

    course: Course
    chunk: Chunk
    size: int = 0
    table_bytes: int = 0
    table_rows: int = 0
    """Rows by the source's statistics; 0 if it has none."""
    rows: int = 0
    bytes: int = 0
    row_bytes: float | None = None
    """Average bytes of COPY text per row, of the rows that were read."""

    def progress(self, of_chunk: CopyProgress, now_s: float) -> CopyProgress:
        """Progress of the whole table; 100 % only after the last chunk."""
        if of_chunk.rows:
            self.row_bytes = of_chunk.read_bytes / of_chunk.rows
        rows = self.rows + of_chunk.rows
        total = self._total_rows()
        share = min(0.999, rows / max(total, rows, 1)) if total else 0.0
        if self.chunk.upto is None and of_chunk.percent >= 100:
            share = 1.0
        return self.course.at(
            now_s,
            rows=rows,
            share=share,
            total_rows=total or None,
            total_bytes=self.table_bytes,
            begun=of_chunk.begun,
            goes_on=not self.chunk.first,
            read_bytes=of_chunk.read_bytes,
        )

    def _total_rows(self) -> int:
        if self.table_rows:
            return self.table_rows
        return 0 if self.row_bytes is None else round(self.table_bytes / (self.row_bytes + STORED_ROW_BYTES))


class ChunkPlanner:
    """Chooses the chunks of copies. Used by the copy thread, except for `throttle`."""

    def __init__(self, parts: RunContext, standing: Callable[[TableId], StandingCopy | None] | None) -> None:
        """`standing` returns the state of a table's unfinished copy on the target, None if there is none. If it is None itself, every table
        is copied as one chunk."""
        self._parts = parts
        self._standing = standing
        self._policy = parts.spec.copies
        self._reading: dict[TableId, Chunk] = {}
        """The last chunk of each table that was begun."""
        self._ways: dict[TableId, _Way] = {}
        """Only tables that are copied along their key."""
        self._lost: Counter[TableId] = Counter()

    def next(self, entry: TableEntry, schema: TableSchema, position: Lsn) -> CopyTable | None:
        """Begin the table's next chunk under the snapshot at `position`; returns what to read. `schema`: the one in the source's catalog.

        Returns None if no chunk can begin: the table waits for none, the log has not yet announced the catalog's schema, or the copy had to
        be discarded and starts again.
        """
        copied = entry.copy.schema if entry.copy is not None and entry.copy.followed else None
        standing = self._standing(entry.table) if self._standing is not None and copied is not None else None
        if copied is not None:
            verdict = None if standing is None or entry.schema is None else judge(entry.schema, schema)
            if verdict is None or isinstance(verdict, RecopyRequired):
                self._parts.admission.restart_copy(entry.table)
                return None
            if not (isinstance(verdict, Unchanged) and isinstance(judge(copied, schema), Unchanged)):
                return None
        walk = self._walk(entry, schema, standing)
        if copied is not None and walk is None:
            self._parts.admission.restart_copy(entry.table)
            return None
        chunk = self._parts.admission.begin_chunk(entry.table, schema, position, walk.splits[-1].upto if walk else None)
        if chunk is None:
            return None
        self._reading[entry.table] = chunk
        if walk is None:
            self._ways.pop(entry.table, None)
            return CopyTable(entry.spec, schema.whole)
        self._track_chunk(entry.table, chunk, standing, walk)
        if standing is not None:
            # An earlier attempt may have left rows after those that the copy includes.
            self._parts.target.trim_copy(entry.table, key_row(standing.upto, schema, decode_copy_text))
        return CopyTable(entry.spec, schema.whole, tuple(each.split for each in walk.splits), begin=chunk.first)

    def _walk(self, entry: TableEntry, schema: TableSchema, standing: StandingCopy | None) -> KeyWalk | None:
        """The next chunk along the key, in splits; None if the table is copied as one chunk."""
        settings = self._parts.settings
        declared = bool(entry.spec.key)  # Rows may share a declared key for a moment.
        if (
            self._standing is None
            or declared
            or entry.spec.refused_rows is RefusedPolicy.SET_ASIDE
            or self._parts.admission.is_whole(entry.table)
            or self._lost[entry.table] >= TRIES
        ):
            return None
        size = self._chunk_bytes()
        chunk = min(settings.copy_chunk_bytes, size)
        upto = standing.upto if standing is not None else None
        small = settings.copy_stretch_bytes if standing is None else None
        return self._parts.source.copies.walk_key(schema.whole, upto, chunk, max(1, size // chunk), small)

    def _chunk_bytes(self) -> int:
        """Size of the next chunk in bytes. With a limited rate chunks are smaller, so that a snapshot is not held longer."""
        rate = self._policy.max_rows_per_second
        most = self._parts.settings.copy_stretch_bytes
        return most if rate is None else min(most, max(LEAST_BYTES, rate * SLOW_ROW_BYTES * SLOW_S))

    def throttle(self, policy: CopyPolicy) -> None:
        """Use this policy for chunks that begin from now on. May be called from any thread."""
        self._policy = policy

    def _track_chunk(self, table: TableId, chunk: Chunk, standing: StandingCopy | None, walk: KeyWalk) -> None:
        before = self._ways.get(table)
        rows, size = (standing.rows, standing.bytes) if standing is not None else (0, 0)
        if before is None and standing is not None:
            detail = f"{rows} rows of {standing.chunks} chunks are copied; the copy continues after them"
            self._parts.reporter.event("info", "copy_resumed", str(table), detail)
        if before is None or chunk.first:
            before = _Way(Course(table), chunk)
        elif before.bytes < size:
            del self._lost[table]
        of_chunk = sum(each.split.bytes_estimate for each in walk.splits)
        self._ways[table] = replace(
            before,
            chunk=chunk,
            size=of_chunk,
            table_bytes=walk.table_bytes,
            table_rows=walk.table_rows,
            rows=rows,
            bytes=size,
        )

    def under_way(self, table: TableId) -> Chunk | None:
        """The table's chunk that is being read; None if there is none, or it was discarded."""
        began, entry = self._reading.get(table), self._parts.book.get(table)
        now = entry.copy.chunk if entry is not None and entry.copy is not None else None
        return now if began is not None and now is not None and now.number == began.number else None

    def read(self, table: TableId, rows: int) -> Chunk | None:
        """All rows of the chunk are in the hidden table. Returns the chunk; None if it was discarded meanwhile."""
        chunk, way = self._reading[table], self._ways.get(table)
        event = ChunkRead(chunk.number, rows, way.size if way is not None else 0)
        return None if isinstance(self._parts.book.apply(table, event), Refused) else chunk

    def rows(self, table: TableId, of_chunk: int) -> int:
        """Number of rows of the whole copy, if `of_chunk` rows of the current chunk are read."""
        return of_chunk + (self._ways[table].rows if table in self._ways else 0)

    def lost(self, table: TableId) -> None:
        """Discard the table's chunk: it cannot be read under this snapshot, or its rows are invalid."""
        self._lost[table] += 1
        self._parts.book.apply(table, ChunkVoided())

    def progress(self, of_chunk: CopyProgress) -> CopyProgress:
        """The progress of the whole copy, from that of its current chunk."""
        way = self._ways.get(of_chunk.table)
        return of_chunk if way is None else way.progress(of_chunk, self._now())

    def _now(self) -> float:
        return self._parts.clock.monotonic_ms() / 1000
