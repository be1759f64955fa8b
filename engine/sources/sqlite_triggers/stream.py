"""The shadow log as a stream of records: one window after another."""

from __future__ import annotations

import select
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.positions.windows import end_of
from engine.model.source import RecordChunk
from engine.platform.process_sessions import close_session, is_alive, open_session
from engine.records.landing import TableRows, Transaction, Transactions, chunk_of, rows_of
from engine.records.table_structure import record_of, unreadable_record
from engine.records.window_stream import MOST_BYTES, MOST_ROWS, PRUNED_AT_ONCE, WindowStream, begin_at
from engine.sources.sqlite.catalog import Structure
from engine.sources.sqlite.connect import Connector, fault, immediate
from engine.sources.sqlite.types import printed
from engine.sources.sqlite_triggers.objects import UNREADABLE
from engine.sources.sqlite_triggers.recorded import structure_of
from engine.sources.sqlite_triggers.terms import SQLITE_TRIGGERS_TERMS
from engine.sources.sqlite_triggers.windows import (
    Window,
    Windows,
    close_window,
    last_window,
    prune,
    require,
    token_of,
    windows_after,
)

_CLOSING_S = 1.0
"""Seconds that closing a window waits for other writers before the engine's commands are processed. Not measured."""
_CONFIRMING_S = 0.05
"""The same for a record of what is durable, which can wait. Not measured."""
_LOOK_S = 0.01
"""Interval in seconds between two looks whether anything was committed; each costs some microseconds. Not measured."""
_SESSION = "SELECT session FROM penstock_readers WHERE name = ?"
_BORDER = """
SELECT max(no) FROM (SELECT no, sum(bytes) OVER (ORDER BY no) - bytes AS before FROM (
    SELECT no, {bytes} AS bytes FROM penstock_changes WHERE no > ? AND no <= ? ORDER BY no LIMIT ?)) WHERE before < ?
"""
_SIZES = """
SELECT w.no, coalesce(sum({bytes}), 0) FROM penstock_windows w JOIN penstock_changes ON penstock_changes.no > w.before
AND penstock_changes.no <= w.upto WHERE w.no > ? AND w.no <= ? GROUP BY w.no
"""
_LINES = """
SELECT CAST(group_concat(line, '') AS BLOB) FROM (
    SELECT c.no || char(9) || w.no || char(9) || c.op || char(9) || {fields} || char(10) AS line
    FROM {changes} AND c.op IN ('I', 'U', 'D'))
"""
_CHANGES = """penstock_windows w CROSS JOIN penstock_changes c ON c.no > max(w.before, :after) AND c.no <= min(w.upto, :upto)
    WHERE w.no >= :first AND w.no <= :last AND c.structure = :structure"""
"""The changes of a page, with their windows. With a condition for each bound, SQLite searches by one of them, and each part of a window
would read the whole window."""


@dataclass(frozen=True, slots=True)
class _Page:
    """Changes that are read at once: those of some windows, or a part of one, by change number."""

    windows: tuple[Window, ...]
    after: int
    upto: int
    begins: bool = True
    ends: bool = True

    def given(self, structure: int) -> dict[str, int]:
        """For `_CHANGES`."""
        first, last = self.windows[0].no, self.windows[-1].no
        return {"first": first, "last": last, "after": self.after, "upto": self.upto, "structure": structure}


