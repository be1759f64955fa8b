"""Preflight checks: finds what prevents tables from being replicated, without changes on the source; and lists the source's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from engine.model.ddl import DdlCapture
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import Finding, Severity
from engine.model.subscription import OriginFilter, TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres import mending
from engine.sources.postgres.catalog import one_look
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.table_checks import check_filters, check_tables
from engine.sources.postgres_log import ddl_capture, slots
from engine.sources.postgres_log.given import NOTHING_GIVEN, Given
from engine.sources.postgres_log.given_publication import look_for_unsent, missing, read_publication, read_tables
from engine.sources.postgres_log.stream import ORIGIN_VERSION, origin_refusal

OLDEST_VERSION = 140000
"""PostgreSQL 14 as `server_version_num`: the first whose pgoutput sends open transactions and logical messages."""

_SERVER = """
SELECT current_setting('wal_level'), current_setting('max_replication_slots')::int, current_setting('max_wal_senders')::int,
       (SELECT count(*) FROM pg_replication_slots)::int,
       (SELECT count(*) FROM pg_stat_get_wal_senders())::int,
       EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s),
       EXISTS (SELECT FROM pg_publication WHERE pubname = %s),
       has_database_privilege(current_database(), 'CREATE'),
       (SELECT setting::bigint FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
       current_database()::text, current_user::text
"""
_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO


def check(
    connector: Connector,
    tables: Sequence[TableSpec],
    slot: str | None,
    origin: OriginFilter = OriginFilter.ANY,
    refused: Mapping[tuple[TableName, str], str] = MappingProxyType({}),
    given: Given = NOTHING_GIVEN,
) -> list[Finding]:
    """Findings about the source and these tables. A failed connection is a finding, not a fault.

    `slot`: the subscription's reader if it may exist already; its slot and publications then need no free place and no privilege.
    `refused`: row filters that the source refused to publish, with its reason. `given`: what the subscription names instead of its own.
    """
    try:
        with connector.session() as connection:
            version = connection.info.server_version
            found = _server(connection, slot, version, given)
            if any(f.code == "source_version" for f in found):
                return found
            found += _origin(origin, version)
            found += _ddl_capture(ddl_capture.state(connection))
            mark = mark_of(connector.secret(MASK_KEY))
            marked = [replace(table, mask_mark=mark) for table in tables]
            found += check_tables(connection, marked, by_others=given.publication is not None)
            if given.publication is not None:
                found += _sent(connection, given.publication, tables)
            found += check_filters(connection, tables, refused)
            user = connection.info.user
        if given.slot is not None:
            found += _given_slot(connector, given.slot, in_use=slot is None)
        found += _replication(connector, user)
    except EngineFault as fault:
        return [
            Finding(
                _E,
                fault.kind.value,
                fault.detail,
                _CONNECTION_REMEDIES.get(fault.kind, "Check the connection's settings."),
            )
        ]
    return found


def _ddl_capture(found: DdlCapture) -> list[Finding]:
    if not found.installed:
        what = "schema changes are read from the log and the catalog: the source has no trigger that reports DDL"
        remedy = (
            "Nothing has to be done. PUT /connections/{name}/ddl-capture installs one, as a superuser of the source."
        )
        return [Finding(_I, "ddl_capture_absent", what, remedy)]
    if found.current:
        what = f"a trigger of version {found.version} reports DDL in the log"
        return [Finding(_I, "ddl_capture_installed", what, "DELETE /connections/{name}/ddl-capture removes it.")]
    told = "is of another version" if found.version != ddl_capture.VERSION else "is not whole, or switched off"
    what = f"the trigger that reports DDL {told}; until that is corrected, schema changes are read from the log and the catalog"
    remedy = "PUT /connections/{name}/ddl-capture, as a superuser of the source, or DELETE it."
    return [Finding(_W, "ddl_capture_outdated", what, remedy)]


def _server(connection: PostgresConnection, slot: str | None, version: int, given: Given) -> list[Finding]:
    if version < OLDEST_VERSION:
        what = f"the server is PostgreSQL {version // 10000}; 14 is the oldest that is supported"
        return [Finding(_E, "source_version", what, "Upgrade the source.")]
    row = connection.execute(_SERVER, [given.slot or slot or "", slot or ""]).fetchall()[0]
    wal_level, most_slots, most_senders, slots, senders, has_slot, has_publication, may_create, keep_mb, *who = row
    found: list[Finding] = []
    if wal_level != "logical":
        remedy = "Run ALTER SYSTEM SET wal_level = 'logical' and restart the source."
        sql = mending.set_for_good("wal_level", "logical")
        found.append(Finding(_E, FaultKind.SOURCE_WAL_LEVEL.value, f"wal_level is {wal_level}", remedy, sql))
    if not has_slot and slots >= most_slots:
        remedy = "Raise max_replication_slots and restart the source, or drop an unused slot."
        found.append(
            Finding(_E, FaultKind.SOURCE_NO_SLOTS.value, f"all {most_slots} replication slots are taken", remedy)
        )
    elif most_slots - slots < 2:
        what = "only one replication slot is free; copies and comparisons need another for a moment"
        found.append(Finding(_W, FaultKind.SOURCE_NO_SLOTS.value, what, "Raise max_replication_slots."))
    if most_senders - senders < 2:
        severity, left = (_E, "no") if senders >= most_senders else (_W, "only one")
        what = f"{left} WAL sender of {most_senders} is free; replication needs one, copies and comparisons another"
        found.append(
            Finding(severity, FaultKind.SOURCE_NO_SENDERS.value, what, "Raise max_wal_senders and restart the source.")
        )
    if not may_create and not has_publication and given.publication is None:
        what = "the user may not create publications in this database"
        sql = mending.let_publish_in(*who)
        found.append(Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, "GRANT CREATE ON DATABASE to the user.", sql))
    if keep_mb == -1:
        what = "max_slot_wal_keep_size is not limited: an unused slot can fill the source's disk"
        found.append(
            Finding(_I, "slot_without_limit", what, "Set max_slot_wal_keep_size to what the source's disk can spare.")
        )
    return found


def _origin(origin: OriginFilter, version: int) -> list[Finding]:
    """Findings about filtering changes by their replication origin."""
    if origin is OriginFilter.ANY:
        return []
    if version < ORIGIN_VERSION:
        remedy = "Upgrade the source, or let `capture.origin` be `any`."
        return [Finding(_E, FaultKind.ORIGIN_UNSUPPORTED.value, origin_refusal(version), remedy)]
    what = "a table's copy takes all rows, whatever their origin; only later changes are filtered by origin"
    remedy = "None needed, unless rows that came here by replication are not to be on the target."
    return [Finding(_I, "copy_of_any_origin", what, remedy)]


_CONNECTION_REMEDIES = {
    FaultKind.SOURCE_UNREACHABLE: "Check host, port and database, and that the server runs and can be reached from the engine.",
    FaultKind.SOURCE_AUTHENTICATION: "Check user and password, and that pg_hba.conf lets this user in.",
    FaultKind.SOURCE_PRIVILEGE: "ALTER ROLE … REPLICATION, and GRANT CONNECT on the database.",
    FaultKind.SOURCE_NO_SENDERS: "Raise max_wal_senders and restart the source.",
}


def _replication(connector: Connector, user: str) -> list[Finding]:
    """Test whether `user` may open a replication session, by opening one: hosted services do not show it in the role's attributes."""
    try:
        connector.open(replication=True).close()
    except EngineFault as fault:
        remedy = _CONNECTION_REMEDIES.get(
            fault.kind, "Check that pg_hba.conf lets this user open replication connections."
        )
        sql = mending.let_replicate(user) if fault.kind is FaultKind.SOURCE_PRIVILEGE else ()
        return [Finding(_E, fault.kind.value, f"no replication connection: {fault.detail}", remedy, sql)]
    return []


def _sent(connection: PostgresConnection, name: str, tables: Sequence[TableSpec]) -> list[Finding]:
    """Findings on a publication that the subscription names, and on what it lacks for these tables."""
    with one_look(connection):
        publication = read_publication(connection, name)
        if publication is None:
            return [missing(name, tables)]
        there = read_tables(connection, publication, {table.source for table in tables})
        why = look_for_unsent(connection, publication, there, tables)
    return [Finding(_E, FaultKind.TABLE_NOT_SENT.value, each.what, each.remedy, each.sql) for each in why.values()]


def _given_slot(connector: Connector, slot: str, *, in_use: bool) -> list[Finding]:
    """Findings on a slot that the subscription names. `in_use`: also whether a session reads it."""
    unfit = slots.why_unfit(connector, slot)
    if unfit is not None:
        remedy = "Replace it, correct the name, or leave capture.slot out: Penstock then makes its own."
        return [Finding(_E, FaultKind.READER_UNFIT.value, unfit, remedy, mending.make_slot(slot))]
    reader = slots.status(connector, slot).active_pid if in_use else None
    if reader is None:
        return []
    what = f"replication slot {slot} is read by pid {reader}"
    return [Finding(_E, FaultKind.SLOT_IN_USE.value, what, "Stop its reader: a slot can have one only.")]
