"""PostgreSQL as a `model.source.Source`: the interface of this folder to the rest of the engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.model.absent_capabilities import NoChangeTriggers, NoCycles
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
from engine.sources.postgres.catalog import load_tables, names_of, one_look, standing
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.partition_watch import PartitionWatch
from engine.sources.postgres.table_checks import discover
from engine.sources.postgres_log import position, preflight
from engine.sources.postgres_log.capabilities import (
    PostgresDdlReports,
    PostgresPartitions,
    PostgresTickets,
)
from engine.sources.postgres_log.catalog_mark import CatalogMarks
from engine.sources.postgres_log.filter_trials import FilterTrials
from engine.sources.postgres_log.given import given_by
from engine.sources.postgres_log.given_tables import GivenTables
from engine.sources.postgres_log.log import PostgresLog
from engine.sources.postgres_log.published_tables import PostgresPublications, PostgresSafety
from engine.sources.postgres_log.reader_control import PostgresReaderControl
from engine.sources.postgres_log.snapshots import PostgresSnapshots
from engine.sources.postgres_log.terms import POSTGRES_LOG_TERMS


class PostgresSource:
    """`Source` over psycopg. Settings: host, port, database, user, sslmode, sslrootcert (a path); secrets: password.

    Methods may be called from several threads, and raise EngineFault. The protocol documents each of them.
    """

    def __init__(self, spec: ConnectionSpec) -> None:
        self.connector = connector = Connector(spec)
        self.terms = POSTGRES_LOG_TERMS
        watch = PartitionWatch(position.current)
        marks = CatalogMarks(watch)
        copies = PostgresSnapshots(connector)
        self._given = given = given_by(spec)
        reader = PostgresReaderControl(connector, copies.open_slots, given)
        self._trials = FilterTrials()
        self._tables = None if given.publication is None else GivenTables(connector, given.publication, watch)
        published = self._tables or PostgresPublications(connector, watch, self._trials)
        self.log: LogSource = PostgresLog(connector, marks, given)
        self.copies: SnapshotSource = copies
        self.reader: ReaderControl = reader
        self.sent_tables: SentTables = published
        self.partitioned: PartitionedTables = PostgresPartitions(connector, self._tables)
        self.safety: SourceSafety = PostgresSafety(connector, watch, marks, published, reader)
        self.ddl: DdlReports = PostgresDdlReports(connector)
        self.triggers: ChangeTriggers = NoChangeTriggers()
        self.tickets: TicketWriter = PostgresTickets(connector)
        self.sequences: SequenceReader = PostgresSequences(connector)
        self.computed: ComputedColumns = PostgresComputedColumns(connector)
        self.cycles: CycleReports = NoCycles()

    def preflight(
        self, tables: Sequence[TableSpec], slot: str | None, origin: OriginFilter = OriginFilter.ANY
    ) -> list[Finding]:
        """See Source.preflight. A database that cannot be reached is a finding too."""
        return preflight.check(self.connector, tables, slot, origin, self._trials.refused, self._given)

    def discover(self) -> list[DiscoveredTable]:
        return discover(self.connector)

    def identify(self) -> SourceIdentity:
        return position.identify(self.connector)

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        """The current schemas. Tables that do not exist or cannot be replicated are left out; `preflight` reports the reason."""
        with self.connector.session() as connection, one_look(connection):
            catalog = load_tables(connection, [t.source for t in tables])
            unsent = self._tables.unsent(connection, tables) if self._tables is not None else frozenset()
        there = [s for s in tables if s.source in catalog and s.source not in unsent and not self._trials.is_refused(s)]
        found = {spec.source: schema_of(catalog[spec.source], spec) for spec in there}
        return {name: schema for name, schema in found.items() if schema is not None}

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        with self.connector.session() as connection:
            return {RelationId(oid): name for oid, name in names_of(connection, relations).items()}

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        with self.connector.session() as connection:
            return {RelationId(oid): name for oid, name in standing(connection, schemas).items()}

    def close(self) -> None:
        self.connector.close()
