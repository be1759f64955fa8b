"""The objects of the shadow log in the source's schema `penstock`: what they are, and the statements that create and remove them.

Trigger functions use no operator and no unqualified name, so that a writer's search_path cannot change what they do, and they need no SET
clause. `record_*` writes a row as JSON, whose names survive later changes of the table. `record_*_exact` writes the row's text too, printed
with fixed settings: JSON loses JSON nulls and bounds of arrays, and prints floats and intervals as the writer's session does.
`record_*_audit` also writes who changed the row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from psycopg import sql

from engine.model.change_triggers import PlannedStatement
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.catalog import CatalogTable
from engine.sources.postgres_triggers.owners import check_owners

LAYOUT = 2
"""Version of the shadow log's layout. 2: who changed a row, readers of inserts only, and the view penstock.transactions."""
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
    reader text, relation oid, triggers text NOT NULL, inserts_only boolean NOT NULL DEFAULT false, PRIMARY KEY (reader, relation))""",
}
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
_WHO = ["SESSION_USER", "pg_catalog.current_setting('application_name')"]


@dataclass(frozen=True, slots=True)
class Variant:
    """How triggers record a table's rows. `exact`: as text too. `audit`: with the user and the application."""

    exact: bool
    audit: bool = False

    def function(self, event: str) -> str:
        """The name of the trigger function."""
        exact = "_exact" if self.exact and event in _OPERATIONS else ""
        return f"record_{event}{exact}" + ("_audit" if self.audit else "")

    @property
    def name(self) -> str:
        return ("exact" if self.exact else "json") + (" audit" if self.audit else "")


VARIANTS = tuple(Variant(exact, audit) for audit in (False, True) for exact in (False, True))


def _recording(event: str, variant: Variant) -> str:
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
       EXISTS (SELECT FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'penstock' AND c.relname = 'changes' AND a.attname = 'who' AND NOT a.attisdropped)
"""
_INSTALLED = """
SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'penstock' AND c.relname = 'windows'
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
    rows: dict[int, list[tuple[str, ...]]] = {}
    for relation, *rest in connection.execute(_TRIGGERS, [list(relations)]).fetchall():
        rows.setdefault(relation, []).append(tuple(rest))
    return {relation: _triggers_of(triggers) for relation, triggers in rows.items()}


def _triggers_of(rows: Sequence[tuple[str, ...]]) -> TableTriggers:
    functions = {event: function for event, _, function, _ in rows}
    written = functions.get("update", "")
    variant = Variant("_exact" in written, written.endswith("_audit"))
    complete = functions == {event: variant.function(event) for event in EVENTS} and all(
        enabled == "A" for _, enabled, _, _ in rows
    )
    return TableTriggers(" ".join(mark for *_, mark in rows), complete, variant)


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
    schema_note, schema, tables, functions, table_note, audited = state
    version = (_version(table_note) or _version(schema_note) or 1) if "changes" in tables else None
    if version is not None and version > LAYOUT:
        detail = f"the shadow log has the layout {version}; this version knows layouts up to {LAYOUT}"
        raise EngineFault(FaultKind.LOG_UNREADABLE, "penstock", detail)
    made = not schema or (schema_note or "").startswith("Penstock: ")
    ours = not schema or (schema_note or "").startswith(_NOTE)
    missing = [*_missing_tables(schema, tables, audited), *_missing_functions(functions)]
    if version != LAYOUT:
        missing += [_brief(f"COMMENT ON TABLE penstock.changes IS '{_NOTE}{LAYOUT}'")]
        missing += [_brief(f"COMMENT ON SCHEMA penstock IS '{_NOTE}{LAYOUT}'")] if ours else []
    return Layout(version, schema, made, frozenset(tables), tuple(missing))


def _version(note: str | None) -> int | None:
    head, _, number = (note or "").partition(_NOTE)
    return int(number) if not head and number.isdecimal() else None


def _missing_tables(schema: bool, tables: Collection[str], audited: bool) -> Iterator[PlannedStatement]:
    if not schema:
        yield _brief("CREATE SCHEMA penstock")
    for name, statement in _TABLES.items():
        if name not in tables:
            yield _brief(statement)
    if not set(_TABLES) & set(tables):
        yield from map(_brief, _AFTER_TABLES)
    elif "changes" in tables and not audited:
        yield PlannedStatement(
            "ALTER TABLE penstock.changes ADD COLUMN who text, ADD COLUMN application text",
            "ACCESS EXCLUSIVE on penstock.changes: it waits for open transactions that changed captured tables, and writers wait for it.",
            "Adds two columns without a value; no row is written.",
        )
        yield _brief("ALTER TABLE penstock.followed ADD COLUMN inserts_only boolean NOT NULL DEFAULT false")
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
        cost = "each TRUNCATE" if event == "truncate" else f"each row that {event} writes"
        found += [
            PlannedStatement(
                f'CREATE OR REPLACE TRIGGER "{_PREFIX}{event}" AFTER {event.upper()} ON {table} FOR EACH {rows}'
                f" EXECUTE FUNCTION penstock.{variant.function(event)}()",
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
        f"GRANT SELECT, UPDATE, DELETE, TRUNCATE ON penstock.changes TO {name}",
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
