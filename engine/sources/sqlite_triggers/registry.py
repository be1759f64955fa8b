"""What the shadow log knows of tables, and what happened to them since the last look. Every function with a write needs the write lock.

The file's schema cookie changes with every change of its schema, so each write transaction of Penstock's sees whether others changed any.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from engine.model.change_triggers import PlannedStatement
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.records.copy_fields import unescaped
from engine.sources.sqlite.catalog import (
    OWN,
    LiveTable,
    Structure,
    live_tables,
    quoted,
)
from engine.sources.sqlite.types import printed, real_text
from engine.sources.sqlite_triggers.objects import (
    LAST,
    LAYOUT,
    TABLES,
    UNREADABLE,
    Room,
    brief,
    last_statements,
    layout_statements,
    registration,
    remove_statements,
    trigger_statements,
    upgrade_statements,
)
from engine.sources.sqlite_triggers.recorded import followed_by, generated_names, structure_of, unrecordable

_INSTALLED = (
    f"SELECT count(*) = {len(TABLES)} FROM main.sqlite_schema WHERE type = 'table' AND name IN ("
    + ", ".join(f"'{OWN}{table}'" for table in TABLES)
    + ")"
)
_TRIGGERS = f"""
SELECT name, sql, rowid < (SELECT rowid FROM main.sqlite_schema WHERE name = '{LAST}' AND type = 'view')
FROM main.sqlite_schema WHERE type = 'trigger' AND name LIKE 'penstock\\_%' ESCAPE '\\'
"""


@dataclass(frozen=True, slots=True)
class Registered:
    """A table that triggers record, or did. `number`: of its structure; `broken`: how often changes may have been missed."""

    relation: int
    name: str
    generation: int
    place: str
    number: int
    broken: int
    structure: Structure


def is_installed(connection: sqlite3.Connection) -> bool:
    """Whether the shadow log exists, so that windows can be closed and read."""
    return bool(connection.execute(_INSTALLED).fetchone()[0])


def cookie(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA main.schema_version").fetchone()[0])


def file_id(connection: sqlite3.Connection) -> str | None:
    """The identity that the file got when the shadow log was installed; None without one."""
    if not is_installed(connection):
        return None
    row = connection.execute("SELECT file FROM penstock_state").fetchone()
    return None if row is None else str(row[0])


def registered(connection: sqlite3.Connection) -> dict[str, Registered]:
    """By name in lower case, the last table of each name."""
    rows = connection.execute(
        "SELECT t.relation, t.name, t.generation, t.place, t.structure, t.broken, s.told FROM penstock_tables t"
        " JOIN penstock_structures s ON s.structure = t.structure ORDER BY t.generation"
    ).fetchall()
    return {
        name.lower(): Registered(relation, name, generation, place, number, broken, structure_of(told))
        for relation, name, generation, place, number, broken, told in rows
    }


def relation_of(name: str, generation: int) -> int:
    """Number of the table of this name that was the so-manieth one. Never 0."""
    return zlib.crc32(f"{generation}:{name.lower()}".encode()) or 1


@dataclass(frozen=True, slots=True)
class Found:
    """A table with its number. `known`: as registered, if it is the same table. `complete`: all its triggers record what they should.
    `triggers`: names of Penstock's that it has under this number."""

    relation: int
    live: LiveTable
    structure: Structure
    known: Registered | None = None
    complete: bool = False
    readable: bool = True
    """What is recorded with the registered structure can still be read."""
    generation: int = 0
    triggers: tuple[str, ...] = ()

    @property
    def name(self) -> TableName:
        return self.live.structure.table_name

    @property
    def current(self) -> bool:
        """Whether triggers record the table's present structure."""
        return self.complete and self.known is not None and self.structure == self.known.structure


def look(connection: sqlite3.Connection, names: Iterable[str] | None = None) -> dict[str, Found]:
    """Compare tables of the file, all or these, with what is registered. Reads only; by name as written in the file."""
    live = {
        name: replace(table, problem=table.problem or unrecordable(table.structure))
        for name, table in live_tables(connection, names).items()
    }
    if not is_installed(connection):
        return {name: Found(relation_of(name, 0), table, table.structure) for name, table in live.items()}
    known = registered(connection)
    triggers = {name: (text, bool(early)) for name, text, early in connection.execute(_TRIGGERS).fetchall()}
    return {name: _found(connection, table, known.get(name.lower()), triggers) for name, table in live.items()}


