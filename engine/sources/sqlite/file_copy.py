"""Temporary copies of the file, each as it was at one moment.

Other processes cannot read an earlier state of a SQLite file, so the whole file is copied. With a write-ahead log writers continue
meanwhile; with a rollback journal writers wait until it is made.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from engine.model.fault import EngineFault, FaultKind
from engine.platform.temporary_copies import CopyNames
from engine.sources.sqlite.connect import Connector, fault
from engine.sources.sqlite.types import real_text

COPIES = CopyNames("penstock-sqlite-", ".db", ("-wal", "-shm", "-journal"))


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
    """The path of an empty file for a copy. Raises EngineFault: COPY_FAILED, SOURCE_TIMEOUT if a program locks the file."""
    try:
        (pages,), (size,) = (connection.execute(f"PRAGMA page_{what}").fetchone() for what in ("count", "size"))
    except sqlite3.Error as error:
        raise fault(error, connector.name) from error
    return COPIES.claim(connector.snapshot_folder, pages * size, connector.name)


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
