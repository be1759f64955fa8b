"""SQLite as the source under contract: a file of a test's own."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.model.identity import TableId, TableName
from engine.model.source import Scanner, Source
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec, TableSpec
from engine.records.scan import RecordScanner
from engine.sources.sqlite_queries.source import open_source as open_queries
from engine.sources.sqlite_triggers.source import SqliteSource
from tests.contract.source_material import Can, Session


class SqliteSession:
    """A connection in autocommit mode; a transaction begins with the first statement after the last one's end."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str) -> None:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(statement)

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        self._connection.execute("ROLLBACK")


class SqliteOrigin:
    """Origin over one file. The shadow log exists before a test begins."""

    CAN = frozenset(Can) - {
        Can.STREAM_OPEN_TRANSACTIONS,
        Can.SEE_OTHERS,
        Can.WRITE_AT_ONCE,
        Can.TAKE_TICKETS,
        Can.CONTINUE,
    }

    def __init__(self, folder: Path, journal: str, stack: ExitStack) -> None:
        self._path = folder / "shop.db"
        self._stack = stack
        self.can = self.CAN
        self.scanner: Scanner = RecordScanner()
        self.slot = "contract"
        with self._connection() as connection:
            connection.execute(f"PRAGMA journal_mode = {journal}")
        self.source: Source = self.open()
        self.source.sent_tables.prepare([], self.slot)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")
        try:
            yield connection
        finally:
            connection.close()

    def open(self) -> Source:
        settings = {"path": str(self._path), "snapshot_folder": str(self._path.parent)}
        source = self._source(ConnectionSpec("shop", "sqlite", settings))
        self._stack.callback(source.close)
        return source

    def _source(self, spec: ConnectionSpec) -> Source:
        return SqliteSource(spec)

    def table(self, name: str, **options: Any) -> TableSpec:
        source = TableName("main", name)
        return TableSpec(TableId("t" + name.encode().hex()), source, source, **options)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._connection() as connection:
            yield SqliteSession(connection)

    def stream_early(self) -> None:
        raise NotImplementedError("transactions come whole")

    def stop(self) -> None:
        self._path.rename(self._path.with_suffix(".away"))

    def start(self) -> None:
        self._path.with_suffix(".away").rename(self._path)


class SqliteQueriesOrigin(SqliteOrigin):
    """The same, only queried."""

    CAN = frozenset({Can.SELECT_COLUMNS, Can.SNAPSHOT_ALONE, Can.BEGIN_ANYWHERE})

    def _source(self, spec: ConnectionSpec) -> Source:
        folder = self._path.parent / "cycles" / self.slot
        capture = CaptureSpec("query_diff", {"every_seconds": 3600, FOLDER: str(folder)})
        return open_queries(replace(spec, capture=capture))


def sqlite(
    journal: str, kind: type[SqliteOrigin] = SqliteOrigin
) -> Callable[[Callable[[str], Any], ExitStack, bool], SqliteOrigin]:
    """A factory, as `postgres`."""

    def make(fixture: Callable[[str], Any], stack: ExitStack, own: bool) -> SqliteOrigin:
        del fixture, own
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        return kind(Path(folder), journal, stack)

    return make
