"""In-memory index of the queue's blocks by ordinal, and deletion of segments that are not needed any more."""

from __future__ import annotations

import threading
from array import array
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
        # One entry per block in each array. Arrays of numbers, not objects: a transaction open for hours retains millions of blocks.
        self._firsts = array("q")
        self._counts = array("q")
        self._offsets = array("q")
        self._lengths = array("q")
        self._crcs = array("Q")
        self._paths: list[str] = []
        """Path per block; blocks of one segment share one string object."""
        self._ends = array("q")
        """Bytes of all blocks up to and including this one, since the queue was opened."""
        self._next = 0
        self._dropped_bytes = 0

    @property
    def next_ordinal(self) -> Ordinal:
        """The ordinal after the last record added."""
        return Ordinal(self._next)

    @property
    def size_bytes(self) -> int:
        """Total bytes of the blocks in the catalog."""
        with self._lock:
            return (self._ends[-1] if self._ends else self._dropped_bytes) - self._dropped_bytes

    def start_at(self, ordinal: Ordinal) -> None:
        """Set the next ordinal of a recovered queue that ends without a block; a lower one changes nothing."""
        with self._lock:
            self._next = max(self._next, ordinal)

    def add(self, block: BlockRef) -> None:
        """Add the next block. Raises ValueError if its ordinal is below `next_ordinal`."""
        with self._lock:
            if block.first < self._next:
                raise ValueError(f"block at ordinal {block.first} comes after ordinal {self._next}")
            before = self._ends[-1] if self._ends else self._dropped_bytes
            self._firsts.append(block.first)
            self._counts.append(block.count)
            self._offsets.append(block.offset)
            self._lengths.append(block.length)
            self._crcs.append(block.crc)
            same = self._paths and self._paths[-1] == block.path
            self._paths.append(self._paths[-1] if same else block.path)
            self._ends.append(before + block.length)
            self._next = block.first + block.count

    def blocks_for(self, ranges: Sequence[LogRange]) -> tuple[BlockRef, ...]:
        """All blocks that contain a record of one of the ranges, each once, in order of their ordinals."""
        with self._lock:
            wanted: set[int] = set()
            for one in ranges:
                wanted.update(self._touched(one.start, one.stop))
            return tuple(self._block(i) for i in sorted(wanted))

    def bytes_between(self, start: Ordinal, stop: Ordinal) -> int:
        """Estimated bytes of the records `[start, stop)`: a block partly in the range counts by its share of records."""
        with self._lock:
            touched = self._touched(start, stop)
            if not touched:
                return 0
            first, last = touched.start, touched.stop - 1
            total = self._ends[last] - self._ends[first] + self._lengths[first]
            missing = max(0, start - self._firsts[first]) * self._lengths[first] / self._counts[first]
            missing += max(0, self._behind(last) - stop) * self._lengths[last] / self._counts[last]
            return max(0, total - int(missing))

    def retain(self, from_ordinal: Ordinal, written: Lsn) -> None:
        """Delete whole segments below `from_ordinal`, but never the newest, which may be open.

        `written`: end of the target's progress record. The remaining segments may begin inside transactions that end before it. That is
        recorded in the folder (`durable.note_whole_from`): only a target that has these transactions can continue from this queue.
        """
        with self._lock:
            if not self._firsts or self._behind(0) > from_ordinal:
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
        if low < len(self._firsts) and self._behind(low) <= start:
            low += 1
        return range(low, max(low, bisect_left(self._firsts, stop)))

    def _forget(self, last_gone: SegmentName) -> None:
        count = bisect_right(self._paths, last_gone.stem, key=lambda path: Path(path).stem)
        if count:
            self._dropped_bytes = self._ends[count - 1]
            del self._firsts[:count], self._counts[:count], self._offsets[:count], self._lengths[:count]
            del self._crcs[:count], self._paths[:count], self._ends[:count]

    def _behind(self, block: int) -> int:
        return self._firsts[block] + self._counts[block]

    def _block(self, at: int) -> BlockRef:
        place = self._offsets[at], self._lengths[at], self._crcs[at]
        return BlockRef(self._paths[at], *place, Ordinal(self._firsts[at]), self._counts[at])
