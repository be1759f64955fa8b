"""One DuckDB instance on one file: opening it closed to the outside, its connections, and its end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from engine.model.fault import EngineFault, FaultKind
from engine.targets.duckdb import probe
from engine.targets.duckdb.errors import fault_of, is_disk_full
from engine.targets.duckdb.identifiers import literal
from engine.targets.duckdb.opened_file import OpenedFile
from engine.targets.duckdb.settings import DuckDbSettings
from engine.targets.duckdb.staging import StagingConnection

_PROBE_SECONDS = 10.0
_CLOSE_ATTEMPTS = 100
_CLOSE_WAIT_SECONDS = 0.05
_CONNECTING = threading.Lock()
"""DuckDB gives all openers of a file in one process the same instance, which only the first may configure."""


class Database:
    """An open file. `writer` belongs to the thread that writes; readers may be taken by any thread.

    Nothing that runs here reaches another file, the network, an extension or a variable of this program, and no statement
    can change that: the configuration is locked before the first one runs.
    """

    def __init__(self, path: Path, settings: DuckDbSettings) -> None:
        self.path = path
        self.broken = False
        """Set by whoever meets a fatal error; the instance is of no use until the file is opened anew."""
        self._changed = threading.Condition()
        self._readers: set[Any] = set()
        self._closed = False
        self._root = _connect(path, settings)
        self._file = OpenedFile(path)
        self.committing = threading.Lock()
        """Held while anything is committed: transactions that begin under it see the same."""
        self.writer = StagingConnection(self._root.cursor(), self.committing)
        self.catalog = str(self.writer.execute("SELECT current_database()").fetchall()[0][0])

    @contextmanager
    def reader(self) -> Iterator[Any]:
        """A connection of its own on the same instance; what it leaves open is rolled back."""
        with self._changed:
            if self._closed:
                raise EngineFault(FaultKind.TARGET_UNAVAILABLE, str(self.path), "the target is being closed")
            connection = self._root.cursor()
            self._readers.add(connection)
        try:
            yield connection
        finally:
            roll_back(connection)
            with self._changed:
                connection.close()
                self._readers.discard(connection)
                self._changed.notify_all()

    def check_file(self, *, log: bool = False) -> None:
        """Raise EngineFault(TARGET_FILE_GONE) where the file, or with `log` its write-ahead log too, is not at its path any more."""
        detail = self._file.missing() or (self._file.log_missing() if log else None)
        if detail is not None:
            raise EngineFault(FaultKind.TARGET_FILE_GONE, str(self.path), detail)

    def further_writer(self) -> StagingConnection:
        """A connection for a transaction beside the writer's; whoever takes it closes it before `close`."""
        return StagingConnection(self._root.cursor(), self.committing)

    def interrupt_readers(self) -> None:
        """Stop what runs on readers; each fails with an interrupt in its own thread."""
        with self._changed:
            for connection in self._readers:
                connection.interrupt()

    def close(self, *, checkpoint: bool) -> None:
        """Give the file up, once running reads have been interrupted; writers must be at rest.

        `checkpoint` folds the write-ahead log in first; where that fails, the log keeps the data. A log that is not at its path
        is folded in too, unless another one is there: a checkpoint would remove that. A reader that holds out keeps the file open
        until it ends.
        """
        with self._changed:
            self._closed = True
            for _ in range(_CLOSE_ATTEMPTS):
                for connection in self._readers:
                    connection.interrupt()
                if self._changed.wait_for(lambda: not self._readers, _CLOSE_WAIT_SECONDS):
                    break
        if checkpoint and not self._file.log_replaced:
            with suppress(
                duckdb.Error
            ):  # a reader is still there, or the disk is full: the next opening replays the log
                self.writer.execute("CHECKPOINT")
        self.writer.close()
        self._root.close()


def roll_back(connection: Any) -> None:
    """Leave whatever transaction is open; harmless where none is, or where the instance is broken."""
    with suppress(duckdb.Error):
        connection.execute("ROLLBACK")


@contextmanager
def transaction(connection: StagingConnection) -> Iterator[None]:
    """Commit at the end, roll back on any exception."""
    connection.execute("BEGIN TRANSACTION")
    try:
        yield
        connection.commit()
    except BaseException:
        roll_back(connection)
        raise


def _connect(path: Path, settings: DuckDbSettings) -> Any:
    if not path.parent.is_dir():
        raise EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), f"the folder {path.parent} does not exist")
    if path.is_dir():
        raise EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), "it is a folder; give the path of a file")
    with _CONNECTING:
        try:
            root = duckdb.connect(str(path), config=_configuration(settings))
        except (duckdb.Error, OSError) as error:
            raise _opening_fault(error, path) from error
        if root.execute("SELECT NOT current_setting('lock_configuration')").fetchall()[0][0]:
            _configure(root, settings, path)
        return root


def _configure(root: Any, settings: DuckDbSettings, path: Path) -> None:
    """What cannot be given at the start, and the lock on everything."""
    try:
        # As a start option DuckDB shows this limit but does not keep to it.
        root.execute("SET GLOBAL max_temp_directory_size = " + literal(settings.spill_limit))
        # An extension's option. Casts between timestamp types depend on it.
        root.execute("SET GLOBAL TimeZone = 'UTC'")
        # A session's own option from here on, for scans of queries; it lets a value keep its type on the way.
        root.execute("SET GLOBAL allowed_configs = ['arrow_lossless_conversion']")
        # Whether the end makes a checkpoint is for `Database.close` to decide.
        root.execute("PRAGMA disable_checkpoint_on_shutdown")
        root.execute("SET GLOBAL lock_configuration = true")
    except duckdb.Error as error:
        root.close()
        raise _opening_fault(error, path) from error


def _configuration(settings: DuckDbSettings) -> dict[str, str]:
    return {
        "enable_external_access": "false",
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "allow_community_extensions": "false",
        "python_enable_replacements": "false",
        "memory_limit": settings.memory_limit,
        "threads": str(settings.threads),
        "checkpoint_threshold": settings.checkpoint_threshold,
    }


def _opening_fault(error: BaseException, path: Path) -> EngineFault:
    if isinstance(error, duckdb.ConnectionException):
        return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), "already open here with other limits")
    if is_disk_full(error, path):
        return EngineFault(FaultKind.TARGET_DISK_FULL, str(path), "no space left where the target's file lies")
    if isinstance(error, duckdb.IOException | duckdb.SerializationException | PermissionError):
        return _file_fault(path)
    if isinstance(error, duckdb.InvalidInputException | duckdb.ParserException | duckdb.CatalogException):
        return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), f"its settings are refused: {error}")
    return fault_of(error, path)


def _file_fault(path: Path) -> EngineFault:
    if not path.exists():
        return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), f"no permission to create a file in {path.parent}")
    command = [sys.executable, "-I", str(Path(probe.__file__)), str(path)]
    code = subprocess.run(command, check=False, capture_output=True, timeout=_PROBE_SECONDS).returncode  # noqa: S603
    if code == probe.LOCKED:
        return EngineFault(FaultKind.TARGET_LOCKED, str(path), "another process has the file open")
    if code == probe.NOT_A_DATABASE:
        return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), "the file is not a DuckDB database")
    if code == probe.UNREADABLE:
        return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), "no permission to read and write the file")
    return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), "DuckDB cannot read the file; it may be damaged")
