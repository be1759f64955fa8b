"""Divides a large batch into consecutive slices (called pieces in the code), so that the memory of a task does not grow with the batch.

Each slice is netted separately. The target applies the slices in order, in the batch's one transaction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.model.batch import LogRange, RelationSeen, TableChanges, TablePart
from engine.model.identity import Ordinal, TableId
from engine.model.ledger import LogTally
from engine.model.schema import TableSchema

BytesOf = Callable[[Ordinal, Ordinal], int]
"""Approximate size in bytes of the raw records `[start, stop)`."""


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """Ranges that one task processes, and the tables with the schema versions in force from the first range on."""

    ranges: tuple[LogRange, ...]
    parts: tuple[TablePart, ...]


@dataclass(frozen=True, slots=True)
class Staged:
    """Net changes of a slice of a streamed transaction that were computed before the transaction ended, with one schema per table.

    `ranges`: of this transaction, with the subtransactions that had rolled back by then. `xids`: (sub)transactions that wrote in them.
    """

    ranges: tuple[LogRange, ...]
    xids: frozenset[int]
    schemas: Mapping[TableId, TableSchema]
    changes: tuple[TableChanges, ...]
    tally: LogTally | None = None
    """The changes in `ranges` by table."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Ranges of one slice. `staged`: their net changes if they were computed earlier."""

    ranges: tuple[LogRange, ...]
    staged: Staged | None = None


def cut(ranges: Sequence[LogRange], bytes_of: BytesOf, most_bytes: int) -> list[tuple[LogRange, ...]]:
    """The same ranges in the same order, in groups of about `most_bytes` bytes.

    A range of a streamed transaction may be cut between any two records. A range of plain transactions is never cut, because only a
    scan from its begin finds the commit position of its records.
    """
    return [group.ranges for group in _groups(ranges, bytes_of, most_bytes, ())]


def _groups(ranges: Sequence[LogRange], bytes_of: BytesOf, most_bytes: int, ahead: Sequence[Staged]) -> list[_Group]:
    groups: list[_Group] = []
    group: list[LogRange] = []
    size = 0
    for part, staged in _apart(ranges, ahead):
        if staged is not None:
            if group:
                groups.append(_Group(tuple(group)))
                group, size = [], 0
            if groups and groups[-1].staged is staged:
                groups[-1] = _Group((*groups[-1].ranges, part), staged)
            else:
                groups.append(_Group((part,), staged))
            continue
        for small, bytes_ in _small(part, bytes_of, most_bytes):
            if group and size + bytes_ > most_bytes:
                groups.append(_Group(tuple(group)))
                group, size = [], 0
            group.append(small)
            size += bytes_
    return [*groups, _Group(tuple(group))] if group else groups


def _apart(ranges: Sequence[LogRange], ahead: Sequence[Staged]) -> Iterator[tuple[LogRange, Staged | None]]:
    """The ranges, cut where a staged slice begins or ends, each with the staged slice that contains it, if any."""
    done = sorted(((int(r.start), int(r.stop), staged) for staged in ahead for r in staged.ranges), key=lambda d: d[0])
    starts = [start for start, _, _ in done]
    for one in ranges:
        at = int(one.start)
        while at < one.stop:
            next_ = bisect_left(starts, at) if one.xid else len(done)
            begin = min(done[next_][0], int(one.stop)) if next_ < len(done) else int(one.stop)
            if at < begin:
                yield replace(one, start=Ordinal(at), stop=Ordinal(begin)), None
            else:
                begin = done[next_][1]
                yield replace(one, start=Ordinal(at), stop=Ordinal(begin)), done[next_][2]
            at = begin


