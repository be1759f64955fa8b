"""A SQLite file as `ComparedDatabase`, opened for reading only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from engine.model.absent_capabilities import NoSequences, NothingComputed
from engine.model.ddl import Capture
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId, TableName
from engine.model.schema import TableSchema
from engine.model.sequences import SequenceReader
from engine.model.source import WHOLE_TABLE, ComputedColumns, DiscoveredTable, Finding, Resolve, TableSplit
from engine.model.subscription import OriginFilter, TableSpec
from engine.records.relation import parse_relation
from engine.records.table_structure import record_of, resolved, unreadable_record
from engine.sources.query_diff.database import ComparedTable, DatabaseReads
from engine.sources.query_diff.derived_numbers import check_distinct
from engine.sources.query_diff.stamps import Since, Stamp
from engine.sources.query_diff.unhashed import UnhashedRows
from engine.sources.sqlite.catalog import SCHEMA, LiveTable, Structure, live_tables
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_queries import preflight, stamps
from engine.sources.sqlite_queries.compared import AS_THEY_ARE, Compared, facts_of, first_number, number_of
from engine.sources.sqlite_queries.snapshots import FileReads, exported, generation_of
from engine.sources.sqlite_queries.terms import SQLITE_QUERIES_TERMS


class SqliteDatabase(UnhashedRows):
    """`ComparedDatabase` over a file. Connections are opened for each call. `compared`: as the capture declares."""

    statement_bytes = WHOLE_TABLE

    def __init__(self, connector: Connector, compared: Compared = AS_THEY_ARE) -> None:
        self._connector = connector
        self._compared = compared
        self._generations: dict[str, str] = {}
        """Of the snapshots that last, by name."""
        self.terms = SQLITE_QUERIES_TERMS
        self.reads: DatabaseReads = FileReads(connector)
        self.cycle_reads: DatabaseReads = self.reads
        self.sequences: SequenceReader = NoSequences()
        self.computed: ComputedColumns = NothingComputed()

    @contextmanager
    def snapshot(self, timeout_s: float) -> Iterator[str]:
        del timeout_s
        with exported(self._connector) as held:
            self._generations[held.name] = held.generation
            try:
                yield held.name
            finally:
                del self._generations[held.name]

    def tables(self, followed: Mapping[TableName, str | None]) -> dict[TableName, ComparedTable]:
        check_distinct(followed)
        found, file = {}, self._connector.file()
        with self._connector.reading() as connection:
            generation = generation_of(connection, file)
            for name, table in _among(connection, followed).items():
                structure = table.structure
                spec, number = TableSpec(TableId("t0"), name, name), int(number_of(structure))
                schema = self._compared.described(table, spec)
                if schema is not None:
                    records = record_of(number, structure), unreadable_record(number, structure)
                    times = self._stamps(connection, structure)
                    found[name] = ComparedTable(schema, spec, *records, times, generation=generation)
        return found

    def _stamps(self, connection: sqlite3.Connection, structure: Structure) -> frozenset[str]:
        """The declared stamp, if rows can be read by it."""
        column = self._compared.of(structure).stamp_column
        if column is None or self._compared.stamp_problem(structure) is not None:
            return frozenset()
        return frozenset({column} if stamps.is_comparable(connection, structure, column) else ())

    def rows_since(self, table: ComparedTable, snapshot: str, since: Since) -> Iterator[bytes]:
        """Raises EngineFault(TABLE_STRUCTURE_CHANGED) if the snapshot is of another generation than the table, as does `left_since`."""
        if not isinstance(since, Stamp):
            return super().rows_since(table, snapshot, since)
        return self._read_since(table, snapshot, stamps.rows_since(table.schema, self._structure(table), since))

    def left_since(self, table: ComparedTable, snapshot: str, since: Stamp) -> Iterator[bytes]:
        return self._read_since(table, snapshot, stamps.left_since(table.schema, self._structure(table), since))

    def newest_stamp(self, table: ComparedTable, snapshot: str, column: str, overlap_s: float) -> str | None:
        """None also if the snapshot is of another generation than the table."""
        if self._generations.get(snapshot) != table.generation:
            return None
        structure = self._structure(table)
        pieces = self.cycle_reads.read_split(stamps.newest(table.schema, structure, column), snapshot)
        return stamps.newest_of(pieces, structure, column, overlap_s)

    def _read_since(self, table: ComparedTable, snapshot: str, split: TableSplit) -> Iterator[bytes]:
        if self._generations.get(snapshot) != table.generation:
            name = str(table.schema.name)
            raise EngineFault(
                FaultKind.TABLE_STRUCTURE_CHANGED, name, "the file's schema was changed, or it is another file"
            )
        return self.cycle_reads.read_split(split, snapshot)

    def _structure(self, table: ComparedTable) -> Structure:
        name = table.schema.name
        found = self._live({name}).get(name)
        if found is None:
            raise EngineFault(FaultKind.TABLE_MISSING, str(name), "the table is gone")
        return found.structure

    def _live(self, names: Collection[TableName]) -> dict[TableName, LiveTable]:
        with self._connector.reading() as connection:
            return _among(connection, names)

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        announced = {payload: parse_relation(payload) for payload in payloads}
        there = self._live({one.name for one in announced.values()})

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            del known, capture
            one = announced[payload]
            if one.name not in there:
                return resolved(one, spec, (), first_number)
            structure = there[one.name].structure
            problem = self._compared.flag_problem(structure)
            if problem is not None:
                raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, str(one.name), problem)
            return self._compared.kept(structure, resolved(one, spec, [structure], first_number))

        return resolve

    def mark(self, tables: Collection[TableName]) -> str:
        there = self._live(tables)
        return "\n".join(f"{name} {facts_of(there[name].structure)}" for name in sorted(there, key=str))

    def server_version(self) -> int:
        self._connector.file()
        return sqlite3.sqlite_version_info[0] * 1_000_000

    def preflight(self, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
        return preflight.check(self._connector, self._compared, tables, origin)

    def discover(self) -> list[DiscoveredTable]:
        return preflight.discover_tables(self._connector)

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        there = self._live({table.source for table in tables})
        described = self._compared.described
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


def _among(connection: sqlite3.Connection, names: Collection[TableName]) -> dict[TableName, LiveTable]:
    there = live_tables(connection, [name.name for name in names]).values()
    found = {table.structure.table_name: table for table in there}
    return {name: table for name, table in found.items() if name in names}
