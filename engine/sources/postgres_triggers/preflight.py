"""Finds what prevents tables from being captured by triggers, without changes on the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import DiscoveredTable, Finding, Severity, SourceIdentity
from engine.model.subscription import OriginFilter, TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres import mending
from engine.sources.postgres.catalog import load_tables
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.table_checks import check_tables, discover, rights_of
from engine.sources.postgres_triggers.objects import is_installed

OLDEST_VERSION = 140000
"""PostgreSQL 14 as `server_version_num`: the first with CREATE OR REPLACE TRIGGER."""
_E, _I = Severity.ERROR, Severity.INFO
_SCHEMA = "penstock"
_IDENTITY = """
SELECT s.system_identifier::text || '-' || (SELECT oid FROM pg_database WHERE datname = current_database()), c.timeline_id
FROM pg_control_system() AS s, pg_control_checkpoint() AS c
"""
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
    """Every table outside the system schemas and the shadow log's; partitioned ones with the reason that they cannot be captured."""
    return [
        replace(table, problems=(*table.problems, _partitioned(table.name))) if table.partitioned else table
        for table in discover(connector)
        if table.name.schema != _SCHEMA
    ]


def check(connector: Connector, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
    """Findings about the source and these tables. A failed connection is a finding, not a fault."""
    try:
        with connector.session() as connection:
            version = connection.info.server_version
            if version < OLDEST_VERSION:
                what = f"the server is PostgreSQL {version // 10000}; 14 is the oldest that is supported"
                return [Finding(_E, "source_version", what, "Upgrade the source.")]
            mark = mark_of(connector.secret(MASK_KEY))
            found = _origin(origin) + _shadow_log(connection)
            found += check_tables(connection, [replace(t, mask_mark=mark) for t in tables], by_others=True)
            return found + _owned(connection, tables) + _unfit(connection, tables)
    except EngineFault as fault:
        remedy = _REMEDIES.get(fault.kind, "Check the connection's settings.")
        return [Finding(_E, fault.kind.value, fault.detail, remedy)]


def _origin(origin: OriginFilter) -> list[Finding]:
    if origin is OriginFilter.ANY:
        return []
    what = "triggers record changes of every origin"
    return [Finding(_E, FaultKind.ORIGIN_UNSUPPORTED.value, what, "Let `capture.origin` be `any`.")]


def _shadow_log(connection: PostgresConnection) -> list[Finding]:
    if is_installed(connection):
        return []
    row = connection.execute(
        "SELECT has_database_privilege(current_database(), 'CREATE'), current_database()"
    ).fetchone()
    if row is not None and not row[0]:
        what = "the user may not create the schema penstock, which holds the shadow log"
        remedy = "GRANT CREATE ON DATABASE to the user."
        return [Finding(_E, FaultKind.CHANGE_TRIGGERS_PRIVILEGE.value, what, remedy)]
    what = "the schema penstock with the shadow log will be created, and four triggers on each table"
    return [Finding(_I, "change_triggers_absent", what, "Nothing has to be done.")]


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
    for spec in tables:
        if spec.where is not None:
            what = f"{spec.source}: where is not possible with triggers, which record every row"
            found.append(Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, what, "Leave it out, or capture the log."))
    return found


def _partitioned(name: object) -> Finding:
    what = f"{name} is partitioned, and triggers of this version record plain tables only"
    return Finding(_E, FaultKind.TABLE_NOT_LOGGED.value, what, "Capture the source's log, or name a plain table.")
