"""Installs and removes the shadow log and the triggers of tables, and shows the statements for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import psycopg

from engine.model.change_triggers import ChangeTriggersState, PlannedStatement, RecordedTable
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.schema import ReplicaIdentity
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import CatalogTable
from engine.sources.postgres.catalog import load_numbered, load_tables
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_triggers.objects import (
    INSTALL_LOCK,
    SHADOW_SCHEMA,
    WINDOW_LOCK,
    TableTriggers,
    Variant,
    grants_to,
    is_exact,
    is_installed,
    is_same_trigger,
    read_layout,
    read_triggers,
    removal_statements,
    trigger_statements,
)
from engine.sources.postgres_triggers.structures import as_recorded
from engine.sources.postgres_triggers.table_locks import in_short_tries

_TABLES = """
SELECT DISTINCT t.tgrelid::bigint FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE t.tgname LIKE '!penstock\\_%' AND n.nspname = 'penstock' AND t.tgparentid = 0
"""
_MARK_AGAIN = "UPDATE penstock.followed SET triggers = %s WHERE relation = %s AND triggers = %s"
BY_APPLICATION = "application"
"""In penstock.followed in place of a mark: the application writes the table's changes, and it has no triggers."""
_WRITTEN = "SELECT DISTINCT relation::bigint FROM penstock.followed WHERE relation = ANY(%s::oid[]) AND triggers = %s"
_FILTERED = """
SELECT relation::bigint FROM penstock.followed f WHERE relation = ANY(%s::oid[]) AND to_jsonb(f) ->> 'row_filter' IS NOT NULL
"""
"""Also where an earlier layout has no such column."""
_READERS = "SELECT name FROM penstock.readers UNION SELECT reader FROM penstock.followed ORDER BY 1"
_SHARED = """
SELECT EXISTS (SELECT FROM pg_depend d JOIN pg_namespace n ON d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid
               LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
               LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
               LEFT JOIN pg_type t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
               WHERE n.nspname = 'penstock' AND NOT coalesce(p.proname LIKE 'record\\_%%' OR p.proname = 'close_window', false)
                 AND NOT coalesce(c.relname, t.typname, '') = ANY(%s))
"""
_OWN_RELATIONS = ["changes", "windows", "readers", "followed", "transactions", "changes_no_seq"]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A table, and how its triggers have to record it."""

    table: CatalogTable
    there: TableTriggers | None
    variant: Variant

    @property
    def current(self) -> bool:
        return self.there is not None and self.there.complete and self.there.variant == self.variant


class PostgresChangeTriggers:
    """`ChangeTriggers` of a PostgreSQL database."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def status(self) -> ChangeTriggersState:
        with self._connector.session() as connection:
            return _state(connection)

    def plan(self, tables: Sequence[TableName]) -> tuple[PlannedStatement, ...]:
        with self._connector.session() as connection:
            layout = read_layout(connection)
            found = [one for one in _wanted(connection, _chosen(connection, tables)) if not one.current]
            return (*layout.missing, *(s for one in found for s in trigger_statements(one.table.name, one.variant)))

    def grants(self) -> tuple[str, ...]:
        with self._connector.session() as connection:
            return grants_to(str(connection.execute("SELECT current_user").fetchall()[0][0]))

    def install(self, tables: Sequence[TableName]) -> ChangeTriggersState:
        with self._connector.session() as connection, as_privilege_fault("change triggers"):
            chosen = _chosen(connection, tables)
            install_layout(connection)
            for one in _wanted(connection, chosen):
                if not one.current:
                    in_short_tries(connection, partial(install_triggers, connection, one.table, one.variant))
            return _state(connection)

    def remove(self) -> ChangeTriggersState:
        with self._connector.session() as connection, as_privilege_fault("change triggers"):
            in_short_tries(connection, partial(_remove_all, connection))
            return _state(connection)


