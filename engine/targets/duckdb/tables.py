"""The operations of a batch on the tables of a DuckDB file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from engine.model.batch import TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.partitions import PartitionRows
from engine.model.quarantine import Texts
from engine.model.schema import TableSchema
from engine.targets.duckdb.changes import (
    Place,
    apply_changes,
    belongs,
    delete_behind,
    delete_keys,
    read_rows,
    rows_at,
)
from engine.targets.duckdb.errors import fault_of, is_broken, is_out_of_memory
from engine.targets.duckdb.history import DuckDbHistory
from engine.targets.duckdb.identifiers import folded_name
from engine.targets.duckdb.key_index import KeyIndex
from engine.targets.duckdb.preflight import standing
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.duckdb.structure import DUCKDB_STRUCTURE
from engine.targets.duckdb.views import views_upon
from engine.targets.identifiers import quoted
from engine.targets.quarantined_rows import RefusedByTarget, texts_of
from engine.targets.rows_written import RowsWritten
from engine.targets.soft_delete import keep_statement, mark_column
from engine.targets.sql_tables import SqlTables


class DuckDbTables(SqlTables):
    """Implements SqlTables. Nothing is rejected: rows with the form of their columns fit."""

    def __init__(self, connection: StagingConnection, catalog: str, path: Path, index: KeyIndex) -> None:
        """`index`: of the tables of this connection."""
        super().__init__(DUCKDB_STRUCTURE, connection.execute, f"{quoted(catalog)}.")
        self._connection = connection
        self._catalog = catalog
        self._path = path
        self._index = index

    def exists(self, place: TableName) -> bool:
        return folded_name(place) in map(folded_name, standing(self._connection))

    def apply_changes(
        self, table: TableId, place: TableName, schema: TableSchema, changes: Sequence[TableChanges]
    ) -> RowsWritten:
        return apply_changes(self._connection, self._place(table, place, schema), changes, self._index)

    def read_rows(
        self, table: TableId, place: TableName, schema: TableSchema, keys: Any, columns: Sequence[int]
    ) -> Any:
        return read_rows(self._connection, self._place(table, place, schema), keys, columns, self._index)

    def rows_with(self, table: TableId, place: TableName, schema: TableSchema, keys: Any) -> list[tuple[Texts, Texts]]:
        rows = rows_at(self._connection, self._place(table, place, schema), keys)
        names = [f"c{i}" for i in range(len(schema.columns))]
        found = texts_of(rows, names, schema.columns)
        key = [f"c{[column.name for column in schema.columns].index(name)}" for name in schema.key]
        return list(zip(texts_of(rows, key, schema.key_columns), found, strict=True))

    def delete_rows(self, table: TableId, place: TableName, schema: TableSchema, keys: Any) -> int:
        return delete_keys(self._connection, self._place(table, place, schema), keys)

    def trim(self, table: TableId, place: TableName, schema: TableSchema, above: Any) -> int:
        return delete_behind(self._connection, self._place(table, place, schema), above)

    def exchange_partitions(
        self, table: TableId, copy: TableName, target: TableName, schema: TableSchema, rows: PartitionRows, now_us: int
    ) -> None:
        place = self._place(table, target, schema)
        with self._connection.staged(rows.values) as source:
            if schema.soft_delete:
                known, only = (self.qualified(copy), schema), f", {source} AS b WHERE ({belongs(place, rows)})"
                self.execute(keep_statement(table, known, (place.qualified, schema), now_us, only))
            self.execute(f"DELETE FROM {place.qualified} AS t USING {source} AS b WHERE {belongs(place, rows)}")
        self.remove_deleted(copy, target, schema)
        columns = ", ".join([*place.columns, *mark_column(schema)])
        self._index.note_changes(place.qualified)
        self.execute(f"INSERT INTO {place.qualified} ({columns}) SELECT {columns} FROM {self.qualified(copy)}")
        self.drop(copy)

    def history(self, table: TableId, place: TableName, schema: TableSchema) -> DuckDbHistory:
        return DuckDbHistory(self._connection, table, self.qualified(place), replace(schema, soft_delete=False))

    def keep_deleted(
        self, table: TableId, copy: TableName, schema: TableSchema, target: TableName, old: TableSchema, now_us: int
    ) -> None:
        self._index.note_changes(self.qualified(copy))
        super().keep_deleted(table, copy, schema, target, old, now_us)

    def put_in_place(
        self, copy: TableName, target: TableName, schema: TableSchema, *, refuse: int = 0
    ) -> RefusedByTarget:
        """See SqlTables. What the index has of the copy is not kept: if the transaction is rolled back it would be of another table."""
        refused = super().put_in_place(copy, target, schema, refuse=refuse)
        self._index.forget(self.qualified(copy))
        self._index.note_changes(self.qualified(target))
        return refused

    def drop(self, place: TableName) -> None:
        super().drop(place)
        self._index.forget(self.qualified(place))

    def drop_for_good(self, table: TableId, place: TableName) -> None:
        """Checks for dependent views itself, because DuckDB would leave them without their table."""
        views = views_upon(self._connection, self._catalog, place)
        if views:
            detail = f"views show {place} on the target: {', '.join(views)}"
            raise EngineFault(FaultKind.TABLE_NOT_DROPPED, table, detail)
        self.drop(place)

    @contextmanager
    def faults_of(self, table: TableId) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            if is_broken(error) or is_out_of_memory(error):
                raise
            raise fault_of(error, self._path, table) from error

    def _place(self, table: TableId, place: TableName, schema: TableSchema) -> Place:
        return Place(table, self.qualified(place), schema)
