"""Partitions that the log names below their roots: one that came and went between two looks at the catalog shows in neither."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from engine.capture.postgres_log.relation import named_below
from engine.model.batch import SealedBatch
from engine.model.identity import RelationId, TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.table_state import TableState
from engine.runtime.table_book import TableBook, TableEntry

LEAVES_KEPT = 100_000
"""How many partitions are known between two looks; each is named once per session, and once more per streamed transaction."""


@dataclass(frozen=True, slots=True)
class ToldLeaf:
    """A partition that has changes in the log. `end`: of the last batch that names it, behind the commit of those changes."""

    name: TableName
    end: Lsn


@dataclass(frozen=True, slots=True)
class LeavesTold:
    """Partitions that batches name, by root and by partition. `as_of`: end of the last batch that was looked at."""

    as_of: Lsn = ZERO
    below: Mapping[RelationId, Mapping[RelationId, ToldLeaf]] = field(default_factory=dict)


class ToldLeaves:
    """What sealed batches name since somebody took it. One thread notes, another may take.

    It ends with the process; what was not looked at then, the next start finds in marks (`TableMarks`).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[RelationId, dict[RelationId, ToldLeaf]] = {}
        self._kept = 0
        self._as_of = ZERO

    def note(self, batch: SealedBatch) -> None:
        """Take in the partitions that the batch names."""
        with self._lock:
            self._as_of = batch.end
            for root, leaf, name in _named(batch):
                below = self._told.setdefault(root, {})
                if leaf in below or self._kept < LEAVES_KEPT:
                    self._kept += leaf not in below
                    below[leaf] = ToldLeaf(name, batch.end)

    def take(self) -> LeavesTold:
        """What was noted since the last call."""
        with self._lock:
            told, self._told, self._kept = self._told, {}, 0
            return LeavesTold(self._as_of, told)


def below_told(batch: SealedBatch, book: TableBook) -> dict[TableId, dict[RelationId, TableName]]:
    """The partitions that the batch names, by the table that they are below; not of tables that were copied behind it."""
    found: dict[TableId, dict[RelationId, TableName]] = {}
    for root, leaf, name in _named(batch):
        entry = book.by_relation(root)
        if entry is not None and entry.followed and not is_covered(entry, batch.end) and book.by_relation(leaf) is None:
            found.setdefault(entry.table, {})[leaf] = name
    return found


def is_covered(entry: TableEntry, end: Lsn) -> bool:
    """Whether a table was copied behind what ends there, and nothing is kept for it."""
    kept = entry.waiting or entry.state is TableState.PAUSED
    return not kept and end <= entry.after


def _named(batch: SealedBatch) -> Iterator[tuple[RelationId, RelationId, TableName]]:
    """Root, partition and its name. Also of changes that were rolled back to a savepoint: later ones may count."""
    for root, leaf in pairwise(batch.relations):
        if root.relation != leaf.relation:
            name = named_below(leaf.payload, leaf.ordinal - root.ordinal)
            if name is not None:
                yield root.relation, leaf.relation, name
