"""PostgreSQL as a `model.source.Source`: the interface of this folder to the rest of the engine."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from engine.model.copies import KeyBound
from engine.model.ddl import Capture, DdlCapture, DdlMessage
from engine.model.identity import RelationId, TableId, TableName, TicketId
from engine.model.last_commit import LastCommit
from engine.model.partitions import Partition
from engine.model.position import Lsn
from engine.model.schema import Column, TableSchema, still_computed
from engine.model.sequences import SourceSequence
from engine.model.source import (
    CatalogAt,
    CopyChunk,
    DiscoveredTable,
    Earlier,
    ExportedSnapshot,
    Finding,
    GuardReading,
    KeyWalk,
    Resolve,
    SlotStatus,
    SourceIdentity,
)
from engine.model.subscription import ConnectionSpec, OriginFilter, TableSpec
from engine.model.ticket import TicketWritten
from engine.records.relation import parse_relation
from engine.sources.postgres_log import (
    chunks,
    ddl_capture,
    generated_columns,
    position,
    preflight,
    publications,
    sequences,
    slots,
)
from engine.sources.postgres_log.catalog import (
    load_numbered,
    load_tables,
    names_of,
    one_look,
    roots_of,
    schema_of,
    standing,
)
from engine.sources.postgres_log.catalog_mark import CatalogMarks
from engine.sources.postgres_log.connect import Connector
from engine.sources.postgres_log.ddl_message import CatalogTold, read_told
from engine.sources.postgres_log.key_walk import walk_key
from engine.sources.postgres_log.partition_watch import PartitionWatch, mark_told, marks_of
from engine.sources.postgres_log.partitions import partitions
from engine.sources.postgres_log.relation import complete, is_announced
from engine.sources.postgres_log.stream import PostgresLogStream, open_stream
from engine.sources.postgres_log.types import load_types


class PostgresSource:
    """`Source` over psycopg. Settings: host, port, database, user, sslmode, sslrootcert (a path); secrets: password.

    Methods may be called from several threads, and raise EngineFault. The protocol documents each of them.
    """

    def __init__(self, spec: ConnectionSpec) -> None:
        self._connector = Connector(spec)
        self._watch = PartitionWatch()
        self._marks = CatalogMarks(self._watch)
        self._capture = ddl_capture.CaptureWatch()
        self._publishing = threading.Lock()
        self._published: dict[TableName, int] | None = None
        self._known_as: dict[TableName, int] = {}
        """OID by every name under which a table was published, or to which it was renamed since."""
        self._open_slots: set[str] = set()
        """Temporary slots of the snapshots that are open."""

    def preflight(
        self, tables: Sequence[TableSpec], slot: str | None, origin: OriginFilter = OriginFilter.ANY
    ) -> list[Finding]:
        """See Source.preflight. A database that cannot be reached is a finding too."""
        return preflight.check(self._connector, tables, slot, origin)

    def discover(self) -> list[DiscoveredTable]:
        return preflight.discover(self._connector)

    def identify(self) -> SourceIdentity:
        return position.identify(self._connector)

    def now(self) -> Lsn:
        return position.now(self._connector)

    def current(self) -> Lsn:
        return position.current(self._connector)

    def catalog_at(self, tables: Sequence[TableSpec], slot: str, *, now: bool) -> CatalogAt:
        names = {table.source for table in tables}
        with self._connector.session() as connection:
            return self._marks.read(connection, names, publications.names(slot), now=now)

    def write_ticket(self, ticket: TicketId) -> TicketWritten:
        return position.write_ticket(self._connector, ticket)

    def prepare(
        self,
        tables: Sequence[TableSpec],
        slot: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        with self._publishing:
            ours = {*known, *(self._known_as[t.source] for t in tables if t.source in self._known_as)}
            before, expected = self._published, {*known, *(self._published or {}).values()}
            after = publications.prepare(self._connector, tables, slot, ours, expected=expected, earlier=earlier)
            # Check these tables now: one that was created again before the watch saw it is published by this call, and must not be
            # reported as changed later.
            unseen = self._watch.unseen(tables)
            anew = [t for t in tables if before is None or t in unseen or _made_again(t.source, before, after)]
            self._watch.look(self._connector, anew)
            self._watch.settle(tables, after)
            self._published = after
            self._known_as.update(after)
            return frozenset(RelationId(oid) for oid in after.values())

    def _rename_published(self, renamed: Mapping[TableName, TableName]) -> None:
        self._known_as.update({new: self._known_as[old] for old, new in renamed.items() if old in self._known_as})
        if self._published is not None:
            self._published = {renamed.get(name, name): oid for name, oid in self._published.items()}

    def publications(self, slot: str) -> str | None:
        return publications.numbers(self._connector, slot)

    def withdraw(self, tables: Sequence[TableSpec], slot: str) -> None:
        with self._publishing:
            left = publications.withdraw(self._connector, tables, slot)
            if self._published is not None:
                self._published = {name: oid for name, oid in self._published.items() if name not in left}

    def marks(self, tables: Sequence[TableSpec]) -> dict[TableName, str]:
        return marks_of(self._connector, {table.source for table in tables})

    def mark_told(self, mark: str, below: Mapping[RelationId, TableName]) -> str:
        return mark_told(mark, below)

    def unpublished(
        self, tables: Sequence[TableSpec], slot: str, relations: Mapping[TableName, RelationId] | None = None
    ) -> tuple[str, ...]:
        return publications.unpublished(self._connector, tables, slot, relations or {})

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        """The current schemas. A table whose changes cannot be replicated is in no publication and left out; `preflight` says why."""
        with self._connector.session() as connection, one_look(connection):
            catalog = load_tables(connection, [t.source for t in tables])
        found = {spec.source: schema_of(catalog[spec.source], spec) for spec in tables if spec.source in catalog}
        return {name: schema for name, schema in found.items() if schema is not None}

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        with self._connector.session() as connection:
            return {RelationId(oid): name for oid, name in names_of(connection, relations).items()}

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        with self._connector.session() as connection:
            return {RelationId(oid): name for oid, name in standing(connection, schemas).items()}

    def roots(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        with self._connector.session() as connection:
            return {RelationId(oid): name for oid, name in roots_of(connection, relations).items()}

    def resolve(
        self, payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None
    ) -> TableSchema:
        """The schema that a relation record announces. `payload`: without a transaction id, as in RelationSeen."""
        return self.resolver([payload])(payload, spec, known, capture)

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        announced = {payload: parse_relation(payload) for payload in payloads}
        subject = str(next(iter(announced.values())).name) if len(announced) == 1 else None
        with self._connector.session(subject) as connection, one_look(connection):
            tables = load_numbered(connection, {one.relation for one in announced.values()})
            types = load_types(connection, {c.type_oid for one in announced.values() for c in one.columns})
            mark = self._capture.in_force(connection)

        def resolve(
            payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
        ) -> TableSchema:
            one, now = announced[payload], tables.get(announced[payload].relation)
            if capture is not None and capture.mark == mark:
                if known is not None and capture.known and (capture.void or is_announced(known, one, spec, types)):
                    return known
                if isinstance(capture.told, CatalogTold) and capture.told.is_announced(one):
                    return _with_computed(capture.told.schema(spec), known)
            return complete(one, spec, known, now, types)

        return resolve

    def relation_name(self, payload: bytes) -> TableName:
        return parse_relation(payload).name

    def told(self, payload: bytes) -> DdlMessage:
        return read_told(payload)

    def capturing(self) -> str:
        with self._connector.session() as connection:
            return self._capture.in_force(connection)

    def ddl_capture(self) -> DdlCapture:
        return ddl_capture.look(self._connector)

    def install_ddl_capture(self) -> DdlCapture:
        return ddl_capture.install(self._connector)

    def remove_ddl_capture(self) -> DdlCapture:
        return ddl_capture.remove(self._connector)

    def create_slot(self, slot: str) -> AbstractContextManager[ExportedSnapshot]:
        """Raises SLOT_IN_USE if a slot of this name exists, SOURCE_TIMEOUT if open transactions delay its creation for minutes."""
        return slots.lasting(self._connector, slot)

    def snapshot(self, timeout_s: float) -> AbstractContextManager[ExportedSnapshot]:
        return slots.temporary(self._connector, timeout_s, self._open_slots)

    def slot_status(self, slot: str) -> SlotStatus:
        return slots.status(self._connector, slot)

    def drop(self, slot: str) -> list[str]:
        left = slots.drop(self._connector, slot)
        return [f"{what}; its publications stay too" for what in left] or publications.drop(self._connector, slot)

    def terminate_reader(self, slot: str, application: str) -> bool:
        return slots.terminate_reader(self._connector, slot, application)

    def guard(self, tables: Sequence[TableSpec], slot: str) -> GuardReading:
        """One check. Tables are compared with this object's first check of them, which should be made before they are copied.

        A table that was dropped, or created again under its name, is one of the partition faults: it concerns that table only. It is no
        fault of the publication until `prepare` publishes the new table.
        """
        with self._publishing:
            changed = self._watch.examine(self._connector, tables)
            self._rename_published(changed.renamed)
            faults = publications.faults(self._connector, tables, slot, self._watch.gone, self._published)
            if faults:
                # A table may have been dropped between the two checks; that is a fault of the table, not of the publication.
                changed = changed.joined(self._watch.examine(self._connector, tables))
                self._rename_published(changed.renamed)
                faults = publications.faults(self._connector, tables, slot, self._watch.gone, self._published)
        with self._connector.session() as connection:
            self._marks.looked(connection, {table.source for table in tables})
        return replace(
            self.slot_reading(slot),
            publication_faults=faults,
            partition_faults=changed.faults,
            partition_rewrites=changed.rewrites,
            replaced=changed.replaced,
            marks=changed.marks,
            below=changed.below,
            left=changed.left,
            renamed=changed.renamed,
        )

    def slot_reading(self, slot: str) -> GuardReading:
        holder = slots.oldest_open(self._connector)
        return GuardReading(
            slot=slots.status(self._connector, slot),
            oldest_open=holder[0] if holder else None,
            oldest_open_s=holder[1] if holder else 0.0,
            copy_retained_bytes=slots.retained_by(self._connector, tuple(self._open_slots)),
        )

    def drop_slot(self, slot: str) -> list[str]:
        return slots.drop(self._connector, slot)

    def remember(self, marks: Mapping[TableName, str]) -> None:
        self._watch.remember(marks)

    def accept(self, table: TableName, relation: RelationId) -> None:
        self._watch.accept(table, relation)

    def sequences(self, tables: Sequence[TableName]) -> list[SourceSequence]:
        return sequences.of_tables(self._connector, tables)

    def partitions(self, schema: TableSchema, snapshot: str | None = None) -> list[Partition]:
        return partitions(self._connector, schema, snapshot)

    def copy_chunks(self, schema: TableSchema, spec: TableSpec, chunk_bytes: int) -> list[CopyChunk]:
        del spec
        return chunks.cut_table(self._connector, schema, chunk_bytes)

    def compute(self, table: TableId, columns: Sequence[Column], inputs: Mapping[int, str], rows: int) -> bytes:
        return generated_columns.compute(self._connector, table, columns, inputs, rows)

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        chunk_bytes: int,
        most_chunks: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        return walk_key(self._connector, schema, after, chunk_bytes, most_chunks, above_bytes)

    def open_stream(
        self,
        slot: str,
        start: Lsn,
        application: str,
        wake: int | None = None,
        origin: OriginFilter = OriginFilter.ANY,
        last: LastCommit | None = None,
    ) -> PostgresLogStream:
        return open_stream(self._connector, slot, start, application, publications.names(slot), wake, origin, last)

    def read_chunk(self, chunk: CopyChunk, snapshot: str) -> Iterator[bytes]:
        """Raises COPY_LOST if the snapshot is gone, TABLE_STRUCTURE_CHANGED if the table was rewritten or truncated after it."""
        return chunks.read_chunk(self._connector, chunk, snapshot)

    def close(self) -> None:
        self._connector.close()


def _with_computed(told: TableSchema, known: TableSchema | None) -> TableSchema:
    """The schema of a DDL message with `known`'s computed columns, which DDL messages do not contain."""
    return told if known is None else replace(told, computed=still_computed(known.computed, told.columns))


def _made_again(table: TableName, before: Mapping[TableName, int], after: Mapping[TableName, int]) -> bool:
    return table in before and after.get(table, before[table]) != before[table]
