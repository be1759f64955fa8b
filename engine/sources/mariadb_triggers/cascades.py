"""Foreign keys that change rows without a trigger, and the paths by which a change of one table's row reaches rows of another table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

from engine.model.identity import TableName
from engine.sources.mariadb.connect import MariaDbConnection, rows

LEVELS = 15
"""Tables on the longest path: InnoDB refuses a statement whose cascade is longer."""
MOST_PATHS = 40
"""Most paths from one table to another: each has a bit of a number, and costs each deleted row of the first table a look."""
_MOST_STEPS = 2_000
"""Foreign keys that are followed before a table counts as having too many paths. Not measured."""
_DECODED = "CONVERT(CAST(CAST(SUBSTRING_INDEX({}, '/', {}) AS BINARY) AS CHAR CHARACTER SET filename) USING utf8mb4)"
_CASCADING = 15
"""Bits of the type of a foreign key in InnoDB: on delete cascade (1), set null (2), on update cascade (4), set null (8)."""
_KEYS = f"""
SELECT f.id, {", ".join(_DECODED.format(f"f.{name}", part) for name in ("for_name", "ref_name") for part in (1, -1))}, f.type,
    c.for_col_name, c.ref_col_name
FROM information_schema.innodb_sys_foreign f JOIN information_schema.innodb_sys_foreign_cols c ON c.id = f.id
WHERE f.type & {_CASCADING} ORDER BY f.id, c.pos
"""
"""From InnoDB's own catalog, which shows foreign keys of tables on which the user has no rights, too."""
_RULES = ("CASCADE", "SET NULL")


class Cause(StrEnum):
    """What happens to the row that a cascade begins at."""

    DELETE = "delete"
    UPDATE = "update"


Reached = Mapping[str, str | None] | None
"""What a cascade does to a row: None = it is deleted; else the columns that get a new value, with the column of the first row that has
it, or None for NULL."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key with a cascade. `deletes`, `updates`: CASCADE, SET NULL, or empty."""

    name: str
    child: TableName
    columns: tuple[str, ...]
    parent: TableName
    referenced: tuple[str, ...]
    deletes: str
    updates: str

    def carries(self, reached: Reached) -> tuple[bool, Reached]:
        """Whether rows that refer to a changed row change too, and how."""
        if reached is None:
            rule, taken = self.deletes, dict.fromkeys(self.columns)
            return bool(rule), None if rule == "CASCADE" else taken
        pairs = zip(self.columns, self.referenced, strict=True)
        moved = {column: reached[referenced] for column, referenced in pairs if referenced in reached}
        return bool(moved and self.updates), moved if self.updates == "CASCADE" else dict.fromkeys(self.columns)

    def __str__(self) -> str:
        actions = [f"ON {event} {rule}" for event, rule in (("DELETE", self.deletes), ("UPDATE", self.updates)) if rule]
        return f"{self.name} ({' '.join(actions)})"


@dataclass(frozen=True, slots=True)
class CascadePath:
    """Foreign keys from the first table to the last one. `moved`: columns of the last one that get the value of a column of the first."""

    keys: tuple[ForeignKey, ...]
    moved: Mapping[str, str] = field(default_factory=dict)


def load_foreign_keys(connection: MariaDbConnection) -> list[ForeignKey]:
    """Every foreign key of the server with a cascade. Needs the privilege PROCESS."""
    found = []
    for (name, *places, kind), listed in groupby(rows(connection, _KEYS), lambda row: row[:6]):
        columns, referenced = zip(*(row[6:8] for row in listed), strict=True)
        child, parent = TableName(*places[:2]), TableName(*places[2:])
        deletes, updates = (
            next((rule for bit, rule in enumerate(_RULES) if kind >> shift + bit & 1), "") for shift in (0, 2)
        )
        found.append(ForeignKey(name.rpartition("/")[2], child, columns, parent, referenced, deletes, updates))
    return found


def above(keys: Collection[ForeignKey], table: TableName) -> tuple[ForeignKey, ...]:
    """The foreign keys of the table, of the tables that they refer to, and so on."""
    by_child: dict[TableName, list[ForeignKey]] = {}
    for key in keys:
        by_child.setdefault(key.child, []).append(key)
    seen, waiting = {table}, [table]
    while waiting:
        for key in by_child.get(waiting.pop(), ()):
            if key.parent not in seen:
                seen.add(key.parent)
                waiting.append(key.parent)
    return tuple(key for key in keys if key.child in seen)


def paths_to(table: TableName, keys: Sequence[ForeignKey], first: TableName, cause: Cause) -> list[CascadePath] | None:
    """The paths by which a change of a row of `first` changes rows of the table; None if they are too many."""
    found: list[CascadePath] = []
    start: Reached = None
    if cause is Cause.UPDATE:
        start = {name: name for key in keys if key.parent == first for name in key.referenced}
    waiting: list[tuple[TableName, Reached, tuple[ForeignKey, ...]]] = [(first, start, ())]
    for _ in range(_MOST_STEPS):
        if not waiting:
            return found
        at, reached, trail = waiting.pop()
        for key in keys:
            goes_on, carried = key.carries(reached) if key.parent == at else (False, None)
            if not goes_on:
                continue
            path = (*trail, key)
            if key.child == table:
                moved = {name: source for name, source in (carried or {}).items() if source is not None}
                found.append(CascadePath(path, moved))
            if len(path) < LEVELS:
                waiting.append((key.child, carried, path))
        if len(found) > MOST_PATHS:
            return None
    return None


def ancestors(keys: Iterable[ForeignKey]) -> list[TableName]:
    """The tables that these foreign keys refer to, in order."""
    return sorted({key.parent for key in keys})
