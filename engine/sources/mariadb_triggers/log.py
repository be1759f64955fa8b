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
from engine.model.source import CatalogAt, Resolve
from engine.model.subscription import OriginFilter, TableSpec
from engine.records.relation import parse_relation
from engine.records.window_stream import WindowStream
from engine.sources.mariadb_triggers.catalog import Structure, load_tables
from engine.sources.mariadb_triggers.connect import Connector
from engine.sources.mariadb_triggers.objects import is_installed, read_triggers
from engine.sources.mariadb_triggers.sources import sources_of
from engine.sources.mariadb_triggers.stream import open_stream
from engine.sources.mariadb_triggers.windows import Windows, close_window, has_unread, last_window
from engine.sources.postgres.catalog import key_of, schema_of


class ShadowLog:
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
            return end_of(last_window(connection) + has_unread(connection))

    def catalog_at(self, tables: Sequence[TableSpec], reader: str, *, now: bool) -> CatalogAt:
        del reader
        position = self.now() if now else self.current()
        names = {table.source for table in tables}
        with self._connector.session() as connection:
            found, triggers = load_tables(connection, names), read_triggers(connection, names)
        marks = [
            f"{name} {found[name].mark if name in found else ''} {triggers[name].mark if name in triggers else ''}"
            for name in sorted(names)
        ]
        return CatalogAt(position, "; ".join(marks))

    def open_stream(
        self,
        reader: str,
        start: Lsn,
        application: str,
        wake: int | None = None,
        origin: OriginFilter = OriginFilter.ANY,
        last: LastCommit | None = None,
    ) -> WindowStream[Windows]:
        if origin is not OriginFilter.ANY:
            detail = "triggers record changes of every origin; let `capture.origin` be `any`"
            raise EngineFault(FaultKind.ORIGIN_UNSUPPORTED, reader, detail)
        return open_stream(self._connector, reader, start, application, last, wake)

    def resolve(
        self, payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None
    ) -> TableSchema:
        return self.resolver([payload])(payload, spec, known, capture)

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        relations = {parse_relation(payload).relation for payload in payloads}
        with self._connector.session() as connection:
            found = sources_of(connection, relations)
        structures = {one.structure.record(): one.structure for one in found if one.structure is not None}

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            del known, capture
            structure = structures.get(payload)
            if structure is None:
                detail = "the table was changed on the source, and changes of it may not be recorded"
                raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(parse_relation(payload).name), detail)
            return _schema(structure, spec)

        return resolve

    def relation_name(self, payload: bytes) -> TableName:
        return parse_relation(payload).name


def _schema(structure: Structure, spec: TableSpec) -> TableSchema:
    table = structure.table()
    schema = schema_of(table, spec)
    if schema is not None:
        return schema
    problem = key_of(table, spec).problem
    if problem is not None:
        raise EngineFault(FaultKind.TABLE_NO_IDENTITY, str(structure.name), problem)
    raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, str(structure.name), "its columns cannot be selected as declared")
