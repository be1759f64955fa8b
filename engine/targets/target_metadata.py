"""What every target remembers of its subscriptions, and the rules of who may go on with one. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from engine.model.copies import KeyBound, StandingCopy
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, SubscriptionName, TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.partitions import WHOLE, LoadReason, Loads, PartitionLoad, generation_of
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.shared import SharedInto
from engine.model.target import BatchCommit, LogStart, TableRecord, TargetProgress
from engine.targets.structure_text import from_text, to_text

OWN_SCHEMA = "penstock"
"""Schema of the target that holds the progress record."""
HIDDEN_PREFIX = "__penstock_copy_"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a subscription is, and of which source."""

    epoch: Epoch
    batch: BatchId
    end: Lsn
    system_id: str
    timeline: int
    reader: str
    sent_tables: str
    """As the source names them; empty where that was not recorded."""
    last: LastCommit | None
    """The last transaction of the log up to `end`; None where that was not recorded."""

    @classmethod
    def beginning(cls, epoch: Epoch, log: LogStart) -> Position:
        """Where a subscription begins in this log."""
        last = LastCommit.unknown(log.position)
        return cls(epoch, BatchId(0), log.position, log.system_id, log.timeline, log.reader, log.sent_tables, last)

    def moved(self, batch: BatchCommit) -> Position:
        """Where the subscription is behind this batch."""
        return replace(self, batch=batch.batch, end=batch.end, last=batch.last)

    @classmethod
    def recorded(cls, row: Sequence[Any]) -> Position:
        """Of the fields, in their order, as a target's record holds them."""
        epoch, batch, end, system_id, timeline, reader, sent_tables, last = row
        last_commit = LastCommit.parse(last)
        return cls(Epoch(epoch), BatchId(batch), Lsn.parse(end), system_id, timeline, reader, sent_tables, last_commit)

    def values(self) -> list[object]:
        """What `recorded` reads."""
        last = "" if self.last is None else str(self.last)
        fields = [self.system_id, self.timeline, self.reader, self.sent_tables]
        return [self.epoch, self.batch, str(self.end), *fields, last]


class OwnerTable(StrEnum):
    """Of a table that its owner made, and that takes our rows."""

    EMPTY = "empty"
    """None of our rows were ever in it; whatever it holds is not ours."""
    FILLED = "filled"


@dataclass(frozen=True, slots=True)
class TableReservation:
    """A name on the target, with a structure once a copy has begun.

    `removed`: no longer replicated; the table was left behind for its readers, and may be taken up again.
    """

    table: TableId
    target: TableName
    schema: TableSchema | None
    ready: bool
    applied: Lsn
    parked: str | None
    removed: bool
    mark: str | None
    existing: OwnerTable | None = None
    """None: the table is our own."""


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """A hidden table that is being loaded."""

    table: TableId
    place: TableName
    schema: TableSchema
    standing: StandingCopy | None = None
    """How far it is, where it can go on after a crash."""
    load: str | None = None
    """The load of partitions that it is for; None: it is to take the table's place."""


@dataclass(frozen=True, slots=True)
class Member:
    """A table whose rows a shared table shows, also one that is not replicated any more and was left behind."""

    subscription: SubscriptionName
    table: TableId
    place: TableName
    into: SharedInto
    schema: TableSchema | None
    """As it is shown; None: it is not yet, since no copy of it was complete."""


def member_row(member: Member) -> list[str | None]:
    """A member as it is recorded, one value for each column of the record's table."""
    place, into = member.place, member.into
    structure = to_text(member.schema) if member.schema is not None else None
    shown = [into.relation.schema, into.relation.name, into.source_column, into.source_value]
    return [member.subscription, member.table, place.schema, place.name, *shown, structure]


def member_from(row: Sequence[str | None]) -> Member:
    """What `member_row` gave."""
    *texts, structure = row
    subscription, table, schema, name, shared_schema, shared_name, column, value = map(str, texts)
    into = SharedInto(TableName(shared_schema, shared_name), column, value)
    known = from_text(structure) if structure is not None else None
    return Member(SubscriptionName(subscription), TableId(table), TableName(schema, name), into, known)


def standing_text(copy: CopyRecord) -> str | None:
    """How far a copy is, or what for, as it is recorded beside the copy's structure."""
    standing = copy.standing
    if copy.load is not None:
        return json.dumps({"load": copy.load})
    if standing is None:
        return None
    fields = {
        "upto": standing.upto.values,
        "rows": standing.rows,
        "bytes": standing.bytes,
        "stretches": standing.chunks,
    }
    return json.dumps(fields)


def copy_from(text: str | None, table: TableId, place: TableName, schema: TableSchema) -> CopyRecord:
    """A copy's record with what `standing_text` wrote."""
    if text is None:
        return CopyRecord(table, place, schema)
    fields = json.loads(text)
    if "load" in fields:
        return CopyRecord(table, place, schema, load=fields["load"])
    upto = KeyBound(tuple(fields["upto"]))
    standing = StandingCopy(table, schema, upto, fields["rows"], fields["bytes"], fields["stretches"])
    return CopyRecord(table, place, schema, standing)


