"""Consistent reads of the file as it was at the end of a window: of a temporary copy that is made of it.

Other processes cannot read an earlier state of a SQLite file, so the whole file is copied. With a write-ahead log writers continue
meanwhile; with a rollback journal writers wait until it is made.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from engine.model.absent_capabilities import NoRanges
from engine.model.copies import KeyBound
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId
from engine.model.masks import MASK_KEY
from engine.model.positions.windows import end_of
from engine.model.quarantine import Texts
from engine.model.schema import TableSchema
from engine.model.source import WHOLE_TABLE, ExportedSnapshot, KeyWalk, TableSplit
from engine.model.subscription import TableSpec
from engine.platform.process_sessions import started
from engine.records.masked_lines import mask_lines
from engine.sources.sqlite_triggers.catalog import Structure, live_tables, quoted
from engine.sources.sqlite_triggers.connect import Connector, fault, immediate
from engine.sources.sqlite_triggers.registry import look
from engine.sources.sqlite_triggers.types import printed, real_text
from engine.sources.sqlite_triggers.windows import close_window, require

_PREFIX, _SUFFIX = "penstock-sqlite-", ".db"
_PIECE_BYTES = 256 * 1024
"""Least bytes of whole lines that are handed on at once, as for other sources. Not measured."""
_ROW_BYTES = 32
"""Bytes that a row is estimated to take concurrents its values."""
_SAMPLE = 200
"""Rows from whose sizes the size of a table is estimated. Not measured."""


class FileSnapshots(NoRanges):
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
            return _splits(connection, schema, found[0].structure, split_bytes)

    def key_splits(self, schema: TableSchema, spec: TableSpec, keys: Sequence[Texts]) -> list[TableSplit]:
        """The whole table: how a key is printed need not be how the database compares it."""
        del keys
        return self.splits(schema, spec, WHOLE_TABLE)

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        split_bytes: int,
        most_splits: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        """None: parts of a table that are read at different moments would be copies of the whole file each."""
        del schema, after, split_bytes, most_splits, above_bytes
        return None

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        subject = f"relation {split.relation}"
        self._connector.file()
        try:
            mask = mask_lines(split.masks, self._connector.secret(MASK_KEY)) if split.masks else None
        except ValueError as error:
            raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, subject, str(error)) from error
        connection = _open_copy(snapshot, subject)
        try:
            _check_names(connection, split, subject)
            for piece in _pieces(connection, split.sql):
                yield piece if mask is None else mask(piece)
        except sqlite3.Error as error:
            raise fault(error, subject, FaultKind.COPY_LOST) from error
        finally:
            connection.close()


def _open_copy(snapshot: str, subject: str) -> sqlite3.Connection:
    if not Path(snapshot).exists():
        raise EngineFault(
            FaultKind.COPY_LOST, subject, "the copy of the file that the snapshot is does not exist any more"
        )
    try:
        uri = f"file:{quote(snapshot)}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise EngineFault(FaultKind.COPY_LOST, subject, "the copy of the file cannot be opened") from error
    connection.create_function("penstock_real", 1, real_text, deterministic=True)
    return connection


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


def _pieces(connection: sqlite3.Connection, query: str) -> Iterator[bytes]:
    lines: list[bytes] = []
    size = 0
    for (line,) in connection.execute(query):
        lines.append(line)
        size += len(line)
        if size >= _PIECE_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    if lines:
        yield b"".join(lines)


def _splits(
    connection: sqlite3.Connection, schema: TableSchema, table: Structure, split_bytes: int
) -> list[TableSplit]:
    by_name = {column.name: column for column in table.columns}
    names = [column.on_source for column in schema.columns]
    if not set(names) <= by_name.keys():
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(schema.name), "a column is gone")
    fields = " || char(9) || ".join(
        printed(f"t.{quoted(name)}", by_name[name].kind, key=name in table.key) for name in names
    )
    query = f"SELECT CAST({fields} || char(10) AS BLOB) FROM {quoted(table.name)} AS t"
    columns = tuple((int(column.attnum), column.on_source) for column in schema.columns)
    masks = tuple((place, column.mask) for place, column in enumerate(schema.columns) if column.mask is not None)
    row_bytes, rows, low, high = _estimate(connection, table)
    parts = max(1, -(-rows * row_bytes // max(1, split_bytes))) if table.rowid is not None else 1
    parts = min(parts, max(1, high - low + 1))
    found = []
    for part in range(parts):
        bounds = []
        if part:
            bounds.append(f"t.{table.rowid} >= {low + part * (high - low + 1) // parts}")
        if part < parts - 1:
            bounds.append(f"t.{table.rowid} < {low + (part + 1) * (high - low + 1) // parts}")
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
        found.append(
            TableSplit(
                RelationId(schema.relation),
                query + where,
                rows * row_bytes // parts,
                rows // parts,
                reads=schema.name,
                columns=columns,
                masks=masks,
            )
        )
    return found


def _estimate(connection: sqlite3.Connection, table: Structure) -> tuple[int, int, int, int]:
    """Bytes of a row, rows, the lowest and the highest rowid. Estimated by the rowids, and by the size of the file."""
    name = quoted(table.name)
    size = " + ".join(f"coalesce(length(CAST({quoted(column.name)} AS BLOB)), 0)" for column in table.columns)
    sampled = connection.execute(f"SELECT avg({size}) FROM (SELECT * FROM {name} LIMIT {_SAMPLE})").fetchone()[0]
    row_bytes = int(sampled or 0) + _ROW_BYTES
    pages = connection.execute("PRAGMA page_count").fetchone()[0] * connection.execute("PRAGMA page_size").fetchone()[0]
    most = 1 + pages // max(1, row_bytes - _ROW_BYTES + 4)
    if table.rowid is None:
        return row_bytes, most if sampled is not None else 0, 0, 0
    low, high = (
        connection.execute(f"SELECT {which}({table.rowid}) FROM {name}").fetchone()[0] or 0 for which in ("min", "max")
    )
    return row_bytes, min(most, high - low + 1) if sampled is not None else 0, low, high


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
            path = _new_copy(connector, connection)
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
                    _copy(reading, path, connector.name)
        if concurrent:
            _copy(reading, path, connector.name)
        reading.close()
        yield ExportedSnapshot(path, end_of(number))
    except sqlite3.Error as error:
        raise fault(error, connector.name) from error
    finally:
        reading.close()
        if path:
            _remove(path)


def _create(connection: sqlite3.Connection, reader: str, window: int) -> None:
    if connection.execute("SELECT 1 FROM penstock_readers WHERE name = ?", [reader]).fetchone() is not None:
        raise EngineFault(FaultKind.SLOT_IN_USE, reader, "a reader of this name exists")
    connection.execute("INSERT INTO penstock_readers (name, durable) VALUES (?, ?)", [reader, window])


def _new_copy(connector: Connector, connection: sqlite3.Connection) -> str:
    """The path of a copy; its name holds the process, so that copies of processes that ended are removed."""
    folder = connector.snapshot_folder or tempfile.gettempdir()
    for left in Path(folder).glob(f"{_PREFIX}*{_SUFFIX}"):
        owner = left.name.removeprefix(_PREFIX).split("-")
        if len(owner) == 3 and owner[0].isdecimal() and owner[1] != started(int(owner[0])):
            _remove(str(left))
    size = connection.execute("PRAGMA page_count").fetchone()[0] * connection.execute("PRAGMA page_size").fetchone()[0]
    if not Path(folder).is_dir() or connector.free_bytes(folder) < size:
        detail = (
            f"{folder} has no room for a copy of the file, {size} bytes; see the connection's setting snapshot_folder"
        )
        raise EngineFault(FaultKind.COPY_FAILED, connector.name, detail)
    path = str(Path(folder) / f"{_PREFIX}{os.getpid()}-{started(os.getpid())}-{uuid.uuid4().hex}{_SUFFIX}")
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    return path


def _copy(reading: sqlite3.Connection, path: str, subject: str) -> None:
    copy = sqlite3.connect(path, isolation_level=None)
    try:
        copy.execute("PRAGMA synchronous = OFF")
        copy.execute("PRAGMA journal_mode = OFF")
        reading.backup(copy)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise EngineFault(FaultKind.COPY_FAILED, subject, "the disk has no room for a copy of the file") from error
        raise
    finally:
        copy.close()


def _remove(path: str) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(OSError):
            Path(path + suffix).unlink()
