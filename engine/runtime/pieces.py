"""Large batches are worked on in pieces that follow each other: a task holds one of them, whatever the size of the batch.

Each piece is netted by itself, and the target applies them in order within the batch's one transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.model.batch import LogRange, RelationSeen, TableChanges, TablePart
from engine.model.identity import Ordinal

BytesOf = Callable[[Ordinal, Ordinal], int]
"""About how many bytes the raw records `[start, stop)` have."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Ranges that one task works on, and the tables with the structures that are in force from its begin on."""

    ranges: tuple[LogRange, ...]
    parts: tuple[TablePart, ...]


def cut(ranges: Sequence[LogRange], bytes_of: BytesOf, most_bytes: int) -> list[tuple[LogRange, ...]]:
    """The same ranges in the same order in groups of about `most_bytes`.

    A chunk of a streamed transaction may be cut anywhere; a run of plain transactions is never cut, since what it holds can be
    dated only from its begin on.
    """
    groups: list[tuple[LogRange, ...]] = []
    group: list[LogRange] = []
    size = 0
    for part, bytes_ in _small(ranges, bytes_of, most_bytes):
        if group and size + bytes_ > most_bytes:
            groups.append(tuple(group))
            group, size = [], 0
        group.append(part)
        size += bytes_
    return [*groups, tuple(group)] if group else groups


def _small(ranges: Sequence[LogRange], bytes_of: BytesOf, most_bytes: int) -> Iterator[tuple[LogRange, int]]:
    """The ranges with their bytes, larger ones of streamed transactions in equal parts."""
    for one in ranges:
        size = bytes_of(one.start, one.stop)
        records = one.stop - one.start
        parts = min(records, -(-size // most_bytes)) if one.xid and size > most_bytes else 1
        for part in range(parts):
            start, stop = one.start + records * part // parts, one.start + records * (part + 1) // parts
            yield replace(one, start=Ordinal(start), stop=Ordinal(stop)), size // parts


def pieces(
    groups: Sequence[tuple[LogRange, ...]], relations: Sequence[RelationSeen], parts: Sequence[TablePart]
) -> list[Piece]:
    """A piece for each group. `relations`: all relation records in the groups; `parts`: the tables as for all groups together.

    A table's relation records in earlier groups move it on before a later group begins; rows of every group are lifted to the
    last version.
    """
    seen = _by_group(groups, relations)
    before: dict[int, int] = {}
    found = []
    for group, records in zip(groups, seen, strict=True):
        found.append(Piece(group, tuple(_from(part, before.get(part.versions[0].relation, 0)) for part in parts)))
        for relation in records:
            before[relation] = before.get(relation, 0) + 1
    return found


def _from(part: TablePart, skipped: int) -> TablePart:
    # Where fewer structures are known than were announced, the last one stays: the task tells of it.
    return part if skipped == 0 else replace(part, versions=part.versions[min(skipped, len(part.versions) - 1) :])


def _by_group(groups: Sequence[tuple[LogRange, ...]], relations: Sequence[RelationSeen]) -> list[list[int]]:
    """The relations announced in each group."""
    found: list[list[int]] = [[] for _ in groups]
    if not relations:
        return found
    order = sorted((int(r.start), int(r.stop), g) for g, group in enumerate(groups) for r in group)
    starts = [start for start, _, _ in order]
    for one in relations:
        at = bisect_right(starts, int(one.ordinal)) - 1
        if at >= 0 and one.ordinal < order[at][1]:
            found[order[at][2]].append(int(one.relation))
    return found


Run = Callable[[Sequence[Piece], int, int], tuple[TableChanges, ...]]
"""Runs the tasks of the pieces, each in so many buckets, as attempt so many; the changes name their piece."""


def compute(
    ranges: Sequence[LogRange],
    relations: Sequence[RelationSeen],
    parts: Sequence[TablePart],
    bytes_of: BytesOf,
    most_bytes: int,
    buckets: int,
    run: Run,
) -> tuple[TableChanges, ...]:
    """The net changes of the ranges, in pieces where they are large.

    Tables whose key is unique at commits only are worked on as a whole, in as many buckets: between two pieces, which may lie in
    the middle of a transaction, one of their keys may stand for two rows.
    """
    groups = cut(ranges, bytes_of, most_bytes)
    whole = [part for part in parts if part.whole] if len(groups) > 1 else []
    rest = [part for part in parts if part not in whole]
    changes = run(pieces(groups, relations, rest), buckets, 0) if rest else ()
    if whole:
        changes += run([Piece(tuple(ranges), tuple(whole))], max(buckets, len(groups)), 1)
    return changes