def behind(pairs: Sequence[tuple[str, str]]) -> str:
    """SQL: whether a row lies behind another in the order of the key; `pairs` are their columns, the first one first."""
    (left, right), rest = pairs[0], pairs[1:]
    if not rest:
        return f"{left} > {right}"
    return f"({left} > {right} OR ({left} = {right} AND {behind(rest)}))"


def hidden_name(table: TableId, target: TableName) -> TableName:
    """Where a copy of the table is loaded until it takes the table's place."""
    return TableName(target.schema, HIDDEN_PREFIX + table)


def progress_of(
    position: Position,
    reservations: Sequence[TableReservation],
    copies: Sequence[CopyRecord],
    set_aside: Mapping[TableId, int],
    loads: Mapping[TableId, Loads],
) -> TargetProgress:
    """The record in the form the engine knows; tables that are removed are left out."""
    tables = {
        r.table: TableRecord(
            r.table, r.target, r.schema, r.ready, r.applied, r.parked, r.mark, set_aside.get(r.table, 0)
        )
        for r in reservations
        if r.schema is not None and not r.removed
    }
    standing = {copy.table: copy.standing for copy in copies if copy.standing is not None}
    return TargetProgress(
        position.epoch,
        position.batch,
        position.end,
        position.system_id,
        position.timeline,
        position.reader,
        tables,
        standing,
        loads,
        frozenset(r.table for r in reservations if r.schema is None and not r.removed),
        position.sent_tables,
        position.last,
    )


def loaded_whole(before: Loads, position: Lsn, *, first: bool) -> Loads:
    """What is recorded where all of a table was loaded. `first`: no rows of it were there before."""
    last = max((load.generation for load in before.values()), default=0 if first else 1)
    reason = LoadReason.COPIED if first else LoadReason.ASKED
    return {WHOLE: PartitionLoad(last + 1, reason, position, 0)}


def loaded_partitions(before: Loads, reasons: Mapping[str, LoadReason], position: Lsn, request: str) -> Loads:
    """What is recorded where some partitions of a table were loaded."""
    return {
        name: PartitionLoad(generation_of(before, name) + 1, reason, position, 0, request)
        for name, reason in reasons.items()
    }


def claimed(subscription: SubscriptionName, before: Position | None, wanted: Position) -> Position:
    """The record of a claim: what stands goes on, where nothing does `wanted` begins.

    Raises:
        EngineFault: EPOCH_LOST where a later engine holds the subscription, TARGET_FOREIGN where the record is of another source.
    """
    if before is None:
        return wanted
    if before.epoch > wanted.epoch:
        detail = f"epoch {before.epoch} is recorded on the target, this engine has {wanted.epoch}"
        raise EngineFault(FaultKind.EPOCH_LOST, subscription, detail)
    if before.system_id != wanted.system_id:
        detail = "the target holds progress of another database cluster under this subscription's name"
        raise EngineFault(FaultKind.TARGET_FOREIGN, subscription, detail)
    return replace(wanted, batch=before.batch, end=before.end, last=before.last)


def rebased(subscription: SubscriptionName, before: Position | None, wanted: Position) -> Position:
    """The record of a beginning at another place. Raises EngineFault(EPOCH_LOST) where a later engine holds the subscription."""
    if before is None:
        return wanted
    if before.epoch > wanted.epoch:
        raise EngineFault(FaultKind.EPOCH_LOST, subscription, "another engine has taken this subscription over")
    return replace(wanted, batch=before.batch)


def refuse_batch(position: Position | None, batch: BatchCommit) -> Position:
    """Where the subscription stands; raises where this batch must not be written behind that."""
    if position is None or position.epoch != batch.epoch:
        detail = "another engine has taken this subscription over" if position else "the target was not claimed"
        raise EngineFault(FaultKind.EPOCH_LOST, batch.subscription, detail)
    if batch.end < position.end:
        detail = f"a batch that ends at {batch.end} after one that ended at {position.end}"
        raise EngineFault(FaultKind.INTERNAL, batch.subscription, detail)
    if batch.last is not None and batch.last.end > batch.end:
        detail = f"a batch that ends at {batch.end} names a later transaction, which ends at {batch.last.end}"
        raise EngineFault(FaultKind.INTERNAL, batch.subscription, detail)
    return position


def counts(position: Position | None, batch: BatchCommit) -> bool:
    """Whether the record says that this batch was the last one written."""
    return position is not None and (position.epoch, position.batch, position.end) == (
        batch.epoch,
        batch.batch,
        batch.end,
    )


def same_batch(one: BatchCommit, other: BatchCommit) -> bool:
    """Whether both are the same batch of the same subscription, whatever they hold."""
    marks = [(batch.subscription, batch.epoch, batch.batch, batch.end) for batch in (one, other)]
    return marks[0] == marks[1]


def loads_of(rows: Sequence[tuple[Any, ...]]) -> dict[TableId, Loads]:
    """Rows (table, partition, generation, reason, position, microseconds, request) as the engine knows them."""
    found: dict[TableId, dict[str, PartitionLoad]] = {}
    for table, partition, generation, reason, position, loaded_us, request in rows:
        load = PartitionLoad(generation, LoadReason(reason), Lsn.parse(position), loaded_us, request)
        found.setdefault(TableId(table), {})[partition] = load
    return dict(found)
