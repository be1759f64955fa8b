"""One DuckDB instance on one file: opens it without access to the outside, manages its connections, closes it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from engine.duckdb.value_text import literal
from engine.model.fault import EngineFault, FaultKind
from engine.targets.duckdb import probe
from engine.targets.duckdb.errors import fault_of, is_disk_full
from engine.targets.duckdb.key_index import KeyIndex
from engine.targets.duckdb.opened_file import OpenedFile
from engine.targets.duckdb.scan_pace import ScanPace
from engine.targets.duckdb.settings import DuckDbSettings
from engine.targets.duckdb.staging import StagingConnection

_PROBE_SECONDS = 10.0
"""Seconds for the probe, a Python process without imports of ours, which takes tenths of a second; a disk may be slow. Not measured."""
_CLOSE_ATTEMPTS = 100
"""Interrupts before a file is closed with a reader still in it: 5 s with _CLOSE_WAIT_SECONDS. Not measured."""
_CLOSE_WAIT_SECONDS = 0.05
"""Pause between two interrupts in seconds: one that comes just before a statement has no effect on it, so it is repeated."""
_LISTED_KEYS = 1000
"""Most keys of a batch that DuckDB compares with the least and greatest key of each row group, so that it reads those groups only; for more
it reads the key column of the whole table. Its default is 50. Measured with scattered int8 keys in 100 million rows: the delete of 60 rows
takes 38 ms of CPU and not 277, of 500 rows 191 and not 304, of 2,000 rows 438 and not 373, since there is a key in each group then."""
_CONNECTING = threading.Lock()
"""All openers of a file in one process get the same instance, which only the first can configure."""


class Database:
    """An open file. `writer` belongs to the thread that writes; readers may be created by any thread.

    The configuration is locked before the first statement, so that no statement can access other files, the network, extensions or
    environment variables.
    """

    def __init__(self, path: Path, settings: DuckDbSettings) -> None:
        self.path = path
        self.broken = False
        """A fatal error occurred: the instance is unusable until the file is opened again."""
        self._changed = threading.Condition()
        self._readers: set[Any] = set()
        self._closed = False
        self._root = _connect(path, settings)
        self._file = OpenedFile(path)
        self.committing = threading.Lock()
        """Held during commits: transactions that begin while it is held see the same state."""
        self.writer = StagingConnection(self._root.cursor(), self.committing)
        self.index = KeyIndex(self.writer, path.parent)
        self.pace = ScanPace()
        self.catalog = str(self.writer.execute("SELECT current_database()").fetchall()[0][0])

    @property
    def is_read(self) -> bool:
        """Whether there are readers, whose transactions may stay open for long."""
        with self._changed:
            return bool(self._readers)

    @contextmanager
    def reader(self) -> Iterator[Any]:
        """A separate connection on the same instance; a transaction left open is rolled back."""
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
        """Raise EngineFault(TARGET_FILE_GONE) if the file, or with `log` also its write-ahead log, is not at its path any more."""
        detail = self._file.missing() or (self._file.log_missing() if log else None)
        if detail is not None:
            raise EngineFault(FaultKind.TARGET_FILE_GONE, str(self.path), detail)

    def further_writer(self) -> StagingConnection:
        """A connection for a transaction concurrent with the writer's; the caller closes it before `close`."""
        return StagingConnection(self._root.cursor(), self.committing)

    def interrupt_readers(self) -> None:
        """Interrupt statements on readers; each fails in its own thread."""
        with self._changed:
            for connection in self._readers:
                connection.interrupt()

    def close(self, *, checkpoint: bool) -> None:
        """Close the file after interrupting reads; writers must be idle.

        `checkpoint`: write the write-ahead log into the file first; if that fails, the log keeps the data. This also applies to a log
        that is not at its path any more, unless another one is there, which a checkpoint would remove. A reader that cannot be
        interrupted keeps the file open until it ends.
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
            ):  # a reader is still open, or the disk is full: the next opening replays the log
                self.writer.execute("CHECKPOINT")
        self.index.give_up()
        self.writer.close()
        self._root.close()


def roll_back(connection: Any) -> None:
    """Roll back the open transaction. No effect if there is none, or if the instance is broken."""
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
    """Set the options that cannot be given when the file is opened, and lock the configuration."""
    try:
        # DuckDB ignores this limit if it is given when the file is opened.
        root.execute("SET GLOBAL max_temp_directory_size = " + literal(settings.spill_limit))
        # An option of an extension; casts between timestamp types depend on it.
        root.execute("SET GLOBAL TimeZone = 'UTC'")
        root.execute(f"SET GLOBAL dynamic_or_filter_threshold = {_LISTED_KEYS}")
        # From here on an option of each session: scans of queries keep the types of values.
        root.execute("SET GLOBAL allowed_configs = ['arrow_lossless_conversion']")
        # `Database.close` decides whether to make a checkpoint at the end.
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
        return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), "already open in this process with other limits")
    if is_disk_full(error, path):
        return EngineFault(FaultKind.TARGET_DISK_FULL, str(path), "no space left on the disk of the target's file")
    if isinstance(error, duckdb.IOException | duckdb.SerializationException | PermissionError):
        return _file_fault(path)
    if isinstance(error, duckdb.InvalidInputException | duckdb.ParserException | duckdb.CatalogException):
        return EngineFault(FaultKind.TARGET_UNAVAILABLE, str(path), f"its settings are invalid: {error}")
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
