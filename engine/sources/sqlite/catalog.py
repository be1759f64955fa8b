"""Reads tables from the file's schema: columns, keys, unique indexes, and what prevents them from being captured."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from engine.model.identity import TableName
from engine.model.schema import ReplicaIdentity, SourceType
from engine.sources.sqlite.types import ANY, ColumnKind, kind_of

OWN = "penstock_"
"""Prefix of the names of everything that Penstock creates in the file."""
SCHEMA = "main"
"""Schema of every table of a file."""
_ROWID_NAMES = ("rowid", "_rowid_", "oid")
_WORD = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|[(),]|[A-Za-z_]+|.""", re.DOTALL
)


def quoted(name: str) -> str:
    """The name as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """`declared`: its type as the user wrote it. `fill`: the field that rows show which were written before it was added; None: NULL."""

    name: str
    declared: str
    kind: ColumnKind
    nullable: bool
    fill: str | None = None

    @property
    def type(self) -> SourceType:
        return self.kind.type


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A unique index, or the primary key: columns with their collations. `where`: the condition of a partial one."""

    columns: tuple[tuple[str, str], ...]
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Structure:
    """A table as its rows are recorded or read. `rowid`: the name of its rowid in SQL; None: it has none, or columns hide it."""

    name: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    identity: ReplicaIdentity
    uniques: tuple[UniqueKey, ...]
    rowid: str | None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def key_places(self) -> list[int]:
        return [self.names.index(name) for name in self.key]

    @property
    def table_name(self) -> TableName:
        return TableName(SCHEMA, self.name)


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A table as the file has it now. `place`: its row and page in the schema, which change when it is created again, and by VACUUM.
    `problem`: why its rows cannot be followed."""

    structure: Structure
    place: str
    problem: str | None = None


def live_tables(connection: sqlite3.Connection, names: Iterable[str] | None = None) -> dict[str, LiveTable]:
    """These tables, or all, by name as written in the file; without what Penstock, SQLite and extensions keep."""
    wanted = None if names is None else {name.lower() for name in names}
    kinds = {
        name: (kind, bool(without), bool(strict))
        for _, name, kind, _, without, strict in connection.execute("PRAGMA main.table_list")
    }
    found = {}
    rows = connection.execute(
        "SELECT name, rowid || ':' || rootpage FROM main.sqlite_schema WHERE type = 'table' ORDER BY name"
    ).fetchall()
    for name, place in rows:
        if name.lower().startswith((OWN, "sqlite_")) or (wanted is not None and name.lower() not in wanted):
            continue
        kind, without_rowid, strict = kinds[name]
        structure = _structure(connection, name, without_rowid=without_rowid, strict=strict)
        found[name] = LiveTable(structure, place, _problem(kind, structure))
    return found


def _structure(connection: sqlite3.Connection, name: str, *, without_rowid: bool, strict: bool) -> Structure:
    info = connection.execute('SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)', [name]).fetchall()
    primary = [row[0] for row in sorted(info, key=lambda row: row[3]) if row[3]]
    single_integer = (
        len(primary) == 1 and not without_rowid and any(row[3] and row[1].upper() == "INTEGER" for row in info)
    )
    columns = tuple(
        TableColumn(
            column,
            declared,
            kind_of(_without_generated(declared), strict=strict),
            not (notnull or (pk and (without_rowid or single_integer))),
        )
        for column, declared, notnull, pk, hidden in info
        if hidden != 1
    )
    uniques = _uniques(connection, name)
    primary_key = UniqueKey(tuple((each, "BINARY") for each in primary))
    if single_integer:
        uniques.insert(0, primary_key)
    taken = {column.name.lower() for column in columns}
    rowid = None if without_rowid else next((each for each in _ROWID_NAMES if each not in taken), None)
    if rowid is not None and not single_integer:
        uniques.append(UniqueKey(((rowid, "BINARY"),)))
    key, identity = tuple(primary), ReplicaIdentity.DEFAULT
    if not primary:
        filled = {column.name for column in columns if not column.nullable}
        fit = [u for u in uniques if u.where is None and u.columns and {c for c, _ in u.columns} <= filled]
        key = tuple(c for c, _ in fit[0].columns) if fit else ()
        identity = ReplicaIdentity.INDEX if fit else ReplicaIdentity.NOTHING
    return Structure(name, columns, key, identity, tuple(uniques), rowid)


def _without_generated(declared: str) -> str:
    return declared.upper().replace("GENERATED ALWAYS", "").strip()


def _uniques(connection: sqlite3.Connection, table: str) -> list[UniqueKey]:
    """Unique indexes; one over expressions has no columns."""
    found = []
    indexes = connection.execute(
        'SELECT name, partial FROM pragma_index_list(?) WHERE "unique" ORDER BY name', [table]
    ).fetchall()
    for index, partial in indexes:
        parts = connection.execute(
            "SELECT cid, name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", [index]
        ).fetchall()
        columns = (
            () if any(cid < 0 for cid, _, _ in parts) else tuple((name, collation) for _, name, collation in parts)
        )
        where = None
        if partial:
            text = connection.execute("SELECT sql FROM main.sqlite_schema WHERE name = ?", [index]).fetchone()[0]
            where = _condition(text)
        found.append(UniqueKey(columns, where))
    return found


def _condition(index: str) -> str:
    """The condition in the statement of a partial index."""
    depth, at = 0, 0
    for word in _WORD.findall(index):
        depth += {"(": 1, ")": -1}.get(word, 0)
        at += len(word)
        if depth == 0 and word.upper() == "WHERE":
            return index[at:].strip()
    return "1"


def _problem(kind: str, structure: Structure) -> str | None:
    if kind != "table":
        return f"{structure.name} is a {kind} table, whose rows are those of a program"
    loose = [c.name for c in structure.columns if c.name in structure.key and c.kind.name == ANY]
    if loose:
        return f"key columns of {structure.name} have no type, so that 1 and '1' are two keys with one text: {', '.join(loose)}"
    return None