def _found(
    connection: sqlite3.Connection, live: LiveTable, known: Registered | None, triggers: Mapping[str, tuple[str, bool]]
) -> Found:
    name = live.structure.name
    if known is None:
        relation = relation_of(name, 0)
        left = sorted(each for each in triggers if each.startswith(f"{OWN}{relation}_"))
        return Found(relation, live, live.structure, triggers=tuple(left))
    ours = {each for each in triggers if each.startswith(f"{OWN}{known.relation}_")}
    if not ours and known.place != live.place:
        later = known.generation + 1
        return Found(relation_of(name, later), live, live.structure, generation=later)
    readable = followed_by(known.structure, live.structure)
    structure = _filled(connection, known.structure, live.structure) if readable else live.structure
    # SQLite renames columns in triggers too, and lets no column be dropped that one names.
    recorded = known.structure
    if readable:
        recorded = replace(live.structure, columns=live.structure.columns[: len(recorded.columns)])
    wanted = trigger_statements(known.relation, known.number, recorded)
    complete = ours == wanted.keys() and all(triggers[each] == (wanted[each], True) for each in ours)
    return Found(known.relation, live, structure, known, complete, readable, known.generation, tuple(sorted(ours)))


def _filled(connection: sqlite3.Connection, old: Structure, now: Structure) -> Structure:
    """The structure with the values that older rows have in columns that were added."""
    columns = [replace(n, fill=o.fill) for o, n in zip(old.columns, now.columns, strict=False)]
    for column in now.columns[len(columns) :]:
        columns.append(replace(column, fill=_default(connection, now.name, column.name)))
    return replace(now, columns=tuple(columns))


def _default(connection: sqlite3.Connection, table: str, name: str) -> str | None:
    """What rows show that were written before the column was added; SQLite allows constants only."""
    row = connection.execute(
        "SELECT type, dflt_value FROM pragma_table_xinfo(?) WHERE name = ?", [table, name]
    ).fetchone()
    if row is None or row[1] is None:
        return None
    column = next(c for c in live_tables(connection, [table])[table].structure.columns if c.name == name)
    memory = sqlite3.connect(":memory:", isolation_level=None)
    try:
        memory.create_function("penstock_real", 1, real_text)
        memory.execute(f"CREATE TABLE d (v {row[0]} DEFAULT {row[1]})")
        memory.execute("INSERT INTO d DEFAULT VALUES")
        if memory.execute("SELECT v IS NULL FROM d").fetchone()[0]:
            return None
        field = memory.execute(f"SELECT CAST({printed('v', column.kind, key=False)} AS BLOB) FROM d").fetchone()[0]
    finally:
        memory.close()
    return unescaped(field.decode("utf-8", "backslashreplace"))


def missing_layout(connection: sqlite3.Connection) -> tuple[PlannedStatement, ...]:
    """The statements that create the shadow log, in place of what others left of it, or upgrade it; none if it is there.

    Raises EngineFault(LOG_UNREADABLE) if it has a layout of a later version.
    """
    if is_installed(connection):
        layout = layout_of(connection)
        if layout is not None and layout > LAYOUT:
            detail = f"the shadow log has the layout {layout}; this version knows layouts up to {LAYOUT}"
            raise EngineFault(FaultKind.LOG_UNREADABLE, "penstock_state", detail)
        return upgrade_statements() if layout is not None and layout < LAYOUT else ()
    return (*(brief(statement) for statement in removal(connection)), *layout_statements())


def removal(connection: sqlite3.Connection) -> list[str]:
    """The statements that remove all triggers and the shadow log; none if nothing is there."""
    triggers = [f"DROP TRIGGER {quoted(name)}" for name, _, _ in connection.execute(_TRIGGERS).fetchall()]
    parts = [LAST, *(f"{OWN}{table}" for table in TABLES)]
    marks = ", ".join("?" * len(parts))
    found = connection.execute(f"SELECT count(*) FROM main.sqlite_schema WHERE name IN ({marks})", parts).fetchone()[0]
    return [*triggers, *(remove_statements() if found else ())]


def layout_of(connection: sqlite3.Connection) -> int | None:
    """Version of the installed layout; None if it is not recorded."""
    row = connection.execute("SELECT layout FROM penstock_state").fetchone()
    return None if row is None else int(row[0])


def execute(connection: sqlite3.Connection, statements: Iterable[PlannedStatement]) -> None:
    for statement in statements:
        connection.execute(statement.sql)


def review(connection: sqlite3.Connection, touched_after: int) -> None:
    """Follow what others did to the schema since the last look, before anything of it is relied on.

    A table that got columns gets other triggers, and its rows that were changed since `touched_after`, a change number, are recorded again
    with them. A table whose recorded rows cannot be read any more is marked to be copied again. Where triggers are not as they were
    created, changes may be missing: they are counted as broken, and stay as they are.
    """
    now = cookie(connection)
    if connection.execute("SELECT cookie FROM penstock_state").fetchone()[0] == now:
        return
    followed = {row[0] for row in connection.execute("SELECT DISTINCT relation FROM penstock_followed").fetchall()}
    for found in look(connection).values():
        if found.known is None or found.known.relation not in followed:
            continue
        if not found.complete:
            count_broken(connection, found.known.relation)
        elif found.readable and found.structure == found.known.structure:
            connection.execute(
                "UPDATE penstock_tables SET place = ? WHERE relation = ?", [found.live.place, found.relation]
            )
        elif found.live.problem is None:
            _follow(connection, found, found.known, touched_after)
        else:
            count_broken(connection, found.known.relation)
    settle(connection)