def _small(one: LogRange, bytes_of: BytesOf, most_bytes: int) -> Iterator[tuple[LogRange, int]]:
    """The range and its bytes. A range of a streamed transaction above `most_bytes` is cut into equal parts."""
    size = bytes_of(one.start, one.stop)
    records = one.stop - one.start
    parts = min(records, -(-size // most_bytes)) if one.xid and size > most_bytes else 1
    for part in range(parts):
        start, stop = one.start + records * part // parts, one.start + records * (part + 1) // parts
        yield replace(one, start=Ordinal(start), stop=Ordinal(stop)), size // parts


def pieces(
    groups: Sequence[tuple[LogRange, ...]], relations: Sequence[RelationSeen], parts: Sequence[TablePart]
) -> list[BatchSlice]:
    """One slice for each group. `relations`: all relation records in the groups. `parts`: the tables with all their schema versions.

    A slice begins with the schema version that the relation records of earlier groups announced last. Rows of every slice are converted
    to the last version.
    """
    seen = _by_group(groups, relations)
    before: dict[int, int] = {}
    found = []
    for group, records in zip(groups, seen, strict=True):
        found.append(BatchSlice(group, tuple(_from(part, before.get(part.versions[0].relation, 0)) for part in parts)))
        for relation in records:
            before[relation] = before.get(relation, 0) + 1
    return found


def _from(part: TablePart, skipped: int) -> TablePart:
    # If fewer versions are known than were announced, the last one is kept; the task reports the difference as a fault.
    return part if skipped == 0 else replace(part, versions=part.versions[min(skipped, len(part.versions) - 1) :])


def _by_group(groups: Sequence[tuple[LogRange, ...]], relations: Sequence[RelationSeen]) -> list[list[int]]:
    """For each group, the relations that its relation records announce, in order."""
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


Run = Callable[[Sequence[tuple[int, BatchSlice]], int, int], tuple[TableChanges, ...]]
"""Runs the tasks of numbered slices. Arguments: slices, buckets for each, number of the attempt. The changes contain their slice's number.
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Most bytes of a slice, and the number of buckets over which its keys are distributed."""

    bytes_of: BytesOf
    most_bytes: int
    buckets: int = 1


def _not_noted(staged: Staged) -> None:
    del staged


def compute(
    ranges: Sequence[LogRange],
    relations: Sequence[RelationSeen],
    parts: Sequence[TablePart],
    sizes: Sizes,
    run: Run,
    ahead: Sequence[Staged] = (),
    used: Callable[[Staged], None] = _not_noted,
) -> tuple[TableChanges, ...]:
    """The net changes of the ranges, computed in slices if the ranges are large. Valid slices of `ahead` are not computed again; `used` is
    called with each of them.

    Tables whose key is unique only at commits (deferrable constraint) are computed as a whole, with at least one bucket per slice: at the
    border of two slices, which may be inside a transaction, one key may identify two rows.

    Raises EngineFault if a task fails.
    """
    groups = _groups(ranges, sizes.bytes_of, sizes.most_bytes, ahead)
    whole = [part for part in parts if part.whole] if len(groups) > 1 else []
    rest = [part for part in parts if part not in whole]
    found = pieces([group.ranges for group in groups], relations, rest)
    announced = _by_group([group.ranges for group in groups], relations)
    known = [_known(*each) for each in zip(groups, found, announced, strict=True)]
    todo = [(number, piece) for number, piece in enumerate(found) if known[number] is None]
    changes = run(todo, sizes.buckets, 0) if rest and todo else ()
    for group, those in zip(groups, known, strict=True):
        if rest and those is not None and group.staged is not None:
            used(group.staged)
    changes += tuple(replace(c, piece=n) for n, those in enumerate(known) for c in those or ())
    if whole:
        changes += run([(0, BatchSlice(tuple(ranges), tuple(whole)))], max(sizes.buckets, len(groups)), 1)
    return changes


def _known(group: _Group, piece: BatchSlice, announced: Sequence[int]) -> tuple[TableChanges, ...] | None:
    """The group's staged changes if computing them now would give the same result, else None. `announced`: relations announced in it."""
    staged = group.staged
    if staged is None or any(change.fault for change in staged.changes):
        return None
    first = group.ranges[0]
    late = first.aborted - staged.ranges[0].aborted
    counts = Counter(announced)
    if late & staged.xids or not all(
        _same(part, staged, counts[part.versions[0].relation]) and part.after < first.end for part in piece.parts
    ):
        return None
    tables = {part.table for part in piece.parts}
    return tuple(
        replace(change, commit_us=first.time_us, commit_end=first.end.value)
        for change in staged.changes
        if change.table in tables
    )


def _same(part: TablePart, staged: Staged, announced: int) -> bool:
    """Whether the table has the schema of the staged changes, both in this group (announced `announced` times) and at the batch's end."""
    schema = staged.schemas.get(part.table)
    used = {id(one): one for one in (*part.versions[: 1 + announced], part.versions[-1])}
    return schema is not None and all(
        replace(one, relfilenode=0) == replace(schema, relfilenode=0) for one in used.values()
    )
