"""Copies made chunk by chunk: which table's next rows are read under a snapshot, and how far each copy is.

What is in is followed by every batch from then on (`following.py`), so that neither a snapshot nor kept changes outlive a chunk, and
a new engine goes on behind the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

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
"""Chunks of a table one after another that did not get in: then it is copied under one snapshot."""


LEAST_BYTES = 64 * 1024
SLOW_S = 60
"""For about so long a stretch of a copy is read that may only read so many rows a second."""
SLOW_ROW_BYTES = 100
STORED_ROW_BYTES = 28
"""What a row takes in storage beside its values: header and line pointer."""


class NextChunk(Enum):
    """What to do with a table for which there is no chunk."""

    WHOLE = "whole"
    """Copy it under one snapshot."""
    LATER = "later"
    """The log has not told of something yet that the source's catalog shows; or nobody waits for it any more."""


@dataclass(slots=True)
class _Way:
    """One table's copy. Its share is that of its rows, since along a key nothing tells of how much of the storage was read."""

    course: Course
    chunk: Chunk
    size: int = 0
    table_bytes: int = 0
    table_rows: int = 0
    """As the source's statistics have it; 0: they have nothing."""
    rows: int = 0
    bytes: int = 0
    row_bytes: float | None = None
    """Of COPY text, by what was read."""

    def progress(self, of_stretch: CopyProgress, now_s: float) -> CopyProgress:
        """Of the whole table; 100 % only behind the last chunk."""
        if of_stretch.rows:
            self.row_bytes = of_stretch.read_bytes / of_stretch.rows
        rows = self.rows + of_stretch.rows
        total = self._total_rows()
        share = min(0.999, rows / max(total, rows, 1)) if total else 0.0
        if self.chunk.upto is None and of_stretch.percent >= 100:
            share = 1.0
        return self.course.at(
            now_s,
            rows=rows,
            share=share,
            total_rows=total or None,
            total_bytes=self.table_bytes,
            begun=of_stretch.begun,
            goes_on=not self.chunk.first,
            read_bytes=of_stretch.read_bytes,
        )

    def _total_rows(self) -> int:
        if self.table_rows:
            return self.table_rows
        return 0 if self.row_bytes is None else round(self.table_bytes / (self.row_bytes + STORED_ROW_BYTES))


