"""Applies column changes of the source to a user's table."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from engine.model.identity import TableId, TableName
from engine.model.schema import Column, TableSchema
from engine.postgres.sessions import PostgresConnection
from engine.targets.evolution import Evolution
from engine.targets.identifiers import qualified, quoted
from engine.targets.postgres.identifiers import literal
from engine.targets.postgres.owner_tables.compatibility import fits
from engine.targets.postgres.owner_tables.inspect import refuse, refuse_unfit, standing_table
from engine.targets.postgres.structure import add_statements, rename_statements, widen_statement


def follow(
    connection: PostgresConnection, table: TableId, target: TableName, schema: TableSchema, change: Evolution
) -> None:
    """Change the table to `schema`. A dropped column stays, since it is the user's, and gets no values any more.

    A new column may already exist. Existing rows get the value of the source's rows if it differs.

    Raises:
        EngineFault: TABLE_UNFIT if an existing column is incompatible, a dropped one requires values, or only the owner may make the
            change.
    """
    place = qualified(target)
    _alter(connection, table, target, rename_statements(place, change), "rename columns as on the source")
    standing = standing_table(connection, target)
    narrow = [c for c in change.widened if (there := standing.column(c.name)) is not None and not fits(c, there.kind)]
    _alter(connection, table, target, [widen_statement(place, c) for c in narrow], "widen columns as on the source")
    added = frozenset(column.name for column in change.added)
    before = refuse_unfit(connection, table, target, schema, but=added)
    missing = [column for column in change.added if before.column(column.name) is None]
    add_columns(connection, table, target, missing)
    for column in change.added:
        there = before.column(column.name)
        if there is not None:
            _set_everywhere(connection, target, column, there.type)


def _alter(
    connection: PostgresConnection, table: TableId, target: TableName, statements: Sequence[str], what: str
) -> None:
    try:
        for statement in statements:
            connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        refuse(table, target, [f"only its owner may {what}: {'; '.join(statements)}"])
    except (psycopg.errors.DuplicateColumn, psycopg.errors.UndefinedColumn) as error:
        named = error.diag.message_primary or "the columns differ"
        refuse(table, target, [f"it does not let us {what} ({named}): {'; '.join(statements)}"])


def add_columns(connection: PostgresConnection, table: TableId, target: TableName, columns: Sequence[Column]) -> None:
    """Raises EngineFault(TABLE_UNFIT) if only the owner may add them."""
    try:
        for column in columns:
            for statement in add_statements(qualified(target), column):
                connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        todo = "; ".join(add_statements(qualified(target), column)[0] for column in columns)
        refuse(table, target, [f"only its owner may add the source's new columns: {todo}"])


def _set_everywhere(connection: PostgresConnection, target: TableName, column: Column, type_: str) -> None:
    """Updates only rows that differ, compared by text, since not every type has an equality operator."""
    name = quoted(column.name)
    value = "NULL" if column.fill is None else f"CAST({literal(column.fill)} AS {type_})"
    connection.execute(
        f"UPDATE {qualified(target)} SET {name} = {value}"
        f' WHERE {name}::pg_catalog.text COLLATE "C" IS DISTINCT FROM ({value})::pg_catalog.text'.encode()
    )
