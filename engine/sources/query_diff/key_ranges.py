"""Cuts rows that come in key order into ranges, and adds up their hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from engine.platform.compiled import Array
from engine.sources.query_diff.row_store import StoredRange

RANGE_ROWS = 2_000
"""Rows of a range: its digest costs some 60 bytes on the wire, and one change in it makes keys and hashes of all of its rows travel. Not
measured."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows from the key `first` on, up to but without the key `before`: texts of the key's fields; None: no bound at this end."""

    first: tuple[str, ...] | None = None
    before: tuple[str, ...] | None = None


ALL_KEYS = KeyRange()


@dataclass(frozen=True, slots=True)
class Page:
    """The first `most` rows, in key order, of those in `keys` whose keys are greater than `after`; None: of all in `keys`."""

    most: int
    after: tuple[str, ...] | None = None
    keys: KeyRange = ALL_KEYS


@dataclass(frozen=True, slots=True)
class DigestedRange:
    """Number of a range's rows, and the exclusive or of their hashes."""

    rows: int
    low: int
    high: int


@dataclass(slots=True)
class CutRange:
    """A range that was cut. `key`: of its first row, as it is in COPY text."""

    interval: int
    part: int
    key: bytes
    rows: int
    low: int
    high: int


class Cutter:
    """Cuts intervals into ranges. `limits`: by interval, the most rows of a range; `next_part`: the first number that is free."""

    def __init__(self, limits: Sequence[int], next_part: int) -> None:
        self._limits = np.asarray(limits, np.int64)
        self._next = next_part
        self._place = -1, 0
        """The last interval, and its rows so far."""
        self.found: list[CutRange] = []

    def cut(self, piece: Any) -> Any:
        """The piece, a table as of `row_digest.hashed_lines`, with a column `part`. Rows come in the order of intervals and keys."""
        intervals: Array = piece.column("interval").to_numpy()
        if not len(intervals):
            return piece.append_column("part", pa.array([], pa.int32()))
        within = self._within(intervals)
        places = within // self._limits[intervals]
        begins = np.flatnonzero(np.diff(intervals, prepend=-1).astype(bool) | np.diff(places, prepend=-1).astype(bool))
        low, high, keys = (piece.column(name) for name in ("low", "high", "key"))
        sizes = np.diff(begins, append=len(intervals))
        lows = np.bitwise_xor.reduceat(low.to_numpy(), begins).tolist()
        highs = np.bitwise_xor.reduceat(high.to_numpy(), begins).tolist()
        parts = np.empty(len(begins), np.int32)
        for at, begin in enumerate(begins.tolist()):
            interval = int(intervals[begin])
            goes_on = within[begin] % self._limits[interval] != 0
            if not goes_on:
                self.found.append(CutRange(interval, self._next, keys[begin].as_py(), 0, 0, 0))
                self._next += 1
            last = self.found[-1]
            last.rows += int(sizes[at])
            last.low ^= lows[at]
            last.high ^= highs[at]
            parts[at] = last.part
        return piece.append_column("part", pa.array(np.repeat(parts, sizes)))

    def _within(self, intervals: Array) -> Array:
        """The place of each row in its interval."""
        rows = np.arange(len(intervals))
        new = np.diff(intervals, prepend=self._place[0]).astype(bool)
        begins = np.where(new, rows, -self._place[1])
        found: Array = rows - np.maximum.accumulate(begins)
        self._place = int(intervals[-1]), int(found[-1]) + 1
        return found


class Adder:
    """Adds up hashes of rows that come in any order, by the number of their range. `parts`: the ranges' numbers in the store."""

    def __init__(self, parts: Sequence[int]) -> None:
        self._parts = np.asarray(parts, np.int32)
        self.rows, self.low, self.high = (np.zeros(len(parts), np.int64) for _ in range(3))

    def add(self, piece: Any) -> Any:
        """The piece, a table as of `row_digest.hashed_lines`, with a column `part`."""
        places = piece.column("interval").to_numpy()
        np.add.at(self.rows, places, 1)
        np.bitwise_xor.at(self.low, places, piece.column("low").to_numpy())
        np.bitwise_xor.at(self.high, places, piece.column("high").to_numpy())
        return piece.append_column("part", pa.array(self._parts[places]))

    def ranges(self, before: Sequence[StoredRange]) -> list[StoredRange]:
        """The ranges with what was added up, in the same order."""
        found = zip(before, self.rows.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        return [StoredRange(each.part, each.first, rows, low, high) for each, rows, low, high in found]


def joined(
    before: Sequence[StoredRange], again: Sequence[int], cut: Sequence[CutRange], firsts: Sequence[tuple[str, ...]]
) -> list[StoredRange]:
    """The ranges of a table after those at the places `again` were read and cut; `firsts`: the texts of the first keys of `cut`.

    A range without rows goes: the one before it reaches up to the next one.
    """
    by_interval: dict[int, list[StoredRange]] = {}
    for each, first in zip(cut, firsts, strict=True):
        by_interval.setdefault(each.interval, []).append(StoredRange(each.part, first, each.rows, each.low, each.high))
    places = {place: interval for interval, place in enumerate(again)}
    found: list[StoredRange] = []
    for place, old in enumerate(before):
        if place not in places:
            found.append(old)
            continue
        for number, new in enumerate(by_interval.get(places[place], ())):
            # The first range of an interval begins where the interval does, as there may be other rows there later.
            found.append(new if number else StoredRange(new.part, old.first, new.rows, new.low, new.high))
    if found:
        head = found[0]
        found[0] = StoredRange(head.part, None, head.rows, head.low, head.high)
    return found