class ChunkPlanner:
    """Used by the copy thread."""

    def __init__(self, parts: RunContext, standing: Callable[[TableId], StandingCopy | None] | None) -> None:
        """`standing` tells how far a copy is on the target; None: every table is copied under one snapshot."""
        self._parts = parts
        self._standing = standing
        self._policy = parts.spec.copies
        self._ways: dict[TableId, _Way] = {}
        self._lost: Counter[TableId] = Counter()

    def next(self, entry: TableEntry, schema: TableSchema, position: Lsn) -> CopyTable | NextChunk:
        """The table's next chunk, as of `position`. `schema`: the structure that the source's catalog shows."""
        goes_on = entry.copy is not None and entry.copy.followed
        standing = self._standing(entry.table) if self._standing is not None and goes_on else None
        if goes_on and (why := self._hindrance(entry, schema, standing)) is not None:
            return why
        walk = self._walk(entry, schema, standing)
        if walk is None:
            return self._whole(entry)
        chunk = self._parts.book.begin_chunk(entry.table, schema, position, walk.chunks[-1].upto)
        if chunk is None:
            return NextChunk.LATER
        self._note(entry.table, chunk, standing, walk)
        if standing is not None:
            # What an earlier try has left behind the rows that count.
            self._parts.target.trim_copy(entry.table, key_row(standing.upto, schema, decode_copy_text))
        return CopyTable(entry.spec, schema.whole, tuple(each.chunk for each in walk.chunks), begin=chunk.first)

    def _hindrance(self, entry: TableEntry, schema: TableSchema, standing: StandingCopy | None) -> NextChunk | None:
        """Why a copy does not go on right now."""
        known, copied = entry.schema, entry.copy.schema if entry.copy is not None else None
        if standing is None or known is None or copied is None:
            return self._whole(entry)
        if isinstance(judge(known, schema), RecopyRequired):
            return self._whole(entry)
        same = isinstance(judge(known, schema), Unchanged) and isinstance(judge(copied, schema), Unchanged)
        return None if same else NextChunk.LATER

    def _whole(self, entry: TableEntry) -> NextChunk:
        if entry.copy is None or not entry.copy.followed:
            return NextChunk.WHOLE
        self._parts.book.restart_copy(entry.table)
        return NextChunk.LATER

    def _walk(self, entry: TableEntry, schema: TableSchema, standing: StandingCopy | None) -> KeyWalk | None:
        """The chunks of the next stretch; None where the table is not copied so."""
        settings = self._parts.settings
        declared = bool(entry.spec.key)  # Its rows may share a key for a moment.
        if (
            self._standing is None
            or declared
            or entry.spec.refused_rows is RefusedPolicy.SET_ASIDE
            or self._parts.book.is_whole(entry.table)
            or self._lost[entry.table] >= TRIES
        ):
            return None
        stretch = self._stretch_bytes()
        chunk = min(settings.copy_chunk_bytes, stretch)
        upto = standing.upto if standing is not None else None
        small = settings.copy_stretch_bytes if standing is None else None
        return self._parts.source.copies.walk_key(schema.whole, upto, chunk, max(1, stretch // chunk), small)

    def _stretch_bytes(self) -> int:
        """Fewer where reading is slowed down: a snapshot is not to stand for longer because of that."""
        rate = self._policy.max_rows_per_second
        most = self._parts.settings.copy_stretch_bytes
        return most if rate is None else min(most, max(LEAST_BYTES, rate * SLOW_ROW_BYTES * SLOW_S))

    def throttle(self, policy: CopyPolicy) -> None:
        """From any thread: stretches that begin from now on are read so fast."""
        self._policy = policy

    def _note(self, table: TableId, chunk: Chunk, standing: StandingCopy | None, walk: KeyWalk) -> None:
        before = self._ways.get(table)
        rows, size = (standing.rows, standing.bytes) if standing is not None else (0, 0)
        if before is None and standing is not None:
            detail = f"{rows} rows of {standing.stretches} chunks are copied; the copy continues after them"
            self._parts.reporter.event("info", "copy_resumed", str(table), detail)
        if before is None or chunk.first:
            before = _Way(Course(table), chunk)
        elif before.bytes < size:
            del self._lost[table]
        of_stretch = sum(each.chunk.bytes_estimate for each in walk.chunks)
        self._ways[table] = replace(
            before,
            chunk=chunk,
            size=of_stretch,
            table_bytes=walk.table_bytes,
            table_rows=walk.table_rows,
            rows=rows,
            bytes=size,
        )

    def under_way(self, table: TableId) -> Chunk | None:
        """The chunk that is being read, where there is one and it still counts."""
        way, entry = self._ways.get(table), self._parts.book.get(table)
        now = entry.copy.chunk if entry is not None and entry.copy is not None else None
        return now if way is not None and now is not None and now.number == way.chunk.number else None

    def is_one(self, table: TableId) -> bool:
        """Whether the table is copied chunk by chunk."""
        return table in self._ways

    def read(self, table: TableId, rows: int) -> bool:
        """All of the chunk is in the hidden table. False where it does not count any more."""
        way = self._ways[table]
        return not isinstance(self._parts.book.apply(table, ChunkRead(way.chunk.number, rows, way.size)), Refused)

    def rows(self, table: TableId, of_stretch: int) -> int:
        """Of the whole copy."""
        return self._ways[table].rows + of_stretch

    def lost(self, table: TableId) -> None:
        """Its rows cannot be read under this snapshot, or do not count."""
        self._lost[table] += 1
        self._parts.book.apply(table, ChunkVoided())

    def end(self, table: TableId) -> None:
        """The table is copied otherwise, or not at all."""
        self._ways.pop(table, None)

    def progress(self, of_stretch: CopyProgress) -> CopyProgress:
        way = self._ways.get(of_stretch.table)
        return of_stretch if way is None else way.progress(of_stretch, self._now())

    def _now(self) -> float:
        return self._parts.clock.monotonic_ms() / 1000
