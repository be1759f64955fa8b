"""The objects of the shadow log in the source's database `penstock`: what they are, and the statements that create and remove them.

A trigger prints the row as a line of COPY text. What it prints depends on no setting of the writer's session: character set, collation and
sql_mode are stored with the trigger, and instants are printed from their number of seconds. A line names no column: each version of a
table's structure is a source of its own, with a number that its triggers record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.mariadb_triggers.catalog import SHADOW_SCHEMA, MariaDbTable
from engine.sources.mariadb_triggers.connect import MariaDbConnection, quoted, rows
from engine.sources.mariadb_triggers.types import line_text, value_text

LAYOUT = 1
"""Version of the shadow log's layout."""
INSTALL_LOCK = "penstock install"
"""Name of the lock that is held while objects are created or dropped."""
EVENTS = {"insert": "I", "update": "U", "delete": "D"}
PREFIX = "penstock_"
"""Of the triggers' names."""
SHADOW_LOG_GONE = {1146: FaultKind.LOG_GAP, 1049: FaultKind.LOG_GAP, 4091: FaultKind.LOG_GAP}
"""Fault kinds of errors in statements that use the shadow log."""
_OPTIONS = "ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_LAYOUT = {
    "numbers": "CREATE SEQUENCE penstock.numbers CACHE 1000 ENGINE = InnoDB",
    "changes": f"""CREATE TABLE penstock.changes (
    no bigint unsigned NOT NULL DEFAULT (NEXT VALUE FOR penstock.numbers) PRIMARY KEY, `window` bigint unsigned,
    source int unsigned NOT NULL, op char(1) NOT NULL, old longtext, new longtext, KEY by_window (`window`, source, no)) {_OPTIONS}""",
    "windows": f"CREATE TABLE penstock.windows (no bigint unsigned NOT NULL PRIMARY KEY, at_us bigint NOT NULL) {_OPTIONS}",
    "readers": f"""CREATE TABLE penstock.readers (name varchar(255) NOT NULL PRIMARY KEY, durable bigint unsigned NOT NULL,
    application varchar(255), session bigint unsigned) {_OPTIONS}""",
    "sources": f"""CREATE TABLE penstock.sources (id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, relation bigint unsigned NOT NULL,
    created varchar(32) NOT NULL, structure longtext, KEY by_relation (relation)) {_OPTIONS}""",
    "followed": f"""CREATE TABLE penstock.followed (reader varchar(255) NOT NULL, relation bigint unsigned NOT NULL, mark text NOT NULL,
    PRIMARY KEY (reader, relation)) {_OPTIONS}""",
    "control": f"""CREATE TABLE penstock.control (id tinyint NOT NULL PRIMARY KEY, layout int NOT NULL, log varchar(36) NOT NULL,
    last_window bigint unsigned NOT NULL) {_OPTIONS}""",
}
_FILL = (
    "INSERT IGNORE INTO penstock.windows VALUES (1, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED))",
    f"INSERT IGNORE INTO penstock.control VALUES (1, {LAYOUT}, UUID(), 1)",
)
_TRIGGERS = """
SELECT event_object_table, trigger_name, LOWER(event_manipulation), action_timing,
    CONCAT_WS(':', trigger_name, created, MD5(action_statement), MD5(sql_mode), definer)
FROM information_schema.triggers WHERE trigger_schema = %s AND trigger_name LIKE 'penstock\\_%%' AND event_object_table = %s
ORDER BY trigger_name
"""


@dataclass(frozen=True, slots=True)
class TableTriggers:
    """Our triggers of one table. `mark`: changes if any of them is dropped, or created again. `source`: the number that all of them record;
    None if one is missing."""

    names: tuple[str, ...]
    mark: str
    source: int | None


def read_triggers(connection: MariaDbConnection, names: Iterable[TableName]) -> dict[TableName, TableTriggers]:
    """Our triggers of these tables; tables without any are left out."""
    found = {}
    for name in names:
        listed = [row for row in rows(connection, _TRIGGERS, name.schema, name.name) if row[0] == name.name]
        if not listed:
            continue
        sources = {(event, timing): trigger.rpartition("_")[2] for _, trigger, event, timing, _ in listed}
        numbers = set(sources.values())
        complete = (
            len(listed) == len(EVENTS) and len(numbers) == 1 and set(sources) == {(event, "AFTER") for event in EVENTS}
        )
        number = int(numbers.pop()) if complete else None
        found[name] = TableTriggers(tuple(row[1] for row in listed), " ".join(row[4] for row in listed), number)
    return found


