"""Reads of the file as it was at one moment.

With a write-ahead log one connection holds a read transaction, and reads for all tasks; writers continue. With a rollback journal writers
would wait for as long as it reads, so it reads a copy of the file, which takes less time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.model.absent_capabilities import WholeTablesOnly
from engine.model.fault import EngineFault, FaultKind
from engine.model.masks import MASK_KEY
from engine.model.schema import TableSchema
from engine.model.source import TableSplit
from engine.model.subscription import TableSpec
from engine.records.masked_lines import mask_of
from engine.records.served_snapshot import Request, SnapshotServer, read_served
from engine.sources.sqlite.catalog import Structure, live_tables
from engine.sources.sqlite.connect import Connector, fault
from engine.sources.sqlite.file_copy import COPIES, copy_file, new_copy, open_copy
from engine.sources.sqlite.splits import cut_table, read_lines
from engine.sources.sqlite_queries.compared import numbered


@dataclass(frozen=True, slots=True)
class Exported:
    """A snapshot, by the name by which `FileReads.read_split` reads it, also in other processes; and the file's generation in it, or an
    older one."""

    name: str
    generation: str


@contextmanager
def exported(connector: Connector) -> Iterator[Exported]:
    """A snapshot, while the block runs. Raises EngineFault(COPY_FAILED) if the disk has no room for a copy."""
    file = connector.file()
    reading = connector.open()
    try:
        is_held, generation = _begun(reading, connector.name, file)
        if is_held:
            server = SnapshotServer(lambda request: _lines(reading, request), reading.interrupt)
            try:
                yield Exported(str(server.path), generation)
            finally:
                server.close()
            return
        path = new_copy(connector, reading)
        try:
            try:
                copy_file(reading, path, connector.name)
            except sqlite3.Error as error:
                raise fault(error, connector.name) from error
            reading.close()
            yield Exported(path, generation)
        finally:
            COPIES.remove(path)
    finally:
        reading.close()


def generation_of(connection: sqlite3.Connection, file: tuple[int, int]) -> str:
    """Text that changes when the file is replaced by another one, and with each change of its schema. `file`: as of `Connector.file`,
    before the connection was opened."""
    return ":".join(map(str, (*file, connection.execute("PRAGMA schema_version").fetchone()[0])))


def _begun(reading: sqlite3.Connection, subject: str, file: tuple[int, int]) -> tuple[bool, str]:
    """Begin a read transaction, and whether writers do not wait for it; if they would, it is ended. Also the file's generation in it: a
    copy that is made afterwards may be newer, and never older."""
    try:
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        generation = generation_of(reading, file)
        if reading.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            return True, generation
        reading.execute("COMMIT")
    except sqlite3.Error as error:
        raise fault(error, subject) from error
    return False, generation


def _lines(connection: sqlite3.Connection, request: Request) -> Iterator[bytes]:
    return _checked(connection, request.sql, request.table, request.columns, request.subject)


def _checked(
    connection: sqlite3.Connection, query: str, table: str, columns: Sequence[tuple[int, str]], subject: str
) -> Iterator[bytes]:
    """The lines of a split, whose table must have the structure with which it was cut."""
    try:
        _unchanged(connection, table, columns, subject)
        yield from read_lines(connection, query)
    except sqlite3.Error as error:
        raise fault(error, subject, FaultKind.COPY_LOST) from error


def _unchanged(
    connection: sqlite3.Connection, table: str, columns: Sequence[tuple[int, str]], subject: str
) -> Structure:
    """The table's structure, if its columns are still these."""
    found = live_tables(connection, [table]).get(table)
    if found is None:
        raise EngineFault(FaultKind.TABLE_MISSING, subject, "the table is gone")
    if not set(columns) <= set(numbered(found.structure)):
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, subject, "the table was changed")
    return found.structure


class FileReads(WholeTablesOnly):
    """`DatabaseReads` of a file."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        del spec
        name = schema.name
        columns = [(int(column.attnum), column.on_source) for column in schema.columns]
        with self._connector.reading(str(name)) as connection:
            structure = _unchanged(connection, name.name, columns, str(name))
            return cut_table(connection, schema, structure, split_bytes)

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        subject = f"relation {split.relation}"
        self._connector.file()
        mask = mask_of(split, self._connector.secret(MASK_KEY), subject)
        pieces = (
            read_served(snapshot, split, subject) if Path(snapshot).is_socket() else _copied(snapshot, split, subject)
        )
        yield from pieces if mask is None else map(mask, pieces)


def _copied(snapshot: str, split: TableSplit, subject: str) -> Iterator[bytes]:
    connection = open_copy(snapshot, subject)
    try:
        name = "" if split.reads is None else split.reads.name
        yield from _checked(connection, split.sql, name, split.columns, subject)
    finally:
        connection.close()
