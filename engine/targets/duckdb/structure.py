"""DDL of a table in DuckDB: creation, and changes of columns. Pure."""

from __future__ import annotations

from engine.duckdb.value_text import literal
from engine.model.change_data import change_columns
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.schema import Column, SourceType, TableSchema
from engine.model.values import Kind, value_type
from engine.targets.duckdb.fill import OutsideDomain, fill_expression
from engine.targets.duckdb.identifiers import folded, same_to_duckdb
from engine.targets.duckdb.types import duckdb_type
from engine.targets.evolution import Evolution, Structure, require_columns
from engine.targets.history import own_columns
from engine.targets.identifiers import quoted
from engine.targets.soft_delete import mark_column, refuse_own_names


def check_columns(table: TableId, schema: TableSchema) -> None:
    """Reject schemas that DuckDB cannot represent: no column at all, or column names that it does not distinguish."""
    require_columns(table, schema)
    twins = same_to_duckdb(column.name for column in schema.columns)
    if twins is not None:
        detail = (
            f"columns {twins[0]!r} and {twins[1]!r} differ only in case, which DuckDB ignores; rename one on the source"
        )
        raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
    refuse_own_names(table, schema, folded)


def create_statements(place: str, schema: TableSchema, keyed: bool = False) -> list[str]:
    """DDL for an empty table. No keys, constraints or indexes; the source enforces NOT NULL."""
    del keyed
    return _create(place, schema, [f"{name} TIMESTAMPTZ" for name in mark_column(schema)])


def create_history_statements(place: str, schema: TableSchema) -> list[str]:
    """DDL for an empty history table."""
    return _create(place, schema, own_columns("TIMESTAMPTZ", "VARCHAR"))


def create_changes_statements(place: str, schema: TableSchema) -> list[str]:
    """DDL for an empty CD table."""
    return _create(place, schema, change_columns("BIGINT", "VARCHAR"))


def _create(place: str, schema: TableSchema, more: list[str]) -> list[str]:
    columns = ", ".join([*(f"{quoted(c.name)} {duckdb_type(value_type(c))}" for c in schema.columns), *more])
    return [f"CREATE TABLE {place} ({columns})", *(_remark(place, c) for c in schema.columns if _needs_remark(c))]


def evolve_statements(table: TableId, place: str, change: Evolution) -> list[str]:
    """DDL for the change. Columns are added before others are dropped, since a table needs at least one."""
    aside = change.set_aside(folded)
    names = {c.name: f"__penstock_aside_{c.attnum}" for c in _leaving(change) if c.name in aside}
    statements = [_rename(place, name, elsewhere) for name, elsewhere in names.items()]
    for old, new in change.renamed:
        statements.append(_rename(place, names.get(old.name, old.name), new.name))
    for column in change.widened:
        statements += _widen(place, column)
    for column in change.added:
        statements += _add(table, place, column)
    gone = [names.get(column.name, column.name) for column in change.dropped]
    return statements + [f"ALTER TABLE {place} DROP COLUMN {quoted(name)}" for name in gone]


def _leaving(change: Evolution) -> list[Column]:
    return [*change.dropped, *(old for old, _ in change.renamed)]


def _rename(place: str, old: str, new: str) -> str:
    return f"ALTER TABLE {place} RENAME COLUMN {quoted(old)} TO {quoted(new)}"


def _widen(place: str, column: Column) -> list[str]:
    retyped = f"ALTER TABLE {place} ALTER COLUMN {quoted(column.name)} TYPE {duckdb_type(value_type(column))}"
    no_remark = f"COMMENT ON COLUMN {place}.{quoted(column.name)} IS NULL"
    return [retyped, _remark(place, column) if _needs_remark(column) else no_remark]


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


DUCKDB_STRUCTURE = Structure(
    create_statements, create_history_statements, create_changes_statements, evolve_statements, check_columns
)
