"""Positions of the merged log: numbers that ascend with its transactions, and marks between them.

A mark is a number that is given for a position on every node: it is reached when everything up to these positions is in the merged log.
Transactions get numbers below every mark that is not reached, so that a wait for a mark never ends too early.

No number is given twice: a reader begins above all numbers that earlier ones gave, by their ceiling in the subscription's folder and by the
clock, whichever is later. So a number that the engine takes while there is no reader, above both, is not reached before the next reader
has read everything that was committed by then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from engine.model.fault import EngineFault, FaultKind

_PLACE_BITS = 20
"""Low bits of a number: a million of transactions for each millisecond."""
NEVER = 1 << 63
"""A position that no log reaches."""
ROOM = 1 << 26
"""Least distance of a session's first mark from the number before it: transactions that may be released before it is reached. 67 million;
and there are as many as the clock has gone on since, a million for each millisecond."""
BETWEEN = 1 << 22
"""The same of other marks. Each one that is reached uses up so many numbers, and as long as there are fewer than 250 a second, the clock
gives more."""
LONG_ROOM = 1 << 32
"""The same of marks that are given while a node cannot be read: at 10,000 transactions a second those of four days. There are few of them,
as all requests of that time share one."""
_LAG = 1 << 32
"""How far numbers of transactions are before the clock, while there is no mark: with fewer than one mark in four seconds, each has as much
room as LONG_ROOM."""
SHORT = 1 << 20
"""So few numbers before a mark are few: fewer than the transactions that fit in the memory of some nodes. Not measured."""
_RESERVED = 1 << 32
"""Numbers that are reserved at once: those of four seconds."""


def clock_number() -> int:
    """The first number of this millisecond."""
    return time.time_ns() // 1_000_000 << _PLACE_BITS


class MergedNumbers:
    """The numbers of one session. Marks may be made by any thread."""

    def __init__(
        self,
        last: int,
        clock: Callable[[], int] = clock_number,
        ceiling: int = 0,
        reserve: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`last`: the last number of the log before this session. `ceiling`: no earlier session gave a number above it. `reserve`: records
        that numbers up to its argument may be given; called before."""
        self.last = last
        """The last number that was used: of a transaction, or of a mark that is reached."""
        self._lock = threading.Lock()
        self._clock = clock
        self._reserve = reserve
        self._reserved = ceiling
        self._least_mark = ceiling + ROOM + 1 if ceiling else 0
        self._marks: list[tuple[int, tuple[int, ...]]] = []
        """Those that are not reached, in ascending order, with their positions by node."""

    def mark(self, positions: Sequence[int], room: int = BETWEEN) -> int:
        """A number that is reached when everything up to these positions is in the merged log; 0 for a node that does not matter.

        `room`: least distance from the number before it.
        """
        with self._lock:
            before = self._marks[-1][0] if self._marks else self.last
            number = max(before + room, self._clock(), self._least_mark)
            self._keep_reserved(number)
            self._marks.append((number, tuple(positions)))
            return number

    def place(self, number: int, positions: Sequence[int]) -> None:
        """Set the positions of a mark that is not reached."""
        with self._lock:
            self._marks = [(mark, tuple(positions) if mark == number else at) for mark, at in self._marks]

    def take(self, count: int) -> int:
        """The first one of `count` consecutive numbers for transactions.

        Raises EngineFault(NODE_SILENT) if there are none left before a mark: a node was not read for too long.
        """
        with self._lock:
            if not self._marks:
                self.last = max(self.last, self._clock() - _LAG - 1)
            first = self.last + 1
            if self._marks and self.last + count >= self._marks[0][0]:
                detail = (
                    "more transactions were read of the other nodes than have numbers before a position that is"
                    " waited for"
                )
                raise EngineFault(FaultKind.NODE_SILENT, "log", detail)
            self.last += count
            self._keep_reserved(self.last)
            return first

    def are_short(self) -> bool:
        """Whether fewer than SHORT numbers are left before a mark."""
        with self._lock:
            return bool(self._marks) and self._marks[0][0] - self.last <= SHORT

    def is_due(self, included: Sequence[int]) -> bool:
        """Whether everything up to the first mark's positions is in the merged log."""
        with self._lock:
            return bool(self._marks) and _is_in(self._marks[0][1], included)

    def reach(self, included: Sequence[int]) -> bool:
        """Everything up to these positions by node is in the merged log. Returns whether a mark is reached by it: the last number."""
        with self._lock:
            reached = 0
            while self._marks and _is_in(self._marks[0][1], included):
                reached, _ = self._marks.pop(0)
            self.last = max(self.last, reached)
            return reached > 0

    def _keep_reserved(self, number: int) -> None:
        if number > self._reserved:
            self._reserved = number + _RESERVED
            self._reserve(self._reserved)


def _is_in(positions: Sequence[int], included: Sequence[int]) -> bool:
    return all(at <= now for at, now in zip(positions, included, strict=True))
