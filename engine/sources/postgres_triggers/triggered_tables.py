"""The tables whose changes triggers record, and what others do to the triggers."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.source import Earlier, GuardReading
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import CatalogTable
from engine.sources.postgres.catalog import load_tables
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.partition_watch import PartitionWatch
from engine.sources.postgres_triggers.change_triggers import (
    BY_APPLICATION,
    as_privilege_fault,
    fits,
    install_layout,
    install_triggers,
    recorded_twice,
    unfit_tables,
    variants,
    written_by_application,
)
from engine.sources.postgres_triggers.given import Given
from engine.sources.postgres_triggers.objects import (
    INSTALL_LOCK,
    SHADOW_SCHEMA,
    TableTriggers,
    is_installed,
    read_layout,
    read_triggers,
)
from engine.sources.postgres_triggers.reader_control import TriggerReaderControl
from engine.sources.postgres_triggers.table_locks import in_short_tries

_FOLLOWED = "SELECT relation::bigint, triggers FROM penstock.followed WHERE reader = %s"
_FOLLOW = """
INSERT INTO penstock.followed (reader, relation, triggers, row_filter) VALUES (%s, %s, %s, %s)
ON CONFLICT (reader, relation) DO UPDATE SET triggers = excluded.triggers, row_filter = excluded.row_filter
"""
"""The row filter in the same transaction: other subscriptions keep whole rows recorded for it."""
_CHOOSE = """
UPDATE penstock.followed f SET inserts_only = w.inserts_only, row_filter = w.row_filter
FROM unnest(%s::oid[], %s::boolean[], %s::text[]) AS w(relation, inserts_only, row_filter)
WHERE f.relation = w.relation AND f.reader = %s
  AND (f.inserts_only, f.row_filter) IS DISTINCT FROM (w.inserts_only, w.row_filter)
"""
"""What is read of the tables' changes."""
_RECORDED = """
SELECT c.oid::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'penstock' AND c.relname = 'changes'
"""
LAYOUT_MISSING = (
    "the shadow log is missing or incomplete, and capture.install is false: an administrator has to install it"
)
_CHANGED = "its triggers were dropped, disabled or created again by others: changes may be missing"


