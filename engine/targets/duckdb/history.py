"""History tables in a DuckDB file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.model.identity import TableId
from engine.model.partitions import PartitionRows
from engine.model.schema import TableSchema
from engine.targets.duckdb.changes import Place, belongs, completed_values, identical
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.duckdb.types import staged_as
from engine.targets.history import HistoryTable


class DuckDbHistory(HistoryTable):
    """Implements HistoryTable."""

    temporary = "temp.__penstock_versions"
    create = "CREATE TEMP TABLE __penstock_versions AS"

    def __init__(self, connection: StagingConnection, table: TableId, place: str, schema: TableSchema) -> None:
        super().__init__(table, place, schema)
        self._connection = connection
        self._at = Place(table, place, schema)

    def run(self, rows: Any, names: Sequence[str], sql: Callable[[str], str]) -> int:
        with self._connection.staged(rows.select(names)) as source:
            return self.execute(sql(f"{source} AS s"))

    def run_within(self, rows: PartitionRows, sql: Callable[[str, str], str]) -> int:
        with self._connection.staged(rows.values) as source:
            return self.execute(sql(f"{source} AS b", belongs(self._at, rows)))

    def execute(self, sql: str) -> int:
        found = self._connection.execute(sql).fetchall()
        return int(found[0][0]) if found else 0

    def value(self, name: str, column: int) -> str:
        return staged_as(f"s.{name}", self._at.values[column])

    def completed(self, rows: Any) -> list[str]:
        return completed_values(self._at, rows)

    def identical(self, left: str, right: str) -> str:
        pairs = zip(self.names, self._at.values, strict=True)
        return " AND ".join(f"({identical(f'{left}.{name}', f'{right}.{name}', value)})" for name, value in pairs)
