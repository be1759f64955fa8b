"""Compares a table on both sides by what each prints, independently of the product's own comparison."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
from psycopg import sql

from engine.model.identity import TableId, TableName
from engine.model.schema import Column
from engine.model.subscription import ConnectionSpec
from engine.model.target import TableRecord, Target
from engine.model.values import Kind, value_type
from tests.contract.value_render import rendered, selected
from tests.fixtures.answers import answered
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica

Row = tuple[str | None, ...]


def rows_that_differ(database: Database, replica: Replica, table: TableId) -> tuple[Counter[Row], Counter[Row]]:
    """Rows only on the source, and rows only on the target, each with how many more."""
    target = replica.pipeline.target
    assert target is not None
    progress = target.progress(replica.spec.name)
    assert progress is not None
    record = progress.tables[table]
    columns = record.schema.columns
    source_rows = Counter(_printed_rows(database.dsn, record.schema.name, columns))
    target_rows = Counter(
        _printed_rows(_dsn(replica.spec.target), record.target, columns)
        if replica.spec.target.kind == "postgres"
        else _held_rows(replica, target, record)
    )
    return source_rows - target_rows, target_rows - source_rows


def _dsn(target: ConnectionSpec) -> str:
    settings = target.settings
    return f"host={settings['host']} port={settings['port']} dbname={settings['database']} user={settings['user']}"


def _held_rows(replica: Replica, target: Target, record: TableRecord) -> list[Row]:
    return held_whole(replica, target, record)[0]


def held_whole(replica: Replica, target: Target, record: TableRecord) -> tuple[list[Row], list[str]]:
    """Rows of a table in DuckDB, and the names of all its columns there, read by one query."""
    columns = record.schema.columns
    held = [selected(_quoted(column.name), value_type(column)) for column in columns]
    named = "".join(f"{expression} AS __held_{i}, " for i, expression in enumerate(held))
    statement = f"SELECT {named}* FROM {_quoted(record.target.schema)}.{_quoted(record.target.name)}"
    answer = answered(target, statement, 10_000_000, 60.0, replica.spec.name).table
    values = [
        [rendered(value_type(column), value) for value in answer.column(i).to_pylist()]
        for i, column in enumerate(columns)
    ]
    return list(zip(*values, strict=True)), list(answer.column_names[len(columns) :])


def columns_of(database: Database, table: TableName) -> list[str]:
    """Names of the columns that are replicated, in order: generated ones where the log sends them, or the source can be asked for them."""
    rows = database.execute(
        "SELECT attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s AND attnum > 0 AND NOT attisdropped"
        " AND (attgenerated = '' OR relkind = 'r' OR attgenerated = 's' AND current_setting('server_version_num')::int >= 180000)"
        " ORDER BY attnum",
        [table.schema, table.name],
    )
    return [name for (name,) in rows]


def _printed_rows(dsn: str, table: TableName, columns: tuple[Column, ...]) -> list[Row]:
    shown = [
        sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END").format(sql.Identifier(column.name))
        for column in columns
    ]
    # Partitions count with their root; tables that inherit are others, with rows of their own.
    query = sql.SQL(
        "SELECT {0} FROM {1} AS t WHERE t.tableoid = {2}::regclass"
        " OR (SELECT c.relispartition FROM pg_class c WHERE c.oid = t.tableoid)"
    ).format(
        sql.SQL(", ").join(shown),
        sql.Identifier(table.schema, table.name),
        sql.Literal(sql.Identifier(table.schema, table.name).as_string()),
    )
    with psycopg.connect(dsn, options="-c timezone=UTC -c extra_float_digits=3") as connection:
        rows: list[Any] = connection.execute(query).fetchall()
    kinds = [value_type(column).kind for column in columns]
    return [tuple(_comparable(kind, value) for kind, value in zip(kinds, row, strict=True)) for row in rows]


def _comparable(kind: Kind, printed: str | None) -> str | None:
    if printed is None or kind not in (Kind.FLOAT32, Kind.FLOAT64):
        return printed
    return repr(float(printed))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
