"""The objects of the shadow log in the source's database `penstock`: what they are, and the statements that create and remove them.

A trigger prints the row as a line of COPY text. What it prints depends on no setting of the writer's session: character set, collation and
sql_mode are stored with the trigger, and instants are printed from their number of seconds. A line names no column: each version of a
table's structure is a source of its own, with a number that its triggers record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.mariadb.catalog import SHADOW_SCHEMA, Structure
from engine.sources.mariadb.connect import MariaDbConnection, quoted, rows
from engine.sources.mariadb.types import recorded_line, recorded_text
from engine.sources.mariadb_triggers.cascades import ForeignKey, ancestors
from engine.sources.mariadb_triggers.catalog import TriggeredTable

LAYOUT = 1
"""Version of the shadow log's layout."""
INSTALL_LOCK = "penstock install"
"""Name of the lock that is held while objects are created or dropped."""
EVENTS = {"insert": "I", "update": "U", "delete": "D"}
PREFIX = "penstock_"
"""Of the triggers' names."""
DERIVED = f"{PREFIX}cascade_"
"""Of those that record rows of other tables, which a cascade changes."""
SHADOW_LOG_GONE = {1146: FaultKind.LOG_GAP, 1049: FaultKind.LOG_GAP, 4091: FaultKind.LOG_GAP}
"""Fault kinds of errors in statements that use the shadow log."""
_NO_ESCAPES = str.maketrans({"\t": "t", "\n": "n", "\r": "r", "\\": None})
_TOUCHED = re.compile(r"touched_[0-9]+")
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
SELECT trigger_name, action_timing, LOWER(event_manipulation), action_statement,
    CONCAT_WS(':', trigger_name, created, MD5(action_statement), MD5(sql_mode), definer),
    sql_mode = @@SESSION.sql_mode AND collation_connection = @@SESSION.collation_connection
FROM information_schema.triggers WHERE trigger_schema = %s AND event_object_table = %s AND BINARY event_object_table = %s
ORDER BY action_timing, event_manipulation, action_order
"""
_EVERY = """
SELECT trigger_schema, event_object_table, trigger_name FROM information_schema.triggers
WHERE trigger_name LIKE 'penstock\\_%%' AND action_statement LIKE '%%penstock.changes%%' ORDER BY 1, 2, 3
"""
_OTHERS = """
SELECT COUNT(*) FROM (
    SELECT table_name FROM information_schema.tables
    WHERE table_schema = %s AND NOT FIND_IN_SET(table_name, %s) AND table_name NOT REGEXP '^touched_[0-9]+$'
    UNION ALL SELECT routine_name FROM information_schema.routines WHERE routine_schema = %s
    UNION ALL SELECT event_name FROM information_schema.events WHERE event_schema = %s
    UNION ALL SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = %s) AS others
"""
_SOURCES_OF = """
SELECT id, structure FROM penstock.sources WHERE structure IS NOT NULL AND (relation = %s OR FIND_IN_SET(id, %s))
"""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger, as the statement that creates it says."""

    table: TableName
    name: str
    timing: str
    event: str
    body: str

    def created(self, before: str | None = None) -> str:
        """The statement that creates it. `before`: a trigger of others that it has to precede."""
        name = quoted(self.table.schema, self.name)
        table = quoted(self.table.schema, self.table.name)
        order = "" if before is None else f"PRECEDES {quoted(before)} "
        return f"CREATE TRIGGER {name} {self.timing} {self.event.upper()} ON {table} FOR EACH ROW {order}{self.body}"

    def compared(self) -> Trigger:
        """Without the escapes of literals, which information_schema shows in part."""
        return replace(self, body=self.body.translate(_NO_ESCAPES))


@dataclass(frozen=True, slots=True)
class _Present:
    """A trigger of a table. `fits`: its settings are ours, and it fires at its place among the triggers of others: before them if it fires
    after the change, else after them."""

    trigger: Trigger
    mark: str
    fits: bool


