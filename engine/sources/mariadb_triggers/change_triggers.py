"""Installs and removes the shadow log and the triggers of tables, and shows the statements for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engine.model.change_triggers import ChangeTriggersState, PlannedStatement, RecordedTable
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.mariadb.catalog import SHADOW_SCHEMA
from engine.sources.mariadb.connect import (
    LOCK_TIMEOUT_S,
    TRIGGER_SETTINGS,
    Connector,
    MariaDbConnection,
    quoted,
    rows,
    run,
)
from engine.sources.mariadb_triggers.cascade_triggers import cascade_triggers, touched_statement, underived
from engine.sources.mariadb_triggers.catalog import TriggeredTable, load_tables
from engine.sources.mariadb_triggers.objects import (
    DERIVED,
    INSTALL_LOCK,
    LAYOUT,
    TableTriggers,
    Trigger,
    drop_statements,
    every_trigger,
    first_of_others,
    is_installed,
    layout_statements,
    own_triggers,
    read_triggers,
    removal_statements,
)
from engine.sources.mariadb_triggers.sources import (
    RecordedSource,
    mark_doubt,
    next_source,
    read_sources,
    source_statement,
)

PRIVILEGES = dict.fromkeys((1044, 1142, 1143, 1227, 1370, 1419), FaultKind.CHANGE_TRIGGERS_PRIVILEGE)
"""Fault kinds of errors while objects are created or dropped."""
_TRIES = 5
"""How often the triggers of a table are created that is changed meanwhile."""
_READERS = "SELECT name FROM penstock.readers UNION SELECT reader FROM penstock.followed ORDER BY 1"
_NO_LOCK = "None that applications notice."


def why_unfit(table: TriggeredTable) -> str | None:
    """Why triggers cannot record all changes of the table, as text; None if they can."""
    if table.name.schema == SHADOW_SCHEMA:
        return f"{table.name} belongs to the database {SHADOW_SCHEMA}, whose tables triggers do not record"
    if table.engine.upper() != "INNODB" or not table.relation:
        return f"{table.name} is a table of the storage engine {table.engine}: its changes are not part of transactions"
    if table.partitioned:
        return f"{table.name} is partitioned: changes of whole partitions fire no trigger"
    if table.kind != "BASE TABLE":
        return f"{table.name} is not a plain table ({table.kind})"
    return None


@contextmanager
def install_lock(connection: MariaDbConnection) -> Iterator[None]:
    """Only one session creates and drops objects at a time."""
    if rows(connection, "SELECT GET_LOCK(%s, 30)", INSTALL_LOCK) != [(1,)]:
        raise EngineFault(FaultKind.SOURCE_TIMEOUT, "the shadow log", "another session creates or drops triggers")
    try:
        yield
    finally:
        run(connection, "DO RELEASE_LOCK(%s)", INSTALL_LOCK)


def install_layout(connection: MariaDbConnection) -> None:
    """Create what is missing of the database `penstock`. Idempotent. Raises EngineFault(LOG_UNREADABLE) as `layout_statements` does."""
    if layout_statements(connection):
        with install_lock(connection):
            for statement in layout_statements(connection):
                run(connection, statement)


@dataclass(frozen=True, slots=True)
class Look:
    """What is there of some tables. `sources`: what their triggers record; `followed`: marks of triggers recorded for the reader."""

    tables: Mapping[TableName, TriggeredTable]
    triggers: Mapping[TableName, TableTriggers]
    sources: Mapping[int, RecordedSource]
    followed: Mapping[int, str]

    def mark(self, name: TableName) -> str | None:
        return self.triggers[name].mark if name in self.triggers else None

    def source(self, name: TableName) -> RecordedSource | None:
        number = self.triggers[name].source if name in self.triggers else None
        return None if number is None else self.sources.get(number)

    def is_current(self, name: TableName) -> bool:
        """Whether the triggers are those that record every column as it is now, and every cascade."""
        source, table = self.source(name), self.tables[name]
        if source is None or source.structure is None or source.structure.mark != table.mark:
            return False
        return self.triggers[name].are(_wanted(table, source.id))


def look_at(connection: MariaDbConnection, names: Sequence[TableName], reader: str) -> Look:
    """What is there of these tables, and what is recorded for the reader."""
    tables = load_tables(connection, names)
    if not is_installed(connection):
        return Look(tables, {}, {}, {})
    triggers = read_triggers(connection, tables.values())
    sources = read_sources(connection, {one.source for one in triggers.values() if one.source is not None})
    found = rows(connection, "SELECT relation, mark FROM penstock.followed WHERE reader = %s", reader)
    return Look(tables, triggers, sources, {int(relation): mark for relation, mark in found})


def _wanted(table: TriggeredTable, source: int) -> list[Trigger]:
    """The triggers that record a table as it is now. Those on the table itself come last: with them it is complete."""
    return [*cascade_triggers(table, source, source + 1), *own_triggers(table, source)]


def _planned(
    connection: MariaDbConnection, table: TriggeredTable, there: TableTriggers | None, source: int
) -> list[PlannedStatement]:
    """The statements that create the triggers of a table in place of the present ones."""
    name = table.name
    locked = f"An exclusive metadata lock of {{}}: it waits up to {LOCK_TIMEOUT_S} s for transactions that use it, and others wait for it."
    found = [
        PlannedStatement(
            sql, locked.format("a table" if sql.startswith("DROP TRIGGER") else "penstock"), "Milliseconds."
        )
        for sql in (drop_statements(there) if there is not None else ())
    ]
    what = f"Records the structure of {name}, which the triggers name by the number {source}."
    found.append(PlannedStatement(source_statement(table, source), _NO_LOCK, what))
    if table.structure().parents:
        what = f"A table of penstock for rows of {name} that a cascade may be about to change; rows stay in it for seconds."
        found.append(PlannedStatement(touched_statement(table, source), f"A shared metadata lock of {name}.", what))
    for trigger in _wanted(table, source):
        on_parent = trigger.name.startswith(DERIVED)
        before = None
        if on_parent and trigger.timing == "AFTER":
            before = first_of_others(connection, trigger.table, trigger.timing, trigger.event)
        cost = (
            f"Milliseconds. From then on each {trigger.event} of {trigger.table} looks for rows of {name} that it changes by a cascade."
            if on_parent
            else f"Milliseconds. From then on each {trigger.event} of a row of {name} also inserts a row into penstock.changes."
        )
        found.append(PlannedStatement(trigger.created(before), locked.format(trigger.table), cost))
    return found


def create_triggers(connection: MariaDbConnection, look: Look, name: TableName) -> str | None:
    """Create the triggers of a table in place of the present ones, while the lock of installations is held; returns their mark, None if
    the table is gone.

    Changes made meanwhile are not recorded. So all who follow the table copy it again, afterwards.
    """
    before = look.triggers.get(name)
    source = look.source(name)
    doubtful = {look.tables[name].relation, *([] if source is None else [source.relation])} if before else set()
    for relation in doubtful:
        mark_doubt(connection, relation)
    there = before
    for _ in range(_TRIES):
        table = load_tables(connection, [name]).get(name)
        if table is None or why_unfit(table) is not None:
            for statement in drop_statements(there) if there is not None else ():
                run(connection, statement)
            return None
        for planned in _planned(connection, table, there, next_source(connection)):
            run(connection, planned.sql)
        again = look_at(connection, [name], "")
        there, mark = again.triggers.get(name), again.mark(name)
        if name in again.tables and again.is_current(name) and mark is not None:
            for relation in doubtful:
                mark_doubt(connection, relation)
            if before is not None:
                statement = "UPDATE penstock.followed SET mark = %s WHERE relation = %s AND mark = %s"
                run(connection, statement, mark, table.relation, before.mark)
            return mark
    raise EngineFault(FaultKind.SOURCE_TIMEOUT, str(name), "the table was changed while its triggers were created")


class MariaDbChangeTriggers:
    """`ChangeTriggers` of a MariaDB server."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def status(self) -> ChangeTriggersState:
        with self._session() as connection:
            return _state(connection)

    def plan(self, tables: Sequence[TableName]) -> tuple[PlannedStatement, ...]:
        with self._session() as connection:
            return tuple(planned_statements(connection, _named(connection, tables)))

    def grants(self) -> tuple[str, ...]:
        with self._session() as connection:
            user, _, host = str(rows(connection, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
        return (f"GRANT ALL ON penstock.* TO {quoted(user)}@{quoted(host)}",)

    def install(self, tables: Sequence[TableName]) -> ChangeTriggersState:
        with self._session() as connection:
            named = _named(connection, tables)
            install_layout(connection)
            with install_lock(connection):
                look = look_at(connection, named, "")
                for name in look.tables:
                    if not look.is_current(name):
                        create_triggers(connection, look, name)
            return _state(connection)

    def remove(self) -> ChangeTriggersState:
        with self._session() as connection:
            if is_installed(connection):
                readers = [str(name) for (name,) in rows(connection, _READERS)]
                if readers:
                    detail = f"what they record is read by {', '.join(readers)}"
                    raise EngineFault(FaultKind.CHANGE_TRIGGERS_IN_USE, "change triggers", detail)
            with install_lock(connection):
                for statement in _state(connection).remove_sql:
                    run(connection, statement)
            return _state(connection)

    @contextmanager
    def _session(self) -> Iterator[MariaDbConnection]:
        with self._connector.session("change triggers", PRIVILEGES) as connection:
            yield connection


def _recorded(connection: MariaDbConnection) -> list[TableName]:
    """The tables with triggers of ours, without those that only have some for other tables."""
    return sorted({table for table, name in every_trigger(connection) if not name.startswith(DERIVED)})


def _named(connection: MariaDbConnection, names: Sequence[TableName]) -> list[TableName]:
    """The tables of this request: without names, those with triggers."""
    if not names:
        return _recorded(connection)
    found = load_tables(connection, names)
    for name in names:
        if name not in found:
            raise EngineFault(FaultKind.TABLE_MISSING, str(name), "it does not exist, or the user may not see it")
        reason = why_unfit(found[name])
        if reason is not None:
            raise EngineFault(FaultKind.TABLE_NOT_LOGGED, str(name), reason)
        problem = underived(found[name])
        if problem is not None:
            raise EngineFault(FaultKind.CASCADE_UNCAPTURED, str(name), problem)
    return list(found)


def planned_statements(connection: MariaDbConnection, names: Sequence[TableName]) -> list[PlannedStatement]:
    """The statements that bring the shadow log and the triggers of these tables up to date; none if they are."""
    found = [
        PlannedStatement(statement, _NO_LOCK, "A part of the shadow log, which is empty at first.")
        for statement in layout_statements(connection)
    ]
    look = look_at(connection, names, "")
    source = next_source(connection) if is_installed(connection) else 1
    for name, table in look.tables.items():
        if not look.is_current(name):
            found += _planned(connection, table, look.triggers.get(name), source)
            source += 2 if table.structure().parents else 1
    if found:
        what = "Settings that are stored with each trigger, and that its statements depend on."
        found.insert(0, PlannedStatement(TRIGGER_SETTINGS, "None.", what))
    return found


def _state(connection: MariaDbConnection) -> ChangeTriggersState:
    names = _recorded(connection)
    look, planned, removed = (
        look_at(connection, names, ""),
        planned_statements(connection, names),
        removal_statements(connection),
    )
    return ChangeTriggersState(
        installed=bool(removed),
        version=LAYOUT if is_installed(connection) else None,
        current=not planned,
        tables=tuple(RecordedTable(name, "lines", look.is_current(name)) for name in sorted(look.tables)),
        install_sql=tuple(statement.sql for statement in planned),
        remove_sql=tuple(removed),
    )
