"""The tables whose changes triggers record, and what others do to the triggers and the tables."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from engine.model.fault import FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.source import Earlier, GuardReading
from engine.model.subscription import TableSpec
from engine.sources.sqlite.connect import Connector, immediate
from engine.sources.sqlite_triggers.reader_control import SqliteReaderControl
from engine.sources.sqlite_triggers.registry import (
    Found,
    execute,
    file_id,
    is_installed,
    look,
    missing_layout,
    record,
)
from engine.sources.sqlite_triggers.windows import close_window, last_window

_CHANGED = "its triggers were dropped, changed or created again by others: changes may be missing"
_GONE = "the table was dropped or renamed"
_AGAIN = "the table was dropped and created again"


class TriggeredTables:
    """`SentTables` by triggers. How often those of a table were broken is kept in the file."""

    traced = True

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._lock = threading.Lock()
        self._watched: dict[TableName, int] = {}
        """The tables that are checked, by number."""
        self._gone: dict[TableName, RelationId] = {}
        """Of those that are gone or were replaced, the number under the name that was reported."""
        self._reported: dict[int, int] = {}
        """How often triggers had been broken when that was reported last, by table."""

    def prepare(
        self,
        tables: Sequence[TableSpec],
        reader: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        del known  # The numbers in the file say what was recorded.
        with self._lock, self._connector.session(reader) as connection, immediate(connection, self._connector.wait_s):
            execute(connection, missing_layout(connection))
            if last_window(connection)[1]:
                close_window(connection)
            present = look(connection, [t.source.name for t in tables]).values()
            found = {each.name: each.relation for each in present if each.live.problem is None}
            self._install(connection, [each for each in present if each.name in found], reader, earlier)
        for name, relation in found.items():
            if any(t.source == name for t in tables):
                self._watched.setdefault(name, relation)
        return frozenset(RelationId(relation) for relation in found.values())

    def _install(self, connection: sqlite3.Connection, tables: Sequence[Found], reader: str, earlier: Earlier) -> None:
        """Let the tables' triggers record them for this reader. In the transaction of the look."""
        followed = _followed(connection, reader)
        states = {each.relation: self._state(each, followed) for each in tables}
        # The next check reports these; to mend them before would hide that changes may be missing.
        left = {
            relation
            for relation, state in states.items()
            if state is not None and earlier is not Earlier.ANY and self._reported.get(relation) != state
        }
        taken = [each for each in tables if each.relation not in left]
        record(connection, taken)
        for each in taken:
            self._reported.pop(each.relation, None)
            connection.execute(
                "INSERT OR REPLACE INTO penstock_followed SELECT ?, relation, broken FROM penstock_tables WHERE relation = ?",
                [reader, each.relation],
            )

    def recorded(self, reader: str) -> str | None:
        """The identity that the file got with the shadow log."""
        with self._connector.session(reader) as connection:
            return file_id(connection)

    def withdraw(self, tables: Sequence[TableSpec], reader: str) -> None:
        """Nothing: a trigger refuses no change of a table without a key."""

    def unpublished(
        self, tables: Sequence[TableSpec], reader: str, relations: Mapping[TableName, RelationId] | None = None
    ) -> tuple[str, ...]:
        with self._connector.reading(reader) as connection:
            found = {each.name: each for each in look(connection, [t.source.name for t in tables]).values()}
            followed = _followed(connection, reader)
        asked = relations or {}
        return tuple(
            f"changes of {name} are not recorded"
            for name, each in found.items()
            if asked.get(name, each.relation) == each.relation and (each.relation not in followed or not each.complete)
        )

    def check(
        self, tables: Sequence[TableSpec], reader: str
    ) -> tuple[dict[TableName, str], dict[TableName, RelationId], set[TableName]]:
        """Faults of these tables; the numbers of those that were replaced, 0 if they are gone; and those whose triggers are wrong. Each is
        reported once."""
        with self._lock, self._connector.reading(reader) as connection:
            found = {each.name: each for each in look(connection, [t.source.name for t in tables]).values()}
            followed = _followed(connection, reader)
            faults: dict[TableName, str] = {}
            replaced: dict[TableName, RelationId] = {}
            wrong = set()
            for name in (t.source for t in tables):
                each = found.get(name)
                watched = self._watched.get(name)
                if each is None or (watched is not None and each.relation != watched):
                    now = RelationId(0 if each is None else each.relation)
                    if watched is not None and self._gone.get(name) != now:
                        faults[name] = _GONE if each is None else _AGAIN
                        replaced[name] = self._gone[name] = now
                    continue
                self._gone.pop(name, None)
                state = self._state(each, followed)
                if state is not None and self._reported.get(each.relation) != state:
                    self._reported[each.relation] = state
                    faults[name] = _CHANGED
                    wrong.add(name)
        return faults, replaced, wrong

    def _state(self, found: Found, followed: Mapping[int, int]) -> int | None:
        """As in `_reported`, with what is wrong now and not counted yet; None if nothing was since the reader's triggers were created."""
        if found.relation not in followed or found.known is None:
            return None
        if found.known.broken != followed[found.relation]:
            return found.known.broken
        return None if found.complete else found.known.broken + 1

    def accept(self, table: TableName, relation: RelationId) -> None:
        self._watched[table] = relation
        self._gone.pop(table, None)


def _followed(connection: sqlite3.Connection, reader: str) -> dict[int, int]:
    if not is_installed(connection):
        return {}
    rows = connection.execute("SELECT relation, broken FROM penstock_followed WHERE reader = ?", [reader]).fetchall()
    return {int(relation): int(broken) for relation, broken in rows}


class TriggerSafety:
    """`SourceSafety` over the file's schema."""

    def __init__(self, connector: Connector, tables: TriggeredTables, reader: SqliteReaderControl) -> None:
        self._connector = connector
        self._tables = tables
        self._reader = reader
        self._log: str | None = None
        """The shadow log's identity at the first check."""

    def check_reader(self, reader: str) -> GuardReading:
        return self._reader.check_reader(reader)

    def check(self, tables: Sequence[TableSpec], reader: str) -> GuardReading:
        faults, replaced, wrong = self._tables.check(tables, reader)
        log = self._tables.recorded(reader)
        if self._log is None:
            self._log = log
        gone = () if log == self._log else ("the shadow log was dropped, or is that of another file",)
        return replace(
            self._reader.check_reader(reader),
            sending_faults=gone,
            partition_faults=faults,
            replaced=replaced,
            sent_otherwise=dict.fromkeys(wrong, FaultKind.CHANGE_TRIGGERS_CHANGED),
        )

    def remember(self, marks: Mapping[TableName, str]) -> None:
        """Nothing: the file itself holds what the tables were like."""

    def accept(self, table: TableName, relation: RelationId) -> None:
        self._tables.accept(table, relation)
