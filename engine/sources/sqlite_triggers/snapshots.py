"""Consistent reads of the file as it was at the end of a window: of a temporary copy that is made of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from engine.model.absent_capabilities import WholeTablesOnly
from engine.model.fault import EngineFault, FaultKind
from engine.model.masks import MASK_KEY
from engine.model.positions.windows import end_of
from engine.model.schema import TableSchema
from engine.model.source import ExportedSnapshot, TableSplit
from engine.model.subscription import TableSpec
from engine.records.masked_lines import mask_of
from engine.sources.sqlite.catalog import live_tables
from engine.sources.sqlite.connect import Connector, fault, immediate
from engine.sources.sqlite.file_copy import COPIES, copy_file, new_copy, open_copy
from engine.sources.sqlite.splits import cut_table, read_lines
from engine.sources.sqlite_triggers.registry import look
from engine.sources.sqlite_triggers.windows import close_window, require


class FileSnapshots(WholeTablesOnly):
    """`SnapshotSource` by copies of the file."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def snapshot(self, timeout_s: float) -> AbstractContextManager[ExportedSnapshot]:
        return snapshot_at_window(self._connector, timeout_s)

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        del spec
        with self._connector.session(str(schema.name)) as connection:
            found = [f for f in look(connection, [schema.name.name]).values() if f.relation == schema.relation]
            if not found:
                raise EngineFault(FaultKind.TABLE_MISSING, str(schema.name), "the table is gone")
            return cut_table(connection, schema, found[0].structure, split_bytes)

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        subject = f"relation {split.relation}"
        self._connector.file()
        mask = mask_of(split, self._connector.secret(MASK_KEY), subject)
        connection = open_copy(snapshot, subject)
        try:
            _check_names(connection, split, subject)
            for piece in read_lines(connection, split.sql):
                yield piece if mask is None else mask(piece)
        except sqlite3.Error as error:
            raise fault(error, subject, FaultKind.COPY_LOST) from error
        finally:
            connection.close()


def _check_names(connection: sqlite3.Connection, split: TableSplit, subject: str) -> None:
    """The split was cut before the snapshot: its table must be the same one, with the same columns at its places."""
    name = split.reads.name if split.reads is not None else ""
    tables = live_tables(connection, [name])
    if name not in tables:
        raise EngineFault(FaultKind.TABLE_MISSING, subject, "the table is gone")
    if all(found.relation != split.relation for found in look(connection, [name]).values()):
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, subject, "the table was created again")
    names = tables[name].structure.names
    if any(number > len(names) or names[number - 1] != column for number, column in split.columns):
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, subject, "a column was dropped or renamed")


@contextmanager
def snapshot_at_window(connector: Connector, timeout_s: float, reader: str | None = None) -> Iterator[ExportedSnapshot]:
    """A copy of the file at the end of a new window. `reader`: a reader that begins there, created with the window.

    Raises EngineFault: SOURCE_TIMEOUT if others hold the write lock for so long, SLOT_IN_USE if a reader of this name exists,
    COPY_FAILED if the disk has no room for the copy.
    """
    path = ""
    reading = connector.open()
    try:
        with connector.session() as connection:
            require(connection, connector.name)
            path = new_copy(connector, connection)
            concurrent = connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
            with immediate(connection, timeout_s):
                number = close_window(connection)
                if reader is not None:
                    _create(connection, reader, number)
                if concurrent:
                    reading.execute("BEGIN")
                    reading.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                else:
                    # What is read is the state before this transaction, and nothing of it is in the file before it commits.
                    copy_file(reading, path, connector.name)
        if concurrent:
            copy_file(reading, path, connector.name)
        reading.close()
        yield ExportedSnapshot(path, end_of(number))
    except sqlite3.Error as error:
        raise fault(error, connector.name) from error
    finally:
        reading.close()
        if path:
            COPIES.remove(path)


def _create(connection: sqlite3.Connection, reader: str, window: int) -> None:
    if connection.execute("SELECT 1 FROM penstock_readers WHERE name = ?", [reader]).fetchone() is not None:
        raise EngineFault(FaultKind.SLOT_IN_USE, reader, "a reader of this name exists")
    connection.execute("INSERT INTO penstock_readers (name, durable) VALUES (?, ?)", [reader, window])