class TriggeredTables:
    """`SentTables` by triggers. The marks of the triggers, as they were installed, are kept on the source."""

    traced = True

    def __init__(self, connector: Connector, watch: PartitionWatch, given: Given) -> None:
        self._connector = connector
        self._watch = watch
        self._given = given
        self._lock = threading.Lock()
        self._reported: set[int] = set()
        """OIDs of tables that `faults` has reported, once. They are parked then, so the next `prepare` accepts their triggers as it finds
        or makes them: a copy follows."""

    def prepare(
        self,
        tables: Sequence[TableSpec],
        reader: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        del known  # The marks on the source say what was recorded.
        with self._lock, self._connector.session(reader) as connection, as_privilege_fault(reader):
            self._prepare_layout(connection, reader)
            found = load_tables(connection, [t.source for t in tables])
            found = {n: table for n, table in found.items() if table.kind == "r" and n.schema != SHADOW_SCHEMA}
            there = [t for t in tables if t.source in found]
            follow = self._follow if self._given.by_application else self._install
            follow(connection, [(found[t.source], t) for t in there], reader, earlier)
            chosen = [[found[t.source].oid for t in there], [t.insert_only for t in there], [t.where for t in there]]
            connection.execute(_CHOOSE, [*chosen, reader])
        self._watch.check_tables(self._connector, self._watch.unseen(tables))
        self._watch.watch_again(tables, {name: table.oid for name, table in found.items()})
        return frozenset(RelationId(table.oid) for table in found.values())

    def _prepare_layout(self, connection: PostgresConnection, reader: str) -> None:
        if self._given.install:
            install_layout(connection)
        elif read_layout(connection).missing:
            raise EngineFault(FaultKind.CHANGE_TRIGGERS_MISSING, reader, LAYOUT_MISSING)

    def _install(
        self,
        connection: PostgresConnection,
        tables: Sequence[tuple[CatalogTable, TableSpec]],
        reader: str,
        earlier: Earlier,
    ) -> None:
        """Create the triggers that are missing, each table's in a transaction of its own, which holds the table's lock only. Those that an
        administrator created are recorded as they are."""
        _, followed = self._read(connection, reader, [])
        found = variants(connection, [table for table, _ in tables], self._given.asked(spec for _, spec in tables))
        for table, spec in tables:
            triggers, variant = found[table.name]
            mark = None if triggers is None else triggers.mark
            as_recorded = table.oid in followed and mark == followed[table.oid]
            fitting = triggers is not None and fits(triggers, variant, exactly=self._given.install)
            if (fitting and as_recorded) or not (fitting or self._given.install):
                continue
            hidden = table.oid in followed and not as_recorded and table.oid not in self._reported
            if hidden and earlier is not Earlier.ANY:
                continue  # The next check reports it; to mend it before would hide that changes may be missing.
            follow = reader if not as_recorded or earlier is Earlier.ANY else None
            if in_short_tries(connection, partial(self._install_one, connection, table, spec, mark, follow)):
                self._reported.discard(table.oid)

    def _install_one(
        self, connection: PostgresConnection, table: CatalogTable, spec: TableSpec, mark: str | None, reader: str | None
    ) -> bool:
        """`mark`: of the triggers as they were found; `reader`: who is noted to read the table. False: an application records it."""
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
        if written_by_application(connection, [table.oid]):
            return False
        if self._given.install:
            _, variant = variants(connection, [table], self._given.asked([spec]))[table.name]
            mark = install_triggers(connection, table, variant)
        if reader is not None:
            connection.execute(_FOLLOW, [reader, table.oid, mark, spec.where])
        return True

    def _follow(
        self,
        connection: PostgresConnection,
        tables: Sequence[tuple[CatalogTable, TableSpec]],
        reader: str,
        earlier: Earlier,
    ) -> None:
        """Note that the application records these tables. Those with triggers are left out: their changes would be recorded twice."""
        _, followed = self._read(connection, reader, [])
        for table, spec in tables:
            before = followed.get(table.oid)
            hidden = before is not None and table.oid not in self._reported and earlier is not Earlier.ANY
            if before == BY_APPLICATION or hidden:
                continue
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
                if not read_triggers(connection, [table.oid]):
                    connection.execute(_FOLLOW, [reader, table.oid, BY_APPLICATION, spec.where])
            self._reported.discard(table.oid)

    def recorded(self, reader: str) -> str | None:
        """The shadow table's OID: it changes if the shadow log is dropped and created again."""
        with self._connector.session(reader) as connection:
            row = connection.execute(_RECORDED).fetchone()
        return None if row is None else str(row[0])

    def unrecorded(self, connection: PostgresConnection, tables: Collection[CatalogTable]) -> frozenset[TableName]:
        """The tables whose changes nothing records: triggers are missing that Penstock must not create, or would record them twice."""
        twice = recorded_twice(connection, tables, by_application=self._given.by_application)
        if self._given.install or self._given.by_application:
            return twice
        return twice | frozenset(unfit_tables(connection, tables, self._given.asked([])))

    def withdraw(self, tables: Sequence[TableSpec], reader: str) -> None:
        """Nothing: a trigger refuses no change of a table without a key."""

    def unpublished(
        self, tables: Sequence[TableSpec], reader: str, relations: Mapping[TableName, RelationId] | None = None
    ) -> tuple[str, ...]:
        with self._connector.session(reader) as connection:
            found = load_tables(connection, [table.source for table in tables])
            there, followed = self._read(connection, reader, [table.oid for table in found.values()])
        asked = relations or {}
        return tuple(
            f"changes of {name} are not recorded"
            for name, table in found.items()
            if asked.get(name, table.oid) == table.oid
            and (table.oid not in followed or not self._is_recorded(there.get(table.oid)))
        )

    def _is_recorded(self, there: TableTriggers | None) -> bool:
        """Whether a table with these triggers is recorded as the subscription says."""
        return there is None if self._given.by_application else there is not None and there.complete

    def faults(self, tables: Sequence[TableSpec], reader: str) -> dict[TableName, str]:
        """The tables whose triggers are not as they were installed, with a description. Each change is reported once."""
        with self._lock, self._connector.session(reader) as connection:
            found = load_tables(connection, [table.source for table in tables])
            there, followed = self._read(connection, reader, [table.oid for table in found.values()])
        wrong = {}
        for name, table in found.items():
            usual = BY_APPLICATION if self._given.by_application else None
            mark = there[table.oid].mark if table.oid in there else usual
            if table.oid not in followed or mark == followed[table.oid]:
                continue
            if table.oid not in self._reported:
                wrong[name] = _CHANGED
                self._reported.add(table.oid)
        return wrong

    def _read(
        self, connection: PostgresConnection, reader: str, oids: Sequence[int]
    ) -> tuple[dict[int, TableTriggers], dict[int, str]]:
        """The triggers of these tables, and the marks recorded for the reader."""
        if not is_installed(connection):
            return {}, {}
        followed = {int(oid): mark for oid, mark in connection.execute(_FOLLOWED, [reader]).fetchall()}
        return read_triggers(connection, oids), followed


class TriggerSafety:
    """`SourceSafety` over the marks of triggers, and OIDs."""

    def __init__(
        self, connector: Connector, watch: PartitionWatch, tables: TriggeredTables, reader: TriggerReaderControl
    ) -> None:
        self._connector = connector
        self._watch = watch
        self._tables = tables
        self._reader = reader
        self._log: str | None = None
        """The shadow log's identity at the first check."""

    def check_reader(self, reader: str) -> GuardReading:
        return self._reader.check_reader(reader)

    def check(self, tables: Sequence[TableSpec], reader: str) -> GuardReading:
        changed = self._watch.examine(self._connector, tables)
        log = self._tables.recorded(reader)
        if self._log is None:
            self._log = log
        gone = () if log == self._log else ("the shadow log was dropped, or created again by others",)
        wrong = self._tables.faults([t for t in tables if t.source not in changed.faults], reader)
        return replace(
            self._reader.check_reader(reader),
            sending_faults=gone,
            partition_faults={**changed.faults, **wrong},
            replaced=changed.replaced,
            renamed=changed.renamed,
            sent_otherwise=dict.fromkeys(wrong, FaultKind.CHANGE_TRIGGERS_CHANGED),
        )

    def remember(self, marks: Mapping[TableName, str]) -> None:
        self._watch.remember(marks)

    def accept(self, table: TableName, relation: RelationId) -> None:
        self._watch.accept(table, relation)
