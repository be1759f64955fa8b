"""The objects of the shadow log in the source's schema `penstock`: what they are, and the statements that create and remove them.

Trigger functions use no operator and no unqualified name, so that a writer's search_path cannot change what they do, and they need no SET
clause. `record_*` writes a row as JSON, whose names survive later changes of the table. `record_*_exact` writes the row's text too, printed
with fixed settings: JSON loses JSON nulls and bounds of arrays, and prints floats and intervals as the writer's session does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from psycopg import sql

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.catalog import CatalogTable

LAYOUT = 1
"""Version of the shadow log's layout."""
WINDOW_LOCK = 7310001
"""Key of the advisory lock that is held while a window is closed: it orders the snapshots. Any number that no one else uses."""
INSTALL_LOCK = 7310002
"""Key of the advisory lock that is held while objects are created or dropped."""
WINDOW_CHANNEL = "penstock_windows"
"""Channel of the notification that a window was closed."""

_NOTE = f"Penstock: shadow log, layout {LAYOUT}"
_TABLES = {
    "changes": """CREATE TABLE penstock.changes (
    no bigint GENERATED ALWAYS AS IDENTITY (CACHE 1), xid xid8 NOT NULL, relation oid NOT NULL, op "char" NOT NULL,
    at timestamptz NOT NULL, old json, new json, old_row text, new_row text)""",
    "windows": "CREATE TABLE penstock.windows (no bigint PRIMARY KEY, snapshot pg_snapshot NOT NULL, at timestamptz NOT NULL)",
    "readers": "CREATE TABLE penstock.readers (name text PRIMARY KEY, durable bigint NOT NULL, at timestamptz NOT NULL)",
    "followed": "CREATE TABLE penstock.followed (reader text, relation oid, triggers text NOT NULL, PRIMARY KEY (reader, relation))",
}
_AFTER_TABLES = (
    "CREATE INDEX changes_by_xid ON penstock.changes (xid, no)",
    "ALTER TABLE penstock.changes SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)",
    "INSERT INTO penstock.windows SELECT 1, pg_catalog.pg_current_snapshot(), pg_catalog.clock_timestamp()",
)
_PINNED = (
    "SET extra_float_digits = 1 SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET lc_monetary = 'C' SET bytea_output = 'hex'"
    " SET timezone = 'UTC'"
)
_OPERATIONS = {"insert": ("I", None, "NEW"), "update": ("U", "OLD", "NEW"), "delete": ("D", "OLD", None)}
EVENTS = (*_OPERATIONS, "truncate")


def _recording(operation: str, *, exact: bool) -> str:
    letter, old, new = _OPERATIONS[operation]
    rows = [(name, record) for name, record in (("old", old), ("new", new)) if record is not None]
    columns = [name for name, _ in rows] + [f"{name}_row" for name, _ in rows if exact]
    values = [f"pg_catalog.row_to_json({record})" for _, record in rows]
    values += [f"{record}::pg_catalog.text" for _, record in rows if exact]
    return (
        f" BEGIN INSERT INTO penstock.changes (xid, relation, op, at, {', '.join(columns)}) VALUES (pg_catalog.pg_current_xact_id(),"
        f" TG_RELID, '{letter}', pg_catalog.clock_timestamp(), {', '.join(values)}); RETURN NULL; END "
    )


_FUNCTIONS = {
    **{f"record_{operation}": (_recording(operation, exact=False), "") for operation in _OPERATIONS},
    **{f"record_{operation}_exact": (_recording(operation, exact=True), _PINNED) for operation in _OPERATIONS},
    "record_truncate": (
        " BEGIN INSERT INTO penstock.changes (xid, relation, op, at) VALUES (pg_catalog.pg_current_xact_id(), TG_RELID, 'T',"
        " pg_catalog.clock_timestamp()); RETURN NULL; END ",
        "",
    ),
}
# The commit waits until the log is on disk, and with it every commit that the window includes: after a crash none of them is missing.
_CLOSE_WINDOW = f""" DECLARE n bigint; BEGIN
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
        RAISE EXCEPTION 'penstock.close_window() needs a transaction of the level READ COMMITTED: windows close in the order of snapshots';
    END IF;
    PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
    PERFORM pg_catalog.pg_advisory_xact_lock({WINDOW_LOCK});
    INSERT INTO penstock.windows SELECT pg_catalog.max(no) OPERATOR(pg_catalog.+) 1, pg_catalog.pg_current_snapshot(),
        pg_catalog.clock_timestamp() FROM penstock.windows RETURNING no INTO n;
    PERFORM pg_catalog.pg_notify('{WINDOW_CHANNEL}', '');
    RETURN n; END """

