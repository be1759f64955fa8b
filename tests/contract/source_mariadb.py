"""MariaDB as the source under contract, by triggers and by queries."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pymysql.connections import Connection

from engine.model.identity import TableId, TableName
from engine.model.source import Scanner, Source
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec, TableSpec
from engine.records.scan import RecordScanner
from engine.sources.mariadb_queries.source import open_source as open_queries
from engine.sources.mariadb_triggers.source import MariaDbTriggerSource
from tests.contract.source_material import Can, Session
from tests.fixtures.mariadb import MariaDbDatabase

READER = "reader"


class _MariaDbSession:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        connection.autocommit(False)

    def execute(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()


class MariaDbOrigin:
    """Origin over one database. The shadow log exists before a test begins."""

    CAN = frozenset(Can) - {Can.STREAM_OPEN_TRANSACTIONS, Can.SEE_OTHERS, Can.FOLLOW_COLUMNS}

    def __init__(self, database: MariaDbDatabase, stack: ExitStack) -> None:
        self._database = database
        self._stack = stack
        self.can: frozenset[Can] = self.CAN
        self.scanner: Scanner = RecordScanner()
        self.slot = f"contract_{database.name}"
        self.source: Source = self.open()
        self.source.sent_tables.prepare([], self.slot)

    def open(self) -> Source:
        source = self._source(ConnectionSpec("shop", "mariadb", self._database.settings, self._database.secrets))
        self._stack.callback(source.close)
        return source

    def _source(self, spec: ConnectionSpec) -> Source:
        return MariaDbTriggerSource(spec)

    def table(self, name: str, **options: Any) -> TableSpec:
        source = TableName(self._database.name, name)
        return TableSpec(TableId("t" + name.encode().hex()), source, source, **options)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._database.connect() as connection:
            yield _MariaDbSession(connection)

    def stream_early(self) -> None:
        raise NotImplementedError("windows have committed changes only")

    def stop(self) -> None:
        self._database.server.stop()

    def start(self) -> None:
        self._database.server.start()


class MariaDbQueriesOrigin(MariaDbOrigin):
    """The same, only queried, by an account that has the right SELECT on the database and no other."""

    CAN = frozenset({Can.WRITE_AT_ONCE, Can.SELECT_COLUMNS})

    def __init__(self, database: MariaDbDatabase, stack: ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database.server.execute(f"CREATE OR REPLACE USER {READER}@'%' IDENTIFIED BY 'secret'")
        database.server.execute(f"GRANT SELECT ON {database.name}.* TO {READER}@'%'")
        super().__init__(database, stack)

    def _source(self, spec: ConnectionSpec) -> Source:
        capture = CaptureSpec("query_diff", {"every_seconds": 3600, FOLDER: str(self._folder / self.slot)})
        return open_queries(replace(spec, settings={**spec.settings, "user": READER}, capture=capture))


def mariadb(kind: type[MariaDbOrigin]) -> Callable[[Callable[[str], Any], ExitStack, bool], MariaDbOrigin]:
    """A factory: (fixture by name, stack, own server or a shared one) -> origin."""

    def make(fixture: Callable[[str], Any], stack: ExitStack, own: bool) -> MariaDbOrigin:
        return kind(fixture("private_mariadb")() if own else fixture("mariadb"), stack)

    return make
