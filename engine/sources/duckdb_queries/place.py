"""A DuckDB file as the place of tables: its catalog, and copies of it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from engine.duckdb.declaration import DUCKDB_CONNECTION
from engine.duckdb.value_text import quoted
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.source import Finding
from engine.model.subscription import ConnectionSpec
from engine.sources.duckdb.catalog import LiveTable, ReadStructure, keyed, row_ranges
from engine.sources.duckdb.connect import connected
from engine.sources.duckdb.settled import unsettled_ns
from engine.sources.duckdb.types import ColumnKind, kind_of
from engine.sources.duckdb_queries.locked_file import FileStamp, copied, locked, stamp_of
from engine.sources.query_diff.given import given_by

_K = FaultKind
_TABLES = """
SELECT schema_name, table_name, estimated_size FROM duckdb_tables()
WHERE database_name = current_database() AND NOT internal AND NOT temporary ORDER BY ALL
"""
_COLUMNS = """
SELECT schema_name, table_name, column_name, data_type, is_nullable FROM duckdb_columns()
WHERE database_name = current_database() AND NOT internal ORDER BY schema_name, table_name, column_index
"""
_KEYS = """
SELECT schema_name, table_name, constraint_type, constraint_column_names FROM duckdb_constraints()
WHERE database_name = current_database() AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') ORDER BY ALL
"""
_READ = (
    "Let the engine's user read the file and its folder; it must be a DuckDB file of a version that Penstock's DuckDB reads, and the path"
    " an absolute one."
)


class DuckDbFile:
    """`Place` over a file."""

    remedies: Mapping[str, str] = {
        _K.SOURCE_UNREACHABLE.value: f"Check the path, as seen from the engine's machine. {_READ}",
        _K.SOURCE_PRIVILEGE.value: _READ,
        _K.SOURCE_TIMEOUT.value: "Close the file in the program that writes to it, at least between its writes; Penstock tries again.",
        _K.TABLE_NAME_COLLISION.value: "Rename one of the two tables, or leave one of them out.",
        "table": "Change the table, or take it out of the subscription.",
    }

    def __init__(self, spec: ConnectionSpec) -> None:
        self.name = spec.name
        self._path = Path(str(spec.settings.get("path", "")))
        folder = spec.settings.get("snapshot_folder")
        self._folder = None if folder is None else str(folder)
        self._secrets = spec.secrets
        self._keys = {name: tuple(each.key or ()) for name, each in given_by(spec).tables.items()}
        self._lock = threading.Lock()
        self._known: tuple[FileStamp, dict[TableName, LiveTable]] | None = None
        """The catalog of the file with this stamp."""

    def secret(self, name: str) -> str | None:
        return self._secrets.get(name)

    def check(self) -> None:
        self._stamp()

    def _stamp(self) -> FileStamp:
        if not self._path.is_absolute():
            raise EngineFault(_K.SOURCE_UNREACHABLE, self.name, "the path of a source must be absolute")
        return stamp_of(self._path, self.name)

    def declared_key(self, table: TableName) -> Sequence[str]:
        return self._keys.get(str(table), ())

    def tables(self, names: Collection[TableName] | None = None) -> dict[TableName, LiveTable]:
        """The catalog is read again only if the file was changed: while it is read, programs cannot open the file for writing."""
        with self._lock:
            stamp = self._stamp()
            if self._known is None or self._known[0] != stamp:
                found = self._catalog()
                self._known = None if unsettled_ns(found[0].changed_ns) else found
            else:
                found = self._known
        return {name: table for name, table in found[1].items() if names is None or name in names}

    def _catalog(self) -> tuple[FileStamp, dict[TableName, LiveTable]]:
        path = self._path.resolve()
        with locked(path, self.name):
            stamp = stamp_of(path, self.name)
            connection = _opened(str(path), self.name)
            try:
                return stamp, _read_catalog(connection, self._keys, self.name)
            finally:
                connection.close()

    @contextmanager
    def hold(self) -> Iterator[HeldFile]:
        self._stamp()
        with copied(self._path.resolve(), self._folder, self.name) as copy:
            connection = _opened(copy, self.name)
            try:
                yield HeldFile(connection, _read_catalog(connection, self._keys, self.name))
            finally:
                connection.close()

    def rows_of(self, structure: ReadStructure) -> str:
        return f"{quoted(structure.table_name.schema)}.{quoted(structure.table_name.name)}"

    def parts_of(self, table: LiveTable, most: int) -> list[str]:
        return row_ranges(table, most)

    def findings(self) -> list[Finding]:
        return []

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """`HeldTables` in a copy, which nothing changes."""

    connection: Any
    tables: Mapping[TableName, LiveTable]

    def table(self, name: TableName) -> LiveTable | None:
        return self.tables.get(name)

    def provide(self, table: LiveTable) -> None:
        """It is there by its name."""

    def check(self, table: LiveTable, subject: str) -> None:
        """Nothing changes the copy."""

    def fault(self, error: BaseException, subject: str) -> EngineFault:
        return _fault(error, subject)

    def interrupt(self) -> None:
        self.connection.interrupt()


def _fault(error: BaseException, subject: str) -> EngineFault:
    if isinstance(error, duckdb.InterruptException | duckdb.ConnectionException):
        return EngineFault(_K.COPY_LOST, subject, f"the read was ended ({type(error).__name__})")
    if isinstance(error, duckdb.OutOfMemoryException):
        return EngineFault(_K.SOURCE_TIMEOUT, subject, "DuckDB has not enough memory to read the table")
    if isinstance(error, duckdb.Error | pa.ArrowException | OSError):
        return EngineFault(_K.SOURCE_UNREACHABLE, subject, f"DuckDB cannot read the file ({type(error).__name__})")
    return EngineFault(_K.INTERNAL, subject, f"unexpected {type(error).__name__}")


def _opened(path: str, subject: str) -> Any:
    try:
        return connected(path)
    except duckdb.Error as error:
        raise _fault(error, subject) from error


def _read_catalog(connection: Any, keys: Mapping[str, Sequence[str]], subject: str) -> dict[TableName, LiveTable]:
    try:
        return _catalog_of(connection, keys)
    except duckdb.Error as error:
        raise _fault(error, subject) from error


def _catalog_of(connection: Any, keys: Mapping[str, Sequence[str]]) -> dict[TableName, LiveTable]:
    columns: dict[TableName, list[tuple[str, str, ColumnKind | None, bool]]] = {}
    for schema, table, column, kind, nullable in connection.execute(_COLUMNS).fetchall():
        columns.setdefault(TableName(schema, table), []).append((column, kind, kind_of(kind), bool(nullable)))
    own: dict[TableName, list[tuple[bool, tuple[str, ...]]]] = {}
    for schema, table, kind, names in connection.execute(_KEYS).fetchall():
        name = TableName(schema, table)
        filled = {c for c, _, _, nullable in columns.get(name, ()) if not nullable}
        if kind == "PRIMARY KEY" or set(names) <= filled:
            own.setdefault(name, []).append((kind != "PRIMARY KEY", tuple(names)))
    found = {}
    for schema, table, rows in connection.execute(_TABLES).fetchall():
        name = TableName(schema, table)
        if schema in DUCKDB_CONNECTION.own_schemas:
            continue
        key = min(own[name])[1] if name in own else ()
        structure, unreadable = keyed(name, columns.get(name, ()), key, keys.get(str(name), ()))
        problem = None if structure.columns else "it has no column whose values can be replicated"
        found[name] = LiveTable(structure, int(rows or 0), 0, unreadable, problem)
    return found
