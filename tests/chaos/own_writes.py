"""What a session has written, and whether a read of the copy is true to it. No I/O.

A session's transactions are numbered. Each one that commits adds the row of its number, deletes the rows that are `WINDOW` numbers older,
and moves an amount from one table to another, so that the sum over both stays the same. A read of one statement therefore has to show, for
some number k, exactly the session's committed numbers after k - `WINDOW` up to k. The position that the read claims decides which k.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.model.position import ZERO, Lsn

WINDOW = 200
TOTAL = 0
"""Sum over both tables, at every position."""
_KEPT = 10 * WINDOW
"""Commits that are remembered: more than a session makes while the copy cannot follow."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction that is known to have committed: its commit ends after `floor`, and at or before `end`."""

    number: int
    floor: Lsn
    end: Lsn


@dataclass(frozen=True, slots=True)
class Read:
    """The answer to a read. `wanted`: the position for which it waited, if any; `position`: the one that it claims."""

    wanted: Lsn | None
    position: Lsn
    numbers: tuple[int, ...]
    total: int

    def document(self) -> dict[str, Any]:
        wanted = None if self.wanted is None else str(self.wanted)
        return {
            "wanted": wanted,
            "position": str(self.position),
            "numbers": list(self.numbers),
            "total": self.total,
        }


@dataclass(slots=True)
class History:
    """A session's transactions. Whether one committed is known before the next begins."""

    last: int = 0
    """Number of the last transaction that was begun, whatever its outcome."""
    aborted: int = 0
    _commits: list[Commit] = field(default_factory=list)
    _shown: Lsn = ZERO

    def begin(self) -> int:
        self.last += 1
        return self.last

    def abort(self) -> None:
        self.aborted += 1

    def commit(self, floor: Lsn, end: Lsn) -> None:
        """The last transaction committed."""
        self._commits.append(Commit(self.last, floor, end))
        del self._commits[:-_KEPT]

    @property
    def end(self) -> Lsn | None:
        """A position at or after the last commit."""
        return self._commits[-1].end if self._commits else None

    @property
    def has_last(self) -> bool:
        """Whether the last transaction is known to have committed."""
        return bool(self._commits) and self._commits[-1].number == self.last

    def judge(self, read: Read) -> list[str]:
        """What is untrue of a read that began after the last transaction ended; [] if nothing is."""
        found = []
        if read.wanted is not None and read.position < read.wanted:
            found.append(f"it waited for {read.wanted}, and claims {read.position}")
        if read.position < self._shown:
            found.append(f"it claims {read.position}, after a read that claimed {self._shown}")
        self._shown = max(self._shown, read.position)
        if read.total != TOTAL:
            found.append(f"the sum over both tables is {read.total}, not {TOTAL}")
        return found + self._judge_numbers(read)

    def expected(self, position: Lsn) -> list[tuple[int, ...]]:
        """The numbers that a read at this position may show; several only if a commit's position is not exactly known."""
        numbers = [0, *(one.number for one in self._commits)]
        least = sum(one.end <= position for one in self._commits)
        most = sum(one.floor < position for one in self._commits)
        return [
            tuple(n for n in numbers[1 : count + 1] if n > numbers[count] - WINDOW)
            for count in range(least, max(least, most) + 1)
        ]

    def _judge_numbers(self, read: Read) -> list[str]:
        if len(self._commits) == _KEPT and read.position < self._commits[WINDOW].end:
            return [f"it claims {read.position}, which is older than the session's last {_KEPT - WINDOW} commits"]
        allowed = self.expected(read.position)
        if read.numbers in allowed:
            return []
        nearest = min(allowed, key=lambda numbers: len(set(numbers) ^ set(read.numbers)))
        missing, extra = set(nearest) - set(read.numbers), set(read.numbers) - set(nearest)
        if not missing and not extra:
            return [f"numbers are repeated or out of order: {read.numbers}"]
        return [
            f"at {read.position} the committed numbers {_some(missing)} are missing, and {_some(extra)} are too many"
            f" (begun {self.last}, of which {self.aborted} were rolled back)"
        ]


def _some(numbers: set[int]) -> str:
    shown = sorted(numbers)[:10]
    return f"{shown}{f' and {len(numbers) - 10} more' if len(numbers) > 10 else ''}"
