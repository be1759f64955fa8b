"""Which rows of a table may have a key: hashes of keys with numbers of rows, in few sorted arrays, large ones in files without a name."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.platform.compiled import Array

MOST_ROWS = 1 << 32
"""Numbers of rows are less than this, and hashes of keys, too: an entry is both in one 64-bit number, the hash in its upper half."""
CANDIDATES = 4
"""Most rows that are returned for a hash, those with the greatest numbers: of the rows that had a key it is the last one. With 100
million keys one in 40 shares its hash with another one, and one in 10 million with four."""
_IN_MEMORY = 1 << 17
"""Most entries of an array that stays in memory: 1 MiB. Not measured."""
_TOGETHER = 4
"""Arrays that are merged into one, once they differ by less than this factor: so each entry is written once for each power of it, and there
are less than four arrays for each. Not measured."""
_SMALL = 1 << 16
"""An array of fewer entries is merged with the one before it, if that is as small. Not measured."""
_SLICE = 1 << 18
"""Entries of the largest of them that are merged at once, which bounds the memory for it. Not measured."""
_HALF = np.uint64(32)
_ROW = np.uint64(MOST_ROWS - 1)


@dataclass(frozen=True, slots=True)
class _Run:
    """Sorted entries. Those of rows with numbers in the ranges `gone` do not count."""

    entries: Array
    gone: tuple[tuple[int, int], ...] = ()
    """First number and the one after the last, in order; no two touch each other."""

    def counts(self, rows: Array) -> Array:
        """Which of these rows (uint64) count."""
        bounds = np.array(self.gone, np.uint64).reshape(-1)
        counts: Array = np.searchsorted(bounds, rows, "right") % 2 == 0
        return counts

    def without(self, first: int, end: int) -> _Run:
        kept = []
        for start, stop in self.gone:
            if stop < first or start > end:
                kept.append((start, stop))
            else:
                first, end = min(first, start), max(end, stop)
        return _Run(self.entries, tuple(sorted([*kept, (first, end)])))


class RowNumbers:
    """Used by one thread. `add` raises OSError, and has then added nothing."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where the files are. Nothing is left of them when the process has ended."""
        self._folder = folder
        self._runs: list[_Run] = []
        """Those with many entries first, nearly."""

    @property
    def bytes(self) -> int:
        """Of all entries, in memory and files. From any thread."""
        return sum(run.entries.nbytes for run in self._runs)

    def add(self, entries: Array) -> None:
        """Add entries (uint64, in any order; the array is sorted in place)."""
        entries.sort()
        added = _Run(entries)
        runs = [*self._runs, self._merged([added]) if len(entries) > _IN_MEMORY else added]
        while (count := _to_merge([len(run.entries) for run in runs])) > 1:
            runs[-count:] = [self._merged(runs[-count:])]
        self._runs = runs

    def find(self, hashes: Array) -> tuple[Array, Array]:
        """The rows that may have keys with these hashes (uint64, below 2**32): the position of each one's hash, and its number. No pair is
        returned twice, whatever was added: a row that is found for two entries would be counted twice."""
        positions, found = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        low = hashes << _HALF
        for run in self._runs:
            first, last = np.searchsorted(run.entries, low), np.searchsorted(run.entries, low | _ROW, "right")
            counts = last - first
            skipped = np.concatenate(([0], np.cumsum(counts)[:-1]))
            entries = run.entries[np.repeat(first - skipped, counts) + np.arange(counts.sum())]
            rows = entries & _ROW
            kept = run.counts(rows)
            positions.append(np.repeat(np.arange(len(hashes)), counts)[kept])
            found.append(rows[kept])
        return _last_of_each(np.concatenate(positions), np.concatenate(found).astype(np.int64))

    def cut(self, first: int, end: int) -> None:
        """Forget the rows with numbers from `first` on and before `end`."""
        if first < end:
            self._runs = [run.without(first, end) for run in self._runs]

    def _merged(self, runs: Sequence[_Run]) -> _Run:
        parts = _merged_slices(runs)
        if sum(len(run.entries) for run in runs) <= _IN_MEMORY:
            return _Run(np.concatenate(list(parts)))
        with tempfile.TemporaryFile(dir=self._folder) as file:
            for part in parts:
                file.write(part.data)
            file.flush()
            if not file.tell():
                return _Run(np.empty(0, np.uint64))
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _Run(np.frombuffer(mapped, np.uint64))


def _to_merge(sizes: Sequence[int]) -> int:
    """How many of the last arrays are to be merged; below 2: none."""
    if len(sizes) >= _TOGETHER and sizes[-_TOGETHER] < _TOGETHER * sizes[-1]:
        return _TOGETHER
    return 2 if max(sizes[-2:]) < _SMALL and len(sizes) > 1 else 0


def _merged_slices(runs: Sequence[_Run]) -> Iterator[Array]:
    """The entries of all in order, a slice at a time, without those that `find` would leave out."""
    largest = max((run.entries for run in runs), key=len)
    bounds = largest[_SLICE::_SLICE]
    ends = np.array([[*np.searchsorted(run.entries, bounds), len(run.entries)] for run in runs]).T
    before = np.zeros(len(runs), np.int64)
    for until in ends:
        parts = [run.entries[start:end] for run, start, end in zip(runs, before, until, strict=True)]
        merged = np.concatenate([part[run.counts(part & _ROW)] for run, part in zip(runs, parts, strict=True)])
        merged.sort(kind="stable")  # which merges what is sorted
        merged = merged[np.append(True, merged[1:] != merged[:-1])[: len(merged)]]
        hashes = merged >> _HALF
        later = np.ones(len(merged), np.bool_)
        later[:-CANDIDATES] = hashes[CANDIDATES:] != hashes[:-CANDIDATES]
        yield merged[later]
        before = until


def _last_of_each(positions: Array, rows: Array) -> tuple[Array, Array]:
    """Of each position the greatest rows, at most CANDIDATES, each once."""
    order = np.lexsort((rows, positions))
    positions, rows = positions[order], rows[order]
    first = np.ones(len(rows), np.bool_)
    first[1:] = (positions[1:] != positions[:-1]) | (rows[1:] != rows[:-1])
    positions, rows = positions[first], rows[first]
    later = np.ones(len(rows), np.bool_)
    later[:-CANDIDATES] = positions[CANDIDATES:] != positions[:-CANDIDATES]
    return positions[later], rows[later]
