"""A SQLite file as `ComparedDatabase`, opened for reading only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager

from engine.model.absent_capabilities import NoSequences, NothingComputed
from engine.model.ddl import Capture
from engine.model.identity import RelationId, TableId, TableName
from engine.model.schema import TableSchema
from engine.model.sequences import SequenceReader
from engine.model.source import WHOLE_TABLE, ComputedColumns, DiscoveredTable, Finding, Resolve
from engine.model.subscription import OriginFilter, TableSpec
from engine.records.relation import parse_relation
from engine.records.table_structure import record_of, resolved, unreadable_record
from engine.sources.query_diff.database import ComparedTable, DatabaseReads
from engine.sources.query_diff.derived_numbers import check_distinct
from engine.sources.query_diff.unhashed import UnhashedRows
from engine.sources.sqlite.catalog import SCHEMA, LiveTable, live_tables
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_queries import preflight
from engine.sources.sqlite_queries.compared import described, facts_of, first_number, number_of
from engine.sources.sqlite_queries.snapshots import FileReads, exported
from engine.sources.sqlite_queries.terms import SQLITE_QUERIES_TERMS


class SqliteDatabase(UnhashedRows):
    """`ComparedDatabase` over a file. Connections are opened for each call."""

    statement_bytes = WHOLE_TABLE

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self.terms = SQLITE_QUERIES_TERMS
        self.reads: DatabaseReads = FileReads(connector)
        self.cycle_reads: DatabaseReads = self.reads
        self.sequences: SequenceReader = NoSequences()
        self.computed: ComputedColumns = NothingComputed()

    def snapshot(self, timeout_s: float) -> AbstractContextManager[str]:
        del timeout_s
        return exported(self._connector)

    def tables(self, followed: Mapping[TableName, str | None]) -> dict[TableName, ComparedTable]:
        check_distinct(followed)
        found = {}
        for name, table in self._live(followed).items():
            spec, structure = TableSpec(TableId("t0"), name, name), table.structure
            schema, number = described(table, spec), int(number_of(structure))
            if schema is not None:
                record, unreadable = record_of(number, structure), unreadable_record(number, structure)
                found[name] = ComparedTable(schema, spec, record, unreadable)
        return found

    def _live(self, names: Collection[TableName]) -> dict[TableName, LiveTable]:
        with self._connector.reading() as connection:
            there = live_tables(connection, [name.name for name in names]).values()
        found = {table.structure.table_name: table for table in there}
        return {name: table for name, table in found.items() if name in names}

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        announced = {payload: parse_relation(payload) for payload in payloads}
        there = self._live({one.name for one in announced.values()})

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            del known, capture
            one = announced[payload]
            structures = [there[one.name].structure] if one.name in there else []
            return resolved(one, spec, structures, first_number)

        return resolve

    def mark(self, tables: Collection[TableName]) -> str:
        there = self._live(tables)
        return "\n".join(f"{name} {facts_of(there[name].structure)}" for name in sorted(there, key=str))

    def server_version(self) -> int:
        self._connector.file()
        return sqlite3.sqlite_version_info[0] * 1_000_000

    def preflight(self, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
        return preflight.check(self._connector, tables, origin)

    def discover(self) -> list[DiscoveredTable]:
        return preflight.discover_tables(self._connector)

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        there = self._live({table.source for table in tables})
        found = {spec.source: described(there[spec.source], spec) for spec in tables if spec.source in there}
        return {name: schema for name, schema in found.items() if schema is not None}

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        return {number: name for number, name in self._numbered(lambda _: True).items() if number in relations}

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        return self._numbered(lambda table: table.problem is None) if SCHEMA in schemas else {}

    def _numbered(self, wanted: Callable[[LiveTable], bool]) -> dict[RelationId, TableName]:
        with self._connector.reading() as connection:
            there = live_tables(connection).values()
        return {number_of(table.structure): table.structure.table_name for table in there if wanted(table)}

    def close(self) -> None:
        """Nothing is held."""
