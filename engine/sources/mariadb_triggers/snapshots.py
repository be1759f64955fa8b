"""Consistent reads under snapshots that are the ends of windows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.model.absent_capabilities import WholeTablesOnly
from engine.model.copies import KeyBound
from engine.model.fault import EngineFault, FaultKind
from engine.model.masks import MASK_KEY
from engine.model.positions.windows import end_of
from engine.model.ranges import RangeSource
from engine.model.schema import TableSchema
from engine.model.source import ExportedSnapshot, KeyWalk, TableSplit
from engine.model.subscription import TableSpec
from engine.records.masked_lines import mask_of
from engine.records.served_snapshot import Request, SnapshotServer, read_served
from engine.sources.mariadb import range_digests, splits
from engine.sources.mariadb.connect import (
    ERRORS,
    Connector,
    MariaDbConnection,
    close_quietly,
    fault_of,
)
from engine.sources.mariadb.lines import read_lines
from engine.sources.mariadb_triggers.catalog import TriggeredTable, exists, load_tables
from engine.sources.mariadb_triggers.windows import snapshot_at_window


@contextmanager
def exported(connector: Connector, reader: str | None = None) -> Iterator[ExportedSnapshot]:
    """A snapshot at the end of a new window, which `read_split` of other processes reads; see `snapshot_at_window`."""
    with snapshot_at_window(connector, reader) as (connection, number):
        server = SnapshotServer(lambda request: _lines(connection, request), lambda: close_quietly(connection))
        try:
            yield ExportedSnapshot(str(server.path), end_of(number))
        finally:
            server.close()


def _lines(connection: MariaDbConnection, request: Request) -> Iterator[bytes]:
    try:
        if not exists(connection, request.relation):
            raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, request.subject, "the table's storage was replaced")
        yield from read_lines(connection, request.sql)
    except ERRORS as error:
        raise fault_of(error, request.subject) from error


def _there(connection: MariaDbConnection, schema: TableSchema) -> TriggeredTable:
    """The table as it is now. Raises EngineFault if it is not the one of the schema."""
    name = schema.name
    table = load_tables(connection, [name]).get(name)
    if table is None:
        raise EngineFault(FaultKind.TABLE_MISSING, str(name), "the table is gone")
    if table.relation != schema.relation:
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(name), "its storage was replaced")
    return table


class WindowSnapshots(WholeTablesOnly):
    """`SnapshotSource`. A snapshot waits for no open transaction."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    @contextmanager
    def snapshot(self, timeout_s: float) -> Iterator[ExportedSnapshot]:
        del timeout_s
        with exported(self._connector) as snapshot:
            yield snapshot

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        del spec
        with self._connector.session(str(schema.name)) as connection:
            return splits.cut_table(connection, _there(connection, schema), schema, split_bytes)

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        split_bytes: int,
        most_splits: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        """None for a copy, which names `above_bytes`: it reads each table under one snapshot."""
        if above_bytes is not None:
            return None
        with self._connector.session(str(schema.name)) as connection:
            table = _there(connection, schema)
            return range_digests.walk_key(connection, table, schema, after, split_bytes, most_splits)

    def ranges(self, schema: TableSchema) -> RangeSource:
        with self._connector.session(str(schema.name)) as connection:
            table = _there(connection, schema)
        return range_digests.ranges_of(table, schema, self.read_split)

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        subject = f"relation {split.relation}"
        mask = mask_of(split, self._connector.secret(MASK_KEY), subject)
        with self._connector.session(subject) as connection:
            gone = not exists(connection, split.relation)
            another = gone and split.reads is not None and bool(load_tables(connection, [split.reads]))
        if gone:
            kind = FaultKind.TABLE_STRUCTURE_CHANGED if another else FaultKind.TABLE_MISSING
            raise EngineFault(kind, subject, "the table is gone, or its storage was replaced")
        pieces = read_served(snapshot, split, subject)
        yield from pieces if mask is None else map(mask, pieces)
