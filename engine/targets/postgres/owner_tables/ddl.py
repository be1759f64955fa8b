"""Columns that change on the source, followed in a table that its owner made."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from engine.model.identity import TableId, TableName
from engine.model.schema import Column, TableSchema
from engine.postgres.sessions import PostgresConnection
from engine.targets.evolution import Evolution
from engine.targets.postgres.identifiers import literal, qualified, quoted
from engine.targets.postgres.owner_tables.compatibility import fits
from engine.targets.postgres.owner_tables.inspect import refuse, refuse_unfit, standing_table
from engine.targets.postgres.structure import add_statements, rename_statements, widen_statement


def follow(
    connection: PostgresConnection, table: TableId, target: TableName, schema: TableSchema, change: Evolution
) -> None:
    """Bring the table to `schema`. A dropped column stays: it is its owner's, and gets no values any more.

    A new one may stand there already. Its rows get the value that the source's rows have in it, where they hold another one.

    Raises:
        EngineFault: TABLE_UNFIT where a column stands there that does not fit, a dropped one has to be given values, or only the
            owner may do what it takes.
    """
    place = qualified(target)
    _alter(connection, table, target, rename_statements(place, change), "give columns the names that the source's got")
    standing = standing_table(connection, target)
    narrow = [c for c in change.widened if (there := standing.column(c.name)) is not None and not fits(c, there.kind)]
    _alter(connection, table, target, [widen_statement(place, c) for c in narrow], "widen columns as the source's")
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
        named = error.diag.message_primary or "the columns there are others"
        refuse(table, target, [f"it does not let us {what} ({named}): {'; '.join(statements)}"])


def add_columns(connection: PostgresConnection, table: TableId, target: TableName, columns: Sequence[Column]) -> None:
    """Raises EngineFault(TABLE_UNFIT) where only the owner may add them."""
    try:
        for column in columns:
            for statement in add_statements(qualified(target), column):
                connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        todo = "; ".join(add_statements(qualified(target), column)[0] for column in columns)
        refuse(table, target, [f"only its owner may add the columns that the source got: {todo}"])


def _set_everywhere(connection: PostgresConnection, target: TableName, column: Column, type_: str) -> None:
    """Only rows that differ are touched: by their texts, since not every type has an equality."""
    name = quoted(column.name)
    value = "NULL" if column.fill is None else f"CAST({literal(column.fill)} AS {type_})"
    connection.execute(
        f"UPDATE {qualified(target)} SET {name} = {value}"
        f' WHERE {name}::pg_catalog.text COLLATE "C" IS DISTINCT FROM ({value})::pg_catalog.text'.encode()
    )
