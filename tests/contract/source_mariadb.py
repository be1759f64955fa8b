"""MariaDB as the source under contract, by triggers and by queries."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pymysql.connections import Connection

from engine.model.column_selection import ColumnSelection, TableSelection
from engine.model.identity import TableId, TableName
from engine.model.source import LogSource, RecordChunk, Scanner, Source
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec, TableSpec
from engine.records.scan import RecordScanner
from engine.records.selection import RecordSelector
from engine.sources.mariadb_queries.source import open_source as open_queries
from engine.sources.mariadb_triggers.source import MariaDbTriggerSource
from tests.contract.source_material import Can, Session
from tests.fixtures.mariadb import MariaDbDatabase

READER = "reader"
_NAMES = ("notes", "moving", "history", "more")
"""Tables of the contract that get a stamp."""
_STAMPED = tuple(f"CREATE TABLE {name} (" for name in _NAMES)
_STAMP = "changed_at"
_STAMP_TYPE = "timestamp(6) INVISIBLE NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)"


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

    CAN = frozenset(Can) - {
        Can.STREAM_OPEN_TRANSACTIONS,
        Can.SEE_OTHERS,
        Can.FOLLOW_COLUMNS,
        Can.TAKE_TICKETS,
        Can.CONTINUE,
    }

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

    CAN = frozenset({Can.WRITE_AT_ONCE, Can.SELECT_COLUMNS, Can.SNAPSHOT_ALONE, Can.BEGIN_ANYWHERE})
    EVERY_S = 3600

    def __init__(self, database: MariaDbDatabase, stack: ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database.server.execute(f"CREATE OR REPLACE USER {READER}@'%' IDENTIFIED BY 'secret'")
        database.server.execute(f"GRANT SELECT ON {database.name}.* TO {READER}@'%'")
        super().__init__(database, stack)

    def _source(self, spec: ConnectionSpec) -> Source:
        settings = {"every_seconds": self.EVERY_S, FOLDER: str(self._folder / self.slot), **self._more()}
        capture = CaptureSpec("query_diff", settings)
        return open_queries(replace(spec, settings={**spec.settings, "user": READER}, capture=capture))

    def _more(self) -> dict[str, str]:
        """Further settings of the capture."""
        return {}


class _StampedSession(_MariaDbSession):
    def execute(self, statement: str) -> None:
        if statement.startswith(_STAMPED):
            statement = f"{statement.removesuffix(')')}, {_STAMP} {_STAMP_TYPE})"
        super().execute(statement)


class _WithoutStamps:
    """A log without the stamps, as the engine's log reader writes it; else the same."""

    def __init__(self, log: Any, schema: str) -> None:
        self._log = log
        self._selections = [
            TableSelection(TableName(schema, name), frozenset(), ColumnSelection(exclude=(_STAMP,))) for name in _NAMES
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def open_stream(self, *given: Any, **named: Any) -> Any:
        stream, selector = self._log.open_stream(*given, **named), RecordSelector(self._selections)
        return _StreamWithoutStamps(stream, selector)


class _StreamWithoutStamps:
    def __init__(self, stream: Any, selector: RecordSelector) -> None:
        self._stream = stream
        self._selector = selector

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def read(self, timeout_s: float) -> RecordChunk | None:
        chunk = self._stream.read(timeout_s)
        return None if chunk is None else self._selector.apply(chunk)


class StampedQueriesOrigin(MariaDbQueriesOrigin):
    """The same, with a cycle by stamps each second, between those that the tests ask for. The stamps are not replicated."""

    EVERY_S = 1

    def __init__(self, database: MariaDbDatabase, stack: ExitStack) -> None:
        super().__init__(database, stack)
        database.server.execute(f"GRANT PROCESS ON *.* TO {READER}@'%'")

    def _source(self, spec: ConnectionSpec) -> Source:
        source = super()._source(spec)
        source.log = cast("LogSource", _WithoutStamps(source.log, self._database.name))
        return source

    def _more(self) -> dict[str, str]:
        one = {"method": "timestamp", "stamp_column": _STAMP, "sweep_every": 100_000}
        tables = {f"{self._database.name}.{name}": one for name in _NAMES}
        return {"method": "row_checksum", "tables": json.dumps(tables)}

    def table(self, name: str, **options: Any) -> TableSpec:
        left_out = (_STAMP,) if name in _NAMES else ()
        return super().table(name, **{**options, "exclude_columns": (*left_out, *options.get("exclude_columns", ()))})

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._database.connect() as connection:
            yield _StampedSession(connection)


def mariadb(kind: type[MariaDbOrigin]) -> Callable[[Callable[[str], Any], ExitStack, bool], MariaDbOrigin]:
    """A factory: (fixture by name, stack, own server or a shared one) -> origin."""

    def make(fixture: Callable[[str], Any], stack: ExitStack, own: bool) -> MariaDbOrigin:
        return kind(fixture("private_mariadb")() if own else fixture("mariadb"), stack)

    return make
