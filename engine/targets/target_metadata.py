"""The metadata of subscriptions on a target, and the rules for claims and batches. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from engine.model.change_data import kept_with
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
"""Schema of the target that contains the progress record."""
HIDDEN_PREFIX = "__penstock_copy_"


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a subscription, with the identity of its source."""

    epoch: Epoch
    batch: BatchId
    end: Lsn
    system_id: str
    timeline: int
    reader: str
    sent_tables: str
    """As the source names them; empty where that was not recorded."""
    last: LastCommit | None
    """The last transaction of the log up to `end`; None if not recorded."""

    @classmethod
    def beginning(cls, epoch: Epoch, log: LogStart) -> Position:
        """Where a subscription begins in this log."""
        last = LastCommit.unknown(log.position)
        return cls(epoch, BatchId(0), log.position, log.system_id, log.timeline, log.reader, log.sent_tables, last)

    def moved(self, batch: BatchCommit) -> Position:
        """The position after this batch."""
        return replace(self, batch=batch.batch, end=batch.end, last=batch.last)

    @classmethod
    def recorded(cls, row: Sequence[Any]) -> Position:
        """Of the fields, in their order, as a target's record holds them."""
        epoch, batch, end, system_id, timeline, reader, sent_tables, last = row
        last_commit = LastCommit.parse(last)
        return cls(Epoch(epoch), BatchId(batch), Lsn.parse(end), system_id, timeline, reader, sent_tables, last_commit)

    def values(self) -> list[object]:
        """The values that `recorded` reads."""
        last = "" if self.last is None else str(self.last)
        fields = [self.system_id, self.timeline, self.reader, self.sent_tables]
        return [self.epoch, self.batch, str(self.end), *fields, last]


class OwnerTable(StrEnum):
    """The state of a user's table that receives our rows."""

    EMPTY = "empty"
    """It never had rows of ours; its rows are the user's."""
    FILLED = "filled"


@dataclass(frozen=True, slots=True)
class TableReservation:
    """A reserved name on the target, with a schema once a copy has begun.

    `removed`: no longer replicated; the table was left for its readers, and may be taken over again.
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
    """None: the table is ours."""


def places_of(reservations: Sequence[TableReservation]) -> set[TableName]:
    """The names that these tables use on the target, those of their history and CD tables included."""
    known = [(r.target, r.schema) for r in reservations if r.schema is not None]
    kept = {
        place for target, schema in known for place in kept_with(target, history=schema.history, staging=schema.staging)
    }
    return {r.target for r in reservations} | kept


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """A hidden table that is being loaded."""

    table: TableId
    place: TableName
    schema: TableSchema
    standing: StandingCopy | None = None
    """Its progress, if it can be resumed after a crash."""
    load: str | None = None
    """The partition load that it is for; None: it will replace the table."""


@dataclass(frozen=True, slots=True)
class Member:
    """A table whose rows a shared table shows, possibly one that is no longer replicated."""

    subscription: SubscriptionName
    table: TableId
    place: TableName
    into: SharedInto
    schema: TableSchema | None
    """The schema that is shown; None: none yet, because no copy was completed."""


def member_row(member: Member) -> list[str | None]:
    """A member in its stored form, one value for each column."""
    place, into = member.place, member.into
    structure = to_text(member.schema) if member.schema is not None else None
    shown = [into.relation.schema, into.relation.name, into.source_column, into.source_value]
    return [member.subscription, member.table, place.schema, place.name, *shown, structure]


def member_from(row: Sequence[str | None]) -> Member:
    """A member from its stored form."""
    *texts, structure = row
    subscription, table, schema, name, shared_schema, shared_name, column, value = map(str, texts)
    into = SharedInto(TableName(shared_schema, shared_name), column, value)
    known = from_text(structure) if structure is not None else None
    return Member(SubscriptionName(subscription), TableId(table), TableName(schema, name), into, known)


def standing_text(copy: CopyRecord) -> str | None:
    """Progress or purpose of a copy, as stored with the copy's schema."""
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
    """A copy's record, from what `standing_text` wrote."""
    if text is None:
        return CopyRecord(table, place, schema)
    fields = json.loads(text)
    if "load" in fields:
        return CopyRecord(table, place, schema, load=fields["load"])
    upto = KeyBound(tuple(fields["upto"]))
    standing = StandingCopy(table, schema, upto, fields["rows"], fields["bytes"], fields["stretches"])
    return CopyRecord(table, place, schema, standing)


