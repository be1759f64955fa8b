"""From one structure of a table to the next: what becomes of its columns, and what cannot be followed. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.schema import Column, TableSchema
from engine.model.widening import same_form, widens


@dataclass(frozen=True, slots=True)
class Evolution:
    """Columns to drop, add, rename and widen, told apart by the source's attribute numbers."""

    dropped: tuple[Column, ...]
    added: tuple[Column, ...]
    renamed: tuple[tuple[Column, Column], ...] = ()
    """As they were, and as they are."""
    widened: tuple[Column, ...] = ()
    """As they are; values of their old type are values of the new one."""

    def set_aside(self, same: Callable[[str], str] = str) -> frozenset[str]:
        """Names of dropped and renamed columns that have to make room first: another one gets the name.

        `same`: what the target makes of a name where it tells two apart; 'A' and 'a' may be one.
        """
        wanted = {same(c.name) for c in self.added} | {same(new.name) for _, new in self.renamed}
        leaving = [c.name for c in self.dropped] + [old.name for old, _ in self.renamed]
        return frozenset(name for name in leaving if same(name) in wanted)


def evolution(table: TableId, old: TableSchema, new: TableSchema) -> Evolution:
    """What leads from `old` to `new`.

    Raises:
        EngineFault: TABLE_STRUCTURE_CHANGED where existing rows would have to change with it.
    """
    require_columns(table, new)
    before = {column.attnum: column for column in old.columns}
    after = {column.attnum: column for column in new.columns}
    both = [(before[number], after[number]) for number in before if number in after]
    for one, other in both:
        _require_followed(table, one, other)
    if old.key_numbers != new.key_numbers or old.mode != new.mode:
        raise structure_changed(table, "the key that identifies its rows is another one")
    return Evolution(
        tuple(column for number, column in before.items() if number not in after),
        tuple(column for number, column in after.items() if number not in before),
        tuple((one, other) for one, other in both if one.name != other.name),
        tuple(other for one, other in both if not same_form(one.type, other.type)),
    )


def require_columns(table: TableId, schema: TableSchema) -> None:
    """Refuse a table without any column, which could hold no key and tell no row from another."""
    if not schema.columns:
        raise structure_changed(table, "it has no columns, and its table on the target needs one")


def structure_changed(table: TableId, detail: str) -> EngineFault:
    """The fault of a structure that cannot be followed."""
    return EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, table, detail)


def _require_followed(table: TableId, old: Column, new: Column) -> None:
    if not widens(old.type, new.type):
        raise structure_changed(table, f"column {new.name!r} has another type")
    if old.map_as != new.map_as:
        raise structure_changed(table, f"column {new.name!r} is mapped in another way")
