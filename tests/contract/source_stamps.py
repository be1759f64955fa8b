"""SQLite as the source under contract, whose tables have stamps that the tests do not see."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from engine.model.column_selection import ColumnSelection, TableSelection
from engine.model.identity import TableName
from engine.model.source import DiscoveredTable, LogSource, LogStream, RecordChunk, Source
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec, TableSpec
from engine.records.selection import RecordSelector
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.source import QueryDiffSource
from engine.sources.sqlite.catalog import live_tables
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_queries.compared import Compared
from engine.sources.sqlite_queries.database import SqliteDatabase
from engine.sources.sqlite_queries.stamp_script import stamp_sql
from tests.contract.source_material import Session
from tests.contract.source_sqlite import SqliteQueriesOrigin, SqliteSession

STAMP = "changed_at"
NAMES = [TableName("main", name) for name in ("notes", "moving", "history", "order_lines", "elsewhere", "aside")]


class _StampingSession(SqliteSession):
    """Tables get a stamp with their creation; the statements of a test do not name it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._file = connection

    def execute(self, statement: str) -> None:
        made = re.match(r"CREATE TABLE (\w+)", statement)
        into = re.match(r"INSERT INTO (\w+) (?=VALUES|SELECT)", statement)
        if into is not None:
            columns = self._file.execute("SELECT name FROM pragma_table_info(?)", [into[1]]).fetchall()
            names = ", ".join(name for (name,) in columns if name != STAMP)
            statement = f"INSERT INTO {into[1]} ({names}) {statement[into.end() :]}"
        super().execute(statement)
        if made is not None:
            for each in stamp_sql(live_tables(self._file)[made[1]].structure, STAMP):
                super().execute(each)


class _Without:
    """Another object's attributes, of which subclasses replace some."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Stream(_Without):
    """Without the stamps, as a log reader writes a table with a selection of columns."""

    def __init__(self, inner: LogStream) -> None:
        super().__init__(inner)
        columns = ColumnSelection(exclude=(STAMP,))
        self._selector = RecordSelector(TableSelection(name, frozenset(), columns) for name in NAMES)

    def read(self, timeout_s: float) -> RecordChunk | None:
        chunk = self._inner.read(timeout_s)
        return None if chunk is None else self._selector.apply(chunk)


class _Log(_Without):
    def open_stream(self, *given: Any, **options: Any) -> Any:
        return _Stream(self._inner.open_stream(*given, **options))


class _Source(QueryDiffSource):
    def __init__(self, database: SqliteDatabase, spec: ConnectionSpec) -> None:
        super().__init__(database, spec)
        log: Any = _Log(self.log)
        self.log: LogSource = log

    def discover(self) -> list[DiscoveredTable]:
        found = super().discover()
        return [replace(t, columns=tuple(c for c in t.columns if c["name"] != STAMP)) for t in found]


class SqliteStampsOrigin(SqliteQueriesOrigin):
    """One cycle each second, by stamps; those that waits, cuts and copies need compare all rows."""

    def _source(self, spec: ConnectionSpec) -> Source:
        chosen = TableDetection(method="timestamp", stamp_column=STAMP, sweep_every=100_000)
        tables = {str(name): chosen for name in NAMES}
        settings: dict[str, int | str] = {
            "every_seconds": 1,
            FOLDER: str(self._path.parent / "cycles" / self.slot),
            "tables": json.dumps({name: one.model_dump(exclude_defaults=True) for name, one in tables.items()}),
        }
        spec = replace(spec, capture=CaptureSpec("query_diff", settings))
        return _Source(SqliteDatabase(Connector(spec, read_only=True), Compared(tables)), spec)

    def table(self, name: str, **options: Any) -> TableSpec:
        return super().table(name, **{**options, "exclude_columns": (*options.get("exclude_columns", ()), STAMP)})

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._connection() as connection:
            yield _StampingSession(connection)
