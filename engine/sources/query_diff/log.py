"""Cycles as `LogSource`."""

from __future__ import annotations

from collections.abc import Collection

from engine.model.identity import TableName
from engine.model.last_commit import LastCommit
from engine.model.position import ZERO, Lsn
from engine.model.positions.windows import end_of
from engine.model.source import LogStream, Resolve
from engine.sources.query_diff.database import ComparedDatabase
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.stream import open_stream
from engine.sources.shadow_log.log import ShadowLog


class CycleSource(ShadowLog):
    """`LogSource` by cycles."""

    _ORIGIN = "queries find changes of every origin"

    def __init__(self, database: ComparedDatabase, given: Given) -> None:
        self._database = database
        self._given = given

    def now(self) -> Lsn:
        """The end of the next cycle that begins, which is due at once: its snapshot has every commit so far. Fails if that cannot begin."""
        self._database.server_version()
        return end_of(self._given.folder.numbers.request())

    def current(self) -> Lsn:
        if self._given.path is None or not self._given.folder.exists:
            return ZERO
        return end_of(self._given.folder.files.last)

    def _mark(self, tables: Collection[TableName]) -> str:
        return self._database.mark(tables)

    def _open(self, reader: str, start: Lsn, application: str, last: LastCommit | None, wake: int | None) -> LogStream:
        return open_stream(self._database, self._given, reader, start, application, last, wake)

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        return self._database.resolver(payloads)
