"""Determines the column changes between two schemas of a table, and which changes cannot be followed. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.schema import Column, TableSchema
from engine.model.widening import same_form, widens


@dataclass(frozen=True, slots=True)
class Evolution:
    """Columns to drop, add, rename and widen, identified by the source's attribute numbers."""

    dropped: tuple[Column, ...]
    added: tuple[Column, ...]
    renamed: tuple[tuple[Column, Column], ...] = ()
    """Old and new column."""
    widened: tuple[Column, ...] = ()
    """New columns; every value of the old type is a value of the new one."""

    def set_aside(self, same: Callable[[str], str] = str) -> frozenset[str]:
        """Names of dropped and renamed columns that must be moved first because another column gets the name.

        `same`: maps names to a form that is equal if the target does not distinguish them, such as 'A' and 'a'.
        """
        wanted = {same(c.name) for c in self.added} | {same(new.name) for _, new in self.renamed}
        leaving = [c.name for c in self.dropped] + [old.name for old, _ in self.renamed]
        return frozenset(name for name in leaving if same(name) in wanted)


def evolution(table: TableId, old: TableSchema, new: TableSchema) -> Evolution:
    """The changes from `old` to `new`.

    Raises:
        EngineFault: TABLE_STRUCTURE_CHANGED if existing rows would have to change.
    """
    require_columns(table, new)
    before = {column.attnum: column for column in old.columns}
    after = {column.attnum: column for column in new.columns}
    both = [(before[number], after[number]) for number in before if number in after]
    for one, other in both:
        _require_followed(table, one, other)
    if old.key_numbers != new.key_numbers or old.mode != new.mode:
        raise structure_changed(table, "the key that identifies its rows changed")
    if old.soft_delete != new.soft_delete:
        raise structure_changed(table, "its option 'deletes' changed")
    if old.history != new.history:
        raise structure_changed(table, "its option 'history' changed")
    if old.staging != new.staging:
        raise structure_changed(table, "the option 'staging' changed")
    if old.skipped != new.skipped:
        raise structure_changed(table, "its option 'operations' changed")
    if old.scattered != new.scattered:
        raise structure_changed(table, "the nodes that have it changed")
    return Evolution(
        tuple(column for number, column in before.items() if number not in after),
        tuple(column for number, column in after.items() if number not in before),
        tuple((one, other) for one, other in both if one.name != other.name),
        tuple(other for one, other in both if not same_form(one.type, other.type)),
    )


def require_columns(table: TableId, schema: TableSchema) -> None:
    """Reject a table without columns, which can have no key and no distinguishable rows."""
    if not schema.columns:
        raise structure_changed(table, "it has no columns, but its table on the target needs one")


def structure_changed(table: TableId, detail: str) -> EngineFault:
    """The fault of a schema change that cannot be followed."""
    return EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, table, detail)


@dataclass(frozen=True, slots=True)
class Structure:
    """The DDL of tables in one kind of target: pure functions. A place is a table's full quoted name."""

    create: Callable[[str, TableSchema, bool], list[str]]
    """Makes an empty table at a place. True: with its key."""
    create_history: Callable[[str, TableSchema], list[str]]
    """Makes an empty history table at a place."""
    create_changes: Callable[[str, TableSchema], list[str]]
    """Makes an empty CD table at a place."""
    evolve: Callable[[TableId, str, Evolution], list[str]]
    """Changes a table at a place."""
    check: Callable[[TableId, TableSchema], None] = require_columns
    """Raises EngineFault(TABLE_STRUCTURE_CHANGED, TABLE_NAME_COLLISION, TABLE_COLUMNS_UNFIT) for a table that this kind of target cannot
    have."""


def _require_followed(table: TableId, old: Column, new: Column) -> None:
    if not widens(old.type, new.type):
        raise structure_changed(table, f"column {new.name!r} has another type")
    if old.map_as != new.map_as:
        raise structure_changed(table, f"column {new.name!r} has another mapping")