_STATE = """
SELECT (SELECT obj_description(n.oid, 'pg_namespace') FROM pg_namespace n WHERE n.nspname = 'penstock'),
       EXISTS (SELECT FROM pg_namespace WHERE nspname = 'penstock'),
       ARRAY(SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = 'penstock' AND c.relname = ANY(%s)),
       (SELECT coalesce(jsonb_object_agg(p.proname, p.prosrc), '{}') FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = 'penstock' AND (p.proname LIKE 'record\\_%%' OR p.proname = 'close_window'))
"""
_TRIGGERS = """
SELECT t.tgrelid::bigint, substr(t.tgname, 11), t.tgenabled::text, p.proname,
       concat_ws(':', t.oid, t.xmin, t.tgenabled, p.oid, p.xmin)
FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE t.tgrelid = ANY(%s::oid[]) AND t.tgname LIKE '!penstock\\_%%' AND n.nspname = 'penstock'
ORDER BY t.tgname
"""
_PREFIX = "!penstock_"
"""Of the triggers' names. Triggers fire in the order of their names, and ours come before the owner's, which may write the row again."""
PLAIN_TYPES = frozenset(
    {
        "bool",
        "int2",
        "int4",
        "int8",
        "numeric",
        "text",
        "varchar",
        "bpchar",
        "char",
        "name",
        "oid",
        "date",
        "time",
        "timetz",
    }
    | {"timestamp", "timestamptz", "uuid", "bit", "varbit", "inet", "cidr", "macaddr", "macaddr8"}
)
"""Types whose values JSON holds exactly, whatever the settings of the writer's session."""


SHADOW_LOG_GONE = dict.fromkeys(("42P01", "3F000", "42883"), FaultKind.LOG_GAP)
"""Fault kinds of SQLSTATEs in statements that use the shadow log."""


@dataclass(frozen=True, slots=True)
class TableTriggers:
    """Our triggers of one table. `mark`: it changes if any of them is dropped, created again, disabled or enabled, or gets another
    function. `complete`: all four are there, and fire always."""

    mark: str
    complete: bool
    exact: bool


def is_exact(table: CatalogTable) -> bool:
    """Whether rows of the table must be recorded as text too."""
    return any(c.column.type.name not in PLAIN_TYPES and c.column.type.category != "e" for c in table.columns)


def read_triggers(connection: PostgresConnection, relations: Collection[int]) -> dict[int, TableTriggers]:
    """Our triggers of these tables, by OID; tables without any are left out."""
    rows: dict[int, list[tuple[str, ...]]] = {}
    for relation, *rest in connection.execute(_TRIGGERS, [list(relations)]).fetchall():
        rows.setdefault(relation, []).append(tuple(rest))
    found = {}
    for relation, triggers in rows.items():
        functions = {event: function for event, _, function, _ in triggers}
        exact = functions.get("update") == "record_update_exact"
        complete = functions == _functions(exact=exact) and all(enabled == "A" for _, enabled, _, _ in triggers)
        found[relation] = TableTriggers(" ".join(mark for *_, mark in triggers), complete, exact)
    return found


def _functions(*, exact: bool) -> dict[str, str]:
    return {event: f"record_{event}" + ("_exact" if exact and event in _OPERATIONS else "") for event in EVENTS}


def layout_statements(connection: PostgresConnection) -> list[str]:
    """The statements that create what is missing of the schema `penstock`, or replace what is of another version.

    Raises EngineFault(LOG_UNREADABLE) if the shadow log has a layout of a later version.
    """
    note, schema, tables, functions = connection.execute(_STATE, [list(_TABLES)]).fetchall()[0]
    found: list[str] = [] if schema else ["CREATE SCHEMA penstock", f"COMMENT ON SCHEMA penstock IS '{_NOTE}'"]
    _refuse_later(note)
    found += [statement for name, statement in _TABLES.items() if name not in tables]
    if not tables:
        found += _AFTER_TABLES
    for name, (body, options) in _FUNCTIONS.items():
        if functions.get(name) != body:
            found += [
                f"CREATE OR REPLACE FUNCTION penstock.{name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER {options}"
                f" AS $penstock${body}$penstock$",
                # Firing needs no right; without it, others could not let their own tables write here.
                f"REVOKE ALL ON FUNCTION penstock.{name}() FROM PUBLIC",
            ]
    if functions.get("close_window") != _CLOSE_WINDOW:
        found += [
            "CREATE OR REPLACE FUNCTION penstock.close_window() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER"
            f" AS $penstock${_CLOSE_WINDOW}$penstock$",
            "REVOKE ALL ON FUNCTION penstock.close_window() FROM PUBLIC",
        ]
    return found


def _refuse_later(note: str | None) -> None:
    head, _, number = (note or "").rpartition(" layout ")
    if head and number.isdecimal() and int(number) > LAYOUT:
        detail = f"the shadow log has the layout {number}; this version knows layouts up to {LAYOUT}"
        raise EngineFault(FaultKind.LOG_UNREADABLE, "penstock", detail)


def trigger_statements(name: TableName, *, exact: bool) -> list[str]:
    """The statements that create, or replace, the triggers of one table."""
    table = sql.Identifier(name.schema, name.name).as_string()
    found = []
    for event, function in _functions(exact=exact).items():
        level = "STATEMENT" if event == "truncate" else "ROW"
        found += [
            f'CREATE OR REPLACE TRIGGER "{_PREFIX}{event}" AFTER {event.upper()} ON {table} FOR EACH {level}'
            f" EXECUTE FUNCTION penstock.{function}()",
            f'ALTER TABLE {table} ENABLE ALWAYS TRIGGER "{_PREFIX}{event}"',
        ]
    return found


def drop_statements(names: Sequence[TableName]) -> list[str]:
    """The statements that remove the triggers of these tables."""
    tables = [sql.Identifier(name.schema, name.name).as_string() for name in names]
    return [f'DROP TRIGGER IF EXISTS "{_PREFIX}{event}" ON {table}' for table in tables for event in EVENTS]


def is_installed(connection: PostgresConnection) -> bool:
    """Whether the shadow log exists, so that windows can be closed and read."""
    row = connection.execute("SELECT to_regclass('penstock.windows') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])
