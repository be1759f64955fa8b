"""MariaDB captured by triggers as the source under contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pymysql.connections import Connection

from engine.model.identity import TableId, TableName
from engine.model.source import Scanner, Source
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.records.scan import RecordScanner
from engine.sources.mariadb_triggers.source import MariaDbTriggerSource
from tests.contract.source_material import Can, Session
from tests.fixtures.mariadb import MariaDbDatabase


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

    def __init__(self, database: MariaDbDatabase, stack: ExitStack) -> None:
        self._database = database
        self._stack = stack
        self.can: frozenset[Can] = frozenset(Can) - {
            Can.STREAM_OPEN_TRANSACTIONS,
            Can.SEE_OTHERS,
            Can.FOLLOW_COLUMNS,
        }
        self.scanner: Scanner = RecordScanner()
        self.slot = f"contract_{database.name}"
        self.source: Source = self.open()
        self.source.sent_tables.prepare([], self.slot)

    def open(self) -> Source:
        spec = ConnectionSpec("shop", "mariadb", self._database.settings, self._database.secrets)
        source = MariaDbTriggerSource(spec)
        self._stack.callback(source.close)
        return source

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


def mariadb_triggers(fixture: Callable[[str], Any], stack: ExitStack, own: bool) -> MariaDbOrigin:
    """A factory: (fixture by name, stack, own server or a shared one) -> origin."""
    return MariaDbOrigin(fixture("private_mariadb")() if own else fixture("mariadb"), stack)
