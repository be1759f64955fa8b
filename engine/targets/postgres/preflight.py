"""Checks a target database and names on it before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

import psycopg

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.postgres.sessions import PostgresConnection
from engine.targets.postgres.owner_tables.inspect import (
    firing_triggers,
    foreign_rows,
    holds_rows,
    rigid_foreign_keys,
    table_misfits,
)
from engine.targets.target_metadata import OWN_SCHEMA

Finding = tuple[str, str, str, str]
"""Severity, code, what, remedy."""

MAP_REMEDY = "map it to another name with `target` in the table's declaration"
MAX_NAME_BYTES = 63
"""PostgreSQL's NAMEDATALEN of 64, without the zero byte."""
INTO_REMEDY = 'or give "into_existing": true to replicate into it as it is'
_COLLISION = FaultKind.TABLE_NAME_COLLISION.value
_TRIGGERS = (
    "those enabled ALWAYS or as REPLICA do; of others GRANT SET ON PARAMETER session_replication_role to the connection's user keeps"
    " them from it"
)
_MAY = "SELECT has_database_privilege(current_database(), 'CREATE'), pg_is_in_recovery()"


def is_reserved(target: TableName) -> bool:
    """Whether the schema is reserved, so that no table is replicated into it."""
    return target.schema in {OWN_SCHEMA, "information_schema"} or target.schema.startswith("pg_")


def name_findings(tables: Sequence[TableName]) -> list[Finding]:
    """Names that occur twice or are not allowed."""
    findings: list[Finding] = []
    seen: set[TableName] = set()
    for table in tables:
        if table in seen:
            findings.append(("error", _COLLISION, f"{table} is there twice", f"{MAP_REMEDY} for one of them"))
        seen.add(table)
        if is_reserved(table):
            what = f"the schema {table.schema!r} is reserved"
            findings.append(("error", _COLLISION, what, MAP_REMEDY))
        if max(len(part.encode()) for part in (table.schema, table.name)) > MAX_NAME_BYTES:
            what = f"{table}: a name is longer than the {MAX_NAME_BYTES} bytes that PostgreSQL allows"
            findings.append(("error", _COLLISION, what, MAP_REMEDY))
    return findings


def place_findings(connection: PostgresConnection) -> list[Finding]:
    """The user's privileges in the database."""
    may_create, standby = connection.execute(_MAY).fetchall()[0]
    findings: list[Finding] = []
    if standby:
        what, remedy = "the target is a standby, which is read-only", "connect to its primary"
        findings.append(("error", FaultKind.TARGET_UNAVAILABLE.value, what, remedy))
    if not may_create:
        what = "the user may not create schemas in the target database"
        remedy = "GRANT CREATE ON DATABASE … TO the user of the connection"
        findings.append(("error", FaultKind.TARGET_UNAVAILABLE.value, what, remedy))
    return findings


def taken_finding(table: TableName) -> Finding:
    """The finding for a name used by a relation that is not ours."""
    what = f"a table or view {table} that Penstock did not create exists on the target"
    return ("error", _COLLISION, what, f"{MAP_REMEDY}, {INTO_REMEDY}")


def existing_findings(
    connection: PostgresConnection, tables: Sequence[TableName], ours: Collection[TableName]
) -> list[Finding]:
    """Findings about existing tables to be used; rows of `ours` are not examined. Their columns are checked when they are copied."""
    findings: list[Finding] = []
    with connection.transaction():
        _as_writer(connection)
        for table in tables:
            found = table_misfits(connection, table)
            if not found and table not in ours and holds_rows(connection, table):
                found = [foreign_rows(table)]
            for what, _, remedy in (each.partition(": ") for each in found):
                findings.append(("error", FaultKind.TABLE_UNFIT.value, f"{table}: {what}", remedy))
            if not found and (triggers := firing_triggers(connection, table)):
                what = f"{table}: triggers fire for replicated rows: {', '.join(triggers)}"
                findings.append(("warning", "target_triggers_fire", what, _TRIGGERS))
    return findings


def rigid_findings(connection: PostgresConnection, tables: Sequence[TableName]) -> list[Finding]:
    """Findings about existing tables: foreign keys that batches would violate, since tables are written one after another."""
    with connection.transaction():
        _as_writer(connection)
        rigid = {key for table in tables for key in rigid_foreign_keys(connection, table)}
    return [
        (
            "warning",
            "foreign_key_not_deferrable",
            f"the foreign key {name} of {table} is checked at every statement, but a batch writes its tables one after another",
            f"GRANT SET ON PARAMETER session_replication_role TO the user of the connection, or ALTER TABLE {table} ALTER CONSTRAINT"
            f" {name} DEFERRABLE, or choose the apply mode 'transactional' with one lane",
        )
        for table, name in sorted(rigid)
    ]


def _as_writer(connection: PostgresConnection) -> None:
    """Behave like the sessions that write, so that the same triggers fire. For a transaction."""
    with suppress(psycopg.errors.InsufficientPrivilege), connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")


def fault_finding(fault: EngineFault) -> Finding:
    """The finding for an error because of which the database could not be examined."""
    remedy = "check host, port, database, user and password of the connection"
    if fault.kind is FaultKind.TARGET_FOREIGN:
        remedy = "give another database"
    return ("error", fault.kind.value, f"{fault.subject}: {fault.detail}", remedy)


def is_taken(connection: PostgresConnection, target: TableName) -> bool:
    """Whether a relation with this name exists in the database."""
    row = connection.execute(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
        [target.schema, target.name],
    ).fetchall()[0]
    return bool(row[0])
