"""Writes a snapshot's tables into a DuckDB file of their own, in an instance of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from engine.model.identity import TableName
from engine.model.snapshots import SnapshotRefused
from engine.model.target import TARGET_TYPE, QueryAnswer, QueryRefused
from engine.targets.arrow_rows import in_chunks
from engine.targets.duckdb.errors import is_disk_full, is_out_of_memory
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.identifiers import qualified, quoted
from engine.targets.target_metadata import OWN_SCHEMA

FILE = "copy.duckdb"
_MEMORY = "256MiB"
"""DuckDB's memory limit while it writes: it appends, so rows of one row group for each thread. Not measured."""


class DuckDbSnapshotFile:
    """One DuckDB file with all tables of a snapshot, and `penstock.snapshot` with its facts in one row."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        configuration = {
            "autoload_known_extensions": "false",
            "autoinstall_known_extensions": "false",
            "python_enable_replacements": "false",
            "enable_external_access": "false",
            "memory_limit": _MEMORY,
            "threads": "1",
        }
        try:
            self._root = duckdb.connect(str(self._path), config=configuration)
        except duckdb.Error as error:
            raise self._refused(error) from error
        self._connection = StagingConnection(self._root)

    def write(self, table: TableName, answer: QueryAnswer) -> tuple[str, int]:
        place, rows = qualified(table), 0
        empty = answer.schema.empty_table()
        terms = ", ".join(f"{quoted(field.name)}{_cast(field)} AS {quoted(field.name)}" for field in empty.schema)
        try:
            self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(table.schema)}")
            with self._connection.staged(empty) as source:
                self._connection.execute(f"CREATE TABLE {place} AS SELECT {terms} FROM {source}")
            self._connection.execute("BEGIN TRANSACTION")
            for chunk in in_chunks(answer.batches):
                with self._connection.staged(chunk) as source:
                    self._connection.execute(f"INSERT INTO {place} SELECT * FROM {source}")
                rows += chunk.num_rows
            self._connection.commit()
        except duckdb.Error as error:
            raise self._refused(error) from error
        return FILE, rows

    def close(self, facts: Mapping[str, str]) -> None:
        try:
            self._connection.execute(f"CREATE SCHEMA {quoted(OWN_SCHEMA)}")
            columns = ", ".join(f"{quoted(name)} VARCHAR" for name in facts)
            self._connection.execute(f"CREATE TABLE {OWN_SCHEMA}.snapshot ({columns})")
            marks = ", ".join("?" for _ in facts)
            self._connection.execute(f"INSERT INTO {OWN_SCHEMA}.snapshot VALUES ({marks})", list(facts.values()))
            self._connection.execute("CHECKPOINT")
        except duckdb.Error as error:
            raise self._refused(error) from error
        self.give_up()

    def give_up(self) -> None:
        with suppress(duckdb.Error):
            self._root.close()

    def _refused(self, error: duckdb.Error) -> Exception:
        if is_disk_full(error, self._path):
            detail = f"no space left on the disk of {self._path.parent.parent}"
            remedy = "Free space, or delete older snapshots; then ask again."
            return SnapshotRefused(507, "snapshot_disk_full", detail, remedy)
        if is_out_of_memory(error):
            return QueryRefused("query_too_large", f"the rows need more than {_MEMORY} of memory in a DuckDB file")
        if isinstance(error, duckdb.CatalogException):
            detail = "two tables or columns have names that DuckDB does not distinguish"
            return SnapshotRefused(
                409, "snapshot_names_equal", detail, 'Send "format": "parquet", or choose other tables.'
            )
        detail = f"the DuckDB file failed ({type(error).__name__})"
        return SnapshotRefused(503, "snapshot_failed", detail, 'Ask again; or send "format": "parquet".')


def _cast(field: Any) -> str:
    """SQL that gives a column its type on the target, where Arrow has another one for the same values."""
    kind = (field.metadata or {}).get(TARGET_TYPE, b"").decode().lower()
    return f"::{kind}" if kind in {"uuid", "uuid[]"} else ""
