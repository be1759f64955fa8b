"""The order in which chunks are read: small tables first, several tables interleaved, small chunks packed into one task."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.model.identity import TableId
from engine.model.source import CopyChunk

PARTS_PER_TASK = 16
"""Most chunks in one task. More would save little and delay the first tables."""


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """One chunk of one table. `attempt` counts from 1 and is part of the names of the chunk's files."""

    table: TableId
    number: int
    chunk: CopyChunk
    attempt: int = 1


@dataclass(slots=True)
class _Pending:
    table: TableId
    chunks: deque[PlannedChunk] = field(default_factory=deque)
    bytes: int = 0


class ChunkSchedule:
    """Chunks that remain to be read. Not thread-safe: the caller locks.

    At most `window` tables are open at a time, smallest first; a wave takes their chunks in turns. So small tables finish early, and a
    large table does not delay the next one.
    """

    def __init__(self, window: int = 4) -> None:
        self._window = window
        self._open: deque[_Pending] = deque()
        self._waiting: deque[_Pending] = deque()

    def fill(self, tables: Iterable[tuple[TableId, Sequence[CopyChunk]]]) -> None:
        """Add the tables' chunks. To be called once, before the first wave."""
        pending = [
            _Pending(
                table,
                deque(PlannedChunk(table, number, chunk) for number, chunk in enumerate(chunks)),
                sum(chunk.bytes_estimate for chunk in chunks),
            )
            for table, chunks in tables
            if chunks
        ]
        self._waiting.extend(sorted(pending, key=lambda p: (p.bytes, p.table)))

    def again(self, chunk: PlannedChunk) -> None:
        """Return a chunk to the schedule; it is read before other chunks of its table."""
        for pending in (*self._open, *self._waiting):
            if pending.table == chunk.table:
                pending.chunks.appendleft(chunk)
                return
        self._open.appendleft(_Pending(chunk.table, deque([chunk])))

    def drop(self, table: TableId) -> None:
        """Remove the remaining chunks of a table."""
        self._open = deque(p for p in self._open if p.table != table)
        self._waiting = deque(p for p in self._waiting if p.table != table)

    def next_wave(self, tasks: int, task_bytes: int) -> list[tuple[PlannedChunk, ...]]:
        """Chunks for at most `tasks` tasks; chunks that are together smaller than `task_bytes` share a task. Empty if none remain."""
        wave: list[tuple[PlannedChunk, ...]] = []
        while len(wave) < tasks and (task := self._next_task(task_bytes)):
            wave.append(task)
        return wave

    def _next_task(self, task_bytes: int) -> tuple[PlannedChunk, ...]:
        taken: list[PlannedChunk] = []
        size = 0
        while (chunk := self._peek()) is not None:
            size += chunk.chunk.bytes_estimate
            if taken and (size > task_bytes or len(taken) >= PARTS_PER_TASK):
                break
            taken.append(self._take())
        return tuple(taken)

    def _peek(self) -> PlannedChunk | None:
        while self._open and not self._open[0].chunks:
            self._open.popleft()
        while len(self._open) < self._window and self._waiting:
            self._open.append(self._waiting.popleft())
        return self._open[0].chunks[0] if self._open else None

    def _take(self) -> PlannedChunk:
        first = self._open.popleft()
        chunk = first.chunks.popleft()
        if first.chunks:
            self._open.append(first)
        return chunk
