"""The publications of a partitioned source, those of one name on each node, and changes of its tables that only the catalogs show."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from engine.model.absent_capabilities import NoPartitions
from engine.model.identity import RelationId, TableName
from engine.model.source import Earlier, GuardReading
from engine.model.subscription import TableSpec
from engine.sources.postgres_logs.node_tables import NodeTables, number_of
from engine.sources.postgres_logs.nodes import Node, Nodes
from engine.sources.postgres_logs.own_table import OwnTable
from engine.sources.postgres_logs.reader_control import PartitionedReader
from engine.sources.postgres_logs.reader_folder import ReaderFolder, SentTable


class PartitionedPublications:
    """`SentTables`: each node publishes those of the tables that it has."""

    traced = False
    """The engine records what it needs to find changes of tables whose copy is complete."""

    def __init__(self, nodes: Nodes, tables: NodeTables, folder: ReaderFolder | None, own: OwnTable) -> None:
        self._nodes = nodes
        self._tables = tables
        self._folder = folder
        self._own = own

    def prepare(
        self,
        tables: Sequence[TableSpec],
        reader: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        """A table is published if every node that has it publishes it."""
        del known
        plain = self._tables.plain(tables)
        sent = self._nodes.each(lambda node: node.source.sent_tables.prepare(plain, node.slot(reader), (), earlier))
        found = self._tables.read([table.source for table in plain])
        there = {
            table.source: SentTable(found[table.source].mark, tuple(table.key), table.insert_only)
            for table in plain
            if table.source in found and all(part.oid in sent[node] for node, part in found[table.source].parts.items())
        }
        if self._folder is not None:
            self._folder.set_sent(there)
        return frozenset(map(number_of, there))

    def recorded(self, reader: str) -> str | None:
        found = self._nodes.each(lambda node: node.source.sent_tables.recorded(node.slot(reader)))
        if any(one is None for one in found):
            return None
        return json.dumps(dict(zip(self._nodes.names, found, strict=True)))

    def withdraw(self, tables: Sequence[TableSpec], reader: str) -> None:
        self._nodes.each(lambda node: node.source.sent_tables.withdraw(tables, node.slot(reader)))
        self._own.withdrawn(frozenset(table.source for table in tables))

    def unpublished(
        self, tables: Sequence[TableSpec], reader: str, relations: Mapping[TableName, RelationId] | None = None
    ) -> tuple[str, ...]:
        """`relations`: tables that differ from those that `prepare` has published last are ignored, whatever their numbers, which are those
        of names."""
        found = self._tables.read([table.source for table in tables])
        if relations is not None and self._folder is not None:
            sent = self._folder.sent
            found = {name: each for name, each in found.items() if name not in sent or sent[name].mark == each.mark}

        def ask(node: Node) -> tuple[str, ...]:
            there = [t for t in tables if t.source in found and node.number in found[t.source].parts]
            oids = {t.source: RelationId(found[t.source].parts[node.number].oid) for t in there}
            return node.source.sent_tables.unpublished(there, node.slot(reader), oids)

        asked = self._nodes.each(ask)
        return tuple(
            f"{what} (node {node.name})" for node, each in zip(self._nodes, asked, strict=True) for what in each
        )


class PartitionedTablesOfNodes(NoPartitions):
    """`PartitionedTables`: the parts of a table on its nodes have a fingerprint, as partitions have elsewhere; none has partitions."""

    def __init__(self, tables: NodeTables) -> None:
        self._tables = tables

    def fingerprints(self, tables: Sequence[TableSpec]) -> dict[TableName, str]:
        return {name: found.mark for name, found in self._tables.read([table.source for table in tables]).items()}


class PartitionedSafety:
    """`SourceSafety` over the catalogs of all nodes: a table that is created again on one of them, or appears on another, is reported."""

    def __init__(self, nodes: Nodes, tables: NodeTables, reader: PartitionedReader, own: OwnTable) -> None:
        self._nodes = nodes
        self._tables = tables
        self._reader = reader
        self._own = own
        self._lock = threading.Lock()
        self._marks: dict[TableName, str] = {}
        """What the last check found."""

    def check_reader(self, reader: str) -> GuardReading:
        return self._reader.check_reader(reader)

    def check(self, tables: Sequence[TableSpec], reader: str) -> GuardReading:
        self._own.check_again(reader)
        plain = self._tables.plain(tables)
        readings = self._reader.readings.ask(lambda node: node.source.safety.check(plain, node.slot(reader)))
        found = {name: each.mark for name, each in self._tables.read([table.source for table in tables]).items()}
        with self._lock:
            changed = {
                name: self._change(self._marks[name], mark)
                for name, mark in found.items()
                if self._marks.get(name, mark) != mark
            }
            gone = {table.source for table in tables if table.source not in found} & self._marks.keys()
            for name in gone:
                del self._marks[name]
            self._marks.update(found)
        return replace(
            self._reader.joined(readings),
            partition_faults={**changed, **dict.fromkeys(gone, "the table was dropped on every node")},
            replaced=dict.fromkeys(gone, RelationId(0)),
            marks=found,
        )

    def remember(self, marks: Mapping[TableName, str]) -> None:
        with self._lock:
            self._marks.update(marks)

    def accept(self, table: TableName, relation: RelationId) -> None:
        """Nothing: a change is reported once."""
        del table, relation

    def _change(self, before: str, now: str) -> str:
        then, there = ({int(node): oid for node, oid in json.loads(mark).items()} for mark in (before, now))
        names = self._nodes.names
        said = [f"the table is on node {names[node]} now" for node in sorted(there.keys() - then.keys())]
        said += [
            f"the table is not on node {_named(names, node)} any more" for node in sorted(then.keys() - there.keys())
        ]
        again = [node for node in sorted(then.keys() & there.keys()) if then[node] != there[node]]
        said += [f"the table was dropped and created again on node {names[node]}" for node in again]
        return "; ".join(said)


def _named(names: Sequence[str], node: int) -> str:
    return names[node] if node < len(names) else str(node)
