"""The publications of a subscription, and the changes of its tables that only the catalog shows."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from engine.model.identity import RelationId, TableName
from engine.model.source import (
    Earlier,
    GuardReading,
)
from engine.model.subscription import TableSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.partition_watch import PartitionWatch, TablesLook
from engine.sources.postgres_log import publications
from engine.sources.postgres_log.catalog_mark import CatalogMarks
from engine.sources.postgres_log.filter_trials import FilterTrials
from engine.sources.postgres_log.given_tables import GivenTables
from engine.sources.postgres_log.reader_control import PostgresReaderControl


class PostgresPublications:
    """`SentTables` by publications. Each check of `PostgresSafety` compares the tables that it published with the catalog."""

    traced = True

    def __init__(self, connector: Connector, watch: PartitionWatch, trials: FilterTrials) -> None:
        self._connector = connector
        self._watch = watch
        self._trials = trials
        self._publishing = threading.Lock()
        self._published: dict[TableName, int] | None = None
        self._known_as: dict[TableName, int] = {}
        """OID by every name under which a table was published, or to which it was renamed since."""

    def prepare(
        self,
        tables: Sequence[TableSpec],
        slot: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        with self._publishing:
            ours = {*known, *(self._known_as[t.source] for t in tables if t.source in self._known_as)}
            before, expected = self._published, {*known, *(self._published or {}).values()}
            after = publications.prepare(
                self._connector, tables, slot, ours, expected=expected, earlier=earlier, trials=self._trials
            )
            # Check these tables now: one that was created again before the watch saw it is published by this call, and must not be
            # reported as changed later.
            unseen = self._watch.unseen(tables)
            anew = [t for t in tables if before is None or t in unseen or _made_again(t.source, before, after)]
            self._watch.check_tables(self._connector, anew)
            self._watch.watch_again(tables, after)
            self._published = after
            self._known_as.update(after)
            return frozenset(RelationId(oid) for oid in after.values())

    def recorded(self, slot: str) -> str | None:
        return publications.numbers(self._connector, slot)

    def withdraw(self, tables: Sequence[TableSpec], slot: str) -> None:
        with self._publishing:
            left = publications.withdraw(self._connector, tables, slot)
            if self._published is not None:
                self._published = {name: oid for name, oid in self._published.items() if name not in left}

    def unpublished(
        self, tables: Sequence[TableSpec], slot: str, relations: Mapping[TableName, RelationId] | None = None
    ) -> tuple[str, ...]:
        return publications.unpublished(self._connector, tables, slot, relations or {})

    def examine(self, tables: Sequence[TableSpec], slot: str) -> tuple[TablesLook, tuple[str, ...]]:
        """Changes of the tables since the previous check, and deviations of the publications as text."""
        with self._publishing:
            changed = self._watch.examine(self._connector, tables)
            self._rename_published(changed.renamed)
            faults = publications.faults(self._connector, tables, slot, self._watch.dropped_tables, self._published)
            if faults:
                # A table may have been dropped between the two reads: that is a fault of the table and not of the publication.
                changed = changed.joined(self._watch.examine(self._connector, tables))
                self._rename_published(changed.renamed)
                faults = publications.faults(self._connector, tables, slot, self._watch.dropped_tables, self._published)
        return changed, faults

    def remember(self, marks: Mapping[TableName, str]) -> None:
        """Nothing: the publications' comments show what others changed."""

    def _rename_published(self, renamed: Mapping[TableName, TableName]) -> None:
        self._known_as.update({new: self._known_as[old] for old, new in renamed.items() if old in self._known_as})
        if self._published is not None:
            self._published = {renamed.get(name, name): oid for name, oid in self._published.items()}


class PostgresSafety:
    """`SourceSafety` over publications, partition trees and OIDs."""

    def __init__(
        self,
        connector: Connector,
        watch: PartitionWatch,
        marks: CatalogMarks,
        published: PostgresPublications | GivenTables,
        reader: PostgresReaderControl,
    ) -> None:
        self._connector = connector
        self._watch = watch
        self._marks = marks
        self._published = published
        self._reader = reader

    def check(self, tables: Sequence[TableSpec], slot: str) -> GuardReading:
        """One check. Tables are compared with this object's first check of them, which should be made before they are copied.

        A table that was dropped, or created again under its name, is one of the partition faults: it concerns that table only. It is no
        fault of the publication until `prepare` publishes the new table.
        """
        changed, faults = self._published.examine(tables, slot)
        with self._connector.session() as connection:
            self._marks.looked(connection, {table.source for table in tables})
        return replace(
            self._reader.check_reader(slot),
            sending_faults=faults,
            partition_faults=changed.faults,
            partition_rewrites=changed.rewrites,
            replaced=changed.replaced,
            marks=changed.marks,
            below=changed.below,
            left=changed.left,
            sent_otherwise=changed.sent_otherwise,
            renamed=changed.renamed,
        )

    def check_reader(self, slot: str) -> GuardReading:
        return self._reader.check_reader(slot)

    def remember(self, marks: Mapping[TableName, str]) -> None:
        self._watch.remember(marks)
        self._published.remember(marks)

    def accept(self, table: TableName, relation: RelationId) -> None:
        self._watch.accept(table, relation)


def _made_again(table: TableName, before: Mapping[TableName, int], after: Mapping[TableName, int]) -> bool:
    return table in before and after.get(table, before[table]) != before[table]
