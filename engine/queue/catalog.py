"""Which blocks hold which ordinals, in memory; and letting go of segments that nobody needs."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from engine.model.batch import BlockRef, LogRange
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from engine.queue.durable import note_whole_from
from engine.queue.files import SegmentName, delete_segment, list_segments


class QueueCatalog:
    """The blocks of one queue in order. Methods may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._blocks: list[BlockRef] = []
        self._firsts: list[int] = []
        self._ends: list[int] = []
        """Bytes of all blocks up to and with this one, counted since the queue was opened."""
        self._next = 0
        self._dropped_bytes = 0

    @property
    def next_ordinal(self) -> Ordinal:
        """Behind the last record that was added."""
        return Ordinal(self._next)

    @property
    def size_bytes(self) -> int:
        """Bytes of the blocks held."""
        with self._lock:
            return (self._ends[-1] if self._ends else self._dropped_bytes) - self._dropped_bytes

    def start_at(self, ordinal: Ordinal) -> None:
        """Number from `ordinal` on, where a recovered queue ends without a block."""
        with self._lock:
            self._next = max(self._next, ordinal)

    def add(self, block: BlockRef) -> None:
        """Take in the next block; ordinals only grow."""
        with self._lock:
            if block.first < self._next:
                raise ValueError(f"block at ordinal {block.first} comes after ordinal {self._next}")
            before = self._ends[-1] if self._ends else self._dropped_bytes
            self._blocks.append(block)
            self._firsts.append(block.first)
            self._ends.append(before + block.length)
            self._next = block.first + block.count

    def blocks_for(self, ranges: Sequence[LogRange]) -> tuple[BlockRef, ...]:
        """Every block with a record of one of the ranges, each once, by ordinal."""
        with self._lock:
            wanted: set[int] = set()
            for one in ranges:
                wanted.update(self._touched(one.start, one.stop))
            return tuple(self._blocks[i] for i in sorted(wanted))

    def bytes_between(self, start: Ordinal, stop: Ordinal) -> int:
        """About how many bytes the records `[start, stop)` have: blocks only partly in it count by their share of records."""
        with self._lock:
            touched = self._touched(start, stop)
            if not touched:
                return 0
            before = self._ends[touched.start] - self._blocks[touched.start].length
            total = self._ends[touched.stop - 1] - before
            first, last = self._blocks[touched.start], self._blocks[touched.stop - 1]
            missing = max(0, start - first.first) * first.length / first.count
            missing += max(0, last.first + last.count - stop) * last.length / last.count
            return max(0, total - int(missing))

    def retain(self, from_ordinal: Ordinal, written: Lsn) -> None:
        """Delete whole segments below `from_ordinal`; never the newest, which may be open.

        `written`: end of the target's progress record. What stays may begin in the middle of transactions that end before it, so it is
        noted that the queue is good only for who has them.
        """
        with self._lock:
            if not self._blocks or self._blocks[0].first + self._blocks[0].count > from_ordinal:
                return
        names = list_segments(self._folder)
        gone = [name for name, following in pairwise(names) if following.first <= from_ordinal]
        if not gone:
            return
        with self._lock:
            self._forget(SegmentName(gone[-1].first))
        note_whole_from(self._folder, written)
        for name in gone:
            delete_segment(self._folder, name)

    def _touched(self, start: int, stop: int) -> range:
        if start >= stop:
            return range(0)
        low = max(0, bisect_right(self._firsts, start) - 1)
        if low < len(self._blocks) and self._blocks[low].first + self._blocks[low].count <= start:
            low += 1
        return range(low, max(low, bisect_left(self._firsts, stop)))

    def _forget(self, last_gone: SegmentName) -> None:
        count = bisect_right(self._blocks, last_gone.stem, key=lambda block: Path(block.path).stem)
        if count:
            self._dropped_bytes = self._ends[count - 1]
            del self._blocks[:count], self._firsts[:count], self._ends[:count]