@dataclass(frozen=True, slots=True)
class TableTriggers:
    """Our triggers that record one table. `mark`: changes if any of them is dropped, or created again. `source`: the number that those on
    the table itself record; None if one is missing. `touched`: the sources that have a table of touched rows."""

    present: tuple[_Present, ...]
    source: int | None
    touched: tuple[int, ...] = ()

    @property
    def mark(self) -> str:
        return " ".join(one.mark for one in self.present)

    def are(self, wanted: Collection[Trigger]) -> bool:
        """Whether they are exactly these, and fire when they have to."""
        there = {one.trigger.compared() for one in self.present if one.fits}
        return len(self.present) == len(wanted) and there == {one.compared() for one in wanted}


def read_triggers(connection: MariaDbConnection, tables: Iterable[TriggeredTable]) -> dict[TableName, TableTriggers]:
    """Our triggers that record these tables, also those on the tables that they refer to; tables without any are left out."""
    found = {}
    seen: dict[TableName, list[_Present]] = {}
    for table in tables:
        own = sorted(
            (one for one in _present(connection, table.name, seen) if not _is_derived(one)),
            key=lambda o: o.trigger.name,
        )
        numbers = {number_of_trigger(one.trigger.name) for one in own}
        derived, touched = _derived(
            connection, table.relation, table.name, table.cascades, {n for n in numbers if n is not None}, seen
        )
        if not own and not derived:
            continue
        events = {(one.trigger.event, one.trigger.timing) for one in own}
        complete = len(own) == len(EVENTS) and len(numbers) == 1 and events == {(event, "AFTER") for event in EVENTS}
        found[table.name] = TableTriggers((*own, *derived), numbers.pop() if complete else None, touched)
    return found


def _present(connection: MariaDbConnection, table: TableName, seen: dict[TableName, list[_Present]]) -> list[_Present]:
    """Our triggers on a table. `seen`: what was read before."""
    if table not in seen:
        listed = rows(connection, _TRIGGERS, table.schema, table.name, table.name)
        seen[table] = []
        for _, together in groupby(listed, lambda row: row[1:3]):
            at_once = list(together)
            others = [place for place, row in enumerate(at_once) if not row[0].startswith(PREFIX)]
            for place, (name, timing, event, body, mark, ours) in enumerate(at_once):
                if not name.startswith(PREFIX):
                    continue
                trigger = Trigger(table, name, timing, event, body)
                in_place = all((other > place) == (timing == "AFTER") for other in others)
                seen[table].append(_Present(trigger, mark, bool(ours) and (in_place or not _is_derived_name(name))))
    return seen[table]


def first_of_others(connection: MariaDbConnection, table: TableName, timing: str, event: str) -> str | None:
    """The trigger of others that fires first at this moment."""
    found = rows(connection, _TRIGGERS, table.schema, table.name, table.name)
    names = (row[0] for row in found if row[1:3] == (timing, event) and not row[0].startswith(PREFIX))
    return next(names, None)


def _is_derived_name(name: str) -> bool:
    return name.startswith(DERIVED)


def _is_derived(one: _Present) -> bool:
    return _is_derived_name(one.trigger.name)


def number_of_trigger(name: str) -> int | None:
    """The number of the source whose changes a trigger of ours records."""
    parts = name.removeprefix(DERIVED).split("_")
    text = parts[0] if name.startswith(DERIVED) else parts[-1]
    return int(text) if text.isdecimal() else None


def derived_triggers(connection: MariaDbConnection, relation: int) -> TableTriggers:
    """Our triggers on other tables that record rows of a table that may be gone."""
    derived, touched = _derived(connection, relation, None, (), set(), {})
    return TableTriggers(tuple(derived), None, touched)