class SqliteWindows:
    """`WindowLog` of a file. Between two calls it holds no lock, and reads no state of the file."""

    def __init__(
        self, connector: Connector, connection: sqlite3.Connection, reader: str, session: str, token: str
    ) -> None:
        """`token`: of the last window that counts as read."""
        self._connector = connector
        self._connection = connection
        self._reader = reader
        self._session = session
        self._token = token
        self._file = connector.file()
        self._structures: dict[int, tuple[int, Structure]] = {}
        self._announced: dict[int, bytes] = {}
        self._version = -1

    @contextmanager
    def faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise fault(error, self._reader, FaultKind.LOG_GAP) from error

    def next_windows(self, after: int) -> Windows | None:
        self._check()
        return windows_after(self._connection, after, self._token)

    def _check(self) -> None:
        if self._connector.file() != self._file:
            raise EngineFault(FaultKind.SOURCE_UNREACHABLE, self._reader, "the file was replaced by another one")
        row = self._connection.execute(_SESSION, [self._reader]).fetchone()
        if row is None:
            raise EngineFault(FaultKind.LOG_GAP, self._reader, "the reader does not exist any more")
        if row[0] != self._session:
            raise EngineFault(FaultKind.SOURCE_UNREACHABLE, self._reader, "the session was ended")

    def close_if_unread(self) -> bool:
        if not last_window(self._connection)[1]:
            return False
        return self._written(_CLOSING_S, lambda: close_window(self._connection))

    def _written(self, seconds: float, write: Callable[[], object]) -> bool:
        """Write in a transaction; False if other writers do not let it begin."""
        try:
            with immediate(self._connection, seconds):
                write()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return False
            raise
        return True

    def wait(self, seconds: float, wake: int | None) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            if wake is not None and select.select([wake], [], [], max(0.0, min(left, _LOOK_S)))[0]:
                return False
            if wake is None and left > 0:
                time.sleep(min(left, _LOOK_S))
            version = self._connection.execute("PRAGMA data_version").fetchone()[0]
            if version != self._version or time.monotonic() >= deadline:
                self._version = version
                return True

    def confirm(self, window: int) -> bool:
        def write() -> None:
            self._connection.execute(
                "UPDATE penstock_readers SET durable = ? WHERE name = ? AND session = ? AND durable < ?",
                [window, self._reader, self._session, window],
            )
            prune(self._connection, PRUNED_AT_ONCE)

        return self._written(_CONFIRMING_S, write)

    def close(self) -> None:
        close_session(self._session)
        with suppress(sqlite3.Error, EngineFault):
            if self._connector.file() == self._file:
                self._written(_CONFIRMING_S, lambda: self._connection.execute(_END, [self._reader, self._session]))
        self._connection.close()

    def chunks(self, windows: Windows) -> Iterator[RecordChunk]:
        followed = {
            row[0]
            for row in self._connection.execute(
                "SELECT relation FROM penstock_followed WHERE reader = ?", [self._reader]
            )
        }
        reached = end_of(windows.found[0].no - 1)
        for page in self._pages(windows):
            chunk = self._read_page(page, followed, reached)
            reached = chunk.wal_end
            yield chunk
        self._token = windows.found[-1].token

    def _pages(self, windows: Windows) -> Iterator[_Page]:
        sizes = dict(
            self._connection.execute(
                _SIZES.format(bytes=self._bytes()), [windows.found[0].no - 1, windows.found[-1].no]
            ).fetchall()
        )
        held: list[Window] = []
        rows = size = 0
        for window in windows.found:
            more, its = window.upto - window.before, int(sizes.get(window.no, 0))
            if not more:
                continue
            if held and (rows + more > MOST_ROWS or size + its > MOST_BYTES):
                yield _Page(tuple(held), held[0].before, held[-1].upto)
                held, rows, size = [], 0, 0
            if more > MOST_ROWS or its > 2 * MOST_BYTES:
                yield from self._parts_of(window)
                continue
            held.append(window)
            rows, size = rows + more, size + its
        if held:
            yield _Page(tuple(held), held[0].before, held[-1].upto)

    def _parts_of(self, window: Window) -> Iterator[_Page]:
        after = window.before
        while after < window.upto:
            found = self._connection.execute(
                _BORDER.format(bytes=self._bytes()), [after, window.upto, MOST_ROWS, MOST_BYTES]
            ).fetchone()[0]
            upto = window.upto if found is None else int(found)
            yield _Page((window,), after, upto, begins=after == window.before, ends=upto == window.upto)
            after = upto

    def _bytes(self) -> str:
        """SQL of the bytes of a change."""
        names = [row[1] for row in self._connection.execute("PRAGMA table_info(penstock_changes)").fetchall()[3:]]
        return " + ".join(["0", *(f"coalesce(length({name}), 0)" for name in names)])

    def _read_page(self, page: _Page, followed: set[int], reached: Lsn) -> RecordChunk:
        numbers = self._connection.execute(
            "SELECT DISTINCT structure FROM penstock_changes WHERE no > ? AND no <= ? ORDER BY structure",
            [page.after, page.upto],
        ).fetchall()
        tables: list[TableRows] = []
        for (number,) in numbers:
            relation, structure = self._structure(number)
            if relation in followed:
                tables += self._read(page, number, relation, structure)
        transactions = Transactions.of([Transaction(w.no, end_of(w.no), w.at) for w in page.windows])
        end = end_of(page.windows[-1].no) if page.ends else reached
        return chunk_of(transactions, tables, end, begins=page.begins, ends=page.ends)

    def _structure(self, number: int) -> tuple[int, Structure]:
        if number not in self._structures:
            relation, told = self._connection.execute(
                "SELECT relation, told FROM penstock_structures WHERE structure = ?", [number]
            ).fetchone()
            self._structures[number] = relation, structure_of(told)
        return self._structures[number]

    def _read(self, page: _Page, number: int, relation: int, structure: Structure) -> Iterator[TableRows]:
        fields = " || char(9) || ".join(
            printed(f"c.{side}{n}", column.kind, key=column.name in structure.key)
            if side == "c" or column.name in structure.key
            else r"'\N'"
            for side in "oc"
            for n, column in enumerate(structure.columns, 1)
        )
        text = self._connection.execute(_LINES.format(fields=fields, changes=_CHANGES), page.given(number)).fetchone()[
            0
        ]
        if text:
            record = record_of(relation, structure)
            announcement = record if self._announced.get(relation) != record else None
            self._announced[relation] = record
            yield rows_of(
                text,
                RelationId(relation),
                len(structure.columns),
                structure.key_places,
                whole=False,
                announcement=announcement,
            )
        yield from self._unread(page, number, relation, structure)

    def _unread(self, page: _Page, number: int, relation: int, structure: Structure) -> Iterator[TableRows]:
        """In place of rows that cannot be read: a record that no structure matches, so that the table is copied again."""
        found: Sequence[tuple[int, int]] = self._connection.execute(
            f"SELECT c.no, w.no FROM {_CHANGES} AND c.op = '{UNREADABLE}' LIMIT 1", page.given(number)
        ).fetchall()
        for at in found:
            self._announced[relation] = record = unreadable_record(relation, structure)
            none = np.empty(0, np.int64)
            yield TableRows(none, none, np.empty(0, np.uint8), np.zeros(1, np.int64), record, at)


