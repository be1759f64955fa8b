"""The log of a PostgreSQL database: positions, the stream, and the schemas that it announces."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from engine.model.ddl import Capture
from engine.model.identity import TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.schema import TableSchema, still_computed
from engine.model.source import (
    CatalogAt,
    Resolve,
)
from engine.model.subscription import OriginFilter, TableSpec
from engine.records.relation import parse_relation
from engine.sources.postgres.catalog import load_numbered, one_look
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.relation import complete, is_announced
from engine.sources.postgres.types import load_types
from engine.sources.postgres_log import ddl_capture, position
from engine.sources.postgres_log.catalog_mark import CatalogMarks
from engine.sources.postgres_log.ddl_message import CatalogDdlTable
from engine.sources.postgres_log.given import Given
from engine.sources.postgres_log.stream import PostgresLogStream, open_stream


class PostgresLog:
    """`LogSource` by logical decoding."""

    def __init__(self, connector: Connector, marks: CatalogMarks, given: Given) -> None:
        self._connector = connector
        self._given = given
        self._marks = marks
        self._capture = ddl_capture.CaptureWatch()

    def now(self) -> Lsn:
        return position.now(self._connector)

    def current(self) -> Lsn:
        return position.current(self._connector)

    def catalog_at(self, tables: Sequence[TableSpec], slot: str, *, now: bool) -> CatalogAt:
        names = {table.source for table in tables}
        with self._connector.session() as connection:
            return self._marks.read(connection, names, self._given.publications(slot), now=now)

    def open_stream(
        self,
        slot: str,
        start: Lsn,
        application: str,
        wake: int | None = None,
        origin: OriginFilter = OriginFilter.ANY,
        last: LastCommit | None = None,
    ) -> PostgresLogStream:
        sent = self._given.publications(slot)
        return open_stream(self._connector, self._given.slot_of(slot), start, application, sent, wake, origin, last)

    def resolve(
        self, payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None
    ) -> TableSchema:
        """The schema that a relation record announces. `payload`: without a transaction id, as in RelationSeen."""
        return self.resolver([payload])(payload, spec, known, capture)

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        announced = {payload: parse_relation(payload) for payload in payloads}
        subject = str(next(iter(announced.values())).name) if len(announced) == 1 else None
        with self._connector.session(subject) as connection, one_look(connection):
            tables = load_numbered(connection, {one.relation for one in announced.values()})
            types = load_types(connection, {c.type_oid for one in announced.values() for c in one.columns})
            mark = self._capture.in_force(connection)

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            one, now = announced[payload], tables.get(announced[payload].relation)
            if capture is not None and capture.mark == mark:
                if known is not None and capture.known and (capture.void or is_announced(known, one, spec, types)):
                    return known
                if isinstance(capture.reported, CatalogDdlTable) and capture.reported.is_announced(one, spec):
                    return _with_computed(capture.reported.schema(spec), known)
            return complete(one, spec, known, now, types)

        return resolve

    def relation_name(self, payload: bytes) -> TableName:
        return parse_relation(payload).name


def _with_computed(reported: TableSchema, known: TableSchema | None) -> TableSchema:
    """The schema of a DDL message with `known`'s computed columns, which DDL messages do not contain."""
    return reported if known is None else replace(reported, computed=still_computed(known.computed, reported.columns))
