"""The objects of the shadow log in the source's schema `penstock`: what they are, and the statements that create and remove them.

Trigger functions use no operator and no unqualified name, so that a writer's search_path cannot change what they do, and they need no SET
clause. `record_*` writes a row as JSON, whose names survive later changes of the table. `record_*_exact` writes the row's text too, printed
with fixed settings: JSON loses JSON nulls and bounds of arrays, and prints floats and intervals as the writer's session does.
`record_*_audit` also writes who changed the row. `record_update_changed` writes the changed columns and those that its arguments name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psycopg import sql

from engine.model.change_triggers import PlannedStatement
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import CatalogTable
from engine.sources.postgres_triggers.owners import check_owners

SHADOW_SCHEMA = "penstock"
"""Triggers on its own tables would record what they write."""
LAYOUT = 3
"""Version of the shadow log's layout. 2: who changed a row, readers of inserts only, and the view penstock.transactions. 3: row filters of
readers, and updates with their changed columns only."""
WINDOW_LOCK = 7310001
"""Key of the advisory lock that is held while a window is closed: it orders the snapshots. Any number that no one else uses."""
INSTALL_LOCK = 7310002
"""Key of the advisory lock that is held while objects are created or dropped."""
WINDOW_CHANNEL = "penstock_windows"
"""Channel of the notification that a window was closed."""

_NOTE = "Penstock: shadow log, layout "
_TABLES = {
    "changes": """CREATE TABLE penstock.changes (
    no bigint GENERATED ALWAYS AS IDENTITY (CACHE 1), xid xid8 NOT NULL, relation oid NOT NULL, op "char" NOT NULL,
    at timestamptz NOT NULL, old json, new json, old_row text, new_row text, who text, application text)""",
    "windows": "CREATE TABLE penstock.windows (no bigint PRIMARY KEY, snapshot pg_snapshot NOT NULL, at timestamptz NOT NULL)",
    "readers": "CREATE TABLE penstock.readers (name text PRIMARY KEY, durable bigint NOT NULL, at timestamptz NOT NULL)",
    "followed": """CREATE TABLE penstock.followed (
    reader text, relation oid, triggers text NOT NULL, inserts_only boolean NOT NULL DEFAULT false, row_filter text,
    PRIMARY KEY (reader, relation))""",
}
_ADDED = {"inserts_only": "boolean NOT NULL DEFAULT false", "row_filter": "text"}
"""Columns of penstock.followed that later layouts have."""
_AFTER_TABLES = (
    "CREATE INDEX changes_by_xid ON penstock.changes (xid, no)",
    "ALTER TABLE penstock.changes SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)",
    "INSERT INTO penstock.windows SELECT 1, pg_catalog.pg_current_snapshot(), pg_catalog.clock_timestamp()",
)
_TRANSACTIONS = """CREATE VIEW penstock.transactions AS
    SELECT xid, pg_catalog.array_agg(DISTINCT relation::pg_catalog.regclass::pg_catalog.text) AS tables, pg_catalog.min(at) AS first_at,
           pg_catalog.max(at) AS last_at, pg_catalog.count(*) AS operations, pg_catalog.max(who) AS who,
           pg_catalog.max(application) AS application
    FROM penstock.changes GROUP BY xid"""
_PINNED = (
    "SET extra_float_digits = 1 SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' SET lc_monetary = 'C' SET bytea_output = 'hex'"
    " SET timezone = 'UTC'"
)
_OPERATIONS = {"insert": ("I", None, "NEW"), "update": ("U", "OLD", "NEW"), "delete": ("D", "OLD", None)}
EVENTS = (*_OPERATIONS, "truncate")
PARTIAL = "P"
"""Operation of an update of which only the changed columns and the key are recorded."""
_WHO = ["SESSION_USER", "pg_catalog.current_setting('application_name')"]


@dataclass(frozen=True, slots=True)
class Variant:
    """How triggers record a table's rows. `exact`: as text too. `audit`: with the user and the application. `keys`: of an update only the
    columns that it changed are recorded, and these columns, which identify a row; empty: whole rows are. Not with `exact`."""

    exact: bool
    audit: bool = False
    keys: tuple[str, ...] = ()

    @property
    def changed_only(self) -> bool:
        return bool(self.keys)

    def function(self, event: str) -> str:
        """The name of the trigger function."""
        exact = "_exact" if self.exact and event in _OPERATIONS else ""
        changed = "_changed" if self.changed_only and event == "update" else ""
        return f"record_{event}{exact}{changed}" + ("_audit" if self.audit else "")

    @property
    def name(self) -> str:
        return (
            ("exact" if self.exact else "json") + (" changed" if self.keys else "") + (" audit" if self.audit else "")
        )


VARIANTS = tuple(
    Variant(exact, audit, keys)
    for audit in (False, True)
    for exact, keys in ((False, ()), (True, ()), (False, ("id",)))
)


def _recording(event: str, variant: Variant) -> str:
    if variant.changed_only and event == "update":
        return _recording_changes(variant)
    letter, old, new = _OPERATIONS.get(event, ("T", None, None))
    rows = [(name, record) for name, record in (("old", old), ("new", new)) if record is not None]
    names = (["who", "application"] if variant.audit else []) + [name for name, _ in rows]
    names += [f"{name}_row" for name, _ in rows if variant.exact]
    values = (_WHO if variant.audit else []) + [f"pg_catalog.row_to_json({record})" for _, record in rows]
    values += [f"{record}::pg_catalog.text" for _, record in rows if variant.exact]
    more_names, more_values = ("".join(f", {each}" for each in part) for part in (names, values))
    return (
        f" BEGIN INSERT INTO penstock.changes (xid, relation, op, at{more_names}) VALUES (pg_catalog.pg_current_xact_id(),"
        f" TG_RELID, '{letter}', pg_catalog.clock_timestamp(){more_values}); RETURN NULL; END "
    )


def _recording_changes(variant: Variant) -> str:
    """JSON of both rows has the same columns in the same order. No value of a plain type is an array: `[]` is in place of unchanged values,
    and an array of one has a value of the key, so that the reader sees which key was meant. If it changed, both rows are recorded whole."""
    names, values = ("", "") if not variant.audit else (f", {each}" for each in ("who, application", ", ".join(_WHO)))
    insert = f"INSERT INTO penstock.changes (xid, relation, op, at{names}"
    common = f"VALUES (pg_catalog.pg_current_xact_id(), TG_RELID, '{{}}', pg_catalog.clock_timestamp(){values}"
    is_key = "z.name OPERATOR(pg_catalog.=) ANY (TG_ARGV)"
    is_same = "z.before::pg_catalog.text OPERATOR(pg_catalog.=) z.after::pg_catalog.text"
    return (
        " DECLARE o json := pg_catalog.row_to_json(OLD); n json := pg_catalog.row_to_json(NEW); moved boolean; part json; BEGIN"
        f" SELECT pg_catalog.bool_or({is_key} AND NOT {is_same}), pg_catalog.concat('{{', pg_catalog.string_agg(pg_catalog.concat("
        f"pg_catalog.to_json(z.name), ':', CASE WHEN {is_key} THEN pg_catalog.concat('[', z.after, ']')"
        f" WHEN {is_same} THEN '[]' ELSE z.after::pg_catalog.text END), ','), '}}')"
        "::pg_catalog.json INTO moved, part"
        " FROM ROWS FROM (pg_catalog.json_each(o), pg_catalog.json_each(n)) AS z(old_name, before, name, after);"
        f" IF moved THEN {insert}, old, new) {common.format('U')}, o, n); ELSE {insert}, new) {common.format(PARTIAL)}, part); END IF;"
        " RETURN NULL; END "
    )


_FUNCTIONS = {
    variant.function(event): (_recording(event, variant), _PINNED if variant.exact and event in _OPERATIONS else "")
    for variant in VARIANTS
    for event in EVENTS
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
       (SELECT coalesce(jsonb_object_agg(p.proname, concat(p.prosecdef, cardinality(p.proconfig), p.prosrc)), '{}')
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = 'penstock' AND p.pronargs = 0 AND (p.proname LIKE 'record\\_%%' OR p.proname = 'close_window')),
       (SELECT obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'penstock' AND c.relname = 'changes'),
       ARRAY(SELECT c.relname || '.' || a.attname
             FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = 'penstock' AND c.relname IN ('changes', 'followed') AND NOT a.attisdropped)
"""
_INSTALLED = """
SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'penstock' AND c.relname = 'windows'
"""
_TRIGGERS = """
SELECT t.tgrelid::bigint, substr(t.tgname, 11), t.tgenabled::text, p.proname,
       concat_ws(':', t.oid, t.xmin, t.tgenabled, p.oid, p.xmin), t.tgargs
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
    variant: Variant


@dataclass(frozen=True, slots=True)
class Layout:
    """What is there of the shadow log, without the triggers. `version`: None if nothing is there or no version is recorded."""

    version: int | None
    schema: bool
    made_schema: bool
    tables: frozenset[str]
    missing: tuple[PlannedStatement, ...]
    """The statements that create what is missing, or replace what is of another version."""


def is_exact(table: CatalogTable) -> bool:
    """Whether rows of the table must be recorded as text too."""
    return any(c.column.type.name not in PLAIN_TYPES and c.column.type.category != "e" for c in table.columns)


def read_triggers(connection: PostgresConnection, relations: Collection[int]) -> dict[int, TableTriggers]:
    """Our triggers of these tables, by OID; tables without any are left out."""
    rows: dict[int, list[_Trigger]] = {}
    for relation, *rest in connection.execute(_TRIGGERS, [list(relations)]).fetchall():
        rows.setdefault(relation, []).append(_Trigger(*rest))
    return {relation: _triggers_of(triggers) for relation, triggers in rows.items()}


class _Trigger(NamedTuple):
    """A row of _TRIGGERS. `arguments`: each ends with a zero byte."""

    event: str
    enabled: str
    function: str
    mark: str
    arguments: bytes


def _triggers_of(rows: Sequence[_Trigger]) -> TableTriggers:
    triggers = {one.event: one for one in rows}
    update = triggers.get("update", _Trigger("update", "", "", "", b""))
    keys = tuple(name.decode(errors="replace") for name in update.arguments.split(b"\0")[:-1])
    variant = Variant("_exact" in update.function, update.function.endswith("_audit"), keys)
    complete = {event: one.function for event, one in triggers.items()} == {e: variant.function(e) for e in EVENTS}
    return TableTriggers(
        " ".join(one.mark for one in rows), complete and all(one.enabled == "A" for one in rows), variant
    )


def is_same_trigger(one: str, other: str) -> bool:
    """Whether two marks differ at most in the version of the functions."""
    parts = [[each.rpartition(":")[0] for each in mark.split(" ")] for mark in (one, other)]
    return parts[0] == parts[1]


def read_layout(connection: PostgresConnection) -> Layout:
    """What is there of the shadow log.

    Raises EngineFault: LOG_UNREADABLE if it has a layout of a later version, CHANGE_LOG_FOREIGN if others own a part of it.
    """
    check_owners(connection)
    state = connection.execute(_STATE, [[*_TABLES, "transactions"]]).fetchall()[0]
    schema_note, schema, tables, functions, table_note, columns = state
    version = (_version(table_note) or _version(schema_note) or 1) if "changes" in tables else None
    if version is not None and version > LAYOUT:
        detail = f"the shadow log has the layout {version}; this version knows layouts up to {LAYOUT}"
        raise EngineFault(FaultKind.LOG_UNREADABLE, "penstock", detail)
    made = not schema or (schema_note or "").startswith("Penstock: ")
    ours = not schema or (schema_note or "").startswith(_NOTE)
    missing = [*_missing_tables(schema, tables, columns), *_missing_functions(functions)]
    if version != LAYOUT:
        missing += [_brief(f"COMMENT ON TABLE penstock.changes IS '{_NOTE}{LAYOUT}'")]
        missing += [_brief(f"COMMENT ON SCHEMA penstock IS '{_NOTE}{LAYOUT}'")] if ours else []
    return Layout(version, schema, made, frozenset(tables), tuple(missing))


def _version(note: str | None) -> int | None:
    head, _, number = (note or "").partition(_NOTE)
    return int(number) if not head and number.isdecimal() else None


def _missing_tables(schema: bool, tables: Collection[str], columns: Collection[str]) -> Iterator[PlannedStatement]:
    if not schema:
        yield _brief("CREATE SCHEMA penstock")
    for name, statement in _TABLES.items():
        if name not in tables:
            yield _brief(statement)
    if not set(_TABLES) & set(tables):
        yield from map(_brief, _AFTER_TABLES)
    if "changes" in tables and "changes.who" not in columns:
        yield PlannedStatement(
            "ALTER TABLE penstock.changes ADD COLUMN who text, ADD COLUMN application text",
            "ACCESS EXCLUSIVE on penstock.changes: it waits for open transactions that changed captured tables, and writers wait for it.",
            "Adds two columns without a value; no row is written.",
        )
    for name, kind in _ADDED.items():
        if "followed" in tables and f"followed.{name}" not in columns:
            yield _brief(f"ALTER TABLE penstock.followed ADD COLUMN {name} {kind}")
    if "transactions" not in tables:
        yield _brief(_TRANSACTIONS)


def _missing_functions(functions: dict[str, str]) -> Iterator[PlannedStatement]:
    for name, (body, options) in _FUNCTIONS.items():
        if functions.get(name) != f"t{options.count('SET ') or ''}{body}":
            yield from _function(f"{name}() RETURNS trigger", f"{name}()", options, body)
    if functions.get("close_window") != f"t{_CLOSE_WINDOW}":
        yield from _function("close_window() RETURNS bigint", "close_window()", "", _CLOSE_WINDOW)


def _function(head: str, name: str, options: str, body: str) -> Iterator[PlannedStatement]:
    yield _brief(
        f"CREATE OR REPLACE FUNCTION penstock.{head} LANGUAGE plpgsql SECURITY DEFINER {options}".rstrip()
        + f" AS $penstock${body}$penstock$"
    )
    # Firing needs no right; without it, others could not let their own tables write here.
    yield _brief(f"REVOKE ALL ON FUNCTION penstock.{name} FROM PUBLIC")


def _brief(statement: str) -> PlannedStatement:
    return PlannedStatement(statement, "None on a table of others.", "Nothing that lasts: it writes catalog rows only.")


def trigger_statements(name: TableName, variant: Variant) -> tuple[PlannedStatement, ...]:
    """The statements that create, or replace, the triggers of one table; in one transaction."""
    table = quoted(name)
    found = [
        PlannedStatement(
            f"LOCK TABLE ONLY {table} IN SHARE ROW EXCLUSIVE MODE",
            f"SHARE ROW EXCLUSIVE on {name}: it waits for transactions that have written to the table, and writers wait until the"
            " transaction ends; readers do not.",
            "It is held until the triggers are there, some milliseconds.",
        )
    ]
    held = f"SHARE ROW EXCLUSIVE on {name}, which is held already."
    for event in EVENTS:
        rows = "STATEMENT" if event == "truncate" else "ROW"
        keys = ", ".join(sql.Literal(name).as_string() for name in variant.keys if event == "update")
        cost = "each TRUNCATE" if event == "truncate" else f"each row that {event} writes"
        found += [
            PlannedStatement(
                f'CREATE OR REPLACE TRIGGER "{_PREFIX}{event}" AFTER {event.upper()} ON {table} FOR EACH {rows}'
                f" EXECUTE FUNCTION penstock.{variant.function(event)}({keys})",
                held,
                f"From then on {cost} also writes a row of the shadow log, in the same transaction.",
            ),
            PlannedStatement(
                f'ALTER TABLE {table} ENABLE ALWAYS TRIGGER "{_PREFIX}{event}"',
                held,
                "The trigger fires for sessions with session_replication_role = replica too.",
            ),
        ]
    return tuple(found)


def drop_statements(names: Sequence[TableName]) -> list[str]:
    """The statements that remove the triggers of these tables."""
    return [f'DROP TRIGGER IF EXISTS "{_PREFIX}{event}" ON {quoted(name)}' for name in names for event in EVENTS]


def removal_statements(layout: Layout, names: Sequence[TableName], *, shared: bool) -> tuple[str, ...]:
    """The statements that remove everything, with the triggers of these tables. The schema goes if Penstock made it and holds nothing else
    (`shared`)."""
    found = drop_statements(names)
    if layout.schema:
        found.append("DROP VIEW IF EXISTS penstock.transactions")
        found.append(f"DROP TABLE IF EXISTS {', '.join(f'penstock.{name}' for name in _TABLES)}")
        found += [f"DROP FUNCTION IF EXISTS penstock.{name}()" for name in (*_FUNCTIONS, "close_window")]
        found += ["DROP SCHEMA penstock"] if layout.made_schema and not shared else []
    return tuple(found)


def grants_to(user: str) -> tuple[str, ...]:
    """What a user needs that reads the shadow log and owns nothing of it."""
    name = sql.Identifier(user).as_string()
    return (
        f"GRANT USAGE ON SCHEMA penstock TO {name}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON penstock.changes TO {name}",
        f"GRANT SELECT, INSERT, DELETE ON penstock.windows TO {name}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.readers, penstock.followed TO {name}",
        f"GRANT EXECUTE ON FUNCTION penstock.close_window() TO {name}",
    )


def quoted(name: TableName) -> str:
    return sql.Identifier(name.schema, name.name).as_string()


def is_installed(connection: PostgresConnection) -> bool:
    """Whether the shadow log exists, so that windows can be closed and read. Raises EngineFault(CHANGE_LOG_FOREIGN) if others own it."""
    if connection.execute(_INSTALLED).fetchone() is None:
        return False
    check_owners(connection)
    return True
