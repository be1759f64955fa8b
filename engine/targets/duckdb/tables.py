"""The operations of a batch on the tables of a DuckDB file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from engine.model.batch import TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.partitions import PartitionRows
from engine.model.quarantine import Texts
from engine.model.schema import TableSchema
from engine.targets.duckdb.changes import Place, apply_changes, belongs, delete_behind, read_rows, rows_at
from engine.targets.duckdb.errors import fault_of, is_broken, is_out_of_memory
from engine.targets.duckdb.identifiers import folded_name, qualified, quoted
from engine.targets.duckdb.preflight import standing
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.duckdb.structure import check_columns, create_statements, evolve_statements
from engine.targets.duckdb.views import views_upon
from engine.targets.evolution import Evolution
from engine.targets.key_check import check_key
from engine.targets.quarantine import RefusedByTarget
from engine.targets.quarantined_rows import texts_of


class DuckDbTables:
    """Implements Tables within the caller's transaction."""

    def __init__(self, connection: StagingConnection, catalog: str, path: Path) -> None:
        self._connection = connection
        self._catalog = catalog
        self._path = path

    def same(self, one: TableName, other: TableName) -> bool:
        return folded_name(one) == folded_name(other)

    def evolve(self, table: TableId, place: TableName, schema: TableSchema, change: Evolution) -> None:
        check_columns(table, schema)
        for statement in evolve_statements(table, self._qualified(place), change):
            self._connection.execute(statement)

    def change(self, table: TableId, place: TableName, schema: TableSchema, changes: Sequence[TableChanges]) -> None:
        apply_changes(self._connection, Place(table, self._qualified(place), schema), changes)

    def read(self, table: TableId, place: TableName, schema: TableSchema, keys: Any, columns: Sequence[int]) -> Any:
        return read_rows(self._connection, Place(table, self._qualified(place), schema), keys, columns)

    def make_copy(
        self, table: TableId, copy: TableName, target: TableName, schema: TableSchema, *, keyed: bool
    ) -> None:
        del target, keyed
        check_columns(table, schema)
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._catalog)}.{quoted(copy.schema)}")
        for statement in create_statements(self._qualified(copy), schema):
            self._connection.execute(statement)

    def trim(self, table: TableId, place: TableName, schema: TableSchema, above: Any) -> int:
        return delete_behind(self._connection, Place(table, self._qualified(place), schema), above)

    def check_key(self, table: TableId, place: TableName, schema: TableSchema) -> None:
        check_key(self._connection.execute, table, self._qualified(place), schema.key, quoted)

    def take(
        self, table: TableId, place: TableName, schema: TableSchema, changes: TableChanges, most: int
    ) -> RefusedByTarget:
        """Nothing is rejected: rows with the form of their columns fit."""
        del most
        self.change(table, place, schema, [changes])
        return []

    def texts_at(self, table: TableId, place: TableName, schema: TableSchema, keys: Any) -> dict[Texts, Texts]:
        rows = rows_at(self._connection, Place(table, self._qualified(place), schema), keys)
        names = [f"c{i}" for i in range(len(schema.columns))]
        found = texts_of(rows, names, schema.columns)
        key = [f"c{[column.name for column in schema.columns].index(name)}" for name in schema.key]
        return dict(zip(texts_of(rows, key, schema.key_columns), found, strict=True))

    @contextmanager
    def trial(self) -> Iterator[bool]:
        """Not possible: DuckDB has no savepoints."""
        yield False

    def put_in_place(
        self, copy: TableName, target: TableName, schema: TableSchema, *, refuse: int = 0
    ) -> RefusedByTarget:
        del refuse
        self._connection.execute(f"DROP TABLE IF EXISTS {self._qualified(target)}")
        self._connection.execute(f"ALTER TABLE {self._qualified(copy)} RENAME TO {quoted(target.name)}")
        return []

    def exchange(
        self, table: TableId, copy: TableName, target: TableName, schema: TableSchema, rows: PartitionRows
    ) -> None:
        place = Place(table, self._qualified(target), schema)
        with self._connection.staged(rows.values) as source:
            self._connection.execute(
                f"DELETE FROM {place.qualified} AS t USING {source} AS b WHERE {belongs(place, rows)}"
            )
        columns = ", ".join(place.columns)
        self._connection.execute(
            f"INSERT INTO {place.qualified} ({columns}) SELECT {columns} FROM {self._qualified(copy)}"
        )
        self.drop(copy)

    def drop(self, place: TableName) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS {self._qualified(place)}")

    def drop_for_good(self, table: TableId, place: TableName) -> None:
        """Checks for dependent views itself, because DuckDB would leave them without their table."""
        views = views_upon(self._connection, self._catalog, place)
        if views:
            detail = f"views show {place} on the target: {', '.join(views)}"
            raise EngineFault(FaultKind.TABLE_NOT_DROPPED, table, detail)
        self.drop(place)

    def stands(self, place: TableName) -> bool:
        return folded_name(place) in map(folded_name, standing(self._connection))

    @contextmanager
    def faults_of(self, table: TableId) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            if is_broken(error) or is_out_of_memory(error):
                raise
            raise fault_of(error, self._path, table) from error

    def _qualified(self, place: TableName) -> str:
        return qualified(self._catalog, place)
