"""Consistent reads under snapshots that are the ends of windows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.model.fault import EngineFault, FaultKind
from engine.model.masks import MASK_KEY
from engine.model.positions.windows import end_of
from engine.model.schema import TableSchema
from engine.model.source import ExportedSnapshot, TableSplit
from engine.records.masked_lines import mask_of
from engine.records.served_snapshot import Request, SnapshotServer, read_served
from engine.sources.mariadb.connect import (
    ERRORS,
    Connector,
    MariaDbConnection,
    close_quietly,
    fault_of,
)
from engine.sources.mariadb.key_reads import KeyReads
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


class WindowSnapshots(KeyReads):
    """`SnapshotSource`. A snapshot waits for no open transaction."""

    @contextmanager
    def snapshot(self, timeout_s: float) -> Iterator[ExportedSnapshot]:
        del timeout_s
        with exported(self._connector) as snapshot:
            yield snapshot

    def _there(self, connection: MariaDbConnection, schema: TableSchema) -> TriggeredTable:
        name = schema.name
        table = load_tables(connection, [name]).get(name)
        if table is None:
            raise EngineFault(FaultKind.TABLE_MISSING, str(name), "the table is gone")
        if table.relation != schema.relation:
            raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(name), "its storage was replaced")
        return table

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
