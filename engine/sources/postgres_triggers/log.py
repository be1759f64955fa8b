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
from engine.sources.postgres.catalog import one_look
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.relation import complete
from engine.sources.postgres.types import load_types
from engine.sources.postgres_triggers.objects import is_installed
from engine.sources.postgres_triggers.stream import open_stream
from engine.sources.postgres_triggers.structures import load_recorded_by_number, marks_of
from engine.sources.postgres_triggers.windows import close_window, last_window, shadow_log_faults
from engine.sources.shadow_log.log import ShadowLog


class TriggerLog(ShadowLog):
    """`LogSource` by windows."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def now(self) -> Lsn:
        return end_of(close_window(self._connector))

    def current(self) -> Lsn:
        with self._connector.session() as connection:
            if not is_installed(connection):
                return ZERO
            with shadow_log_faults():
                number, unread = last_window(connection)
        return end_of(number + unread)

    def _mark(self, tables: Collection[TableName]) -> str:
        with self._connector.session() as connection:
            return marks_of(connection, tables)

    def _open(self, reader: str, start: Lsn, application: str, last: LastCommit | None, wake: int | None) -> LogStream:
        return open_stream(self._connector, reader, start, application, last, wake)

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
