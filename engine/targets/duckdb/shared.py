"""Shared tables of a DuckDB file: views. A view references tables by name, and so shows a replaced table at once."""

from __future__ import annotations

from typing import Any

from engine.duckdb.value_text import literal
from engine.model.identity import TableId, TableName
from engine.model.schema import Column
from engine.model.values import value_type
from engine.targets.duckdb.identifiers import folded
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.duckdb.types import duckdb_type
from engine.targets.duckdb.views import views_upon
from engine.targets.identifiers import quoted
from engine.targets.shared import SharedColumn, SharedView, SqlViews

_OF = "WHERE database_name = ? AND lower(schema_name) = lower(?)"


class DuckDbViews(SqlViews):
    """Implements SqlViews. Only one thread writes."""

    def __init__(self, connection: StagingConnection, catalog: str) -> None:
        super().__init__(connection.execute, f"{quoted(catalog)}.")
        self._connection = connection
        self._catalog = catalog

    def same_name(self, name: str) -> str:
        return folded(name)

    def type_of(self, column: Column) -> str:
        return duckdb_type(value_type(column))

    def columns(self, relation: TableName) -> list[SharedColumn]:
        return self._columns(relation)[0]

    def dependents(self, relation: TableName) -> list[str]:
        return views_upon(self._connection, self._catalog, relation)

    def show(self, table: TableId, view: SharedView) -> None:
        del table
        present = self.columns(view.relation)
        if not present:
            self.create_schema(view.relation.schema)
        else:
            kept = view.drops(present, folded) and bool(self.dependents(view.relation))
            view = view.arranged(present, folded, kept=kept)
        self.replace(view.relation, view.select(self.qualified))

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

    def replace(self, relation: TableName, select: str) -> None:
        """Replaces the view with its comments, which DuckDB would drop."""
        _, remarks = self._columns(relation)
        place = self.qualified(relation)
        self.execute(f"CREATE OR REPLACE VIEW {place} AS {select}")
        if remarks:
            names = {column.name for column in self.columns(relation)}
            for name, text in remarks.items():
                if not name:
                    self.execute(f"COMMENT ON VIEW {place} IS {literal(text)}")
                elif name in names:
                    self.execute(f"COMMENT ON COLUMN {place}.{quoted(name)} IS {literal(text)}")

    def _rows(self, sql: str, values: list[str]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._connection.execute(sql, values).fetchall()
        return rows
