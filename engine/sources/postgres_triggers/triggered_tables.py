"""The tables whose changes triggers record, and what others do to the triggers."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import psycopg

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.source import Earlier, GuardReading
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.catalog import CatalogTable, load_tables
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.partition_watch import PartitionWatch
from engine.sources.postgres_triggers.objects import (
    INSTALL_LOCK,
    TableTriggers,
    is_exact,
    is_installed,
    layout_statements,
    read_triggers,
    trigger_statements,
)
from engine.sources.postgres_triggers.reader_control import TriggerReaderControl

_FOLLOWED = "SELECT relation::bigint, triggers FROM penstock.followed WHERE reader = %s"
_FOLLOW = """
INSERT INTO penstock.followed VALUES (%s, %s, %s) ON CONFLICT (reader, relation) DO UPDATE SET triggers = excluded.triggers
"""
_CHANGED = "its triggers were dropped, disabled or created again by others: changes may be missing"


class TriggeredTables:
    """`SentTables` by triggers. The marks of the triggers, as they were installed, are kept on the source."""

    traced = True

    def __init__(self, connector: Connector, watch: PartitionWatch) -> None:
        self._connector = connector
        self._watch = watch
        self._lock = threading.Lock()
        self._reported: dict[int, str | None] = {}
        """Marks of triggers that `faults` has reported as changed, by OID; None if the table has none. They are reported once."""

    def prepare(
        self,
        tables: Sequence[TableSpec],
        reader: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        del known  # The marks on the source say what was recorded.
        with self._lock, self._connector.session(reader) as connection:
            try:
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
                    for statement in layout_statements(connection):
                        connection.execute(statement.encode())
                found = load_tables(connection, [t.source for t in tables])
                found = {name: table for name, table in found.items() if table.kind == "r"}
                self._install(connection, list(found.values()), reader, earlier)
            except psycopg.errors.InsufficientPrivilege as error:
                detail = f"triggers cannot be created: {error.diag.message_primary}"
                raise EngineFault(FaultKind.CHANGE_TRIGGERS_PRIVILEGE, reader, detail) from error
        self._watch.check_tables(self._connector, self._watch.unseen(tables))
        self._watch.watch_again(tables, {name: table.oid for name, table in found.items()})
        return frozenset(RelationId(table.oid) for table in found.values())

    def _install(
        self, connection: PostgresConnection, tables: Sequence[CatalogTable], reader: str, earlier: Earlier
    ) -> None:
        """Create the triggers that are missing, each table's in a transaction of its own, which holds the table's lock only."""
        there, followed = self._read(connection, reader, [table.oid for table in tables])
        for table in tables:
            triggers, exact = there.get(table.oid), is_exact(table)
            mark = None if triggers is None else triggers.mark
            as_recorded = table.oid in followed and mark == followed[table.oid]
            if as_recorded and triggers is not None and triggers.complete and triggers.exact == exact:
                continue
            hidden = table.oid in followed and not as_recorded and self._reported.get(table.oid, "") != mark
            if hidden and earlier is not Earlier.ANY:
                continue  # The next check reports it; to mend it before would hide that changes may be missing.
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
                now = read_triggers(connection, [table.oid]).get(table.oid)
                if now is None or not now.complete or now.exact != exact:
                    for statement in trigger_statements(table.name, exact=exact):
                        connection.execute(statement.encode())
                    now = read_triggers(connection, [table.oid])[table.oid]
                connection.execute(_FOLLOW, [reader, table.oid, now.mark])

    def recorded(self, reader: str) -> str | None:
        """The shadow table's OID: it changes if the shadow log is dropped and created again."""
        with self._connector.session(reader) as connection:
            row = connection.execute("SELECT to_regclass('penstock.changes')::oid::text").fetchone()
        return None if row is None or row[0] is None else str(row[0])

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
            and (table.oid not in followed or table.oid not in there or not there[table.oid].complete)
        )

    def faults(self, tables: Sequence[TableSpec], reader: str) -> dict[TableName, str]:
        """The tables whose triggers are not as they were installed, with a description. Each change is reported once."""
        with self._lock, self._connector.session(reader) as connection:
            found = load_tables(connection, [table.source for table in tables])
            there, followed = self._read(connection, reader, [table.oid for table in found.values()])
        wrong = {}
        for name, table in found.items():
            mark = there[table.oid].mark if table.oid in there else None
            if table.oid not in followed or mark == followed[table.oid]:
                continue
            if self._reported.get(table.oid, "") != mark:
                wrong[name] = _CHANGED
                self._reported[table.oid] = mark
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
