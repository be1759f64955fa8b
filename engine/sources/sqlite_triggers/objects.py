"""The objects of the shadow log in the file: what they are, and the statements that create and remove them.

All names begin with `penstock_`. Values are recorded with their storage class, in columns without a type. Each trigger writes the number of
the structure that it records, so that changes of a table before and after it got a column are read apart.

SQLite fires triggers in no defined order. The triggers after a write compare the row with the table: if another trigger of the owner's has
already changed it again, the change is marked, and the end of the window is read from the table. REPLACE removes rows without firing
triggers for them; the triggers before a write note each row that it may remove, and the end of the window shows which it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.model.change_triggers import PlannedStatement
from engine.sources.sqlite.catalog import OWN, Structure, literal, quoted
from engine.sources.sqlite_triggers.recorded import as_text

LAYOUT = 2
"""Version of the shadow log's layout. 2: another condition of the index of doubtful changes."""
INSERT, UPDATE, DELETE = "I", "U", "D"
LATE_INSERT, LATE_UPDATE, LATE_DELETE = "i", "u", "e"
DOUBT, UNREADABLE, DROPPED = "d", "X", "-"
"""A row that a write may remove; rows that no structure matches; a change that is not read."""
LAST = "penstock_last"
"""A view that is created after all triggers. A trigger that was dropped and put back comes after it in the schema, also after VACUUM."""
DOUBTFUL = "op >= 'a'"
"""The operations in small letters. A comparison, as SQLite builds a temporary table for a list, for each row that a trigger writes:
measured, 40 % of what triggers cost."""
_DOUBTS = f"CREATE INDEX penstock_doubts ON penstock_changes (no) WHERE {DOUBTFUL}"
_LAYOUT = (
    "CREATE TABLE penstock_state (id INTEGER PRIMARY KEY CHECK (id = 1), layout INTEGER NOT NULL, file TEXT NOT NULL,"
    " cookie INTEGER NOT NULL)",
    "CREATE TABLE penstock_tables (relation INTEGER PRIMARY KEY, name TEXT NOT NULL, generation INTEGER NOT NULL, place TEXT NOT NULL,"
    " structure INTEGER NOT NULL, broken INTEGER NOT NULL)",
    "CREATE TABLE penstock_structures (structure INTEGER PRIMARY KEY, relation INTEGER NOT NULL, told TEXT NOT NULL)",
    "CREATE TABLE penstock_changes (no INTEGER PRIMARY KEY, structure INTEGER NOT NULL, op TEXT NOT NULL)",
    # Removed are only changes that every reader has, and never the last one, after which numbers would begin again.
    "CREATE TRIGGER penstock_keep BEFORE DELETE ON penstock_changes WHEN OLD.no = (SELECT max(no) FROM penstock_changes) OR OLD.no >"
    " (SELECT upto FROM penstock_windows WHERE no = (SELECT min(durable) FROM penstock_readers)) BEGIN SELECT RAISE(ABORT,"
    " 'this change is not read yet, or keeps the numbers of changes'); END",
    _DOUBTS,
    "CREATE TABLE penstock_windows (no INTEGER PRIMARY KEY, before INTEGER NOT NULL, upto INTEGER NOT NULL, at INTEGER NOT NULL,"
    " token TEXT NOT NULL)",
    "CREATE TABLE penstock_readers (name TEXT PRIMARY KEY, durable INTEGER NOT NULL, session TEXT, application TEXT)",
    "CREATE TABLE penstock_followed (reader TEXT, relation INTEGER, broken INTEGER NOT NULL, PRIMARY KEY (reader, relation)) WITHOUT ROWID",
    f"CREATE VIEW {LAST} AS SELECT 1",
    f"INSERT INTO penstock_state SELECT 1, {LAYOUT}, lower(hex(randomblob(16))), schema_version FROM pragma_schema_version",
    "INSERT INTO penstock_windows VALUES (1, 0, 0, CAST(strftime('%s', 'now') AS INTEGER) * 1000000, lower(hex(randomblob(8))))",
)
TABLES = ("state", "tables", "structures", "changes", "windows", "readers", "followed")