def _derived(
    connection: MariaDbConnection,
    relation: int,
    name: TableName | None,
    cascades: Sequence[ForeignKey],
    own: set[int],
    seen: dict[TableName, list[_Present]],
) -> tuple[list[_Present], tuple[int, ...]]:
    """The triggers on other tables, and on the table itself, that record its rows in a cascade; and the sources with touched rows. What is
    left of earlier installations is among them: triggers whose source is not known, or is a former table of this name."""
    listed = rows(connection, _SOURCES_OF, relation, ",".join(map(str, sorted(own))))
    structures = {int(one): Structure.from_text(text) for one, text in listed}
    touched = {number for number, structure in structures.items() if structure.parents}
    parents = {*ancestors(cascades), *(parent for one in structures.values() for parent in one.parents)}
    there = [one for parent in sorted(parents) for one in _present(connection, parent, seen) if _is_derived(one)]
    numbers = {one.trigger: number_of_trigger(one.trigger.name) for one in there}
    asked = ",".join(str(number) for number in sorted({n for n in numbers.values() if n is not None}))
    known = {int(one): Structure.from_text(text).name for one, text in rows(connection, _SOURCES_OF, 0, asked)}
    touched |= {n for n in numbers.values() if n is not None and (n not in known or known[n] == name)}
    return [one for one in there if numbers[one.trigger] in touched], tuple(sorted(touched))


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


def own_triggers(table: TriggeredTable, source: int) -> list[Trigger]:
    """The triggers on a table that record its changes; they record the number `source`."""
    return [
        Trigger(table.name, f"{PREFIX}{event}_{source}", "AFTER", event, _recording(table, source, event))
        for event in EVENTS
    ]


def _recording(table: TriggeredTable, source: int, event: str) -> str:
    letter = EVENTS[event]
    lines = {row: row_text(table, row) for row in ("OLD", "NEW")}
    used = [row for row in lines if (row == "OLD") <= (letter != "I") and (row == "NEW") <= (letter != "D")]
    columns, values = ", ".join(row.lower() for row in used), ", ".join(lines[row] for row in used)
    insert = f"INSERT INTO penstock.changes (source, op, {columns}) VALUES ({source}, '{letter}', {values})"
    return f"IF {_happened(table)} THEN {insert}; END IF" if letter == "U" and table.constrained else insert


def row_text(table: TriggeredTable, row: str) -> str:
    """SQL of a row as a line of COPY text. `row`: the name by which the statement has it."""
    return recorded_line([recorded_text(how, f"{row}.{quoted(facts.name)}") for facts, how in table.printed])


def _happened(table: TriggeredTable) -> str:
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


def _hint(table: TriggeredTable) -> str:
    return " FORCE INDEX (PRIMARY)" if any(index.name == "PRIMARY" for index in table.indexes) else ""


def drop_statements(triggers: TableTriggers) -> list[str]:
    """The statements that remove these triggers."""
    dropped = [(one.trigger.table.schema, one.trigger.name) for one in triggers.present]
    return [
        *(f"DROP TRIGGER IF EXISTS {quoted(*name)}" for name in dropped),
        *(f"DROP TABLE IF EXISTS {touched_name(source)}" for source in triggers.touched),
    ]


def every_trigger(connection: MariaDbConnection) -> list[tuple[TableName, str]]:
    """All triggers of ours on the server that the user may see: their tables and names. It reads the definition of every table."""
    return [(TableName(schema, table), name) for schema, table, name in rows(connection, _EVERY.replace("%%", "%"))]


def removal_statements(connection: MariaDbConnection) -> list[str]:
    """The statements that remove everything of ours. What others created in the database `penstock` stays, and the database then too."""
    found = [f"DROP TRIGGER IF EXISTS {quoted(table.schema, name)}" for table, name in every_trigger(connection)]
    listed = rows(connection, "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", SHADOW_SCHEMA)
    tables = [str(name) for (name,) in listed if name in _LAYOUT or _TOUCHED.fullmatch(name)]
    if not rows(connection, "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", SHADOW_SCHEMA):
        return found
    others = rows(connection, _OTHERS, SHADOW_SCHEMA, ",".join(_LAYOUT), *[SHADOW_SCHEMA] * 3)[0][0]
    if not others:
        return [*found, "DROP DATABASE penstock"]
    last = sorted(tables, key=lambda name: name == "numbers")  # The others' defaults need it.
    return [
        *found,
        *(f"DROP {'SEQUENCE' if name == 'numbers' else 'TABLE'} {quoted(SHADOW_SCHEMA, name)}" for name in last),
    ]


def touched_name(source: int) -> str:
    """The table of rows that a cascade may be about to change, for one source."""
    return quoted(SHADOW_SCHEMA, f"touched_{source}")
