"""The shadow log as `LogSource`: positions, the stream, and the structures that it announces."""

from __future__ import annotations

from collections.abc import Collection

from engine.model.ddl import Capture
from engine.model.identity import TableName
from engine.model.last_commit import LastCommit
from engine.model.position import ZERO, Lsn
from engine.model.positions.windows import end_of
from engine.model.schema import TableSchema
from engine.model.source import LogStream, Resolve
from engine.model.subscription import TableSpec
from engine.records.relation import parse_relation
from engine.records.table_structure import resolved
from engine.sources.shadow_log.log import ShadowLog
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_triggers.registry import cookie, is_installed
from engine.sources.sqlite_triggers.schemas import structures_of
from engine.sources.sqlite_triggers.stream import open_stream
from engine.sources.sqlite_triggers.windows import last_window, require


class SqliteLog(ShadowLog):
    """`LogSource` by windows."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def now(self) -> Lsn:
        """The end of the next window, if anything was committed since the last one: it will include every commit so far. The stream
        closes it at once; an open transaction delays that, but not this answer."""
        with self._connector.reading() as connection:
            require(connection, self._connector.name)
            number, unread = last_window(connection)
        return end_of(number + unread)

    def current(self) -> Lsn:
        with self._connector.reading() as connection:
            if not is_installed(connection):
                return ZERO
            number, unread = last_window(connection)
        return end_of(number + unread)

    def _mark(self, tables: Collection[TableName]) -> str:
        """The file's schema cookie, which changes with every change of its schema."""
        del tables
        with self._connector.session() as connection:
            return str(cookie(connection))

    def _open(self, reader: str, start: Lsn, application: str, last: LastCommit | None, wake: int | None) -> LogStream:
        return open_stream(self._connector, reader, start, application, last, wake)

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        announced = {payload: parse_relation(payload) for payload in payloads}
        with self._connector.reading() as connection:
            structures = structures_of(connection, {int(one.relation) for one in announced.values()})

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            del known, capture
            one = announced[payload]
            return resolved(one, spec, structures.get(int(one.relation), ()))

        return resolve
