"""Soft delete on targets: deleted rows stay in their table, with the time of their deletion in DELETED_AT. Portable SQL; pure.

A table has at most one row with a key. A deleted row is replaced when a row gets its key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.model.batch import TableChanges
from engine.model.change_data import CHANGE_COLUMNS
from engine.model.fault import EngineFault, FaultKind
from engine.model.history import HISTORY_COLUMNS
from engine.model.identity import TableId
from engine.model.schema import Column, TableSchema
from engine.model.soft_delete import DELETED_AT
from engine.model.widening import holds
from engine.targets.arrow_rows import joined, rows_of
from engine.targets.identifiers import quoted

MARK = quoted(DELETED_AT)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REMEDY = "To drop them, set deletes to 'delete' and reload it; then set it to 'mark' and reload it again"


def live(schema: TableSchema, alias: str) -> str:
    """SQL to append to a condition: the row exists on the source. Empty without soft delete."""
    return f" AND {alias}.{MARK} IS NULL" if schema.soft_delete else ""


def mark_column(schema: TableSchema) -> list[str]:
    """The quoted name of the column of deletion times, if the table has one."""
    return [MARK] if schema.soft_delete else []


def moment(time_us: int) -> str:
    """SQL literal of a time in microseconds since 1970 UTC."""
    return f"TIMESTAMPTZ '{(_EPOCH + timedelta(microseconds=time_us)).isoformat(' ')}'"


def truncated_at(changes: Sequence[TableChanges]) -> str | None:
    """SQL literal of the time of a slice's first TRUNCATE; None if it has none."""
    times = [change.truncated_us or change.commit_us for change in changes if change.truncated]
    return moment(min(times)) if times else None


def tombstones_of(changes: Sequence[TableChanges]) -> Any | None:
    """The deleted rows of a slice with their times, of all buckets; None if there are none."""
    found = []
    for change in changes:
        if change.tombstones is not None:
            rows = rows_of(change.tombstones)
            commit = pa.scalar(change.commit_us, pa.int64()).cast(pa.timestamp("us", "UTC"))
            at = rows.schema.get_field_index("at")
            found.append(rows.set_column(at, "at", pc.fill_null(rows.column("at"), commit)))
    return joined(found)


def replaces(schema: TableSchema) -> bool:
    """Whether the table may have a deleted row with the key of one that is inserted."""
    return schema.soft_delete or schema.keeps_rows


def make_room_statement(place: str, schema: TableSchema, keys: Sequence[tuple[str, str]], inserted: str) -> str:
    """SQL that removes the rows which inserted ones replace. `keys`: names of the key's columns, and expressions of the rows `s`;
    `inserted`: these rows, as `s`, to append to USING."""
    same = [f"t.{name} = {value}" for name, value in keys]
    marked = [f"t.{MARK} IS NOT NULL"] if schema.soft_delete else []
    return f"DELETE FROM {place} AS t USING {inserted} WHERE {' AND '.join([*same, *marked])}"


def superseded(place: str, keys: Sequence[str]) -> str:
    """SQL that removes from prepared deleted rows (columns of the key, and `n`) those of which a later one has an equal key."""
    same = " AND ".join(f"a.{key} = b.{key}" for key in keys)
    return f"DELETE FROM {place} AS a USING {place} AS b WHERE {same} AND a.n < b.n"


def void(prepared: str, place: str, keys: Sequence[tuple[str, str]]) -> str:
    """SQL that removes from prepared deleted rows those that are doubtful and whose key a row on the source has. `keys`: names there, and
    in the table."""
    same = " AND ".join(f"a.{one} = t.{other}" for one, other in keys)
    return f"DELETE FROM {prepared} AS a USING {place} AS t WHERE a.doubtful AND {same} AND t.{MARK} IS NULL"


def any_doubtful(tombstones: Any) -> bool:
    """Whether `void` is needed."""
    return bool(pc.any(tombstones.column("doubtful")).as_py())


def refuse_own_names(table: TableId, schema: TableSchema, fold: Callable[[str], str]) -> None:
    """Raise EngineFault(TABLE_COLUMNS_UNFIT) if a column has the name of a column of ours. `fold`: the form of a name in which the target
    compares it."""
    own = [*([DELETED_AT] if schema.soft_delete else []), *(HISTORY_COLUMNS if schema.history else [])]
    own += CHANGE_COLUMNS if schema.staging else ()
    twin = next((c.name for c in schema.columns if fold(c.name) in own), None)
    if twin is not None:
        detail = f"column {twin!r} has the name of a column that notes deletions, versions or changes; give it another one with 'rename'"
        raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, table, detail)


def keep_statement(
    table: TableId, copy: tuple[str, TableSchema], target: tuple[str, TableSchema], since_us: int, only: str = ""
) -> str:
    """SQL that adds to a copy the rows of the table that it replaces, `t`, whose key it does not have; those that are not marked are marked
    with `since_us`. Places are full quoted names. `only`: further tables and a condition on `t`, to append to FROM.

    Raises EngineFault(TABLE_COLUMNS_UNFIT) if deleted rows do not fit the copy.
    """
    place, schema = copy
    old_place, old = target
    pairs = carried(table, old, schema, "rows that are marked as deleted", _REMEDY)
    names = ", ".join([*(quoted(new.name) for new, _ in pairs), MARK])
    since = moment(since_us)
    mark = f"coalesce(t.{MARK}, {since})" if old.soft_delete else since
    read = ", ".join([*(f"t.{quoted(before.name)}" for _, before in pairs), mark])
    key = {new.name: before.name for new, before in pairs}
    same = " AND ".join(f"c.{quoted(name)} = t.{quoted(key[name])}" for name in schema.key)
    return (
        f"INSERT INTO {place} ({names}) SELECT {read} FROM {old_place} AS t{only or ' WHERE true'}"
        f" AND NOT EXISTS (SELECT 1 FROM {place} AS c WHERE {same})"
    )


def carried(table: TableId, old: TableSchema, new: TableSchema, what: str, remedy: str) -> list[tuple[Column, Column]]:
    """Columns of a new copy with those of the old table that have their values. A table that was created again is matched by names.

    Raises EngineFault(TABLE_COLUMNS_UNFIT) if old rows do not fit the copy: `what` they are, and the `remedy`.
    """
    if old.relation == new.relation:
        by_number = {column.attnum: column for column in old.columns}
        pairs = [(c, by_number[c.attnum]) for c in new.columns if c.attnum in by_number]
    else:
        by_name = {column.name: column for column in old.columns}
        pairs = [(c, by_name[c.name]) for c in new.columns if c.name in by_name]
    changed = [new.name for new, old in pairs if not _keeps_values(old, new)]
    was_key = {before.name for after, before in pairs if after.name in new.key}
    if len(was_key) < len(new.key) or was_key != set(old.key):
        changed = ["its key"]
    if changed:
        detail = f"{what} do not fit its new structure ({', '.join(changed)} changed). {remedy}"
        raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, table, detail)
    return pairs


def _keeps_values(old: Column, new: Column) -> bool:
    masked = (old.mask, old.mask_mark) == (new.mask, new.mask_mark)
    return masked and holds(old.type, new.type) and old.map_as == new.map_as
