"""Partitions seen in relation records. Detects a partition that was attached and detached between two catalog reads, which neither read
shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise

from engine.model.batch import RelationSeen, SealedBatch
from engine.model.identity import Ordinal, RelationId, TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.records.relation import named_below
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.state import holds_up_to

PARTITIONS_OBSERVED = 100_000
"""Most partitions remembered between two checks. The log names each once per session, and again in each streamed transaction."""

Together = Callable[[Ordinal], frozenset[int]]
"""The OIDs in the TRUNCATE record at this ordinal if it names several tables, else an empty set."""


@dataclass(frozen=True, slots=True)
class ObservedPartition:
    """A partition with changes in the log. `end`: of the last batch that names it, which includes the commit of those changes."""

    name: TableName
    end: Lsn


@dataclass(frozen=True, slots=True)
class ObservedPartitionsReading:
    """Partitions that batches name, by root and partition. `as_of`: end of the last batch included."""

    as_of: Lsn = ZERO
    below: Mapping[RelationId, Mapping[RelationId, ObservedPartition]] = field(default_factory=dict)


def partitions_in(
    batch: SealedBatch, book: TableRegistry, together: Together
) -> dict[TableId, dict[RelationId, TableName]]:
    """The partitions that the batch names, by root table; without tables whose copy was read after the batch's end."""
    found: dict[TableId, dict[RelationId, TableName]] = {}
    for root, leaf, name in named_partitions(batch, together):
        entry = book.all().by_relation(root)
        if entry is not None and entry.followed and not is_covered(entry, batch.end):
            found.setdefault(entry.table, {})[leaf] = name
    return found


def has_unjudged(
    batch: SealedBatch,
    book: TableRegistry,
    together: Together,
    has_met: Callable[[TableId, Set[RelationId], Lsn], bool],
) -> bool:
    """Whether the batch names partitions that no check has seen, or replicated tables as partitions of others. `has_met`: whether checks
    have seen these partitions of a root."""
    partitions = partitions_in(batch, book, together)
    if not all(has_met(table, below.keys(), batch.end) for table, below in partitions.items()):
        return True
    named = [(root, leaf) for root, leaf, _ in named_partitions(batch, together)]
    return any(
        book.all().by_relation(root) is not None and is_missed(book.all().by_relation(leaf), batch.end)
        for root, leaf in named
    )


def is_missed(entry: TableEntry | None, end: Lsn) -> bool:
    """Whether a replicated table lacks changes because relation records up to `end` named it as a partition of another replicated table."""
    return entry is not None and entry.followed and not is_covered(entry, end)


def is_covered(entry: TableEntry, end: Lsn) -> bool:
    """Whether the table's copy was read after `end`, and no changes are retained for it."""
    position = holds_up_to(entry.state)
    return position is not None and end <= position


def named_partitions(batch: SealedBatch, together: Together) -> Iterator[tuple[RelationId, RelationId, TableName]]:
    """Root, partition and its name, of each partition that the batch names.

    Includes records of subtransactions that were rolled back: later changes may refer to them.
    """
    for records in _adjoining(batch):
        truncated = together(Ordinal(records[-1].ordinal + 1)) if len(records) > 1 else ()
        for root, leaf in pairwise(records):
            name = named_below(leaf.payload, leaf.ordinal - root.ordinal)
            others = root.relation not in truncated or leaf.relation not in truncated
            if name is not None and root.relation != leaf.relation and others:
                yield root.relation, leaf.relation, name


def _adjoining(batch: SealedBatch) -> Iterator[list[RelationSeen]]:
    """Groups of relation records with only type records between them: a root and its partition, or tables truncated together."""
    found: list[RelationSeen] = []
    for seen in batch.relations:
        if found and named_below(seen.payload, seen.ordinal - found[-1].ordinal) is None:
            yield found
            found = []
        found.append(seen)
    if found:
        yield found
