"""History tables in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from engine.model.identity import TableId
from engine.model.partitions import PartitionRows
from engine.model.schema import TableSchema
from engine.model.values import Kind, ValueType
from engine.postgres.sessions import PostgresConnection
from engine.targets.arrow_rows import require_form
from engine.targets.change_data import (
    STAGED_GTID,
    STAGED_ID,
    STAGED_KIND,
    STAGED_NUMBER,
    STAGED_OPERATION,
    STAGED_POSITION,
    STAGED_TIME,
)
from engine.targets.history import FROM_AT, FROM_TEXT, TO_AT, TO_TEXT, HistoryTable
from engine.targets.postgres.changes import Place, belongs, bounds_of, completed_values, image
from engine.targets.postgres.staging import StagedColumn, staged
from engine.targets.postgres.types import MARK_TYPE

_BOOL = ValueType(Kind.BOOL)
_TIMES = {name: StagedColumn(name, ValueType(Kind.TIMESTAMPTZ), MARK_TYPE) for name in (FROM_AT, TO_AT)}
_NUMBER, _TEXT = ValueType(Kind.INT64), ValueType(Kind.TEXT)
_CHANGES = {
    **{name: StagedColumn(name, _NUMBER, "pg_catalog.int8") for name in (STAGED_POSITION, STAGED_NUMBER, STAGED_ID)},
    **{name: StagedColumn(name, _TEXT, "pg_catalog.text") for name in (STAGED_OPERATION, STAGED_GTID, STAGED_KIND)},
    STAGED_TIME: StagedColumn(STAGED_TIME, ValueType(Kind.TIMESTAMPTZ), MARK_TYPE),
}
_POSITIONS = {name: StagedColumn(name, ValueType(Kind.TEXT), "pg_catalog.text") for name in (FROM_TEXT, TO_TEXT)}


class PostgresHistory(HistoryTable):
    """Implements HistoryTable."""

    temporary = "pg_temp.__penstock_versions"
    create = "CREATE TEMPORARY TABLE __penstock_versions ON COMMIT DROP AS"

    def __init__(self, connection: PostgresConnection, table: TableId, place: str, schema: TableSchema) -> None:
        super().__init__(table, place, schema)
        self._connection = connection
        self._at = Place(table, place, schema)

    def run(self, rows: Any, names: Sequence[str], sql: Callable[[str], str]) -> int:
        at = self._at
        known = {column.name: column for column in (*at.key_columns, *at.columns)} | _TIMES | _POSITIONS | _CHANGES
        columns = [known.get(name) or StagedColumn(name, _BOOL, "pg_catalog.bool") for name in names]
        require_form(self.table, rows, names, [column.value for column in columns])
        key = at.key_columns if "k0" in names else ()
        with staged(self._connection, rows, columns, key) as source:
            return self._execute(sql(source.sql), source.parameters)

    def run_within(self, rows: PartitionRows, sql: Callable[[str, str], str]) -> int:
        with staged(self._connection, rows.values, bounds_of(self._at, rows)) as source:
            return self._execute(sql(source.sql, belongs(self._at, rows, "s")), source.parameters)

    def execute(self, sql: str) -> int:
        return self._execute(sql, ())

    def _execute(self, sql: str, parameters: Sequence[str]) -> int:
        return psycopg.RawCursor(self._connection).execute(sql.encode(), parameters).rowcount

    def value(self, name: str, column: int) -> str:
        del column
        return f"s.{name}"

    def completed(self, rows: Any) -> list[str]:
        return completed_values(self._at, rows)[1]

    def identical(self, left: str, right: str) -> str:
        return f"{image(left, self.names)} = {image(right, self.names)}"
