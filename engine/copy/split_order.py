"""The order in which splits are read: small tables first, several tables interleaved, small splits packed into one task."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.model.identity import TableId
from engine.model.source import TableSplit

PARTS_PER_TASK = 16
"""Most splits in one task. More would save little and delay the first tables."""


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """One split of one table. `attempt` counts from 1 and is part of the names of the split's files."""

    table: TableId
    number: int
    split: TableSplit
    attempt: int = 1


@dataclass(slots=True)
class _Pending:
    table: TableId
    splits: deque[PlannedSplit] = field(default_factory=deque)
    bytes: int = 0


class SplitSchedule:
    """Splits that remain to be read. Not thread-safe: the caller locks.

    At most `window` tables are open at a time, smallest first; a wave takes their splits in turns. So small tables finish early, and a
    large table does not delay the next one.
    """

    def __init__(self, window: int = 4) -> None:
        self._window = window
        self._open: deque[_Pending] = deque()
        self._waiting: deque[_Pending] = deque()

    def fill(self, tables: Iterable[tuple[TableId, Sequence[TableSplit]]]) -> None:
        """Add the tables' splits. To be called once, before the first wave."""
        pending = [
            _Pending(
                table,
                deque(PlannedSplit(table, number, split) for number, split in enumerate(splits)),
                sum(split.bytes_estimate for split in splits),
            )
            for table, splits in tables
            if splits
        ]
        self._waiting.extend(sorted(pending, key=lambda p: (p.bytes, p.table)))

    def again(self, split: PlannedSplit) -> None:
        """Return a split to the schedule; it is read before other splits of its table."""
        for pending in (*self._open, *self._waiting):
            if pending.table == split.table:
                pending.splits.appendleft(split)
                return
        self._open.appendleft(_Pending(split.table, deque([split])))

    def drop(self, table: TableId) -> None:
        """Remove the remaining splits of a table."""
        self._open = deque(p for p in self._open if p.table != table)
        self._waiting = deque(p for p in self._waiting if p.table != table)

    def next_wave(self, tasks: int, task_bytes: int) -> list[tuple[PlannedSplit, ...]]:
        """Splits for at most `tasks` tasks; splits that are together smaller than `task_bytes` share a task. Empty if none remain."""
        wave: list[tuple[PlannedSplit, ...]] = []
        while len(wave) < tasks and (task := self._next_task(task_bytes)):
            wave.append(task)
        return wave

    def _next_task(self, task_bytes: int) -> tuple[PlannedSplit, ...]:
        taken: list[PlannedSplit] = []
        size = 0
        while (split := self._peek()) is not None:
            size += split.split.bytes_estimate
            if taken and (size > task_bytes or len(taken) >= PARTS_PER_TASK):
                break
            taken.append(self._take_split())
        return tuple(taken)

    def _peek(self) -> PlannedSplit | None:
        while self._open and not self._open[0].splits:
            self._open.popleft()
        while len(self._open) < self._window and self._waiting:
            self._open.append(self._waiting.popleft())
        return self._open[0].splits[0] if self._open else None

    def _take_split(self) -> PlannedSplit:
        first = self._open.popleft()
        split = first.splits.popleft()
        if first.splits:
            self._open.append(first)
        return split
