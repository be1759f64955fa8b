"""Tables that DuckDB reads, as `ComparedDatabase`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import duckdb

from engine.model.absent_capabilities import NoSequences, NothingComputed, WholeTablesOnly
from engine.model.ddl import Capture
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.masks import MASK_KEY
from engine.model.schema import TableSchema
from engine.model.sequences import SequenceReader
from engine.model.source import (
    WHOLE_TABLE,
    ComputedColumns,
    DiscoveredTable,
    Finding,
    Resolve,
    SourceTerms,
    TableSplit,
)
from engine.model.subscription import OriginFilter, TableSpec
from engine.records.masked_lines import mask_of
from engine.records.relation import parse_relation
from engine.records.served_snapshot import SnapshotServer, read_served
from engine.records.table_structure import resolved
from engine.sources.duckdb import preflight
from engine.sources.duckdb.catalog import LiveTable, Place, compared, described, first_number, readable
from engine.sources.duckdb.lines import cut_table, held_lines
from engine.sources.query_diff.database import ComparedTable, DatabaseReads
from engine.sources.query_diff.derived_numbers import check_distinct
from engine.sources.query_diff.unhashed import UnhashedRows


class ReadDatabase(UnhashedRows):
    """`ComparedDatabase` over the tables of a place."""

    statement_bytes = WHOLE_TABLE

    def __init__(self, place: Place, terms: SourceTerms) -> None:
        self._place = place
        self.terms = terms
        self.reads: DatabaseReads = PlaceReads(place)
        self.cycle_reads: DatabaseReads = self.reads
        self.sequences: SequenceReader = NoSequences()
        self.computed: ComputedColumns = NothingComputed()

    @contextmanager
    def snapshot(self, timeout_s: float) -> Iterator[str]:
        del timeout_s
        place = self._place
        with place.hold() as held:
            server = SnapshotServer(lambda request: held_lines(place, held, request), held.interrupt)
            try:
                yield str(server.path)
            finally:
                server.close()

    def tables(self, followed: Mapping[TableName, str | None]) -> dict[TableName, ComparedTable]:
        check_distinct(followed)
        there = {name: compared(table) for name, table in self._place.tables(followed.keys()).items()}
        return {name: table for name, table in there.items() if table is not None}

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        announced = {payload: parse_relation(payload) for payload in payloads}
        there = self._place.tables({one.name for one in announced.values()})

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            del known, capture
            one = announced[payload]
            table = there.get(one.name)
            if table is None:
                return resolved(one, spec, [], first_number)
            return resolved(one, readable(table, spec), [table.structure], first_number)

        return resolve

    def mark(self, tables: Collection[TableName]) -> str:
        there = self._place.tables(tables)
        return "\n".join(f"{name} {there[name].structure.facts}" for name in sorted(there, key=str))

    def server_version(self) -> int:
        self._place.check()
        return int(duckdb.__version__.split(".")[0]) * 1_000_000

    def preflight(self, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
        return preflight.check(self._place, tables, origin)

    def discover(self) -> list[DiscoveredTable]:
        return preflight.discover_tables(self._place)

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        there = self._place.tables({table.source for table in tables})
        found = {spec.source: described(there[spec.source], spec) for spec in tables if spec.source in there}
        return {name: schema for name, schema in found.items() if schema is not None}

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        return {number: name for number, name in self._numbered(lambda _: True).items() if number in relations}

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        return self._numbered(lambda table: table.problem is None and table.structure.table_name.schema in schemas)

    def _numbered(self, wanted: Callable[[LiveTable], bool]) -> dict[RelationId, TableName]:
        there = self._place.tables()
        return {table.structure.number: name for name, table in there.items() if wanted(table)}

    def close(self) -> None:
        self._place.close()


class PlaceReads(WholeTablesOnly):
    """`DatabaseReads` of a place."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        del spec
        found = self._place.tables({schema.name}).get(schema.name)
        if found is None:
            raise EngineFault(FaultKind.TABLE_MISSING, str(schema.name), "the table is gone")
        return cut_table(self._place, schema, found, split_bytes)

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        subject = f"relation {split.relation}"
        self._place.check()
        mask = mask_of(split, self._place.secret(MASK_KEY), subject)
        pieces = read_served(snapshot, split, subject)
        yield from pieces if mask is None else map(mask, pieces)