_HELD = "The write lock of the file, which BEGIN IMMEDIATE took."
_BRIEF = "Nothing that lasts: it changes the file's schema, or a few rows of Penstock's tables."
_COSTS = {
    "insert": "From then on each inserted row also writes a row of penstock_changes, in the same transaction.",
    "update": "From then on each updated row also writes a row of penstock_changes, with its old and new values, in the same transaction.",
    "delete": "From then on each deleted row also writes a row of penstock_changes, in the same transaction.",
    "before_insert": "From then on each insert looks each unique value up, and notes the rows that REPLACE may delete.",
    "before_update": "From then on each update of a unique value looks it up, and notes the rows that UPDATE OR REPLACE may delete.",
}
"""By event, what a trigger costs."""


@dataclass(frozen=True, slots=True)
class Room:
    """What the shadow log has room for: the columns of its table of changes, and the last number of a structure."""

    columns: int = 0
    structures: int = 0

    def after(self, table: Structure) -> Room:
        """Once that table is registered."""
        return Room(max(self.columns, len(table.columns)), self.structures + 1)


def layout_statements() -> tuple[PlannedStatement, ...]:
    """The statements that create the shadow log."""
    return tuple(map(brief, _LAYOUT))


def upgrade_statements() -> tuple[PlannedStatement, ...]:
    """The statements that make this layout of the first one."""
    return (
        brief("DROP INDEX IF EXISTS penstock_doubts"),
        PlannedStatement(_DOUBTS, _HELD, "It reads every change that is recorded and not yet removed."),
        brief(f"UPDATE penstock_state SET layout = {LAYOUT}"),
    )


def remove_statements() -> list[str]:
    """The statements that remove the shadow log, or what is left of it, without the triggers of tables."""
    return [f"DROP VIEW IF EXISTS {LAST}", *(f"DROP TABLE IF EXISTS {OWN}{table}" for table in TABLES)]


def registration(
    room: Room, relation: int, table: Structure, place: str, generation: int, broken: int, old: Iterable[str] = ()
) -> Iterator[PlannedStatement]:
    """The statements that create a table's triggers, in place of those with the names `old`."""
    number = room.structures + 1
    for column in range(room.columns + 1, len(table.columns) + 1):
        for side in "oc":
            yield brief(f"ALTER TABLE penstock_changes ADD COLUMN {side}{column}")
    yield brief(f"INSERT INTO penstock_structures VALUES ({number}, {relation}, {literal(as_text(table))})")
    row = f"{relation}, {literal(table.name)}, {generation}, {literal(place)}, {number}, {broken}"
    yield brief(f"INSERT OR REPLACE INTO penstock_tables VALUES ({row})")
    for name in old:
        yield brief(f"DROP TRIGGER {quoted(name)}")
    for name, statement in trigger_statements(relation, number, table).items():
        yield PlannedStatement(statement, _HELD, _COSTS[name.removeprefix(f"{OWN}{relation}_")])


def last_statements() -> tuple[PlannedStatement, ...]:
    """The statements after which every trigger counts as created by Penstock."""
    return brief(f"DROP VIEW IF EXISTS {LAST}"), brief(f"CREATE VIEW {LAST} AS SELECT 1")


def in_transaction(statements: Sequence[PlannedStatement], wait_s: float) -> tuple[PlannedStatement, ...]:
    """The statements with the begin and the end of their transaction; none if there are none."""
    if not statements:
        return ()
    begin = PlannedStatement(
        "BEGIN IMMEDIATE",
        f"The write lock of the file: it waits up to {wait_s:g} s for a program that has it, and other writers wait until COMMIT.",
        "The lock is held for some milliseconds for each table, whatever the number of rows.",
    )
    commit = PlannedStatement(
        "COMMIT",
        "Releases the lock. In rollback-journal mode it waits for readers, and they for it.",
        "Waits for the disk once. Programs that use the file prepare their statements again; SQLite does that for them.",
    )
    return begin, *statements, commit


def brief(statement: str) -> PlannedStatement:
    """A statement that costs nothing later."""
    return PlannedStatement(statement, _HELD, _BRIEF)