def _remove_all(connection: PostgresConnection) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [WINDOW_LOCK])
    layout = read_layout(connection)
    if {"readers", "followed"} <= layout.tables:
        readers = [str(name) for (name,) in connection.execute(_READERS).fetchall()]
        if readers:
            detail = f"what they record is read by {', '.join(readers)}"
            raise EngineFault(FaultKind.CHANGE_TRIGGERS_IN_USE, "change triggers", detail)
    state = _state(connection)
    for statement in state.remove_sql if state.installed else ():
        connection.execute(statement.encode())


@contextmanager
def as_privilege_fault(subject: str) -> Iterator[None]:
    """Lack of a right in the block is the fault CHANGE_TRIGGERS_PRIVILEGE."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        detail = f"triggers cannot be created or dropped: {error.diag.message_primary}"
        raise EngineFault(FaultKind.CHANGE_TRIGGERS_PRIVILEGE, subject, detail) from error


def install_layout(connection: PostgresConnection) -> None:
    """Create what is missing of the shadow log, or upgrade it in place: its readers continue."""
    in_short_tries(connection, partial(_install_layout, connection))


def _install_layout(connection: PostgresConnection) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
    layout = read_layout(connection)
    relations = _recorded(connection) if layout.missing and "followed" in layout.tables else []
    before = read_triggers(connection, relations)
    for statement in layout.missing:
        connection.execute(statement.sql.encode())
    for relation, now in read_triggers(connection, relations).items():
        if relation in before and before[relation].mark != now.mark:
            _mark_again(connection, relation, before[relation].mark, now.mark)


def _mark_again(connection: PostgresConnection, relation: int, before: str, now: str) -> None:
    """Let readers that recorded the triggers as they were before accept those with the new functions."""
    if is_same_trigger(before, now):
        connection.execute(_MARK_AGAIN, [now, relation, before])


def install_triggers(connection: PostgresConnection, table: CatalogTable, variant: Variant) -> str:
    """Create or replace the triggers of a table in the transaction of the caller; returns their mark. Readers that recorded the triggers as
    they are now accept the new ones: the lock on the table lets no change pass between."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
    lock, *statements = trigger_statements(table.name, variant)
    connection.execute(lock.sql.encode())
    before = read_triggers(connection, [table.oid]).get(table.oid)
    if before is not None and before.complete and before.variant == variant:
        return before.mark
    for statement in statements:
        connection.execute(statement.sql.encode())
    now = read_triggers(connection, [table.oid])[table.oid].mark
    if before is not None and before.complete:
        connection.execute(_MARK_AGAIN, [now, table.oid, before.mark])
    return now


@dataclass(frozen=True, slots=True)
class Asked:
    """What a subscription asks of the recording. `audit`: who changed a row. `changed`: tables, as `schema.name`, of whose updates only the
    changed columns are to be recorded. `whole`: tables whose rows it needs whole."""

    audit: bool = False
    changed: frozenset[str] = frozenset()
    whole: frozenset[TableName] = frozenset()


def variants(
    connection: PostgresConnection, tables: Collection[CatalogTable], asked: Asked
) -> dict[TableName, tuple[TableTriggers | None, Variant]]:
    """The triggers that are there, and how each table has to be recorded. What a reader has asked for stays so, but for changed columns
    only: not while a reader has a row filter, which needs whole rows."""
    oids = [table.oid for table in tables]
    there = read_triggers(connection, oids)
    filtered = _filtered(connection, oids)
    found = {}
    for table in tables:
        triggers = there.get(table.oid)
        before = Variant(exact=False) if triggers is None else triggers.variant
        exact = is_exact(table)
        whole = exact or table.oid in filtered or table.name in asked.whole
        changed = not whole and (before.changed_only or str(table.name) in asked.changed)
        found[table.name] = triggers, Variant(exact, asked.audit or before.audit, key_of_rows(table) if changed else ())
    return found


def key_of_rows(table: CatalogTable) -> tuple[str, ...]:
    """The columns that identify a row in what is recorded; empty if only the whole row does."""
    recorded = as_recorded(table)
    return () if recorded.identity is ReplicaIdentity.FULL else recorded.identity_columns


