"""A PostgreSQL database as `ComparedDatabase`: exported snapshots, and hashes of rows that the server computes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

import psycopg
from psycopg import sql

from engine.model.ddl import Capture
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId, TableName
from engine.model.row_filter import RowFilter
from engine.model.schema import KeyMode, TableSchema
from engine.model.sequences import SequenceReader
from engine.model.source import ComputedColumns, DiscoveredTable, Finding, Resolve, TableSplit
from engine.model.subscription import OriginFilter, TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import CatalogTable, schema_of
from engine.records.relation import Announced, AnnouncedColumn, parse_relation, relation_record
from engine.sources.postgres.capabilities import PostgresComputedColumns, PostgresSequences
from engine.sources.postgres.catalog import load_numbered, load_tables, names_of, one_look, standing
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.copy_out import COPY_KINDS
from engine.sources.postgres.reads import PostgresReads
from engine.sources.postgres.relation import complete
from engine.sources.postgres.splits import PLAIN, ReadRules, flagged_splits
from engine.sources.postgres.table_checks import unparsed
from engine.sources.postgres.types import load_types
from engine.sources.postgres_queries import hashing, key_order, preflight, stamps
from engine.sources.postgres_queries.below import stamps_below
from engine.sources.postgres_queries.compared import AS_THEY_ARE, VIEWS, Compared
from engine.sources.postgres_queries.outer_join import PostgresCopies
from engine.sources.postgres_queries.row_hashes import VALUES
from engine.sources.postgres_queries.terms import POSTGRES_QUERIES_TERMS
from engine.sources.query_diff.database import KEYLESS, ComparedTable, DatabaseReads, Method, StampBelow
from engine.sources.query_diff.key_ranges import ALL_KEYS, DigestedRange, KeyRange, Page
from engine.sources.query_diff.source_copies import SourceCopies
from engine.sources.query_diff.stamps import Since, Stamp

_UNREADABLE = 0
"""OID of no type: a column announced with it matches none, so the table is copied again."""
_EMPTY_VIEWS = "SELECT oid FROM pg_class WHERE oid = ANY (%s::oid[]) AND relkind = 'm' AND NOT relispopulated"
"""Materialized views WITH NO DATA, which cannot be read."""


class PostgresDatabase:
    """`ComparedDatabase` over psycopg. `compared`: how tables are compared, as the capture declares it."""

    def __init__(self, connector: Connector, compared: Compared = AS_THEY_ARE, rules: ReadRules = PLAIN) -> None:
        """`rules`: of the reads of cycles."""
        self._connector = connector
        self._compared = compared
        self._rules = rules
        self.terms = POSTGRES_QUERIES_TERMS
        self.statement_bytes = 256 * 1024 * 1024  # Not measured.
        self.reads: DatabaseReads = PostgresReads(connector)
        self.cycle_reads: DatabaseReads = PostgresReads(connector, rules)
        self.sequences: SequenceReader = PostgresSequences(connector)
        self.computed: ComputedColumns = PostgresComputedColumns(connector)
        self.copies: SourceCopies = PostgresCopies(connector, rules)

    @contextmanager
    def snapshot(self, timeout_s: float) -> Iterator[str]:
        del timeout_s
        with self._exported() as name:
            yield name

    @contextmanager
    def adopted(self, snapshot: str) -> Iterator[str]:
        """A session that imported a snapshot keeps it, and exports it by a name of its own."""
        with self._exported(snapshot) as name:
            yield name

    @contextmanager
    def _exported(self, other: str | None = None) -> Iterator[str]:
        # Closed without a COMMIT, which would fail if the session was lost meanwhile.
        with closing(self._connector.open()) as holder:
            try:
                holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if other is not None:
                    holder.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(other)))
                name = str(holder.execute("SELECT pg_export_snapshot()").fetchall()[0][0])
            except psycopg.Error as error:
                raise SOURCE.fault(error, self._connector.name, COPY_KINDS) from error
            yield name

    def flagged_splits(self, table: ComparedTable, filters: Sequence[RowFilter | None]) -> list[TableSplit] | None:
        return flagged_splits(self._connector, table.schema, self.statement_bytes, filters)

    def tables(self, followed: Mapping[TableName, str | None]) -> dict[TableName, ComparedTable]:
        with self._connector.session() as connection, one_look(connection):
            catalog = self._load(connection, followed)
            below = self._below(connection, catalog)
            oids = [table.oid for table, _ in catalog.values()]
            in_order = key_order.in_key_order(connection, oids) if self._compared.in_steps else frozenset()
        found = {}
        for name, (table, is_keyed) in catalog.items():
            spec = self._compared.kept(table, TableSpec(TableId("t0"), name, name, where=followed[name]))
            schema = schema_of(table, spec)
            if schema is not None and schema.mode is KeyMode.KEYED:
                times = frozenset(c.on_source for c in schema.columns if c.type.name in stamps.TYPES)
                records = _record(table), _unreadable_record(table)
                found[name] = (
                    ComparedTable(schema, spec, *records, times, hashes=VALUES, in_key_order=table.oid in in_order)
                    if is_keyed
                    # A row whose stamp is old may have the key of one whose stamp is recent.
                    else ComparedTable(
                        schema, spec, *records, keyless=_keyless_record(table), hashes=VALUES, below=below.get(name, ())
                    )
                )
        return found

    def _below(
        self, connection: PostgresConnection, catalog: Mapping[TableName, tuple[CatalogTable, bool]]
    ) -> dict[TableName, tuple[StampBelow, ...]]:
        """The stamps below views that can be used as they are declared."""
        return {
            name: stamps_below(connection, table, declared, table.identity_columns)[0]
            for name, (table, is_keyed) in catalog.items()
            if not is_keyed and (declared := self._compared.of(table).stamps_below)
        }

    def methods(self, table: ComparedTable) -> frozenset[Method]:
        return hashing.methods(self._connector, table) - {Method.OUTER_JOIN}

    def hashed_rows(
        self,
        table: ComparedTable,
        snapshot: str,
        ranges: Sequence[KeyRange] | None = None,
        since: Since | None = None,
    ) -> Iterator[bytes]:
        return hashing.hashed_rows(self._connector, table, snapshot, ranges, since, self._rules)

    def placed_rows(
        self, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]]
    ) -> Iterator[bytes] | None:
        return hashing.placed_rows(self._connector, table, snapshot, firsts, self._rules)

    def range_digests(
        self, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]], within: KeyRange = ALL_KEYS
    ) -> list[DigestedRange]:
        return hashing.range_digests(self._connector, table, snapshot, hashing.Ranges(firsts, within), self._rules)

    def page(self, table: ComparedTable, snapshot: str, page: Page, *, hashed: bool) -> Iterator[bytes]:
        return hashing.page(self._connector, table, snapshot, page, self._rules, hashed=hashed)

    def rows_since(self, table: ComparedTable, snapshot: str, since: Since) -> Iterator[bytes]:
        return stamps.rows_since(self._connector, table, snapshot, since, self._rules)

    def left_since(self, table: ComparedTable, snapshot: str, since: Stamp) -> Iterator[bytes]:
        return stamps.left_since(self._connector, table, snapshot, since, self._rules)

    def newest_stamp(self, table: ComparedTable, snapshot: str, column: str, overlap_s: float) -> str | None:
        return stamps.newest(self._connector, table, snapshot, column, overlap_s, self._rules)

    def open_for_s(self) -> float:
        return stamps.open_for_s(self._connector)

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        announced = {payload: parse_relation(payload) for payload in payloads}
        with self._connector.session() as connection, one_look(connection):
            tables = load_numbered(connection, {one.relation for one in announced.values()})
            types = load_types(connection, {c.type_oid for one in announced.values() for c in one.columns})

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            del capture
            one = announced[payload]
            there = tables.get(one.relation)
            if not any(c.identity or c.type_oid == _UNREADABLE for c in one.columns):
                raise EngineFault(FaultKind.TABLE_NO_IDENTITY, str(one.name), KEYLESS)
            if there is None:
                return complete(one, spec, known, None, types)
            return complete(one, self._compared.kept(there, spec), known, self._compared.table(there), types)

        return resolve

    def mark(self, tables: Collection[TableName]) -> str:
        with self._connector.session() as connection, one_look(connection):
            catalog = {name: table for name, (table, _) in self._load(connection, tables).items()}
        # Without the estimate of its rows, which each ANALYZE changes.
        return "\n".join(f"{replace(catalog[name], rows=0.0)}" for name in sorted(catalog, key=str))

    def server_version(self) -> int:
        with self._connector.session() as connection:
            return connection.info.server_version

    def preflight(self, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
        return preflight.check(self._connector, self._compared, tables, origin)

    def discover(self) -> list[DiscoveredTable]:
        return preflight.discover_tables(self._connector, self._compared)

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        with self._connector.session() as connection, one_look(connection):
            catalog = {n: table for n, (table, _) in self._load(connection, [t.source for t in tables]).items()}
        there = [t for t in tables if t.source in catalog]
        found = {t.source: schema_of(catalog[t.source], self._compared.kept(catalog[t.source], t)) for t in there}
        filtered = [t for t in there if t.where is not None and found[t.source] is not None]
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

    def _load(
        self, connection: PostgresConnection, names: Collection[TableName]
    ) -> dict[TableName, tuple[CatalogTable, bool]]:
        """As `load_tables`, with plain tables and views that have a key only, as they are compared; and whether the source keeps their
        keys unique."""
        there = load_tables(connection, names)
        views = [table.oid for table in there.values() if table.kind in VIEWS]
        empty = {oid for (oid,) in connection.execute(_EMPTY_VIEWS, [views])} if views else set()
        found = {
            name: (self._compared.table(table), not self._compared.declared_key(table))
            for name, table in there.items()
            if table.oid not in empty and self._compared.flag_problem(table) is None
        }
        return {name: (table, keyed) for name, (table, keyed) in found.items() if table.kind == "r" and table.indexes}


def _record(table: CatalogTable) -> bytes:
    identity = set(table.identity_columns)
    columns = [AnnouncedColumn(c.column.name, c.column.name in identity, c.type_oid, c.modifier) for c in table.columns]
    return _announced(table, columns)


def _unreadable_record(table: CatalogTable) -> bytes:
    return _announced(table, [AnnouncedColumn(table.column_names[0], False, _UNREADABLE, -1)])


def _keyless_record(table: CatalogTable) -> bytes:
    """Of its columns, none of which identifies a row."""
    return _announced(table, [AnnouncedColumn(c.column.name, False, c.type_oid, c.modifier) for c in table.columns])


def _announced(table: CatalogTable, columns: Sequence[AnnouncedColumn]) -> bytes:
    return relation_record(Announced(RelationId(table.oid), table.name, table.identity, tuple(columns)))
