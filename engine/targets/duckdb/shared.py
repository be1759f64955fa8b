"""Shared tables of a DuckDB file: views. A view references tables by name, and so shows a replaced table at once."""

from __future__ import annotations

from typing import Any

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.schema import Column
from engine.model.values import value_type
from engine.targets.duckdb.identifiers import folded, literal, qualified, quoted
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.duckdb.types import duckdb_type
from engine.targets.duckdb.views import views_upon
from engine.targets.shared import SharedColumn, SharedView, nothing

_OF = "WHERE database_name = ? AND lower(schema_name) = lower(?)"


class DuckDbViews:
    """Implements Views."""

    def __init__(self, connection: StagingConnection, catalog: str) -> None:
        self._connection = connection
        self._catalog = catalog

    def same_name(self, name: str) -> str:
        return folded(name)

    def type_of(self, column: Column) -> str:
        return duckdb_type(value_type(column))

    def lock(self) -> None:
        """No effect: only one thread writes."""

    def is_view(self, relation: TableName) -> bool:
        return bool(self._columns(relation)[0])

    def loosen(self, table: TableId, relation: TableName) -> None:
        """Redefine the view without members. Readers do not see this: it is redefined with members in the same transaction."""
        del table
        present, _ = self._columns(relation)
        if present:
            self._replace(relation, nothing(present, quoted))

    def show(self, table: TableId, view: SharedView) -> None:
        del table
        present, _ = self._columns(view.relation)
        if not present:
            self._execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._catalog)}.{quoted(view.relation.schema)}")
        else:
            kept = view.drops(present, folded) and bool(views_upon(self._connection, self._catalog, view.relation))
            view = view.arranged(present, folded, kept=kept)
        self._replace(view.relation, view.select(self._qualified, quoted))

    def drop(self, table: TableId, relation: TableName) -> None:
        views = views_upon(self._connection, self._catalog, relation)
        if views:
            detail = f"it is the last table that {relation} shows, and these show that: {', '.join(views)}"
            raise EngineFault(FaultKind.TABLE_NOT_DROPPED, table, detail)
        self._execute(f"DROP VIEW IF EXISTS {self._qualified(relation)}")

    def _columns(self, relation: TableName) -> tuple[list[SharedColumn], dict[str, str]]:
        """The columns of an existing view, and comments by column; the view's own has the empty name."""
        names = [self._catalog, relation.schema, relation.name]
        view = self._rows(f"SELECT comment FROM duckdb_views() {_OF} AND lower(view_name) = lower(?)", names)
        if not view:
            return [], {}
        sql = f"SELECT column_name, data_type, comment FROM duckdb_columns() {_OF} AND lower(table_name) = lower(?)"
        rows = self._rows(f"{sql} ORDER BY column_index", names)
        remarks = {name: comment for name, _, comment in rows if comment} | ({"": view[0][0]} if view[0][0] else {})
        return [SharedColumn(name, type_) for name, type_, _ in rows], remarks

    def _replace(self, relation: TableName, select: str) -> None:
        """Replace the view with its comments, which DuckDB would drop."""
        _, remarks = self._columns(relation)
        place = self._qualified(relation)
        self._execute(f"CREATE OR REPLACE VIEW {place} AS {select}")
        if remarks:
            names = {column.name for column in self._columns(relation)[0]}
            for name, text in remarks.items():
                if not name:
                    self._execute(f"COMMENT ON VIEW {place} IS {literal(text)}")
                elif name in names:
                    self._execute(f"COMMENT ON COLUMN {place}.{quoted(name)} IS {literal(text)}")

    def _qualified(self, place: TableName) -> str:
        return qualified(self._catalog, place)

    def _rows(self, sql: str, values: list[str]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._connection.execute(sql, values).fetchall()
        return rows

    def _execute(self, statement: str) -> None:
        self._connection.execute(statement)
