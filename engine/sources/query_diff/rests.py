"""How long cycles on schedule leave the source alone between two reads."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.model.identity import TableName

if TYPE_CHECKING:
    from engine.sources.query_diff.given import Manners

_LEAST_S = 0.02
"""Reads that are shorter say nothing about the load: starting them takes a good part of the time. Not measured."""
_USUAL = 1.25
"""A read that is slower than the fastest one by less than this counts as fast: reads differ so on a server without load. Not measured."""
_MOST = 9.0
"""A rest that gives way lasts at most so many times the read, which leaves a tenth of the time for reading, as for copies."""
_HALF_LIFE_S = 86_400.0
"""Seconds in which the fastest speed counts half, so that a source which has become slower for good is read again. Not measured."""


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a cycle. `scan`: the kind of a read of the table as a whole, in parts; those of one kind have comparable speeds. None:
    it looked for certain rows, and its speed depends on how many. `amount`: what was read, in a unit of the kind: bytes, or rows that the
    database hashed; `size`: bytes that arrived."""

    table: TableName
    scan: str | None
    seconds: float
    amount: int
    size: int


class Rests:
    """The rests of one subscription's cycles. Not thread-safe."""

    def __init__(self, manners: Manners) -> None:
        self._manners = manners
        self._fastest: dict[tuple[TableName, str], tuple[float, float]] = {}
        """Speed, and when it was seen, on the clock of `time.monotonic`."""

    def after(self, read: Read) -> float:
        """Seconds to rest after a read: the longest that a setting asks for."""
        manners = self._manners
        rests = [read.seconds * (1 / manners.time_share - 1)]
        if manners.bytes_per_s is not None:
            rests.append(read.size / manners.bytes_per_s - read.seconds)
        if manners.give_way:
            rests.append(self._giving_way(read))
        return max(rests)

    def _giving_way(self, read: Read) -> float:
        """The longer by how much the source took longer than for the fastest read: its other work takes the time."""
        if read.scan is None or read.seconds < _LEAST_S or not read.amount:
            return 0.0
        now, key, speed = time.monotonic(), (read.table, read.scan), read.amount / read.seconds
        fastest, seen = self._fastest.get(key, (speed, now))
        fastest *= 0.5 ** ((now - seen) / _HALF_LIFE_S)
        self._fastest[key] = max(speed, fastest), now
        slower = fastest / speed
        return 0.0 if slower < _USUAL else read.seconds * min(slower - 1, _MOST)
