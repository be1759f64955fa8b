"""PostgreSQL as the source under contract, by its log and by triggers, over an embedded server."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from engine.model.identity import TableId, TableName
from engine.model.source import Scanner, Source
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec, TableSpec
from engine.records.scan import RecordScanner
from engine.sources.postgres_log.source import PostgresSource
from engine.sources.postgres_logs.source import PartitionedSource
from engine.sources.postgres_queries.source import open_source as open_queries
from engine.sources.postgres_triggers.source import TriggerSource
from tests.contract.source_material import Can, Session
from tests.fixtures.postgres import Database

_numbers = itertools.count(1)


class _PostgresSession:
    """A connection in autocommit mode; a transaction begins with the first statement after the last one's end."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._open = False

    def execute(self, statement: str) -> None:
        if not self._open:
            self._connection.execute("BEGIN")
            self._open = True
        self._connection.execute(statement)

    def commit(self) -> None:
        self._connection.execute("COMMIT")
        self._open = False

    def rollback(self) -> None:
        self._connection.execute("ROLLBACK")
        self._open = False


class PostgresOrigin:
    """Origin over one database."""

    CAN = frozenset(Can) - {Can.CONTINUE}

    def __init__(self, database: Database, stack: ExitStack) -> None:
        self._database = database
        self._stack = stack
        self.can = self.CAN
        self.scanner: Scanner = RecordScanner()
        self.slot = f"contract_{database.name}_{next(_numbers)}"
        self.source: Source = self.open()

    def open(self) -> Source:
        source = self._source(ConnectionSpec("shop", "postgres", self._database.settings))
        self._stack.callback(source.close)
        return source

    def _source(self, spec: ConnectionSpec) -> Source:
        return PostgresSource(spec)

    def table(self, name: str, **options: Any) -> TableSpec:
        source = TableName("public", name)
        return TableSpec(TableId("t" + name.encode().hex()), source, source, **options)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._database.connect() as connection:
            yield _PostgresSession(connection)

    def stream_early(self) -> None:
        name = self._database.name
        self._database.execute(f'ALTER DATABASE "{name}" SET debug_logical_replication_streaming = immediate')

    def stop(self) -> None:
        self._database.cluster.stop("immediate")

    def start(self) -> None:
        self._database.cluster.start()


class TriggersOrigin(PostgresOrigin):
    """The same, captured by triggers. The shadow log exists before a test begins."""

    CAN = frozenset(Can) - {Can.STREAM_OPEN_TRANSACTIONS, Can.SEE_OTHERS, Can.CONTINUE}

    def __init__(self, database: Database, stack: ExitStack) -> None:
        super().__init__(database, stack)
        self.source.sent_tables.prepare([], self.slot)

    def _source(self, spec: ConnectionSpec) -> Source:
        return TriggerSource(spec)


class QueriesOrigin(PostgresOrigin):
    """The same, only queried. Nothing is followed before a test begins."""

    CAN = frozenset({Can.WRITE_AT_ONCE, Can.SELECT_COLUMNS, Can.SNAPSHOT_ALONE, Can.BEGIN_ANYWHERE})
    METHOD = "incremental"

    def __init__(self, database: Database, stack: ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        super().__init__(database, stack)
        self.source.sent_tables.prepare([], self.slot)

    def _source(self, spec: ConnectionSpec) -> Source:
        settings = {"every_seconds": 3600, "method": self.METHOD, FOLDER: str(self._folder / self.slot)}
        return open_queries(replace(spec, capture=CaptureSpec("query_diff", settings)))


class HashedQueriesOrigin(QueriesOrigin):
    """The same, whose ranges of rows the database hashes."""

    METHOD = "range_checksum"


class JoinedQueriesOrigin(QueriesOrigin):
    """The same, with copies of the tables on the source."""

    METHOD = "outer_join"

    def __init__(self, database: Database, stack: ExitStack) -> None:
        database.execute("CREATE SCHEMA IF NOT EXISTS penstock")
        super().__init__(database, stack)


def postgres(
    version: int, kind: type[PostgresOrigin]
) -> Callable[[Callable[[str], Any], ExitStack, bool], PostgresOrigin]:
    """A factory for one version: (fixture by name, stack, own server or a shared one) -> origin."""

    def make(fixture: Callable[[str], Any], stack: ExitStack, own: bool) -> PostgresOrigin:
        if own:
            return kind(Database(fixture("private_cluster")(version), "postgres"), stack)
        return kind(fixture("database_on")(fixture(f"pg{version}")), stack)

    return make


class PartitionedOrigin(PostgresOrigin):
    """Two databases as one source. The tests' tables are on the first one; transactions of the second one concern none of them."""

    CAN = frozenset(Can) - {
        Can.STREAM_OPEN_TRANSACTIONS,
        Can.SEE_OTHERS,
        Can.SNAPSHOT_ALONE,
        Can.NOW_AT_ONCE,
        Can.BEGIN_ANYWHERE,
    }

    def __init__(self, database: Database, other: Database, stack: ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._other = other
        super().__init__(database, stack)

    def _source(self, spec: ConnectionSpec) -> Source:
        nodes = [
            {"name": f"n{number}", "settings": dict(database.settings)}
            for number, database in enumerate((self._database, self._other), 1)
        ]
        capture = CaptureSpec("postgres_logs", {FOLDER: str(self._folder / self.slot)})
        return PartitionedSource(
            replace(spec, kind="partitioned", settings={"nodes": json.dumps(nodes)}, capture=capture)
        )


def partitioned(version: int) -> Callable[[Callable[[str], Any], ExitStack, bool], PostgresOrigin]:
    """As `postgres`, of two databases."""

    def make(fixture: Callable[[str], Any], stack: ExitStack, own: bool) -> PostgresOrigin:
        others = fixture("database_on")
        cluster = fixture("private_cluster")(version) if own else fixture(f"pg{version}")
        return PartitionedOrigin(Database(cluster, "postgres") if own else others(cluster), others(cluster), stack)

    return make
