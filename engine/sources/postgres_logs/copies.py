"""Consistent reads of all nodes: snapshots of one moment, and the rows of a table from every node that has it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import psycopg

from engine.model.absent_capabilities import WholeTablesOnly
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId
from engine.model.position import Lsn
from engine.model.quarantine import Texts
from engine.model.schema import Column, TableSchema
from engine.model.source import ExportedSnapshot, TableSplit
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres import splits
from engine.sources.postgres.connect import SOURCE
from engine.sources.postgres_log.position import end_of_log
from engine.sources.postgres_logs.node_tables import NodeTables
from engine.sources.postgres_logs.nodes import Node, Nodes
from engine.sources.postgres_logs.reader_folder import ReaderFolder, required
from engine.sources.postgres_logs.reader_socket import request_cut

_ATTEMPTS = 20
"""Snapshots that are taken until those of all nodes are of one moment. Under transfers between three nodes at full speed most of the
attempts failed only while a commit waited between two nodes; each takes some milliseconds."""
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_EXPORT = "SELECT pg_export_snapshot(), pg_current_snapshot()::text"


class PartitionedCopies(WholeTablesOnly):
    """`SnapshotSource` by a snapshot of each node and COPY. The rows of a range of keys are on several nodes, so none is walked."""

    def __init__(self, nodes: Nodes, tables: NodeTables, folder: ReaderFolder | None) -> None:
        self._nodes = nodes
        self._tables = tables
        self._folder = folder

    @contextmanager
    def snapshot(self, timeout_s: float) -> Iterator[ExportedSnapshot]:
        """The log reader must run: it holds the merged log back while the snapshots are taken, and gives their position.

        Raises SOURCE_TIMEOUT if it does not run, has not read the log up to the snapshots in time, or if no attempt gave snapshots of one
        moment.
        """
        folder = required(self._folder)
        for _ in range(_ATTEMPTS):
            with ExitStack() as sessions:
                moment = _Moment(self._nodes, sessions)
                there, position = request_cut(folder.path, timeout_s, moment.take)
                if not there:
                    detail = "the log reader, which gives snapshots of several nodes their position, does not run"
                    raise EngineFault(FaultKind.SOURCE_TIMEOUT, "log reader", detail)
                if position is not None:
                    yield ExportedSnapshot(
                        json.dumps(dict(zip(self._nodes.names, moment.names, strict=True))), position
                    )
                    return
        detail = f"transactions were committed on some nodes only, or rows moved, in each of {_ATTEMPTS} attempts"
        raise EngineFault(FaultKind.SOURCE_TIMEOUT, "snapshot", detail)

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        del spec
        return [
            replace(split, node=node.name)
            for node, there in self._on_nodes(schema)
            for split in splits.cut_table(node.connector, there, split_bytes)
        ]

    def key_splits(self, schema: TableSchema, spec: TableSpec, keys: Sequence[Texts]) -> list[TableSplit]:
        del spec
        return [
            replace(split, node=node.name)
            for node, there in self._on_nodes(schema)
            for split in splits.key_splits(node.connector, there, keys)
        ]

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        node = self._nodes.named(split.node)
        own = _snapshots(snapshot).get(node.name)
        if own is None:
            raise EngineFault(FaultKind.COPY_LOST, node.name, "the snapshot has not this node")
        return splits.read_split(node.connector, split, own)

    def _on_nodes(self, schema: TableSchema) -> list[tuple[Node, TableSchema]]:
        """The nodes that have the table, and its schema there, with the numbers of that node. Raises TABLE_MISSING, TABLE_NODES_DIFFER."""
        found = self._tables.read([schema.name]).get(schema.name)
        if found is None:
            raise EngineFault(FaultKind.TABLE_MISSING, str(schema.name), "the table is gone")
        if found.problem is not None:
            raise EngineFault(FaultKind.TABLE_NODES_DIFFER, str(schema.name), found.problem)
        names = found.numbers_on(found.reference)
        by_number = {number: name for name, number in names.items()}
        there = []
        for number, part in sorted(found.parts.items()):
            own = found.numbers_on(number)
            columns = tuple(_numbered(column, by_number, own, schema) for column in schema.columns)
            rows = schema.row_filter
            if rows is not None:
                rows = replace(rows, columns=tuple((own[name], name) for _, name in rows.columns))
            here = replace(schema, relation=RelationId(part.oid), columns=columns, row_filter=rows)
            there.append((self._nodes.all[number], here))
        return there


def _snapshots(name: str) -> Mapping[str, str]:
    """The snapshots of the nodes, by the node's name."""
    try:
        found: Mapping[str, str] = json.loads(name)
    except ValueError:
        return {}
    return found


def _numbered(column: Column, names: Mapping[int, str], own: Mapping[str, int], schema: TableSchema) -> Column:
    name = names.get(column.attnum)
    if name is None or name not in own:
        detail = f"column {column.on_source} is not there any more"
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(schema.name), detail)
    return replace(column, attnum=own[name])


class _Moment:
    """A session on each node, as long as `sessions`, which has a snapshot once they are taken."""

    def __init__(self, nodes: Nodes, sessions: ExitStack) -> None:
        self.names: list[str] = []
        """Of the snapshots, by node."""
        self._nodes = nodes
        self._opened = nodes.each(lambda node: _opened(node, sessions))

    def take(self) -> list[tuple[str, Lsn]]:
        """Take the snapshots: by node the text, and the end of its log after all were taken."""
        taken = self._nodes.each(lambda node: _taken(node, self._opened[node.number]))
        ends = self._nodes.each(lambda node: _end(node, self._opened[node.number]))
        self.names = [name for name, _ in taken]
        return [(text, end) for (_, text), end in zip(taken, ends, strict=True)]


def _opened(node: Node, sessions: ExitStack) -> PostgresConnection:
    """A session that lives with `sessions`."""
    connection = node.connector.open()
    sessions.callback(connection.close)
    return connection


def _taken(node: Node, connection: PostgresConnection) -> tuple[str, str]:
    """A snapshot that lives with the session: its name, and its text."""
    try:
        connection.execute(_BEGIN)
        name, text = connection.execute(_EXPORT).fetchall()[0]
        return str(name), str(text)
    except psycopg.Error as error:
        raise SOURCE.fault(error, node.name) from error


def _end(node: Node, connection: PostgresConnection) -> Lsn:
    """The end of the node's log."""
    try:
        return end_of_log(connection)
    except psycopg.Error as error:
        raise SOURCE.fault(error, node.name) from error
