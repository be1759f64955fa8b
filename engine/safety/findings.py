"""What a check of the source found, as values. The monitor yields them one by one; the run applies each before the check continues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.model.fault import FaultKind
from engine.model.identity import TableId, TableName
from engine.model.position import Lsn
from engine.model.source import GuardReading
from engine.tables.ddl_messages import CertifiedSchema
from engine.tables.known_catalog import Settled
from engine.tables.planner import CatalogSchema
from engine.tables.registry import TableEntry


@dataclass(frozen=True, slots=True)
class Park:
    """The table cannot be replicated as it is. `known`: it parks only if it is still in this state; None = in any state."""

    table: TableId
    kind: FaultKind
    detail: str
    known: TableEntry | None = None


@dataclass(frozen=True, slots=True)
class Renamed:
    """A table has another name; it is still replicated."""

    old: TableName
    new: TableName


@dataclass(frozen=True, slots=True)
class SchemaLearnt:
    """The catalog shows a schema that the log has not announced."""

    schema: CatalogSchema


@dataclass(frozen=True, slots=True)
class Certified:
    """The catalog confirms these schemas while the DDL capture is in force."""

    schemas: tuple[CertifiedSchema, ...]


@dataclass(frozen=True, slots=True)
class Fingerprinted:
    """Fingerprints of live tables without faults. `as_of`: end of the last batch sealed when the check began."""

    marks: Mapping[TableId, str]
    as_of: Lsn


@dataclass(frozen=True, slots=True)
class TablesAppeared:
    """New tables that match a pattern, and whether each may be replicated, if need be without its updates and deletes."""

    tables: Mapping[TableName, bool]


@dataclass(frozen=True, slots=True)
class SourceGone:
    """Changes may be missing: the source has lost our reader, or has not sent every change. The run ends with this fault."""

    kind: FaultKind
    detail: str


@dataclass(frozen=True, slots=True)
class LogRetained:
    """The figures of the retained log, once per check."""

    reading: GuardReading


Finding = (
    Park | Renamed | SchemaLearnt | Certified | Fingerprinted | TablesAppeared | SourceGone | LogRetained | Settled
)
"""`Settled` comes last, from a check that found nothing else to do and left nothing undecided."""
