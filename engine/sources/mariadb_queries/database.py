"""A MariaDB server as `ComparedDatabase`. SELECT on the followed tables is the only right that is used."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from engine.model.absent_capabilities import NoSequences, NothingComputed
from engine.model.ddl import Capture
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId, TableName
from engine.model.schema import KeyMode, TableSchema
from engine.model.sequences import SequenceReader
from engine.model.source import WHOLE_TABLE, ComputedColumns, DiscoveredTable, Finding, Resolve
from engine.model.subscription import OriginFilter, TableSpec
from engine.records.relation import parse_relation
from engine.sources.mariadb.catalog import SYSTEM_SCHEMAS, MariaDbTable, load_facts, load_named
from engine.sources.mariadb.connect import Connector, rows
from engine.sources.mariadb.preflight import version_number
from engine.sources.mariadb.schemas import resolved
from engine.sources.mariadb_queries import hashing, preflight, stamps
from engine.sources.mariadb_queries.compared import (
    AS_THEY_ARE,
    Compared,
    compared_structure,
    stamps_of,
    unfit,
    unfit_as_declared,
    why_unfit,
)
from engine.sources.mariadb_queries.snapshots import QueryReads, exported, load_there
from engine.sources.mariadb_queries.terms import MARIADB_QUERIES_TERMS
from engine.sources.query_diff.database import ComparedTable, DatabaseReads, Method
from engine.sources.query_diff.derived_numbers import check_distinct, relation_of
from engine.sources.query_diff.key_ranges import ALL_KEYS, DigestedRange, KeyRange, Page
from engine.sources.query_diff.stamps import Since, Stamp
from engine.sources.query_diff.unhashed import UnhashedRows

_NAMES = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"


class MariaDbDatabase(UnhashedRows):
    """`ComparedDatabase` over PyMySQL. `settings` of the connection: those of MariaDB captured by triggers. `statement_s`: the most
    seconds of a statement that reads for a cycle; `compared`: how tables are compared."""

    statement_bytes = WHOLE_TABLE  # One session reads: to look for where a table could be cut would read it once more.

    def __init__(
        self, connector: Connector, statement_s: float | None = None, compared: Compared = AS_THEY_ARE
    ) -> None:
        self._connector = connector
        self._compared = compared
        self.terms = MARIADB_QUERIES_TERMS
        self.reads: DatabaseReads = QueryReads(connector)
        self.cycle_reads: DatabaseReads = QueryReads(connector, statement_s)
        self.sequences: SequenceReader = NoSequences()
        self.computed: ComputedColumns = NothingComputed()

    def snapshot(self, timeout_s: float) -> AbstractContextManager[str]:
        del timeout_s
        return exported(self._connector)

    def tables(self, followed: Mapping[TableName, str | None]) -> dict[TableName, ComparedTable]:
        check_distinct(followed)
        with self._connector.session() as connection:
            there = load_named(connection, followed)
        found = {}
        for name, table in there.items():
            spec, structure = TableSpec(TableId("t0"), name, name), compared_structure(table)
            schema = self._compared.schema(table, spec) if unfit(table) is None else None
            if schema is not None and schema.mode is KeyMode.KEYED:
                records = structure.record(), structure.unreadable_record()
                in_order = hashing.in_key_order(table, schema)
                found[name] = ComparedTable(schema, spec, *records, stamps_of(table), in_key_order=in_order)
        return found

    def methods(self, table: ComparedTable) -> frozenset[Method]:
        return hashing.methods(self._there(table), table)

    def hashed_rows(
        self,
        table: ComparedTable,
        snapshot: str,
        ranges: Sequence[KeyRange] | None = None,
        since: Since | None = None,
    ) -> Iterator[bytes]:
        if since is None:
            return self._hashed(table, snapshot).rows(ranges)
        return self._hashed(table, snapshot).rows(ranges, self._stamped(table, snapshot).condition(since))

    def placed_rows(
        self, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]]
    ) -> Iterator[bytes] | None:
        return self._hashed(table, snapshot).placed(firsts)

    def range_digests(
        self, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]], within: KeyRange = ALL_KEYS
    ) -> list[DigestedRange]:
        return self._hashed(table, snapshot).digests(firsts, within)

    def page(self, table: ComparedTable, snapshot: str, page: Page, *, hashed: bool) -> Iterator[bytes]:
        return self._hashed(table, snapshot).page(page, hashed=hashed)

    def rows_since(self, table: ComparedTable, snapshot: str, since: Since) -> Iterator[bytes]:
        return self._stamped(table, snapshot).rows(since)

    def left_since(self, table: ComparedTable, snapshot: str, since: Stamp) -> Iterator[bytes]:
        return self._stamped(table, snapshot).left(since)

    def newest_stamp(self, table: ComparedTable, snapshot: str, column: str, overlap_s: float) -> str | None:
        return self._stamped(table, snapshot).newest(column, overlap_s)

    def open_for_s(self) -> float:
        # Others never use a snapshot of this one by its name: `adopted` is None.
        return stamps.open_for_s(self._connector) if self._compared.by_stamps else 0.0

    def _hashed(self, table: ComparedTable, snapshot: str) -> hashing.HashedTable:
        return hashing.HashedTable(self._there(table), table, self._read(snapshot))

    def _stamped(self, table: ComparedTable, snapshot: str) -> stamps.StampedTable:
        return stamps.StampedTable(self._there(table), table.schema, self._read(snapshot))

    def _read(self, snapshot: str) -> stamps.Read:
        return lambda split: self.cycle_reads.read_split(split, snapshot)

    def _there(self, table: ComparedTable) -> MariaDbTable:
        with self._connector.session(str(table.schema.name)) as connection:
            return load_there(connection, table.schema)

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        names = {parse_relation(payload).name for payload in payloads}
        with self._connector.session() as connection:
            there = load_named(connection, names)
        structures = [compared_structure(table) for table in there.values()]

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            del known, capture
            schema = resolved(payload, spec, structures)
            table = there[schema.name]
            problem = self._compared.flag_problem(table)
            if problem is not None:
                raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, str(schema.name), problem)
            return self._compared.kept(table, schema)

        return resolve

    def mark(self, tables: Collection[TableName]) -> str:
        with self._connector.session() as connection:
            there = load_named(connection, tables)
        return "\n".join(f"{name} {compared_structure(there[name]).mark}" for name in sorted(there, key=str))

    def server_version(self) -> int:
        with self._connector.session() as connection:
            return version_number(str(rows(connection, "SELECT VERSION()")[0][0]))

    def preflight(self, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
        return preflight.check(self._connector, self._compared, tables, origin)

    def discover(self) -> list[DiscoveredTable]:
        return preflight.discover_tables(self._connector)

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        with self._connector.session() as connection:
            there = load_named(connection, [table.source for table in tables])
        found = {}
        for spec in tables:
            table = there.get(spec.source)
            if table is None or unfit_as_declared(table, spec) is not None:
                continue
            schema = self._compared.schema(table, spec)
            if schema is not None:
                found[spec.source] = schema
        return found

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        with self._connector.session() as connection:
            there = [TableName(*row) for row in rows(connection, _NAMES)]
        return {relation_of(name): name for name in there if relation_of(name) in relations}

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        with self._connector.session() as connection:
            return {
                relation_of(name): name
                for schema in set(schemas) - SYSTEM_SCHEMAS
                for name, table in load_facts(connection, schema).items()
                if why_unfit(table) is None
            }

    def close(self) -> None:
        self._connector.close()