def fits(there: TableTriggers, wanted: Variant, *, exactly: bool) -> bool:
    """Whether triggers record what is wanted. `exactly`: and nothing more."""
    if not there.complete or exactly:
        return there.complete and there.variant == wanted
    enough = not there.variant.changed_only or there.variant.keys == wanted.keys
    return enough and there.variant.exact >= wanted.exact and there.variant.audit >= wanted.audit


def unfit_tables(
    connection: PostgresConnection, tables: Collection[CatalogTable], asked: Asked
) -> dict[TableName, Variant]:
    """The tables whose triggers are missing or do not record enough, with how they have to be recorded."""
    return {
        name: variant
        for name, (triggers, variant) in variants(connection, tables, asked).items()
        if triggers is None or not fits(triggers, variant, exactly=False)
    }


def _filtered(connection: PostgresConnection, relations: Collection[int]) -> set[int]:
    """Those of these tables that a reader has a row filter for."""
    if not is_installed(connection):
        return set()
    return {int(oid) for (oid,) in connection.execute(_FILTERED, [list(relations)]).fetchall()}


def written_by_application(connection: PostgresConnection, relations: Collection[int]) -> set[int]:
    """Those of these tables whose changes an application writes, for any reader."""
    if not is_installed(connection):
        return set()
    return {int(oid) for (oid,) in connection.execute(_WRITTEN, [list(relations), BY_APPLICATION]).fetchall()}


def recorded_twice(
    connection: PostgresConnection, tables: Collection[CatalogTable], *, by_application: bool
) -> frozenset[TableName]:
    """The tables whose changes are recorded already in the other way: by triggers, or by the application."""
    oids = [table.oid for table in tables]
    others = set(read_triggers(connection, oids)) if by_application else written_by_application(connection, oids)
    return frozenset(table.name for table in tables if table.oid in others)


def _chosen(connection: PostgresConnection, names: Sequence[TableName]) -> Collection[CatalogTable]:
    """The tables of these names; without any, those with triggers."""
    return _named(connection, names) if names else load_numbered(connection, _recorded(connection)).values()


def _named(connection: PostgresConnection, names: Sequence[TableName]) -> list[CatalogTable]:
    found = load_tables(connection, names)
    for name in names:
        if name not in found:
            raise EngineFault(
                FaultKind.TABLE_MISSING, str(name), "it does not exist, or the user may not see its schema"
            )
        if written_by_application(connection, [found[name].oid]):
            detail = "the application records its changes; triggers would record them again"
            raise EngineFault(FaultKind.CHANGE_TRIGGERS_IN_USE, str(name), detail)
        if found[name].kind != "r" or found[name].persistence != "p" or name.schema == SHADOW_SCHEMA:
            raise EngineFault(
                FaultKind.TABLE_NOT_LOGGED,
                str(name),
                "triggers record plain, logged tables only, none of the schema penstock",
            )
    return list(found.values())


def _wanted(connection: PostgresConnection, tables: Collection[CatalogTable]) -> list[_Wanted]:
    found = variants(connection, tables, Asked())
    return [_Wanted(table, *found[table.name]) for table in tables]


def _recorded(connection: PostgresConnection) -> list[int]:
    """OIDs of the tables with triggers."""
    return [int(oid) for (oid,) in connection.execute(_TABLES).fetchall()]


def _state(connection: PostgresConnection) -> ChangeTriggersState:
    layout = read_layout(connection)
    wanted = sorted(_wanted(connection, _chosen(connection, ())), key=lambda one: str(one.table.name))
    shared = bool(connection.execute(_SHARED, [_OWN_RELATIONS]).fetchall()[0][0])
    missing = [s.sql for one in wanted if not one.current for s in trigger_statements(one.table.name, one.variant)]
    return ChangeTriggersState(
        installed=bool(layout.tables or wanted),
        version=layout.version,
        current=not layout.missing and not missing,
        tables=tuple(
            RecordedTable(one.table.name, "" if one.there is None else one.there.variant.name, one.current)
            for one in wanted
        ),
        install_sql=(*(statement.sql for statement in layout.missing), *missing),
        remove_sql=removal_statements(layout, [one.table.name for one in wanted], shared=shared),
    )