def settle(connection: sqlite3.Connection) -> None:
    """Record the present schema as seen."""
    connection.execute("UPDATE penstock_state SET cookie = ?", [cookie(connection)])


def count_broken(connection: sqlite3.Connection, relation: int) -> None:
    """Once, until a reader has its triggers created again."""
    connection.execute(
        "UPDATE penstock_tables SET broken = broken + 1 WHERE relation = :relation"
        " AND broken = (SELECT max(broken) FROM penstock_followed WHERE relation = :relation)",
        {"relation": relation},
    )


def _follow(connection: sqlite3.Connection, found: Found, old: Registered, touched_after: int) -> None:
    """Let triggers record the table's present structure."""
    now = found.structure
    more = now.columns[len(old.structure.columns) :]
    computed = generated_names(connection, now.name)
    readable = found.readable and not any(column.name in computed for column in more)
    record(connection, [found])
    (number,) = connection.execute("SELECT max(structure) FROM penstock_structures").fetchone()
    if not readable:
        connection.execute("INSERT INTO penstock_changes (structure, op) VALUES (?, ?)", [number, UNREADABLE])
    elif more and now.key:
        _record_again(connection, old, now, number, touched_after)


def _record_again(connection: sqlite3.Connection, old: Registered, now: Structure, number: int, after: int) -> None:
    keys = now.key_places
    sides = {side: ", ".join(f"{side}{place + 1}" for place in keys) for side in "oc"}
    touched = (
        f"SELECT {sides['o']} FROM penstock_changes WHERE no > :after AND structure = :old UNION"
        f" SELECT {sides['c']} FROM penstock_changes WHERE no > :after AND structure = :old"
    )
    targets = ", ".join(f"{side}{n}" for side in "oc" for n in range(1, len(now.columns) + 1))
    values = ", ".join(f"p.{quoted(name)}" for name in now.names)
    key = ", ".join(f"p.{quoted(name)}" for name in now.key)
    connection.execute(
        f"INSERT INTO penstock_changes (structure, op, {targets}) SELECT :number, 'U', {values}, {values} FROM {quoted(now.name)} AS p"
        f" WHERE ({key}) IN ({touched})",
        {"after": after, "old": old.number, "number": number},
    )


def recording(connection: sqlite3.Connection, tables: Iterable[Found]) -> tuple[PlannedStatement, ...]:
    """The statements that let triggers record these tables as they are now, after those of `missing_layout` in one transaction; none if
    they do already.

    Raises EngineFault(TABLE_NAME_COLLISION) if two tables have one number.
    """
    room, names = Room(), {}
    there = is_installed(connection)
    if there:
        columns = [row[1] for row in connection.execute("PRAGMA main.table_info(penstock_changes)")]
        (last,) = connection.execute("SELECT coalesce(max(structure), 0) FROM penstock_structures").fetchone()
        room = Room(sum(name.startswith("c") for name in columns), last)
        names = dict(connection.execute("SELECT relation, name FROM penstock_tables").fetchall())
    found: list[PlannedStatement] = []
    for table in tables:
        if table.current:
            continue
        name = table.live.structure.name
        other = names.setdefault(table.relation, name)
        if other.lower() != name.lower():
            detail = f"its number in the shadow log is that of {other}; rename one of them"
            raise EngineFault(FaultKind.TABLE_NAME_COLLISION, name, detail)
        found += registration(
            room,
            table.relation,
            table.structure,
            table.live.place,
            table.generation,
            _broken(connection, table),
            table.triggers if there else (),
        )
        room = room.after(table.structure)
    return (*found, *last_statements()) if found else ()


def _broken(connection: sqlite3.Connection, found: Found) -> int:
    """How often changes may have been missed, once the table has its triggers again: readers that know of fewer copy it again."""
    if found.known is None:
        return 0
    (seen,) = connection.execute(
        "SELECT max(broken) FROM penstock_followed WHERE relation = ?", [found.relation]
    ).fetchone()
    return found.known.broken + (not found.complete and seen == found.known.broken)


def record(connection: sqlite3.Connection, tables: Iterable[Found]) -> None:
    """Let triggers record these tables as they are now. After a review, in the same transaction."""
    statements = recording(connection, tables)
    execute(connection, statements)
    if statements:
        settle(connection)


def names_of(connection: sqlite3.Connection, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
    """Present names of these tables."""
    return {RelationId(f.relation): f.name for f in look(connection).values() if f.relation in relations}
