"""MariaDB captured by triggers, as a `model.source.Source`."""

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
from engine.records import landing
from engine.records.catalog_table import schema_of
from engine.sources.mariadb import lines
from engine.sources.mariadb.catalog import SHADOW_SCHEMA, SYSTEM_SCHEMAS
from engine.sources.mariadb.connect import Connector
from engine.sources.mariadb_triggers import preflight
from engine.sources.mariadb_triggers.catalog import load_schema, load_tables, names_of
from engine.sources.mariadb_triggers.change_triggers import MariaDbChangeTriggers, why_unfit
from engine.sources.mariadb_triggers.log import MariaDbLog
from engine.sources.mariadb_triggers.reader_control import ShadowReaderControl
from engine.sources.mariadb_triggers.snapshots import WindowSnapshots
from engine.sources.mariadb_triggers.terms import MARIADB_TRIGGERS_TERMS
from engine.sources.mariadb_triggers.triggered_tables import TableWatch, TriggeredTables, TriggerSafety


class MariaDbTriggerSource:
    """`Source` over PyMySQL. `settings` of the connection: host (a path = a socket), port, database, user, tls, tls_ca.

    Methods may be called from several threads, and raise EngineFault. The protocol documents each of them.
    """

    def __init__(self, spec: ConnectionSpec) -> None:
        self._connector = connector = Connector(spec)
        self.terms = MARIADB_TRIGGERS_TERMS
        self.log: LogSource = MariaDbLog(connector)
        watch = TableWatch()
        reader, tables = ShadowReaderControl(connector), TriggeredTables(connector, watch)
        self.copies: SnapshotSource = WindowSnapshots(connector)
        self.reader: ReaderControl = reader
        self.sent_tables: SentTables = tables
        self.partitioned: PartitionedTables = NoPartitions()
        self.safety: SourceSafety = TriggerSafety(connector, watch, tables, reader)
        self.ddl: DdlReports = NoDdlReports()
        self.triggers: ChangeTriggers = MariaDbChangeTriggers(connector)
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
        with self._connector.session() as connection:
            there = load_tables(connection, [table.source for table in tables])
        found = {}
        for spec in tables:
            table = there.get(spec.source)
            if table is None or preflight.unfit_for(table, spec) is not None:
                continue
            schema = schema_of(table.structure().table(), spec)
            if schema is not None:
                found[spec.source] = schema
        return found

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        with self._connector.session() as connection:
            return {RelationId(number): name for number, name in names_of(connection, relations).items()}

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        found = {}
        with self._connector.session() as connection:
            for schema in set(schemas) - SYSTEM_SCHEMAS - {SHADOW_SCHEMA}:
                for name, table in load_schema(connection, schema).items():
                    if why_unfit(table) is None:
                        found[RelationId(table.relation)] = name
        return found

    def close(self) -> None:
        self._connector.close()


def warm() -> None:
    """Compile or load the kernels of this kind of source."""
    landing.warm()
    lines.warm()
