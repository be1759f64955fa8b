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
from engine.sources.mariadb.connect import Connector
from engine.sources.mariadb.schemas import resolved
from engine.sources.mariadb_triggers.catalog import load_tables
from engine.sources.mariadb_triggers.objects import is_installed, read_triggers
from engine.sources.mariadb_triggers.sources import sources_of
from engine.sources.mariadb_triggers.stream import open_stream
from engine.sources.mariadb_triggers.windows import close_window, has_unread, last_window
from engine.sources.shadow_log.log import ShadowLog


class MariaDbLog(ShadowLog):
    """`LogSource` by windows."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def now(self) -> Lsn:
        return end_of(close_window(self._connector))

    def current(self) -> Lsn:
        with self._connector.session() as connection:
            if not is_installed(connection):
                return ZERO
            return end_of(last_window(connection) + has_unread(connection))

    def _mark(self, tables: Collection[TableName]) -> str:
        with self._connector.session() as connection:
            found = load_tables(connection, tables)
            triggers = read_triggers(connection, found.values()) if is_installed(connection) else {}
        marks = [
            f"{name} {found[name].mark if name in found else ''} {triggers[name].mark if name in triggers else ''}"
            for name in sorted(tables)
        ]
        return "; ".join(marks)

    def _open(self, reader: str, start: Lsn, application: str, last: LastCommit | None, wake: int | None) -> LogStream:
        return open_stream(self._connector, reader, start, application, last, wake)

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        relations = {parse_relation(payload).relation for payload in payloads}
        with self._connector.session() as connection:
            found = sources_of(connection, relations)
        structures = [one.structure for one in reversed(found) if one.structure is not None]

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            del known, capture
            return resolved(payload, spec, structures)

        return resolve
