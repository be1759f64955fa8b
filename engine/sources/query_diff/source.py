"""A database that is only queried, as a `model.source.Source`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.model.absent_capabilities import NoChangeTriggers, NoDdlReports, NoPartitions, NoTickets
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
from engine.sources.query_diff.database import ComparedDatabase
from engine.sources.query_diff.followed_tables import CycleSafety, FollowedTables
from engine.sources.query_diff.given import given_by
from engine.sources.query_diff.log import CycleSource
from engine.sources.query_diff.reader_control import CycleReader
from engine.sources.query_diff.reports import CyclesOfFolder
from engine.sources.query_diff.snapshots import CycleSnapshots


class QueryDiffSource:
    """`Source` by cycles over a `ComparedDatabase`. The protocol documents each method."""

    def __init__(self, database: ComparedDatabase, spec: ConnectionSpec) -> None:
        given = given_by(spec)
        self._database = database
        self._given = given
        reader, tables = CycleReader(database, given), FollowedTables(database, given)
        self.terms = database.terms
        self.log: LogSource = CycleSource(database, given)
        self.copies: SnapshotSource = CycleSnapshots(database, given)
        self.reader: ReaderControl = reader
        self.sent_tables: SentTables = tables
        self.partitioned: PartitionedTables = NoPartitions()
        self.safety: SourceSafety = CycleSafety(tables, reader)
        self.ddl: DdlReports = NoDdlReports()
        self.triggers: ChangeTriggers = NoChangeTriggers()
        self.tickets: TicketWriter = NoTickets()
        self.sequences: SequenceReader = database.sequences
        self.computed: ComputedColumns = database.computed
        self.cycles: CycleReports = CyclesOfFolder(given)

    def preflight(
        self, tables: Sequence[TableSpec], reader: str | None, origin: OriginFilter = OriginFilter.ANY
    ) -> list[Finding]:
        del reader
        return self._database.preflight(tables, origin)

    def discover(self) -> list[DiscoveredTable]:
        return self._database.discover()

    def identify(self) -> SourceIdentity:
        """The identity of what is kept, since positions count its cycles: the database may fail over, or be restored, in between."""
        kept = self._given.folder.id if self._given.path is not None else None
        return SourceIdentity(kept or "nothing is kept yet", 0, self._database.server_version())

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        return self._database.describe(tables)

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        return self._database.names(relations)

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        return self._database.standing(schemas)

    def close(self) -> None:
        self._database.close()
