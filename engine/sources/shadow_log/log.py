"""A shadow log as `LogSource`: what does not depend on the database that keeps it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from engine.model.ddl import Capture
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.source import CatalogAt, LogStream, Resolve
from engine.model.subscription import OriginFilter, TableSpec
from engine.records.relation import parse_relation


class ShadowLog(ABC):
    """`LogSource` by windows. A subclass reads and closes them."""

    _ORIGIN = "triggers record changes of every origin"

    @abstractmethod
    def now(self) -> Lsn: ...

    @abstractmethod
    def current(self) -> Lsn:
        """The end of the last window; that of the next one if it will have changes. ZERO without a shadow log."""

    @abstractmethod
    def resolver(self, payloads: Collection[bytes]) -> Resolve: ...

    @abstractmethod
    def _mark(self, tables: Collection[TableName]) -> str:
        """Text that changes with the structure of these tables, and with their triggers."""

    @abstractmethod
    def _open(
        self, reader: str, start: Lsn, application: str, last: LastCommit | None, wake: int | None
    ) -> LogStream: ...

    def catalog_at(self, tables: Sequence[TableSpec], reader: str, *, now: bool) -> CatalogAt:
        del reader
        position = self.now() if now else self.current()
        return CatalogAt(position, self._mark({table.source for table in tables}))

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
            detail = f"{self._ORIGIN}; let `capture.origin` be `any`"
            raise EngineFault(FaultKind.ORIGIN_UNSUPPORTED, reader, detail)
        return self._open(reader, start, application, last, wake)

    def resolve(
        self, payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None
    ) -> TableSchema:
        return self.resolver([payload])(payload, spec, known, capture)

    def relation_name(self, payload: bytes) -> TableName:
        return parse_relation(payload).name