_END = "UPDATE penstock_readers SET session = NULL WHERE name = ? AND session = ?"


def open_stream(
    connector: Connector, reader: str, start: Lsn, application: str, last: LastCommit | None, wake: int | None
) -> WindowStream[Windows]:
    """See LogSource.open_stream.

    Raises EngineFault: LOG_GAP if the reader does not exist or its windows were removed, SLOT_IN_USE if another session reads for it.
    """
    connection = connector.open()
    try:
        # SQLite would build an index of all changes, for each page, to find those of one structure in it.
        connection.execute("PRAGMA automatic_index = OFF")
        require(connection, reader)
        with immediate(connection, connector.wait_s):
            row = connection.execute(
                "SELECT durable, session FROM penstock_readers WHERE name = ?", [reader]
            ).fetchone()
            if row is None:
                raise EngineFault(FaultKind.LOG_GAP, reader, "the reader does not exist any more")
            if row[1] is not None and is_alive(row[1]):
                raise EngineFault(FaultKind.SLOT_IN_USE, reader, "another session reads for it")
            begin = begin_at(reader, int(row[0]), start, last, SQLITE_TRIGGERS_TERMS)
            token = token_of(connection, begin.after)
            if token is None:
                raise EngineFault(FaultKind.LOG_GAP, reader, f"window {begin.after} of the shadow log is gone")
            session = open_session()
            connection.execute(
                "UPDATE penstock_readers SET session = ?, application = ? WHERE name = ?",
                [session, application, reader],
            )
        return WindowStream(SqliteWindows(connector, connection, reader, session, token), begin, wake)
    except sqlite3.Error as error:
        connection.close()
        raise fault(error, reader, FaultKind.LOG_GAP) from error
    except BaseException:
        connection.close()
        raise