def trigger_statements(relation: int, number: int, table: Structure) -> dict[str, str]:
    """The statements that create a table's triggers, by their names. `number`: of the structure."""
    found = {f"{OWN}{relation}_insert": _after(table, number, "INSERT")}
    if table.key:
        found[f"{OWN}{relation}_update"] = _after(table, number, "UPDATE")
        found[f"{OWN}{relation}_delete"] = _after(table, number, "DELETE")
        found[f"{OWN}{relation}_before_insert"] = _before(table, number, "INSERT")
        found[f"{OWN}{relation}_before_update"] = _before(table, number, "UPDATE")
    return {name: f"CREATE TRIGGER {quoted(name)} {body}" for name, body in found.items()}


def drop_statements(relations: Sequence[int]) -> list[str]:
    """The statements that remove the triggers of these tables."""
    events = ("insert", "update", "delete", "before_insert", "before_update")
    return [
        f"DROP TRIGGER IF EXISTS {quoted(f'{OWN}{relation}_{event}')}" for relation in relations for event in events
    ]


def _after(table: Structure, number: int, event: str) -> str:
    sides = {"INSERT": [("c", "NEW")], "UPDATE": [("o", "OLD"), ("c", "NEW")], "DELETE": [("o", "OLD")]}[event]
    targets = [f"{side}{n}" for side, _ in sides for n in range(1, len(table.columns) + 1)]
    values = [f"{row}.{quoted(name)}" for _, row in sides for name in table.names]
    letter, late = {"INSERT": (INSERT, LATE_INSERT), "UPDATE": (UPDATE, LATE_UPDATE), "DELETE": (DELETE, LATE_DELETE)}[
        event
    ]
    if not table.key:
        op = f"'{letter}'"
    elif event == "DELETE":
        op = f"CASE WHEN EXISTS ({_present(table, 'OLD', table.key)}) THEN '{late}' ELSE '{letter}' END"
    else:
        op = f"CASE WHEN EXISTS ({_present(table, 'NEW', table.names)}) THEN '{letter}' ELSE '{late}' END"
    return (
        f"AFTER {event} ON {quoted(table.name)} BEGIN INSERT INTO penstock_changes (structure, op, {', '.join(targets)})"
        f" VALUES ({number}, {op}, {', '.join(values)}); END"
    )


def _present(table: Structure, row: str, names: Sequence[str]) -> str:
    """A query for the row with these values; a row is found by its key."""
    found = [f"p.{quoted(name)} = {row}.{quoted(name)}" for name in table.key]
    if table.rowid is not None and row == "NEW":
        found = [f"p.{table.rowid} = NEW.{table.rowid}"]
    found += [f"p.{quoted(name)} IS {row}.{quoted(name)} COLLATE BINARY" for name in names]
    return f"SELECT 1 FROM {quoted(table.name)} AS p WHERE {' AND '.join(found)}"


def _before(table: Structure, number: int, event: str) -> str:
    targets = ", ".join(f"o{n}" for n in range(1, len(table.columns) + 1))
    values = ", ".join(f"p.{quoted(name)}" for name in table.names)
    statements, changed = [], []
    for unique in table.uniques:
        found = [
            f"p.{_column(table, name)} = NEW.{_column(table, name)} COLLATE {quoted(collation)}"
            for name, collation in unique.columns
        ]
        if unique.where is not None:
            found.append(f"({unique.where})")
        if event == "UPDATE":
            found.append(_another(table))
            changed += [f"NEW.{_column(table, name)} IS NOT OLD.{_column(table, name)}" for name, _ in unique.columns]
        statements.append(
            f"INSERT INTO penstock_changes (structure, op, {targets}) SELECT {number}, '{DOUBT}', {values}"
            f" FROM {quoted(table.name)} AS p WHERE {' AND '.join(found)};"
        )
    when = f" WHEN {' OR '.join(changed)}" if event == "UPDATE" and all(u.where is None for u in table.uniques) else ""
    return f"BEFORE {event} ON {quoted(table.name)}{when} BEGIN {' '.join(statements)} END"


def _column(table: Structure, name: str) -> str:
    return name if name == table.rowid else quoted(name)


def _another(table: Structure) -> str:
    """A condition for rows other than the one that is updated."""
    if table.rowid is not None:
        return f"p.{table.rowid} <> OLD.{table.rowid}"
    return "NOT (" + " AND ".join(f"p.{quoted(name)} IS OLD.{quoted(name)}" for name in table.key) + ")"
