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
from engine.sources.postgres.catalog import one_look
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.relation import complete
from engine.sources.postgres.types import load_types
from engine.sources.postgres_triggers.objects import is_installed
from engine.sources.postgres_triggers.stream import open_stream
from engine.sources.postgres_triggers.structures import load_recorded_by_number, marks_of
from engine.sources.postgres_triggers.windows import close_window, last_window


class TriggerLog:
    """`LogSource` by windows."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def now(self) -> Lsn:
        return end_of(close_window(self._connector))

    def current(self) -> Lsn:
        """The end of the last window; that of the next one if it will have changes."""
        with self._connector.session() as connection:
            if not is_installed(connection):
                return ZERO
            number, unread = last_window(connection)
        return end_of(number + unread)

    def catalog_at(self, tables: Sequence[TableSpec], reader: str, *, now: bool) -> CatalogAt:
        del reader
        position = self.now() if now else self.current()
        with self._connector.session() as connection:
            return CatalogAt(position, marks_of(connection, {table.source for table in tables}))

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
        subject = str(next(iter(announced.values())).name) if len(announced) == 1 else None
        with self._connector.session(subject) as connection, one_look(connection):
            tables = load_recorded_by_number(connection, {one.relation for one in announced.values()})
            types = load_types(connection, {c.type_oid for one in announced.values() for c in one.columns})

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            del capture
            one = announced[payload]
            return complete(one, spec, known, tables.get(one.relation), types)

        return resolve

    def relation_name(self, payload: bytes) -> TableName:
        return parse_relation(payload).name
