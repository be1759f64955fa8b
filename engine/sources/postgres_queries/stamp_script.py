"""Statements that give a table a stamp and a delete flag, as text: Penstock only reads, and runs none of them."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from engine.model.identity import TableName

Statements = tuple[str, ...]
PURGE_SETTING = "penstock.purge"
"""A setting of a session; while it is `on`, DELETE removes rows."""
_MOST_NAME = 63
"""Bytes of a name in PostgreSQL."""


def stamp_sql(table: TableName, stamp: str, *, add: bool) -> Statements:
    """A stamp that every insert and update sets. `add`: the column is missing."""
    function, on = _named(table, "stamp"), _table(table)
    column = sql.Identifier(stamp).as_string()
    added = f"ALTER TABLE {on} ADD COLUMN {column} timestamptz NOT NULL DEFAULT now()"
    body = f"BEGIN NEW.{column} := now(); RETURN NEW; END"
    return (
        *((added,) if add else ()),
        f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $penstock${body}$penstock$",
        # Triggers fire in the order of their names: this one should be the last.
        f"CREATE TRIGGER zz_penstock_stamp BEFORE INSERT OR UPDATE ON {on} FOR EACH ROW EXECUTE FUNCTION {function}()",
    )


def flag_sql(table: TableName, key: Sequence[str], flag: str, flag_type: str | None) -> Statements:
    """A flag that takes the place of DELETE. `flag_type`: of the existing column; None: it is missing."""
    function, on = _named(table, "flag"), _table(table)
    column = sql.Identifier(flag).as_string()
    added = f"ALTER TABLE {on} ADD COLUMN {column} boolean NOT NULL DEFAULT false"
    deleted = "true" if flag_type in {None, "bool"} else "1"
    names = [sql.Identifier(name).as_string() for name in key]
    same = " AND ".join(f"{name} = OLD.{name}" for name in names)
    body = (
        f"BEGIN IF current_setting('{PURGE_SETTING}', true) = 'on' THEN RETURN OLD; END IF;"
        f" UPDATE {on} SET {column} = {deleted} WHERE {same}; RETURN NULL; END"
    )
    return (
        *((added,) if flag_type is None else ()),
        f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $penstock${body}$penstock$",
        f"CREATE TRIGGER zz_penstock_flag BEFORE DELETE ON {on} FOR EACH ROW EXECUTE FUNCTION {function}()",
    )


def index_sql(table: TableName, stamp: str, included: Sequence[str]) -> Statements:
    """An index that finds the rows with recent stamps. With all columns that are read in `included` the table is not read for them."""
    column = sql.Identifier(stamp).as_string()
    names = ", ".join(sql.Identifier(name).as_string() for name in included if name != stamp)
    more = f" INCLUDE ({names})" if names else ""
    return (f"CREATE INDEX CONCURRENTLY ON {_table(table)} ({column}){more}",)


def unique_sql(table: TableName, key: Sequence[str]) -> Statements:
    """A key that the database keeps unique."""
    names = [sql.Identifier(name).as_string() for name in key]
    required = ", ".join(f"ALTER COLUMN {name} SET NOT NULL" for name in names)
    return (
        f"CREATE UNIQUE INDEX CONCURRENTLY ON {_table(table)} ({', '.join(names)})",
        f"ALTER TABLE {_table(table)} {required}",
    )


def _table(table: TableName) -> str:
    return sql.Identifier(table.schema, table.name).as_string()


def _named(table: TableName, what: str) -> str:
    """A function of the table, in its schema."""
    ending = f"_penstock_{what}".encode()
    held = table.name.encode()[: _MOST_NAME - len(ending)].decode(errors="ignore")
    return sql.Identifier(table.schema, held + ending.decode()).as_string()
