"""Statements that give a table a stamp and a delete flag, as text: Penstock only reads, and runs none of them.

SQLite's triggers cannot change the row that is written, so they update it afterwards. With `recursive_triggers` an update by a trigger
fires it again; it changes nothing then.
"""

from __future__ import annotations

from engine.sources.sqlite.catalog import Structure, quoted

Statements = tuple[str, ...]
REMOVED = 2
"""A flag with which DELETE removes a row."""
_NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"


def stamp_sql(structure: Structure, stamp: str) -> Statements:
    """A stamp that every insert and update sets: the time, or the newest stamp of the table if the clock was set back. The index comes
    first, since each write of a row looks for that one."""
    table, column = quoted(structure.name), quoted(stamp)
    newest = f"max({_NOW}, (SELECT max({column}) FROM {table}))"
    body = f"UPDATE {table} SET {column} = {newest} WHERE {_same_row(structure, 'NEW')}"
    return (
        f"ALTER TABLE {table} ADD COLUMN {column} TEXT NOT NULL DEFAULT ''",
        *index_sql(structure, stamp),
        *(
            f"CREATE TRIGGER {_named(structure, f'stamp_{event}')} AFTER {event.upper()} ON {table}"
            f" WHEN NEW.{column} IS NOT {newest} BEGIN {body}; END"
            for event in ("insert", "update")
        ),
    )


def flag_sql(structure: Structure, flag: str) -> Statements:
    """A flag that takes the place of DELETE."""
    table, column = quoted(structure.name), quoted(flag)
    body = f"UPDATE {table} SET {column} = 1 WHERE {_same_row(structure, 'OLD')}; SELECT RAISE(IGNORE)"
    return (
        f"ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0",
        f"CREATE TRIGGER {_named(structure, 'flag')} BEFORE DELETE ON {table}"
        f" WHEN OLD.{column} IS NOT {REMOVED} BEGIN {body}; END",
    )


def index_sql(structure: Structure, stamp: str) -> Statements:
    """An index that finds the rows with recent stamps."""
    return (f"CREATE INDEX {_named(structure, 'stamp')} ON {quoted(structure.name)} ({quoted(stamp)})",)


def _same_row(structure: Structure, side: str) -> str:
    """By bytes too: texts that the key takes for equal need not be so for another unique index."""
    if structure.rowid is not None:
        return f"{structure.rowid} = {side}.{structure.rowid}"
    names = [quoted(name) for name in structure.key]
    return " AND ".join(f"{n} = {side}.{n} AND {n} COLLATE BINARY = {side}.{n}" for n in names)


def _named(structure: Structure, what: str) -> str:
    """A name of the table's own, which does not begin with the prefix of what Penstock makes itself."""
    return quoted(f"{structure.name}_penstock_{what}")
