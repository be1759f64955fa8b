"""Finds users' views that depend on our tables. DuckDB does not record what a view reads."""

from __future__ import annotations

import json
import re

import duckdb

from engine.model.identity import TableName
from engine.targets.duckdb.identifiers import folded, folded_name, qualified
from engine.targets.duckdb.query_guard import nodes
from engine.targets.duckdb.staging import StagingConnection

_BODY = re.compile(r" AS ")


def views_upon(connection: StagingConnection, catalog: str, table: TableName) -> list[str]:
    """Names of the views that read the table or view, directly or through others. A view that names it without a schema is included.

    As seen by the current transaction, except views whose committed definition is invalid: those show nothing.
    """
    sql = "SELECT schema_name, view_name, sql FROM duckdb_views() WHERE database_name = ? AND NOT internal ORDER BY ALL"
    rows = connection.execute(sql, [catalog]).fetchall()
    reads = {TableName(schema, name): _named(connection, text) for schema, name, text in rows}
    reached = [table]
    for each in reached:
        new = [view for view, named in reads.items() if view not in reached and any(_is(one, each) for one in named)]
        reached += [view for view in new if _shows(connection, qualified(catalog, view))]
    return [str(view) for view in reads if view in reached[1:]]


def _named(connection: StagingConnection, text: str) -> list[tuple[str, str]]:
    """Schema (possibly empty) and name of everything that a view's definition reads."""
    for body in _BODY.finditer(text):
        read = text[body.end() :].rstrip().removesuffix(";")
        tree = json.loads(connection.execute("SELECT json_serialize_sql(?)", [read]).fetchall()[0][0])
        if not tree.get("error"):
            read_tables = [node for node in nodes(tree) if node.get("type") == "BASE_TABLE"]
            return [(str(node.get("schema_name", "")), str(node["table_name"])) for node in read_tables]
    return []


def _shows(connection: StagingConnection, view: str) -> bool:
    try:
        connection.tables_of(f"SELECT * FROM {view}")
    except duckdb.Error:
        return False
    return True


def _is(named: tuple[str, str], table: TableName) -> bool:
    schema, name = folded_name(table)
    return folded(named[1]) == name and folded(named[0]) in {"", schema}
