"""Partitions that the log names below their roots: one that came and went between two looks at the catalog shows in neither."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise

from engine.model.batch import RelationSeen, SealedBatch
from engine.model.identity import Ordinal, RelationId, TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.table_state import TableState
from engine.records.relation import named_below
from engine.tables.registry import TableEntry, TableRegistry

LEAVES_KEPT = 100_000
"""How many partitions are known between two looks; each is named once per session, and once more per streamed transaction."""

Together = Callable[[Ordinal], frozenset[int]]
"""The tables that the truncate record at this place names, where it names several; none where there is no such record."""


@dataclass(frozen=True, slots=True)
class ObservedPartition:
    """A partition that has changes in the log. `end`: of the last batch that names it, behind the commit of those changes."""

    name: TableName
    end: Lsn


@dataclass(frozen=True, slots=True)
class ObservedPartitionsReading:
    """Partitions that batches name, by root and by partition. `as_of`: end of the last batch that was looked at."""

    as_of: Lsn = ZERO
    below: Mapping[RelationId, Mapping[RelationId, ObservedPartition]] = field(default_factory=dict)


class ObservedPartitions:
    """What sealed batches name since somebody took it. One thread notes, another may take.

    It ends with the process; what was not looked at then, the next start finds in marks (`PartitionFingerprints`).
    """

    def __init__(self, together: Together) -> None:
        self._together = together
        self._lock = threading.Lock()
        self._told: dict[RelationId, dict[RelationId, ObservedPartition]] = {}
        self._kept = 0
        self._as_of = ZERO

    def note(self, batch: SealedBatch) -> None:
        """Take in the partitions that the batch names."""
        with self._lock:
            self._as_of = batch.end
            for root, leaf, name in _named(batch, self._together):
                below = self._told.setdefault(root, {})
                if leaf in below or self._kept < LEAVES_KEPT:
                    self._kept += leaf not in below
                    below[leaf] = ObservedPartition(name, batch.end)

    def take(self) -> ObservedPartitionsReading:
        """What was noted since the last call."""
        with self._lock:
            told, self._told, self._kept = self._told, {}, 0
            return ObservedPartitionsReading(self._as_of, told)


def partitions_in(
    batch: SealedBatch, book: TableRegistry, together: Together
) -> dict[TableId, dict[RelationId, TableName]]:
    """The partitions that the batch names, by the table that they are below; not of tables that were copied behind it."""
    found: dict[TableId, dict[RelationId, TableName]] = {}
    for root, leaf, name in _named(batch, together):
        entry = book.by_relation(root)
        if entry is not None and entry.followed and not is_covered(entry, batch.end):
            found.setdefault(entry.table, {})[leaf] = name
    return found


def has_unjudged(
    batch: SealedBatch,
    book: TableRegistry,
    together: Together,
    has_met: Callable[[TableId, Set[RelationId], Lsn], bool],
) -> bool:
    """Whether the batch names partitions that no look has met, or tables of ours as partitions of others. `has_met`: of a root."""
    told = partitions_in(batch, book, together)
    if not all(has_met(table, below.keys(), batch.end) for table, below in told.items()):
        return True
    named = [(root, leaf) for root, leaf, _ in _named(batch, together)]
    return any(
        book.by_relation(root) is not None and is_missed(book.by_relation(leaf), batch.end) for root, leaf in named
    )


def is_missed(entry: TableEntry | None, end: Lsn) -> bool:
    """Whether changes are missing in a table of ours that was named as a partition of another one of ours up to there."""
    return entry is not None and entry.followed and not is_covered(entry, end)


def is_covered(entry: TableEntry, end: Lsn) -> bool:
    """Whether a table was copied behind what ends there, and nothing is kept for it."""
    kept = entry.waiting or entry.state is TableState.PAUSED
    return not kept and end <= entry.after


def _named(batch: SealedBatch, together: Together) -> Iterator[tuple[RelationId, RelationId, TableName]]:
    """Root, partition and its name. Also of changes that were rolled back to a savepoint: later ones may count."""
    for records in _adjoining(batch):
        truncated = together(Ordinal(records[-1].ordinal + 1)) if len(records) > 1 else ()
        for root, leaf in pairwise(records):
            name = named_below(leaf.payload, leaf.ordinal - root.ordinal)
            others = root.relation not in truncated or leaf.relation not in truncated
            if name is not None and root.relation != leaf.relation and others:
                yield root.relation, leaf.relation, name


def _adjoining(batch: SealedBatch) -> Iterator[list[RelationSeen]]:
    """The relation records with nothing but types between them: of roots and their partitions, or of tables truncated together."""
    found: list[RelationSeen] = []
    for seen in batch.relations:
        if found and named_below(seen.payload, seen.ordinal - found[-1].ordinal) is None:
            yield found
            found = []
        found.append(seen)
    if found:
        yield found
