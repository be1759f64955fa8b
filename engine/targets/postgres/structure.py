"""DDL of a table in PostgreSQL: creation, and changes of columns. Pure."""

from __future__ import annotations

from engine.model.change_data import change_columns
from engine.model.identity import TableId
from engine.model.schema import Column, TableSchema
from engine.targets.evolution import Evolution, Structure, require_columns
from engine.targets.history import CURRENT, own_columns
from engine.targets.identifiers import quoted
from engine.targets.postgres.identifiers import literal
from engine.targets.postgres.types import MARK_TYPE, postgres_type
from engine.targets.soft_delete import mark_column, refuse_own_names


def create_statements(place: str, schema: TableSchema, keyed: bool) -> list[str]:
    """DDL for an empty table. Unless `keyed`, its key is added when it is complete; the source enforces NOT NULL."""
    listed = [f"{quoted(c.name)} {postgres_type(c)}" for c in schema.columns]
    columns = ", ".join([*listed, *(f"{name} {MARK_TYPE}" for name in mark_column(schema))])
    key = key_statement(place, schema) if keyed else None
    return [f"CREATE TABLE {place} ({columns})", *([key] if key is not None else [])]


def create_history_statements(place: str, schema: TableSchema) -> list[str]:
    """DDL for an empty history table. Its index finds the current version of a row, and keeps a second one out."""
    listed = [f"{quoted(c.name)} {postgres_type(c)}" for c in schema.columns]
    columns = ", ".join([*listed, *own_columns(MARK_TYPE, "pg_catalog.text")])
    keys = ", ".join(map(quoted, schema.key))
    return [f"CREATE TABLE {place} ({columns})", f"CREATE UNIQUE INDEX ON {place} ({keys}) WHERE {CURRENT}"]


def create_changes_statements(place: str, schema: TableSchema) -> list[str]:
    """DDL for an empty CD table. It has no index: rows are appended."""
    listed = [f"{quoted(c.name)} {postgres_type(c)}" for c in schema.columns]
    columns = ", ".join([*listed, *change_columns("pg_catalog.int8", "pg_catalog.text")])
    return [f"CREATE TABLE {place} ({columns})"]


def key_statement(place: str, schema: TableSchema) -> str | None:
    """DDL for the primary key; None if the table has none."""
    keys = ", ".join(map(quoted, schema.key))
    return f"ALTER TABLE {place} ADD PRIMARY KEY ({keys})" if keys else None


def evolve_statements(table: TableId, place: str, change: Evolution) -> list[str]:
    """DDL for the change. A constant default for a new column needs no rewrite; it is dropped at once."""
    del table
    statements = [f"ALTER TABLE {place} DROP COLUMN {quoted(column.name)}" for column in change.dropped]
    statements += rename_statements(place, change)
    statements += [widen_statement(place, column) for column in change.widened]
    for column in change.added:
        statements += add_statements(place, column)
    return statements


def rename_statements(place: str, change: Evolution) -> list[str]:
    """DDL that renames columns; temporary names are used if columns swap names."""
    aside = change.set_aside()
    names = {old.name: f"__penstock_aside_{old.attnum}" for old, _ in change.renamed if old.name in aside}
    first = [_rename(place, name, elsewhere) for name, elsewhere in names.items()]
    return first + [_rename(place, names.get(old.name, old.name), new.name) for old, new in change.renamed]


def widen_statement(place: str, column: Column) -> str:
    """DDL for a type that holds every value of the column's old type."""
    return f"ALTER TABLE {place} ALTER COLUMN {quoted(column.name)} TYPE {postgres_type(column)}"


def _rename(place: str, old: str, new: str) -> str:
    return f"ALTER TABLE {place} RENAME COLUMN {quoted(old)} TO {quoted(new)}"


def add_statements(place: str, column: Column) -> list[str]:
    """DDL for a new column."""
    declared = f"ALTER TABLE {place} ADD COLUMN {quoted(column.name)} {postgres_type(column)}"
    if column.fill is None:
        return [declared]
    constant = f"CAST({literal(column.fill)} AS {postgres_type(column)})"
    return [
        f"{declared} DEFAULT {constant}",
        f"ALTER TABLE {place} ALTER COLUMN {quoted(column.name)} DROP DEFAULT",
    ]


def check_columns(table: TableId, schema: TableSchema) -> None:
    """Reject schemas that PostgreSQL cannot represent: no column at all, or one with the name of a column of ours."""
    require_columns(table, schema)
    refuse_own_names(table, schema, str)


POSTGRES_STRUCTURE = Structure(
    create_statements, create_history_statements, create_changes_statements, evolve_statements, check_columns
)
