"""The tables that cycles compare, and what others do to them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.source import Earlier, GuardReading
from engine.model.subscription import TableSpec
from engine.sources.query_diff.database import ComparedDatabase
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.reader_control import CycleReader
from engine.sources.query_diff.unread_tables import GONE

_AGAIN = "the table was dropped and created again"


class FollowedTables:
    """`SentTables`: a list in the folder."""

    traced = True

    def __init__(self, database: ComparedDatabase, given: Given) -> None:
        self._database = database
        self._given = given
        self._lock = threading.Lock()
        self._watched: dict[TableName, RelationId] = {}
        """The numbers of the tables that are checked."""
        self._reported: dict[TableName, RelationId] = {}
        """Of those that are gone or were replaced, the number under the name that was reported."""

    def prepare(
        self,
        tables: Sequence[TableSpec],
        reader: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        del known  # What is kept of a table says what was read of it.
        folder = self._given.folder
        with self._lock:
            if earlier is Earlier.ANY:
                folder.make()
            elif not folder.exists:
                raise EngineFault(FaultKind.PUBLICATION_CHANGED, reader, "what was kept of the source is gone")
            folder.follow({table.source: Follow.of(table) for table in tables})
            there = self._database.tables({table.source: table.where for table in tables})
            for name, table in there.items():
                self._watched.setdefault(name, table.schema.relation)
        return frozenset(table.schema.relation for table in there.values())

    def recorded(self, reader: str) -> str | None:
        del reader
        return self._given.folder.id

    def withdraw(self, tables: Sequence[TableSpec], reader: str) -> None:
        """Nothing: a query refuses no change of a table without a key."""

    def unpublished(
        self, tables: Sequence[TableSpec], reader: str, relations: Mapping[TableName, RelationId] | None = None
    ) -> tuple[str, ...]:
        del reader, relations
        followed = self._given.folder.followed
        return tuple(
            f"{table.source} is not compared as declared"
            for table in tables
            if followed.get(table.source) != Follow.of(table)
        )

    def check(self, tables: Sequence[TableSpec]) -> tuple[dict[TableName, str], dict[TableName, RelationId]]:
        """Faults of these tables, and the numbers of those that were replaced, 0 if they are gone; each change is reported once."""
        there = self._database.tables({table.source: table.where for table in tables})
        faults: dict[TableName, str] = {}
        replaced: dict[TableName, RelationId] = {}
        with self._lock:
            for name in (table.source for table in tables if table.source in self._watched):
                now = there[name].schema.relation if name in there else RelationId(0)
                if now == self._watched[name]:
                    self._reported.pop(name, None)
                elif self._reported.get(name) != now:
                    faults[name] = _AGAIN if now else GONE.detail
                    replaced[name] = self._reported[name] = now
        return faults, replaced

    def accept(self, table: TableName, relation: RelationId) -> None:
        with self._lock:
            self._watched[table] = relation
            self._reported.pop(table, None)


class CycleSafety:
    """`SourceSafety` over the database's catalog."""

    def __init__(self, tables: FollowedTables, reader: CycleReader) -> None:
        self._tables = tables
        self._reader = reader

    def check_reader(self, reader: str) -> GuardReading:
        return self._reader.check_reader(reader)

    def check(self, tables: Sequence[TableSpec], reader: str) -> GuardReading:
        faults, replaced = self._tables.check(tables)
        return replace(self._reader.check_reader(reader), partition_faults=faults, replaced=replaced)

    def remember(self, marks: Mapping[TableName, str]) -> None:
        """Nothing: what is kept of the tables says what they were like."""

    def accept(self, table: TableName, relation: RelationId) -> None:
        self._tables.accept(table, relation)
