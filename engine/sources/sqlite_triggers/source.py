"""A SQLite file captured by triggers, as a `model.source.Source`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.model.absent_capabilities import (
    NoCycles,
    NoDdlReports,
    NoPartitions,
    NoSequences,
    NothingComputed,
    NoTickets,
)
from engine.model.cycles import CycleReports
from engine.model.identity import RelationId, TableName
from engine.model.schema import TableSchema
from engine.model.sequences import SequenceReader
from engine.model.source import (
    ChangeTriggers,
    ComputedColumns,
    DdlReports,
    DiscoveredTable,
    Finding,
    LogSource,
    PartitionedTables,
    ReaderControl,
    SentTables,
    SnapshotSource,
    SourceIdentity,
    SourceSafety,
    TicketWriter,
)
from engine.model.subscription import ConnectionSpec, OriginFilter, TableSpec
from engine.sources.sqlite.catalog import SCHEMA
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_triggers import preflight
from engine.sources.sqlite_triggers.change_triggers import SqliteChangeTriggers
from engine.sources.sqlite_triggers.log import SqliteLog
from engine.sources.sqlite_triggers.reader_control import SqliteReaderControl
from engine.sources.sqlite_triggers.registry import look, names_of
from engine.sources.sqlite_triggers.schemas import described
from engine.sources.sqlite_triggers.snapshots import FileSnapshots
from engine.sources.sqlite_triggers.terms import SQLITE_TRIGGERS_TERMS
from engine.sources.sqlite_triggers.triggered_tables import TriggeredTables, TriggerSafety


class SqliteSource:
    """`Source` over a file. Connections are opened for each call, so nothing is held between two of them.

    Methods may be called from several threads, and raise EngineFault. The protocol documents each of them.
    """

    def __init__(self, spec: ConnectionSpec) -> None:
        self._connector = connector = Connector(spec)
        self.terms = SQLITE_TRIGGERS_TERMS
        self.log: LogSource = SqliteLog(connector)
        reader, tables = SqliteReaderControl(connector), TriggeredTables(connector)
        self.copies: SnapshotSource = FileSnapshots(connector)
        self.reader: ReaderControl = reader
        self.sent_tables: SentTables = tables
        self.partitioned: PartitionedTables = NoPartitions()
        self.safety: SourceSafety = TriggerSafety(connector, tables, reader)
        self.ddl: DdlReports = NoDdlReports()
        self.triggers: ChangeTriggers = SqliteChangeTriggers(connector)
        self.tickets: TicketWriter = NoTickets()
        self.sequences: SequenceReader = NoSequences()
        self.computed: ComputedColumns = NothingComputed()
        self.cycles: CycleReports = NoCycles()

    def preflight(
        self, tables: Sequence[TableSpec], reader: str | None, origin: OriginFilter = OriginFilter.ANY
    ) -> list[Finding]:
        del reader
        return preflight.check(self._connector, tables, origin)

    def discover(self) -> list[DiscoveredTable]:
        return preflight.discover_tables(self._connector)

    def identify(self) -> SourceIdentity:
        return preflight.identify(self._connector)

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        with self._connector.reading() as connection:
            there = {found.name: found for found in look(connection, [t.source.name for t in tables]).values()}
        found = {t.source: described(there[t.source], t) for t in tables if t.source in there}
        return {name: schema for name, schema in found.items() if schema is not None}

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        with self._connector.reading() as connection:
            return names_of(connection, relations)

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        return preflight.names_standing(self._connector) if SCHEMA in schemas else {}

    def close(self) -> None:
        """Nothing is held."""
