"""Determines who owns the table with a name on the target, and reserves names."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.position import ZERO
from engine.postgres.sessions import PostgresConnection
from engine.targets.postgres.metadata import PostgresMetadata
from engine.targets.postgres.owner_tables.inspect import refuse_unadoptable
from engine.targets.postgres.preflight import INTO_REMEDY, is_reserved, is_taken
from engine.targets.target_metadata import OwnerTable, TableReservation


def adopt(
    connection: PostgresConnection,
    subscription: SubscriptionName,
    table: TableId,
    target: TableName,
    *,
    into_existing: bool,
) -> None:
    """Like Target.adopt, in the caller's transaction. A table that this subscription left on the target after its removal may be taken
    over again."""
    refuse_reserved(table, target)
    records = PostgresMetadata(connection)
    records.create()
    same = [r for r in records.reservations(None) if r.target == target]
    mine = {r.table: r for r in records.reservations(subscription) if r.target == target}
    held = mine.get(table)
    present = held is not None and not held.removed
    others = [other for other in same if other.table not in mine or not other.removed]
    if not present and others and all(other.removed for other in others) and not is_taken(connection, target):
        # The table left by another subscription was dropped, so its name is free.
        records.delete_left(target)
        mine, others = {}, []
    left = into_existing and all(other.removed and other.existing is not None for other in others)
    if not present and others and not left:
        raise _collision(table, _whose(target, others))
    state = _existing(list(mine.values())) if into_existing else None
    if state is not None:
        refuse_unadoptable(connection, table, target, state)
    elif not present or (held is not None and held.existing is not None):
        _refuse_replacing(connection, table, target, list(mine.values()))
    if held is None or held.removed:
        records.drop_left(target)
        records.reserve(subscription, table, target, list(mine), state)
    elif held.existing is not state:
        records.write_existing(held, state)


def refuse_reserved(table: TableId, target: TableName) -> None:
    """Raises EngineFault(TABLE_NAME_COLLISION) if the schema is reserved."""
    if is_reserved(target):
        raise _collision(table, f"the schema {target.schema!r} of the target is reserved; map it to another name")


def _whose(target: TableName, others: Sequence[TableReservation]) -> str:
    if all(other.removed for other in others):
        return f"{target} was left by another subscription: drop it on the target, or map this table to another name"
    return f"{target} is already the target of another table; map one to another name"


def _existing(mine: Sequence[TableReservation]) -> OwnerTable:
    """Whether the table's rows are this subscription's own, including those of its own table that becomes the user's."""
    ours = any(
        r.existing is OwnerTable.FILLED or (r.existing is None and r.schema is not None and r.applied > ZERO)
        for r in mine
    )
    return OwnerTable.FILLED if ours else OwnerTable.EMPTY


def _refuse_replacing(
    connection: PostgresConnection, table: TableId, target: TableName, mine: Sequence[TableReservation]
) -> None:
    """A copy would replace the existing table, which must therefore be ours."""
    if not is_taken(connection, target):
        return
    if any(r.existing is not None for r in mine):
        detail = (
            f"{target} is the user's own table, which would be replaced: set"
            ' "into_existing": true again, or drop the table on the target'
        )
        raise _collision(table, detail)
    if not mine:
        detail = f"a table or view {target} that Penstock did not create exists on the target; map it to another name, {INTO_REMEDY}"
        raise _collision(table, detail)


def _collision(table: TableId, detail: str) -> EngineFault:
    return EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
