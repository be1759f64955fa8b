"""Finds what prevents tables from being captured by triggers, without changes on the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.model.change_triggers import commented
from engine.model.fault import EngineFault, FaultKind
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import DiscoveredTable, Finding, Severity, SourceIdentity
from engine.model.subscription import OriginFilter, TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import CatalogTable
from engine.sources.postgres import mending
from engine.sources.postgres.catalog import load_tables
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.table_checks import check_filters, check_tables, discover, rights_of
from engine.sources.postgres_triggers.change_triggers import key_of_rows, recorded_twice, unfit_tables
from engine.sources.postgres_triggers.given import Given
from engine.sources.postgres_triggers.objects import (
    SHADOW_SCHEMA,
    grants_to,
    is_exact,
    is_installed,
    read_layout,
    trigger_statements,
)
from engine.sources.postgres_triggers.structures import as_recorded
from engine.sources.postgres_triggers.triggered_tables import LAYOUT_MISSING

OLDEST_VERSION = 140000
"""PostgreSQL 14 as `server_version_num`: the first with CREATE OR REPLACE TRIGGER."""
_E, _I = Severity.ERROR, Severity.INFO
_IDENTITY = """
SELECT s.system_identifier::text || '-' || (SELECT oid FROM pg_database WHERE datname = current_database()), c.timeline_id
FROM pg_control_system() AS s, pg_control_checkpoint() AS c
"""
_GRANTED = """
SELECT CASE WHEN has_schema_privilege('penstock', 'USAGE') THEN
           has_table_privilege('penstock.changes', 'SELECT') AND has_table_privilege('penstock.changes', 'UPDATE')
           AND has_table_privilege('penstock.changes', 'DELETE') AND has_table_privilege('penstock.changes', 'TRUNCATE')
           AND has_table_privilege('penstock.windows', 'SELECT') AND has_table_privilege('penstock.windows', 'INSERT')
           AND has_table_privilege('penstock.windows', 'DELETE')
           AND has_table_privilege('penstock.readers', 'SELECT') AND has_table_privilege('penstock.readers', 'INSERT')
           AND has_table_privilege('penstock.readers', 'UPDATE') AND has_table_privilege('penstock.readers', 'DELETE')
           AND has_table_privilege('penstock.followed', 'SELECT') AND has_table_privilege('penstock.followed', 'INSERT')
           AND has_table_privilege('penstock.followed', 'UPDATE') AND has_table_privilege('penstock.followed', 'DELETE')
           AND has_function_privilege('penstock.close_window()', 'EXECUTE')
       ELSE false END
"""
"""Whether the user has what `objects.grants_to` grants."""
_REMEDIES = {
    FaultKind.SOURCE_UNREACHABLE: "Check host, port and database, and that the server runs and can be reached from the engine.",
    FaultKind.SOURCE_AUTHENTICATION: "Check user and password, and that pg_hba.conf lets this user in.",
}


def identify(connector: Connector) -> SourceIdentity:
    """The cluster's system identifier with the database's OID, and the timeline."""
    with connector.session() as connection:
        system, timeline = connection.execute(_IDENTITY).fetchall()[0]
        return SourceIdentity(str(system), int(timeline), connection.info.server_version)


def discover_tables(connector: Connector) -> list[DiscoveredTable]:
    """Every table outside the system schemas and Penstock's; partitioned ones with the reason that they cannot be captured."""
    return [
        replace(table, problems=(*table.problems, _partitioned(table.name))) if table.partitioned else table
        for table in discover(connector, as_recorded)
    ]


def check(connector: Connector, tables: Sequence[TableSpec], origin: OriginFilter, given: Given) -> list[Finding]:
    """Findings about the source and these tables. A failed connection is a finding, not a fault."""
    try:
        with connector.session() as connection:
            version = connection.info.server_version
            if version < OLDEST_VERSION:
                what = f"the server is PostgreSQL {version // 10000}; 14 is the oldest that is supported"
                return [Finding(_E, "source_version", what, "Upgrade the source.")]
            mark = mark_of(connector.secret(MASK_KEY))
            found = _origin(origin) + _shadow_log(connection, given)
            found += check_tables(connection, [replace(t, mask_mark=mark) for t in tables], as_recorded, by_others=True)
            found += _owned(connection, tables) if given.install and not given.by_application else []
            found += check_filters(connection, tables, {}, as_recorded)
            return found + _triggers(connection, tables, given) + _unfit(connection, tables)
    except EngineFault as fault:
        remedy = _REMEDIES.get(fault.kind, "Check the connection's settings.")
        return [Finding(_E, fault.kind.value, fault.detail, remedy)]


def _origin(origin: OriginFilter) -> list[Finding]:
    if origin is OriginFilter.ANY:
        return []
    what = "triggers record changes of every origin"
    return [Finding(_E, FaultKind.ORIGIN_UNSUPPORTED.value, what, "Let `capture.origin` be `any`.")]


