"""From one structure of a table to the next: which columns come and go, and what cannot be followed. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.schema import Column, SourceType, TableSchema


@dataclass(frozen=True, slots=True)
class Evolution:
    """Columns to drop and to add, by the source's attribute numbers."""

    dropped: tuple[Column, ...]
    added: tuple[Column, ...]


def evolution(table: TableId, old: TableSchema, new: TableSchema) -> Evolution:
    """What leads from `old` to `new`.

    Raises:
        EngineFault: TABLE_STRUCTURE_CHANGED where more than added and dropped columns differs.
    """
    before = {column.attnum: column for column in old.columns}
    after = {column.attnum: column for column in new.columns}
    for attnum in before.keys() & after.keys():
        _require_same(table, before[attnum], after[attnum])
    if old.key != new.key or old.mode != new.mode:
        raise structure_changed(table, "the key that identifies its rows is another one")
    return Evolution(
        tuple(column for number, column in before.items() if number not in after),
        tuple(column for number, column in after.items() if number not in before),
    )


def require_columns(table: TableId, schema: TableSchema) -> None:
    """Refuse a table without any column, which could hold no key and tell no row from another."""
    if not schema.columns:
        raise structure_changed(table, "it has no columns, and its table on the target needs one")


def structure_changed(table: TableId, detail: str) -> EngineFault:
    """The fault of a structure that cannot be followed."""
    return EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, table, detail)


def _require_same(table: TableId, old: Column, new: Column) -> None:
    if old.name != new.name:
        raise structure_changed(table, f"column {old.name!r} is now named {new.name!r}")
    if _identity(old.type) != _identity(new.type):
        raise structure_changed(table, f"column {old.name!r} has another type")
    if old.map_as != new.map_as:
        raise structure_changed(table, f"column {old.name!r} is mapped in another way")


def _identity(source: SourceType) -> tuple[object, ...]:
    element = _identity(source.element) if source.element is not None else None
    return source.name, source.modifier, source.category, element
