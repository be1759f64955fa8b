"""Several PostgreSQL databases as one `model.source.Source`: the interface of this folder to the rest of the engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from engine.model.absent_capabilities import (
    NoChangeTriggers,
    NoCycles,
    NoDdlReports,
    NoSequences,
    NothingComputed,
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
from engine.records.catalog_table import schema_of
from engine.sources.postgres_logs import preflight
from engine.sources.postgres_logs.copies import PartitionedCopies
from engine.sources.postgres_logs.last_answers import AbsentNodes, LastAnswers
from engine.sources.postgres_logs.log import PartitionedLog, Rules
from engine.sources.postgres_logs.node_tables import NodeTables, number_of, same_number
from engine.sources.postgres_logs.nodes import Nodes, small_hash
from engine.sources.postgres_logs.own_table import OwnTable
from engine.sources.postgres_logs.reader_control import PartitionedReader
from engine.sources.postgres_logs.reader_folder import folder_of
from engine.sources.postgres_logs.sent_tables import (
    PartitionedPublications,
    PartitionedSafety,
    PartitionedTablesOfNodes,
)
from engine.sources.postgres_logs.terms import POSTGRES_LOGS_TERMS
from engine.sources.postgres_logs.tickets import PartitionedTickets


class PartitionedSource:
    """`Source` over the sources of its nodes. The protocol documents each method."""

    def __init__(self, spec: ConnectionSpec) -> None:
        self._folder = folder = folder_of(spec)
        self._nodes = nodes = Nodes(spec)
        absent = AbsentNodes(folder)
        self._tables = tables = NodeTables(nodes, absent)
        self._standing = LastAnswers[dict[RelationId, TableName]](nodes, absent)
        reader = PartitionedReader(nodes, folder, absent)
        self.terms = replace(POSTGRES_LOGS_TERMS, logs=nodes.names)
        self._rules = Rules.of(spec)
        own = OwnTable(nodes, tables, absent, self._rules.own_rows)
        self.log: LogSource = PartitionedLog(nodes, tables, self._rules, folder, absent, own)
        self.copies: SnapshotSource = PartitionedCopies(nodes, tables, folder)
        self.reader: ReaderControl = reader
        self.sent_tables: SentTables = PartitionedPublications(nodes, tables, folder, own)
        self.partitioned: PartitionedTables = PartitionedTablesOfNodes(tables)
        self.safety: SourceSafety = PartitionedSafety(nodes, tables, reader, own)
        self.ddl: DdlReports = NoDdlReports()
        self.triggers: ChangeTriggers = NoChangeTriggers()
        self.tickets: TicketWriter = PartitionedTickets(folder)
        self.sequences: SequenceReader = NoSequences()
        self.computed: ComputedColumns = NothingComputed()
        self.cycles: CycleReports = NoCycles()

    def preflight(
        self, tables: Sequence[TableSpec], reader: str | None, origin: OriginFilter = OriginFilter.ANY
    ) -> list[Finding]:
        found = preflight.check(self._nodes, self._tables, tables, reader, origin)
        return found + preflight.of_own_rows(self._nodes, self._tables, tables, self._rules.own_rows)

    def discover(self) -> list[DiscoveredTable]:
        return preflight.discover(self._nodes, self._tables)

    def identify(self) -> SourceIdentity:
        """Of the nodes with their names and order. Of several, the oldest version counts."""
        found = self._nodes.each(lambda node: node.source.identify())
        databases = [
            f"{node.name} {one.system_id} {node.connector.database}"
            for node, one in zip(self._nodes, found, strict=True)
        ]
        system_id = "-".join(f"{small_hash(salt, *databases):08x}" for salt in range(4))
        timeline = small_hash(*(one.timeline for one in found))
        timelines = {node.name: one.timeline for node, one in zip(self._nodes, found, strict=True)}
        read = {} if self._folder is None else self._folder.timelines
        return SourceIdentity(system_id, timeline, min(one.server_version for one in found), timelines, read)

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        there = self._tables.read([table.source for table in tables])
        twice = same_number(there)
        found = {}
        for spec in tables:
            one = there.get(spec.source)
            if one is not None and one.problem is None and spec.source not in twice:
                found[spec.source] = schema_of(one.whole, spec)
        return {name: schema for name, schema in found.items() if schema is not None}

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        """Of tables that were described or named by the log before."""
        known = self._tables.named(relations)
        there = self._tables.read(list(known.values()))
        return {number: name for number, name in known.items() if name in there}

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        found = self._standing.ask(lambda node: node.source.standing(schemas), frozenset(schemas))
        return {number_of(name): name for each in found for name in each.values()}

    def close(self) -> None:
        self._nodes.close()
