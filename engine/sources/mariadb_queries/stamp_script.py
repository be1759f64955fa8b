"""Statements that give a table a stamp and a delete flag, as text: Penstock only reads, and runs none of them.

New columns are invisible, so that statements of the application which name no columns remain as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.identity import TableName
from engine.sources.mariadb.connect import literal, quoted
from engine.sources.mariadb.types import ColumnFacts

Statements = tuple[str, ...]
_MOST_NAME = 64
"""Characters of a name in MariaDB."""


def stamp_sql(table: TableName, stamp: str) -> Statements:
    """A new stamp that the server sets at every insert and update."""
    now = "CURRENT_TIMESTAMP(6)"
    column = f"{quoted(stamp)} timestamp(6) INVISIBLE NOT NULL DEFAULT {now} ON UPDATE {now}"
    return (f"ALTER TABLE {_table(table)} ADD COLUMN {column}",)


def stamp_triggers_sql(table: TableName, stamp: ColumnFacts) -> Statements:
    """Triggers that set an existing stamp, whatever the application sets it to. Triggers fire in the order of their creation."""
    now = "CURRENT_DATE" if stamp.data_type == "date" else f"CURRENT_TIMESTAMP({stamp.fraction or 0})"
    return tuple(
        f"CREATE TRIGGER IF NOT EXISTS {_named(table, f'stamp_{event.lower()}')} BEFORE {event} ON {_table(table)}"
        f" FOR EACH ROW SET NEW.{quoted(stamp.name)} = {now}"
        for event in ("INSERT", "UPDATE")
    )


def flag_sql(table: TableName, flag: str) -> Statements:
    """A new flag, by which the application marks rows as deleted."""
    return (f"ALTER TABLE {_table(table)} ADD COLUMN {quoted(flag)} boolean INVISIBLE NOT NULL DEFAULT FALSE",)


def guard_sql(table: TableName, flag: str) -> Statements:
    """A trigger that refuses to remove rows that are not marked. No trigger of MariaDB can mark a row in place of removing it."""
    text = literal(f"rows of {table.name} are deleted by setting {flag}"[:128])
    return (
        f"CREATE TRIGGER IF NOT EXISTS {_named(table, 'flag')} BEFORE DELETE ON {_table(table)} FOR EACH ROW"
        f" IF IFNULL(OLD.{quoted(flag)}, 0) = 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = {text}; END IF",
    )


def index_sql(table: TableName, stamp: str, included: Sequence[str]) -> Statements:
    """An index that finds the rows with recent stamps, made while others write. It has the primary key in any case. With all columns that
    are read in `included` the table is not read for them."""
    names = ", ".join(quoted(name) for name in (stamp, *(name for name in included if name != stamp)))
    index = quoted(f"penstock_{stamp}"[:_MOST_NAME])
    return (f"CREATE INDEX {index} ON {_table(table)} ({names}) ALGORITHM = INPLACE LOCK = NONE",)


def process_sql(account: str) -> Statements:
    """The right to see transactions of other users. `account`: user and host."""
    user, _, host = account.rpartition("@")
    return (f"GRANT PROCESS ON *.* TO {quoted(user)}@{quoted(host)}",)


def _table(table: TableName) -> str:
    return quoted(table.schema, table.name)


def _named(table: TableName, what: str) -> str:
    """A trigger of the table, in its database."""
    ending = f"_penstock_{what}"
    return quoted(table.schema, table.name[: _MOST_NAME - len(ending)] + ending)
