"""Views of the file's users upon tables of ours. DuckDB keeps no record of what a view reads."""

from __future__ import annotations

import re

import duckdb

from engine.apply.duckdb.identifiers import folded, qualified
from engine.apply.duckdb.staging import StagingConnection
from engine.model.identity import TableName

_PART = re.compile(r'"((?:[^"]|"")*)"|([^.]+)')


def views_upon(connection: StagingConnection, catalog: str, table: TableName) -> list[str]:
    """Names of the views that read the table, directly or through others. A view that names it without a schema counts too."""
    sql = "SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = ? AND NOT internal ORDER BY ALL"
    views = [TableName(*row) for row in connection.execute(sql, [catalog]).fetchall()]
    return [str(view) for view in views if _reads(connection, qualified(catalog, view), table)]


def _reads(connection: StagingConnection, view: str, table: TableName) -> bool:
    try:
        named = connection.tables_of(f"SELECT * FROM {view}")
    except duckdb.Error:
        return False  # It shows nothing as it is.
    return any(_is(one, table) for one in named)


def _is(named: str, table: TableName) -> bool:
    parts = [folded(quoted.replace('""', '"') or plain) for quoted, plain in _PART.findall(named)]
    wanted = [folded(table.schema), folded(table.name)]
    return parts[-2:] == wanted[-len(parts) :]