def behind(pairs: Sequence[tuple[str, str]]) -> str:
    """SQL: whether a row is after another in key order; `pairs` are their columns, in key order."""
    (left, right), rest = pairs[0], pairs[1:]
    if not rest:
        return f"{left} > {right}"
    return f"({left} > {right} OR ({left} = {right} AND {behind(rest)}))"


def hidden_name(table: TableId, target: TableName) -> TableName:
    """The name of the table's copy until it replaces the table."""
    return TableName(target.schema, HIDDEN_PREFIX + table)


def progress_of(
    position: Position,
    reservations: Sequence[TableReservation],
    copies: Sequence[CopyRecord],
    set_aside: Mapping[TableId, int],
    loads: Mapping[TableId, Loads],
) -> TargetProgress:
    """The record in the engine's form, without removed tables."""
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
    """The loads to record after a load of the whole table. `first`: it had no rows before."""
    last = max((load.generation for load in before.values()), default=0 if first else 1)
    reason = LoadReason.COPIED if first else LoadReason.ASKED
    return {WHOLE: PartitionLoad(last + 1, reason, position, 0)}


def loaded_partitions(before: Loads, reasons: Mapping[str, LoadReason], position: Lsn, request: str) -> Loads:
    """The loads to record after a load of some partitions."""
    return {
        name: PartitionLoad(generation_of(before, name) + 1, reason, position, 0, request)
        for name, reason in reasons.items()
    }


def claimed(subscription: SubscriptionName, before: Position | None, wanted: Position) -> Position:
    """The record after a claim: an existing position continues, otherwise `wanted` begins.

    Raises:
        EngineFault: EPOCH_LOST if a later engine has the subscription, TARGET_FOREIGN if the record belongs to another source.
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
    """The record of a restart at another position. Raises EngineFault(EPOCH_LOST) if a later engine has the subscription."""
    if before is None:
        return wanted
    if before.epoch > wanted.epoch:
        raise EngineFault(FaultKind.EPOCH_LOST, subscription, "another engine has taken over this subscription")
    return replace(wanted, batch=before.batch)


def refuse_batch(position: Position | None, batch: BatchCommit) -> Position:
    """The recorded position; raises if this batch must not be applied after it."""
    if position is None or position.epoch != batch.epoch:
        detail = "another engine has taken over this subscription" if position else "the target was not claimed"
        raise EngineFault(FaultKind.EPOCH_LOST, batch.subscription, detail)
    if batch.end < position.end:
        detail = f"a batch that ends at {batch.end} after one that ended at {position.end}"
        raise EngineFault(FaultKind.INTERNAL, batch.subscription, detail)
    if batch.last is not None and batch.last.end > batch.end:
        detail = f"a batch that ends at {batch.end} names a later transaction, which ends at {batch.last.end}"
        raise EngineFault(FaultKind.INTERNAL, batch.subscription, detail)
    return position


def counts(position: Position | None, batch: BatchCommit) -> bool:
    """Whether the record says that this batch was the last one."""
    return position is not None and (position.epoch, position.batch, position.end) == (
        batch.epoch,
        batch.batch,
        batch.end,
    )


def same_batch(one: BatchCommit, other: BatchCommit) -> bool:
    """Whether both are the same batch of the same subscription, whatever their contents."""
    marks = [(batch.subscription, batch.epoch, batch.batch, batch.end) for batch in (one, other)]
    return marks[0] == marks[1]


def loads_of(rows: Sequence[tuple[Any, ...]]) -> dict[TableId, Loads]:
    """Rows (table, partition, generation, reason, position, microseconds, request) in the engine's form."""
    found: dict[TableId, dict[str, PartitionLoad]] = {}
    for table, partition, generation, reason, position, loaded_us, request in rows:
        load = PartitionLoad(generation, LoadReason(reason), Lsn.parse(position), loaded_us, request)
        found.setdefault(TableId(table), {})[partition] = load
    return dict(found)
