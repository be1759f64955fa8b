"""Columns that come and go on the source, followed in a table that its owner made."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from engine.apply.evolution import Evolution
from engine.apply.postgres.existing import refuse, refuse_unfit
from engine.apply.postgres.identifiers import literal, qualified, quoted
from engine.apply.postgres.structure import add_statements
from engine.model.identity import TableId, TableName
from engine.model.schema import Column, TableSchema
from engine.postgres.sessions import PostgresConnection


def follow(
    connection: PostgresConnection, table: TableId, target: TableName, schema: TableSchema, change: Evolution
) -> None:
    """Bring the table to `schema`. A dropped column stays: it is its owner's, and gets no values any more.

    A new one may stand there already. Its rows get the value that the source's rows have in it, where they hold another one.

    Raises:
        EngineFault: TABLE_UNFIT where a column stands there that does not fit, or a dropped one has to be given values.
    """
    added = frozenset(column.name for column in change.added)
    before = refuse_unfit(connection, table, target, schema, but=added)
    missing = [column for column in change.added if before.column(column.name) is None]
    add_columns(connection, table, target, missing)
    for column in change.added:
        standing = before.column(column.name)
        if standing is not None:
            _set_everywhere(connection, target, column, standing.type)


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
