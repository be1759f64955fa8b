"""PostgreSQL captured by triggers, as a `model.source.Source`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.model.absent_capabilities import NoCycles, NoDdlReports, NoPartitions
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
from engine.records.catalog_table import schema_of
from engine.sources.postgres.capabilities import PostgresComputedColumns, PostgresSequences
from engine.sources.postgres.catalog import names_of, one_look, standing
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.partition_watch import PartitionWatch
from engine.sources.postgres.table_checks import unparsed
from engine.sources.postgres_triggers import preflight
from engine.sources.postgres_triggers.change_triggers import PostgresChangeTriggers
from engine.sources.postgres_triggers.given import given_by
from engine.sources.postgres_triggers.log import TriggerLog
from engine.sources.postgres_triggers.objects import SHADOW_SCHEMA
from engine.sources.postgres_triggers.reader_control import TriggerReaderControl
from engine.sources.postgres_triggers.snapshots import WindowSnapshots
from engine.sources.postgres_triggers.structures import load_recorded
from engine.sources.postgres_triggers.terms import POSTGRES_TRIGGERS_TERMS
from engine.sources.postgres_triggers.tickets import ShadowLogTickets
from engine.sources.postgres_triggers.triggered_tables import TriggeredTables, TriggerSafety


class TriggerSource:
    """`Source` over psycopg, with the settings of `PostgresSource`; its user needs no replication.

    Methods may be called from several threads, and raise EngineFault. The protocol documents each of them.
    """

    def __init__(self, spec: ConnectionSpec) -> None:
        self._connector = connector = Connector(spec)
        self.terms = POSTGRES_TRIGGERS_TERMS
        self.log: LogSource = TriggerLog(connector)
        watch = PartitionWatch(lambda _: self.log.current())
        self._given = given = given_by(spec)
        reader = TriggerReaderControl(connector, given)
        self._tables = tables = TriggeredTables(connector, watch, given)
        self.copies: SnapshotSource = WindowSnapshots(connector)
        self.reader: ReaderControl = reader
        self.sent_tables: SentTables = tables
        self.partitioned: PartitionedTables = NoPartitions()
        self.safety: SourceSafety = TriggerSafety(connector, watch, tables, reader)
        self.ddl: DdlReports = NoDdlReports()
        self.triggers: ChangeTriggers = PostgresChangeTriggers(connector)
        self.tickets: TicketWriter = ShadowLogTickets(connector)
        self.sequences: SequenceReader = PostgresSequences(connector)
        self.computed: ComputedColumns = PostgresComputedColumns(connector)
        self.cycles: CycleReports = NoCycles()

    def preflight(
        self, tables: Sequence[TableSpec], reader: str | None, origin: OriginFilter = OriginFilter.ANY
    ) -> list[Finding]:
        del reader
        return preflight.check(self._connector, tables, origin, self._given)

    def discover(self) -> list[DiscoveredTable]:
        return preflight.discover_tables(self._connector)

    def identify(self) -> SourceIdentity:
        return preflight.identify(self._connector)

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        with self._connector.session() as connection, one_look(connection):
            catalog = load_recorded(connection, [t.source for t in tables])
            left_out = self._tables.unrecorded(connection, catalog.values())
        there = [
            t for t in tables if t.source in catalog and t.source not in left_out and t.source.schema != SHADOW_SCHEMA
        ]
        found = {t.source: schema_of(catalog[t.source], t) for t in there if catalog[t.source].kind == "r"}
        filtered = [t for t in there if t.where is not None and found.get(t.source) is not None]
        with self._connector.session() as connection:
            unread = {t.source for t in filtered if unparsed(connection, t.source, t.where or "") is not None}
        return {name: schema for name, schema in found.items() if schema is not None and name not in unread}

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        with self._connector.session() as connection:
            return {RelationId(oid): name for oid, name in names_of(connection, relations).items()}

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        with self._connector.session() as connection:
            return {RelationId(oid): name for oid, name in standing(connection, schemas).items()}

    def close(self) -> None:
        self._connector.close()
