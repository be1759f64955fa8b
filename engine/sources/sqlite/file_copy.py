"""Temporary copies of the file, each as it was at one moment.

Other processes cannot read an earlier state of a SQLite file, so the whole file is copied. With a write-ahead log writers continue
meanwhile; with a rollback journal writers wait until it is made.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from engine.model.fault import EngineFault, FaultKind
from engine.platform.process_sessions import started
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite.types import real_text

_PREFIX, _SUFFIX = "penstock-sqlite-", ".db"


def open_copy(snapshot: str, subject: str) -> sqlite3.Connection:
    """A connection that reads a copy. Raises EngineFault(COPY_LOST) if it is gone."""
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


def new_copy(connector: Connector, connection: sqlite3.Connection) -> str:
    """The path of a copy; its name holds the process, so that copies of processes that ended are removed."""
    folder = connector.snapshot_folder or tempfile.gettempdir()
    for left in Path(folder).glob(f"{_PREFIX}*{_SUFFIX}"):
        owner = left.name.removeprefix(_PREFIX).split("-")
        if len(owner) == 3 and owner[0].isdecimal() and owner[1] != started(int(owner[0])):
            remove(str(left))
    size = connection.execute("PRAGMA page_count").fetchone()[0] * connection.execute("PRAGMA page_size").fetchone()[0]
    if not Path(folder).is_dir() or connector.free_bytes(folder) < size:
        detail = (
            f"{folder} has no room for a copy of the file, {size} bytes; see the connection's setting snapshot_folder"
        )
        raise EngineFault(FaultKind.COPY_FAILED, connector.name, detail)
    path = str(Path(folder) / f"{_PREFIX}{os.getpid()}-{started(os.getpid())}-{uuid.uuid4().hex}{_SUFFIX}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        detail = f"no copy of the file can be created in {folder}; see the connection's setting snapshot_folder"
        raise EngineFault(FaultKind.COPY_FAILED, connector.name, detail) from error
    return path


def copy_file(reading: sqlite3.Connection, path: str, subject: str) -> None:
    """Let the file at this path be what the connection reads. Raises EngineFault(COPY_FAILED) if the disk is full."""
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


def remove(path: str) -> None:
    """Remove a copy, if it is there."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(OSError):
            Path(path + suffix).unlink()
