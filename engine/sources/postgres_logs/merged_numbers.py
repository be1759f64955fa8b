"""Positions of the merged log: numbers that ascend with its transactions, and marks between them.

A mark is a number that is given for a position on every node: it is reached when everything up to these positions is in the merged log.
Transactions get numbers below every mark that is not reached, so that a wait for a mark never ends too early. Numbers follow the
clock, so that a reader that knows nothing of the marks of an earlier one gives later ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine.model.fault import EngineFault, FaultKind

_PLACE_BITS = 20
"""Low bits of a number: a million of transactions for each millisecond."""
NEVER = 1 << 63
"""A position that no log reaches."""
_ROOM = 1 << 26
"""Least distance of a mark from the number before it: transactions that may be released before it is reached. 67 million."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class MergedNumbers:
    """The numbers of one session. Used by one thread."""

    def __init__(self, last: int, clock_ms: Callable[[], int] = _now_ms) -> None:
        """`last`: the last number that an earlier session has used."""
        self.last = last
        """The last number that was used: of a transaction, or of a mark that is reached."""
        self._clock_ms = clock_ms
        self._marks: list[tuple[int, tuple[int, ...]]] = []
        """Those that are not reached, in ascending order, with their positions by node."""

    def mark(self, positions: Sequence[int]) -> int:
        """A number that is reached when everything up to these positions is in the merged log; 0 for a node that does not matter."""
        before = self._marks[-1][0] if self._marks else self.last
        number = max(before + _ROOM, self._clock_ms() << _PLACE_BITS)
        self._marks.append((number, tuple(positions)))
        return number

    def place(self, number: int, positions: Sequence[int]) -> None:
        """Set the positions of a mark that is not reached."""
        self._marks = [(mark, tuple(positions) if mark == number else at) for mark, at in self._marks]

    def take(self, count: int) -> int:
        """The first one of `count` consecutive numbers for transactions.

        Raises EngineFault(NODE_SILENT) if there are none left before a mark: a node was not read for too long.
        """
        if not self._marks:
            self.last = max(self.last, (self._clock_ms() << _PLACE_BITS) - 1)
        first = self.last + 1
        if self._marks and self.last + count >= self._marks[0][0]:
            detail = (
                "more transactions were read of the other nodes than have numbers before a position that is waited for"
            )
            raise EngineFault(FaultKind.NODE_SILENT, "log", detail)
        self.last += count
        return first

    def reach(self, included: Sequence[int]) -> bool:
        """Everything up to these positions by node is in the merged log. Returns whether a mark is reached by it: the last number."""
        reached = 0
        while self._marks and all(at <= now for at, now in zip(self._marks[0][1], included, strict=True)):
            reached, _ = self._marks.pop(0)
        self.last = max(self.last, reached)
        return reached > 0