def _shadow_log(connection: PostgresConnection, given: Given) -> list[Finding]:
    missing = read_layout(connection).missing
    if not given.install:
        return _given_shadow_log(connection, commented(missing))
    if not missing:
        return []
    row = connection.execute(
        "SELECT has_database_privilege(current_database(), 'CREATE'), current_database()"
    ).fetchone()
    if row is not None and not row[0] and not is_installed(connection):
        what = "the user may not create the schema penstock, which holds the shadow log"
        remedy = "GRANT CREATE ON DATABASE to the user."
        return [Finding(_E, FaultKind.CHANGE_TRIGGERS_PRIVILEGE.value, what, remedy)]
    what = (
        "the shadow log in the schema penstock will be created or brought up to date, and four triggers on each table"
    )
    return [Finding(_I, "change_triggers_absent", what, "Nothing has to be done.", commented(missing))]


def _given_shadow_log(connection: PostgresConnection, missing: tuple[str, ...]) -> list[Finding]:
    """Findings if an administrator installs the shadow log: it is missing, or the user lacks rights on it."""
    user = str(connection.execute("SELECT current_user").fetchall()[0][0])
    if missing:
        remedy = "Have an administrator run the statements, and then those for the tables."
        sql = (*missing, *grants_to(user))
        return [Finding(_E, FaultKind.CHANGE_TRIGGERS_MISSING.value, LAYOUT_MISSING, remedy, sql)]
    if connection.execute(_GRANTED).fetchall()[0][0]:
        return []
    what = "the user lacks rights on the shadow log"
    remedy = "Have the owner of the shadow log run the statements."
    return [Finding(_E, FaultKind.CHANGE_TRIGGERS_PRIVILEGE.value, what, remedy, grants_to(user))]


def _triggers(connection: PostgresConnection, tables: Sequence[TableSpec], given: Given) -> list[Finding]:
    """Findings on tables whose triggers are missing or do not record enough, with the statements that mend it."""
    there = [
        t
        for t in load_tables(connection, [t.source for t in tables]).values()
        if t.kind == "r" and t.name.schema != SHADOW_SCHEMA
    ]
    found = []
    for name in recorded_twice(connection, there, by_application=given.by_application):
        what = f"changes of {name} would be recorded twice, by triggers and by the application"
        remedy = "Remove the triggers, or let `capture.recorder` be the same in all subscriptions of the table."
        found.append(Finding(_E, FaultKind.CHANGE_TRIGGERS_IN_USE.value, what, remedy))
    if given.by_application:
        return found
    found += _whole(there, tables, given)
    for name, variant in unfit_tables(connection, there, given.asked(tables)).items():
        statements = trigger_statements(name, variant)
        sql = commented(statements)
        if given.install:
            what = f"{name} will get triggers that record its changes"
            found.append(Finding(_I, "change_triggers_planned", what, "Nothing has to be done.", sql))
            continue
        what = f"{name} has no triggers that record its changes, and capture.install is false"
        remedy = f"Have the owner of the table run: BEGIN; {'; '.join(each.sql for each in statements)}; COMMIT;"
        found.append(Finding(_E, FaultKind.CHANGE_TRIGGERS_MISSING.value, what, remedy, sql))
    return found


def _whole(there: Sequence[CatalogTable], tables: Sequence[TableSpec], given: Given) -> list[Finding]:
    """Findings on tables of `changed_columns` that are recorded whole, or are none of the subscription."""
    asked = {table.source: table for table in tables}
    found = [f"the subscription has no table {name}" for name in sorted(given.changed - set(map(str, asked)))]
    for table in there:
        if str(table.name) not in given.changed:
            continue
        if is_exact(table):
            found.append(f"{table.name} is recorded whole: JSON does not hold all of its types exactly")
        elif not key_of_rows(table):
            found.append(f"{table.name} is recorded whole: it has no key, or REPLICA IDENTITY FULL")
        elif asked[table.name].where is not None:
            found.append(f"{table.name} is recorded whole: its row filter needs whole rows")
    remedy = "Take it out of `capture.changed_columns`."
    return [Finding(Severity.WARNING, "recorded_whole", what, remedy) for what in found]


def _owned(connection: PostgresConnection, tables: Sequence[TableSpec]) -> list[Finding]:
    found = []
    for name, rights in rights_of(connection, [t.source for t in tables]).items():
        if not rights.owned:
            what = f"only the owner of {name} may let triggers fire for writes of every session"
            remedy = "Make the user a member of the role that owns the table."
            mended = mending.let_act_as(rights.owner, rights.user)
            found.append(Finding(_E, FaultKind.CHANGE_TRIGGERS_PRIVILEGE.value, what, remedy, mended))
    return found


def _unfit(connection: PostgresConnection, tables: Sequence[TableSpec]) -> list[Finding]:
    catalog = load_tables(connection, [t.source for t in tables])
    found = [_partitioned(name) for name, table in catalog.items() if table.partitioned]
    for name in catalog:
        if name.schema == SHADOW_SCHEMA:
            what = f"{name} belongs to the schema penstock, whose tables triggers do not record"
            found.append(Finding(_E, FaultKind.TABLE_NOT_LOGGED.value, what, "Take it out of the subscription."))
    return found


def _partitioned(name: object) -> Finding:
    what = f"{name} is partitioned, and triggers of this version record plain tables only"
    return Finding(_E, FaultKind.TABLE_NOT_LOGGED.value, what, "Capture the source's log, or name a plain table.")
