"""The readers of the shadow log, as the engine controls them."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager, suppress

from engine.model.fault import EngineFault, FaultKind
from engine.model.positions.windows import end_of
from engine.model.source import ExportedSnapshot, GuardReading, ReaderStatus
from engine.platform.process_sessions import family, is_alive
from engine.sources.sqlite.connect import Connector, immediate
from engine.sources.sqlite_triggers.objects import drop_statements
from engine.sources.sqlite_triggers.registry import is_installed, removal, settle
from engine.sources.sqlite_triggers.snapshots import snapshot_at_window
from engine.sources.sqlite_triggers.windows import close_window, highest, last_window

_STATUS = """
SELECT r.durable, w.upto, r.session FROM penstock_readers r LEFT JOIN penstock_windows w ON w.no = r.durable WHERE r.name = ?
"""
_SAMPLE = 100
"""The latest changes from whose sizes the size of the log is estimated. Not measured."""
_ROW_BYTES = 24
"""Bytes that a change is estimated to take besides its values."""


class SqliteReaderControl:
    """`ReaderControl`: a row of penstock_readers, which also names the session that reads."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def create(self, reader: str) -> AbstractContextManager[ExportedSnapshot]:
        return snapshot_at_window(self._connector, self._connector.wait_s, reader)

    def status(self, reader: str) -> ReaderStatus:
        with self._connector.reading(reader) as connection:
            if not is_installed(connection):
                return ReaderStatus(exists=False)
            row = connection.execute(_STATUS, [reader]).fetchone()
            if row is None:
                return ReaderStatus(exists=False)
            durable, upto, session = row
            confirmed = end_of(int(durable))
            lost = None if upto is not None else f"window {durable} of the shadow log was removed"
            retained = 0 if upto is None else (highest(connection) - upto) * _row_bytes(connection)
        pid = int(session.split(" ")[0]) if session is not None and is_alive(session) else None
        return ReaderStatus(True, confirmed, confirmed, pid, retained_bytes=retained, lost=lost)

    def check_reader(self, reader: str) -> GuardReading:
        """See SourceSafety.check_reader."""
        return GuardReading(reader=self.status(reader), oldest_open=self._writer())

    def _writer(self) -> str | None:
        """Whether a program has a write transaction open. SQLite does not show which one."""
        with self._connector.session() as connection:
            try:
                with immediate(connection, 0.0):
                    return None
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                    return "a program that has the file's write lock"
                raise

    def release(self, reader: str) -> list[str]:
        return self._remove(reader, whole=False)

    def remove(self, reader: str) -> list[str]:
        """The reader goes, with the triggers of tables that no other reader follows; with the last reader, everything of Penstock's."""
        return self._remove(reader, whole=True)

    def _remove(self, reader: str, *, whole: bool) -> list[str]:
        """`whole`: without a reader, the shadow log goes too, and the file's identity with it."""
        with self._connector.session(reader) as connection:
            if not is_installed(connection):
                return []
            with immediate(connection, self._connector.wait_s):
                with suppress(EngineFault):  # A log that cannot be read any more is removed all the same.
                    if last_window(connection)[1]:
                        close_window(connection)
                relations = [
                    r
                    for (r,) in connection.execute("SELECT relation FROM penstock_followed WHERE reader = ?", [reader])
                ]
                connection.execute("DELETE FROM penstock_followed WHERE reader = ?", [reader])
                connection.execute("DELETE FROM penstock_readers WHERE name = ?", [reader])
                others = {r for (r,) in connection.execute("SELECT DISTINCT relation FROM penstock_followed")}
                for statement in drop_statements([r for r in relations if r not in others]):
                    connection.execute(statement)
                left = connection.execute(
                    "SELECT EXISTS (SELECT 1 FROM penstock_readers) OR EXISTS (SELECT 1 FROM penstock_followed)"
                ).fetchone()[0]
                if not left and whole:
                    for statement in removal(connection):
                        connection.execute(statement)
                    return []
                if not left:
                    connection.execute("DELETE FROM penstock_changes WHERE no < (SELECT max(no) FROM penstock_changes)")
                settle(connection)
        return []

    def end_other(self, reader: str, application: str) -> bool:
        with self._connector.session(reader) as connection:
            if not is_installed(connection):
                return False
            with immediate(connection, self._connector.wait_s):
                row = connection.execute(
                    "SELECT session, application FROM penstock_readers WHERE name = ?", [reader]
                ).fetchone()
                if row is None or row[0] is None or not is_alive(row[0]):
                    return False
                if family(row[1]) != family(application):
                    pid = row[0].split(" ")[0]
                    raise EngineFault(FaultKind.SLOT_IN_USE, reader, f"process {pid} reads it, which is not ours")
                connection.execute("UPDATE penstock_readers SET session = NULL WHERE name = ?", [reader])
        return True


def _row_bytes(connection: sqlite3.Connection) -> int:
    names = [row[1] for row in connection.execute("PRAGMA table_info(penstock_changes)").fetchall()[3:]]
    size = " + ".join(["0", *(f"coalesce(length({name}), 0)" for name in names)])
    row = connection.execute(
        f"SELECT avg({size}) FROM (SELECT * FROM penstock_changes ORDER BY no DESC LIMIT {_SAMPLE})"
    ).fetchone()
    return int(row[0] or 0) + _ROW_BYTES