def layout_statements(connection: MariaDbConnection) -> list[str]:
    """The statements that create what is missing of the database `penstock`.

    Raises EngineFault(LOG_UNREADABLE) if the shadow log has a layout of a later version.
    """
    statement = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
    tables = {row[0] for row in rows(connection, statement, SHADOW_SCHEMA)}
    if "control" in tables:
        _refuse_later(connection)
    schemas = rows(connection, "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", SHADOW_SCHEMA)
    found = [] if schemas else ["CREATE DATABASE penstock CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"]
    missing = [create for name, create in _LAYOUT.items() if name not in tables]
    return found + missing + (list(_FILL) if missing else [])


def _refuse_later(connection: MariaDbConnection) -> None:
    found = rows(connection, "SELECT layout FROM penstock.control")
    if found and int(found[0][0]) > LAYOUT:
        detail = f"the shadow log has the layout {found[0][0]}; this version knows layouts up to {LAYOUT}"
        raise EngineFault(FaultKind.LOG_UNREADABLE, SHADOW_SCHEMA, detail)


def is_installed(connection: MariaDbConnection) -> bool:
    """Whether the shadow log exists, so that windows can be closed and read. Our user needs rights on it to see it."""
    statement = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
    return set(_LAYOUT) <= {row[0] for row in rows(connection, statement, SHADOW_SCHEMA)}


def trigger_statements(table: MariaDbTable, source: int) -> list[str]:
    """The statements that create the triggers of one table; they record the number `source`."""
    name = quoted(table.name.schema, table.name.name)
    return [
        f"CREATE TRIGGER {quoted(table.name.schema, f'{PREFIX}{event}_{source}')} AFTER {event.upper()} ON {name} FOR EACH ROW"
        f" {_recording(table, source, event)}"
        for event in EVENTS
    ]


def _recording(table: MariaDbTable, source: int, event: str) -> str:
    letter = EVENTS[event]
    lines = {
        row: line_text([value_text(how, f"{row}.{quoted(facts.name)}") for facts, how in table.printed])
        for row in ("OLD", "NEW")
    }
    used = [row for row in lines if (row == "OLD") <= (letter != "I") and (row == "NEW") <= (letter != "D")]
    columns, values = ", ".join(row.lower() for row in used), ", ".join(lines[row] for row in used)
    insert = f"INSERT INTO penstock.changes (source, op, {columns}) VALUES ({source}, '{letter}', {values})"
    return f"IF {_happened(table)} THEN {insert}; END IF" if letter == "U" and table.constrained else insert


def _happened(table: MariaDbTable) -> str:
    """Whether the update took place: UPDATE IGNORE fires triggers for rows that it leaves as they were, too."""
    name, key = quoted(table.name.schema, table.name.name), () if table.identity is None else table.identity.columns
    # Locking reads see the rows as they are, not as in the writer's snapshot.
    there = f"EXISTS (SELECT 1 FROM {name} t{_hint(table)} WHERE {{}} LOCK IN SHARE MODE)"
    found = there.format(_equal(table.constrained, "t", "NEW"))
    if key:
        gone = f"NOT {there.format(_equal(key, 't', 'OLD'))}"
        found = f"IF({_equal(key, 'NEW', 'OLD')}, {found}, {gone})"
    return f"({_equal(table.constrained, 'NEW', 'OLD')}) OR {found}"


def _equal(columns: Sequence[str], one: str, other: str) -> str:
    return " AND ".join(f"{one}.{quoted(name)} <=> {other}.{quoted(name)}" for name in columns)


def _hint(table: MariaDbTable) -> str:
    return " FORCE INDEX (PRIMARY)" if any(index.name == "PRIMARY" for index in table.indexes) else ""


def drop_statements(schema: str, triggers: Collection[str]) -> list[str]:
    """The statements that remove these triggers."""
    return [f"DROP TRIGGER IF EXISTS {quoted(schema, name)}" for name in triggers]
