"""From one structure of a table to the next: which columns come and go, and what cannot be followed. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.apply.duckdb.fill import OutsideDomain, fill_expression
from engine.apply.duckdb.identifiers import folded, literal, quoted, same_to_duckdb
from engine.apply.duckdb.types import duckdb_type
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.schema import Column, SourceType, TableSchema
from engine.model.values import Kind, value_type


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
        raise _changed(table, "the key that identifies its rows is another one")
    check_columns(table, new)
    return Evolution(
        tuple(column for number, column in before.items() if number not in after),
        tuple(column for number, column in after.items() if number not in before),
    )


def check_columns(table: TableId, schema: TableSchema) -> None:
    """Refuse structures that DuckDB cannot hold: no column at all, or columns whose names it takes for the same."""
    if not schema.columns:
        raise _changed(table, "it has no columns, and a DuckDB table needs one")
    twins = same_to_duckdb(column.name for column in schema.columns)
    if twins is not None:
        detail = (
            f"columns {twins[0]!r} and {twins[1]!r} differ only in case, which DuckDB ignores; rename one on the source"
        )
        raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)


def create_statements(place: str, schema: TableSchema) -> list[str]:
    """DDL for an empty table. No keys, constraints or indexes; NOT NULL is the source's business."""
    columns = ", ".join(f"{quoted(c.name)} {duckdb_type(value_type(c))}" for c in schema.columns)
    return [f"CREATE TABLE {place} ({columns})", *(_remark(place, c) for c in schema.columns if _needs_remark(c))]


def evolve_statements(table: TableId, place: str, change: Evolution) -> list[str]:
    """DDL for the change. Columns come before others go, since a table cannot be without any."""
    taken = {folded(column.name) for column in change.added}
    statements: list[str] = []
    leaving: list[str] = []
    for column in change.dropped:
        name = column.name
        if folded(name) in taken:
            name = f"__penstock_dropped_{column.attnum}"
            statements.append(f"ALTER TABLE {place} RENAME COLUMN {quoted(column.name)} TO {quoted(name)}")
        leaving.append(f"ALTER TABLE {place} DROP COLUMN {quoted(name)}")
    for column in change.added:
        statements += _add(table, place, column)
    return statements + leaving


def _add(table: TableId, place: str, column: Column) -> list[str]:
    name, value = quoted(column.name), value_type(column)
    declared = f"ALTER TABLE {place} ADD COLUMN {name} {duckdb_type(value)}"
    remark = [_remark(place, column)] if _needs_remark(column) else []
    if column.fill is None:
        return [declared, *remark]
    try:
        constant = fill_expression(column.fill, value, column.type.element.delimiter if column.type.element else ",")
    except OutsideDomain as error:
        detail = f"column {column.name!r}: the value of its existing rows is {error}"
        raise EngineFault(FaultKind.VALUE_OUT_OF_DOMAIN, table, detail) from error
    return [f"{declared} DEFAULT {constant}", f"ALTER TABLE {place} ALTER COLUMN {name} DROP DEFAULT", *remark]


def _needs_remark(column: Column) -> bool:
    """Text columns whose type on the source is another one."""
    return value_type(column).kind is Kind.TEXT and column.type.name != "text"


def _remark(place: str, column: Column) -> str:
    words = f"PostgreSQL {_type_words(column.type)}, in its text form"
    return f"COMMENT ON COLUMN {place}.{quoted(column.name)} IS {literal(words)}"


def _type_words(source: SourceType) -> str:
    return f"{_type_words(source.element)}[]" if source.element is not None else source.name


def _require_same(table: TableId, old: Column, new: Column) -> None:
    if old.name != new.name:
        raise _changed(table, f"column {old.name!r} is now named {new.name!r}")
    if _identity(old.type) != _identity(new.type):
        raise _changed(table, f"column {old.name!r} has another type")
    if old.map_as != new.map_as:
        raise _changed(table, f"column {old.name!r} is mapped in another way")


def _identity(source: SourceType) -> tuple[object, ...]:
    element = _identity(source.element) if source.element is not None else None
    return source.name, source.modifier, source.category, element


def _changed(table: TableId, detail: str) -> EngineFault:
    return EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, table, detail)
