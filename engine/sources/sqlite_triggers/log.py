"""The shadow log as `LogSource`: positions, the stream, and the structures that it announces."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.model.ddl import Capture
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.last_commit import LastCommit
from engine.model.position import ZERO, Lsn
from engine.model.positions.windows import end_of
from engine.model.schema import TableSchema
from engine.model.source import CatalogAt, LogStream, Resolve
from engine.model.subscription import OriginFilter, TableSpec
from engine.records.relation import parse_relation
from engine.sources.sqlite_triggers.connect import Connector
from engine.sources.sqlite_triggers.registry import cookie, is_installed
from engine.sources.sqlite_triggers.schemas import resolved, structures_of
from engine.sources.sqlite_triggers.stream import open_stream
from engine.sources.sqlite_triggers.windows import last_window, require


class SqliteLog:
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

    def catalog_at(self, tables: Sequence[TableSpec], reader: str, *, now: bool) -> CatalogAt:
        """The mark is the file's schema cookie, which changes with every change of its schema."""
        del tables, reader
        position = self.now() if now else self.current()
        with self._connector.session() as connection:
            return CatalogAt(position, str(cookie(connection)))

    def open_stream(
        self,
        reader: str,
        start: Lsn,
        application: str,
        wake: int | None = None,
        origin: OriginFilter = OriginFilter.ANY,
        last: LastCommit | None = None,
    ) -> LogStream:
        if origin is not OriginFilter.ANY:
            detail = "triggers record changes of every origin; let `capture.origin` be `any`"
            raise EngineFault(FaultKind.ORIGIN_UNSUPPORTED, reader, detail)
        return open_stream(self._connector, reader, start, application, last, wake)

    def resolve(
        self, payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None
    ) -> TableSchema:
        return self.resolver([payload])(payload, spec, known, capture)

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

    def relation_name(self, payload: bytes) -> TableName:
        return parse_relation(payload).name
