"""Structures of tables as triggers record them: as text in the file, what prevents triggers, and what of recorded rows stays readable."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace

from engine.model.schema import ReplicaIdentity
from engine.sources.sqlite.catalog import Structure, TableColumn, UniqueKey
from engine.sources.sqlite.types import ColumnKind

MOST_COLUMNS = 900
"""A shadow table has two columns for each, and a table of SQLite at most 2,000."""


def as_text(table: Structure) -> str:
    """For `structure_of`."""
    columns = [[c.name, c.declared, c.kind.name, c.nullable, c.fill] for c in table.columns]
    uniques = [[list(map(list, u.columns)), u.where] for u in table.uniques]
    return json.dumps([table.name, columns, list(table.key), table.identity.value, uniques, table.rowid])


def structure_of(text: str) -> Structure:
    name, columns, key, identity, uniques, rowid = json.loads(text)
    return Structure(
        name,
        tuple(TableColumn(n, d, ColumnKind(k), nullable, fill) for n, d, k, nullable, fill in columns),
        tuple(key),
        ReplicaIdentity(identity),
        tuple(UniqueKey(tuple((c, o) for c, o in listed), where) for listed, where in uniques),
        rowid,
    )


def unrecordable(structure: Structure) -> str | None:
    """Why triggers cannot record changes of the table, as text; None if they can."""
    if len(structure.columns) > MOST_COLUMNS:
        return f"{structure.name} has more than {MOST_COLUMNS} columns"
    if any(not unique.columns for unique in structure.uniques):
        return (
            f"{structure.name} has a unique index over expressions: rows that REPLACE removes by it would not be found"
        )
    return None


def followed_by(old: Structure, now: Structure) -> bool:
    """Whether the table only got more columns at its end, or other names of columns: recorded rows can still be read."""
    if len(now.columns) < len(old.columns):
        return False
    names = dict(zip(old.names, now.names, strict=False))
    kept = zip(old.columns, now.columns, strict=False)
    if any((c.kind, c.declared) != (n.kind, n.declared) for c, n in kept):
        return False
    renamed = tuple(replace(u, columns=tuple((names.get(c, c), o) for c, o in u.columns)) for u in old.uniques)
    same_uniques = [u.columns for u in renamed] == [u.columns for u in now.uniques]
    same_uniques &= all((u.where is None) == (n.where is None) for u, n in zip(renamed, now.uniques, strict=False))
    return (
        same_uniques
        and tuple(names[k] for k in old.key) == now.key
        and (old.identity, old.rowid) == (now.identity, now.rowid)
    )


def generated_names(connection: sqlite3.Connection, table: str) -> set[str]:
    """Columns that SQLite computes."""
    rows = connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden IN (2, 3)", [table]).fetchall()
    return {row[0] for row in rows}
