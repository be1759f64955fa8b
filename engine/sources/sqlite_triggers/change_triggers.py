"""Installs and removes the shadow log and the triggers of tables, and shows the statements for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from engine.model.change_triggers import ChangeTriggersState, PlannedStatement, RecordedTable
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.sqlite.catalog import SCHEMA
from engine.sources.sqlite.connect import Connector, immediate
from engine.sources.sqlite_triggers.objects import in_transaction
from engine.sources.sqlite_triggers.registry import (
    Found,
    execute,
    is_installed,
    layout_of,
    look,
    missing_layout,
    recording,
    removal,
)
from engine.sources.sqlite_triggers.windows import close_window, last_window

_WITH_TRIGGERS = """
SELECT DISTINCT tbl_name FROM main.sqlite_schema
WHERE type = 'trigger' AND name LIKE 'penstock\\_%' ESCAPE '\\' AND tbl_name NOT LIKE 'penstock\\_%' ESCAPE '\\'
"""
_FOLLOWED = "SELECT t.name FROM penstock_followed f JOIN penstock_tables t ON t.relation = f.relation"
_READERS = "SELECT name FROM penstock_readers UNION SELECT reader FROM penstock_followed ORDER BY 1"


class SqliteChangeTriggers:
    """`ChangeTriggers` of a file. A file has no administrator: who can write to it can create triggers."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def status(self) -> ChangeTriggersState:
        with self._connector.reading() as connection:
            return self._state(connection)

    def plan(self, tables: Sequence[TableName]) -> tuple[PlannedStatement, ...]:
        with self._connector.reading() as connection:
            return in_transaction(_missing(connection, tables), self._connector.wait_s)

    def grants(self) -> tuple[str, ...]:
        return ()

    def install(self, tables: Sequence[TableName]) -> ChangeTriggersState:
        with self._connector.session() as connection, immediate(connection, self._connector.wait_s):
            if is_installed(connection) and last_window(connection)[1]:
                close_window(connection)  # What others did to tables is settled before anything is created.
            execute(connection, _missing(connection, tables))
        return self.status()

    def remove(self) -> ChangeTriggersState:
        with self._connector.session() as connection, immediate(connection, self._connector.wait_s):
            readers = [name for (name,) in connection.execute(_READERS)] if is_installed(connection) else []
            if readers:
                detail = f"what they record is read by {', '.join(readers)}"
                raise EngineFault(FaultKind.CHANGE_TRIGGERS_IN_USE, "change triggers", detail)
            for statement in removal(connection):
                connection.execute(statement)
        return self.status()

    def _state(self, connection: sqlite3.Connection) -> ChangeTriggersState:
        missing = in_transaction(_missing(connection, ()), self._connector.wait_s)
        there = is_installed(connection)
        removable = removal(connection)
        return ChangeTriggersState(
            installed=bool(removable),
            version=layout_of(connection) if there else None,
            current=there and not missing,
            tables=tuple(
                RecordedTable(found.name, "rows" if found.structure.key else "inserts", found.current)
                for found in _recorded(connection)
            ),
            install_sql=tuple(statement.sql for statement in missing),
            remove_sql=("BEGIN IMMEDIATE", *removable, "COMMIT") if removable else (),
        )


def _missing(connection: sqlite3.Connection, tables: Sequence[TableName]) -> tuple[PlannedStatement, ...]:
    """What creates the shadow log and lets triggers record these tables; without any, those that have triggers."""
    found = _named(connection, tables) if tables else _recorded(connection)
    layout = missing_layout(connection)
    there = is_installed(connection)
    followed = (
        {relation for (relation,) in connection.execute("SELECT relation FROM penstock_followed")} if there else set()
    )
    # The stream follows changes of the structure itself, with the rows that were changed since.
    left = [one for one in found if one.live.problem is None and not (one.complete and one.relation in followed)]
    return (*layout, *recording(connection, left))


def _named(connection: sqlite3.Connection, tables: Sequence[TableName]) -> list[Found]:
    there = {name.lower(): found for name, found in look(connection, [table.name for table in tables]).items()}
    for table in tables:
        found = there.get(table.name.lower()) if table.schema == SCHEMA else None
        if found is None:
            raise EngineFault(FaultKind.TABLE_MISSING, str(table), "it does not exist in the file")
        if found.live.problem is not None:
            raise EngineFault(FaultKind.TABLE_NOT_LOGGED, str(table), found.live.problem)
    return list(there.values())


def _recorded(connection: sqlite3.Connection) -> list[Found]:
    """The tables with triggers, and those that a reader follows."""
    names = {name for (name,) in connection.execute(_WITH_TRIGGERS)}
    if is_installed(connection):
        names |= {name for (name,) in connection.execute(_FOLLOWED)}
    return list(look(connection, names).values())
