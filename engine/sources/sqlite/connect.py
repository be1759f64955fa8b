"""Connections to the file, and the fault kind of each result code of SQLite."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from engine.model.fault import EngineFault, FaultKind
from engine.model.subscription import ConnectionSpec
from engine.sources.sqlite.types import real_text

_K = FaultKind
_KINDS = {
    sqlite3.SQLITE_BUSY: _K.SOURCE_TIMEOUT,
    sqlite3.SQLITE_LOCKED: _K.SOURCE_TIMEOUT,
    sqlite3.SQLITE_SCHEMA: _K.SOURCE_TIMEOUT,
    sqlite3.SQLITE_CANTOPEN: _K.SOURCE_UNREACHABLE,
    sqlite3.SQLITE_IOERR: _K.SOURCE_UNREACHABLE,
    sqlite3.SQLITE_FULL: _K.SOURCE_UNREACHABLE,
    sqlite3.SQLITE_NOTADB: _K.SOURCE_UNREACHABLE,
    sqlite3.SQLITE_CORRUPT: _K.SOURCE_UNREACHABLE,
    sqlite3.SQLITE_TOOBIG: _K.VALUE_OUT_OF_DOMAIN,
    sqlite3.SQLITE_READONLY: _K.SOURCE_PRIVILEGE,
    sqlite3.SQLITE_PERM: _K.SOURCE_PRIVILEGE,
    sqlite3.SQLITE_AUTH: _K.SOURCE_PRIVILEGE,
}
_LATER = frozenset(
    {
        sqlite3.SQLITE_READONLY_ROLLBACK,
        sqlite3.SQLITE_READONLY_RECOVERY,
        sqlite3.SQLITE_READONLY_CANTLOCK,
        sqlite3.SQLITE_READONLY_CANTINIT,
    }
)
"""Extended result codes of a file that is opened for reading, and whose journal a program that may write has to put right first."""
_NO_INDEX = (
    "it has a write-ahead log, no program has it open, and this user may not create its files, or is not its owner"
)
"""SQLite reads such a file by an index in the file -shm, which goes when the last program closes it."""
_LOGGED = b"\2\2"
"""Bytes 18 and 19 of a file with a write-ahead log."""
_HEADERS: dict[tuple[int, int], int] = {}
"""Descriptors by device and inode, which stay open: to close one would end the locks that this process's connections have on the file."""
_DEFAULT_WAIT_MS = 10_000
"""For a connection that is not one of the server's. As the setting's default."""
_SHORTEST_NAP_S, _LONGEST_NAP_S = 0.0002, 0.005
"""Between two tries to get the write lock. A writer that writes all the time leaves it only for some microseconds; not measured."""


def fault(error: sqlite3.Error, subject: str, otherwise: FaultKind = FaultKind.INTERNAL) -> EngineFault:
    """`otherwise`: the kind of errors in a statement, such as a table that does not exist."""
    code = getattr(error, "sqlite_errorcode", None)
    kind = _KINDS.get(code & 0xFF, otherwise) if code is not None and code not in _LATER else _K.SOURCE_UNREACHABLE
    return EngineFault(kind, subject, str(getattr(error, "sqlite_errorname", None) or type(error).__name__))


class Connector:
    """Opens connections to one file. They are in autocommit mode, and wait for others as the settings say."""

    def __init__(self, spec: ConnectionSpec, *, read_only: bool = False) -> None:
        self._mode = "ro" if read_only else "rw"
        self.name = spec.name
        self.path = str(spec.settings.get("path", ""))
        folder = spec.settings.get("snapshot_folder")
        self.snapshot_folder = str(folder) if folder is not None else None
        self.wait_s = int(spec.settings.get("busy_timeout_ms", _DEFAULT_WAIT_MS)) / 1000
        self._secrets = spec.secrets

    def secret(self, name: str) -> str | None:
        return self._secrets.get(name)

    def file(self) -> tuple[int, int]:
        """Device and inode of the file. Raises EngineFault(SOURCE_UNREACHABLE) if there is none."""
        try:
            found = Path(self.path).stat()
        except OSError as error:
            raise EngineFault(_K.SOURCE_UNREACHABLE, self.name, f"the file {self.path} cannot be opened") from error
        return found.st_dev, found.st_ino

    def open(self) -> sqlite3.Connection:
        """A new connection, which never creates the file. Raises EngineFault."""
        place = self.file()
        if self._mode == "ro" and self._would_own_log(place):
            raise EngineFault(_K.SOURCE_UNREACHABLE, self.name, _NO_INDEX)
        try:
            connection = sqlite3.connect(
                f"file:{quote(self.path)}?mode={self._mode}",
                uri=True,
                timeout=self.wait_s,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise fault(error, self.name) from error
        try:
            # Commits are on disk before a window is read: what it includes survives a loss of power.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            connection.create_function("penstock_real", 1, real_text, deterministic=True)
        except sqlite3.Error as error:
            connection.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_DIRECTORY and self._mode == "ro":
                raise EngineFault(_K.SOURCE_UNREACHABLE, self.name, _NO_INDEX) from error
            raise fault(error, self.name) from error
        return connection

    def _would_own_log(self, place: tuple[int, int]) -> bool:
        """Whether SQLite would create the files of a write-ahead log, as this user's, which the owner's programs then could not write."""
        path, user = Path(self.path), os.geteuid()
        try:
            if user in {0, path.stat().st_uid} or Path(f"{path}-shm").exists() or not os.access(path.parent, os.W_OK):
                return False
            if place not in _HEADERS:
                _HEADERS[place] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False  # SQLite will say why it cannot be opened.
        return os.pread(_HEADERS[place], len(_LOGGED), 18) == _LOGGED

    @contextmanager
    def session(
        self, subject: str | None = None, otherwise: FaultKind = FaultKind.INTERNAL
    ) -> Iterator[sqlite3.Connection]:
        """A connection for the block. Errors in it are raised as EngineFault; see `fault`."""
        connection = self.open()
        try:
            yield connection
        except sqlite3.Error as error:
            raise fault(error, subject or self.name, otherwise) from error
        finally:
            connection.close()

    @contextmanager
    def reading(self, subject: str | None = None) -> Iterator[sqlite3.Connection]:
        """A connection whose statements see one state of the file. For short reads only."""
        with self.session(subject) as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")


@contextmanager
def immediate(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """A write transaction, committed at the end of the block.

    Raises sqlite3.OperationalError (SQLITE_BUSY) if others hold the write lock for so long.
    """
    _begin(connection, seconds)
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    _commit(connection, seconds)


def _begin(connection: sqlite3.Connection, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    (wait_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        nap = _SHORTEST_NAP_S
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
            time.sleep(nap)
            nap = min(nap * 1.05, _LONGEST_NAP_S)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {wait_ms}")


def _commit(connection: sqlite3.Connection, seconds: float) -> None:
    """With a rollback journal, a commit waits for readers, and can be tried again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("COMMIT")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
