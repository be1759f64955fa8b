"""Windows of the shadow log: all changes up to a change number. Writers of SQLite write one after another, so a window is the state of the
file at the moment when it is closed, under the write lock."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass

from engine.model.fault import EngineFault, FaultKind
from engine.sources.sqlite_triggers import mending
from engine.sources.sqlite_triggers.registry import cookie, is_installed, review

_MOST_WINDOWS = 200
"""Most windows that are read together: reading has fixed costs."""
_LAST = "SELECT no, upto FROM penstock_windows ORDER BY no DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class Window:
    """A closed window: changes after `before` up to `upto`. `at`: when it was closed, microseconds since 1970; `token`: random."""

    no: int
    before: int
    upto: int
    at: int
    token: str


@dataclass(frozen=True, slots=True)
class Windows:
    """Closed windows that are read together."""

    found: tuple[Window, ...]

    @property
    def last(self) -> int:
        return self.found[-1].no


def close_window(connection: sqlite3.Connection) -> int:
    """Close a window, which includes every commit so far. In a write transaction; returns its number.

    Raises EngineFault(LOG_GAP) if recorded changes were removed by others.
    """
    number, upto = connection.execute(_LAST).fetchone()
    if highest(connection) < upto:
        raise EngineFault(FaultKind.LOG_GAP, "penstock_changes", "recorded changes were removed by others")
    review(connection, upto)
    mending.settle_doubts(connection, upto)
    connection.execute(
        "INSERT INTO penstock_windows VALUES (?, ?, ?, ?, lower(hex(randomblob(8))))",
        [number + 1, upto, highest(connection), clock_us()],
    )
    return int(number) + 1


def clock_us() -> int:
    return time.time_ns() // 1000


def highest(connection: sqlite3.Connection) -> int:
    """The last change number; 0 without changes. It never falls: the last change is never removed."""
    return int(connection.execute("SELECT coalesce(max(no), 0) FROM penstock_changes").fetchone()[0])


def last_window(connection: sqlite3.Connection) -> tuple[int, bool]:
    """The number of the last window, and whether something was committed since."""
    number, upto = connection.execute(_LAST).fetchone()
    seen = connection.execute("SELECT cookie FROM penstock_state").fetchone()[0]
    return int(number), highest(connection) != upto or cookie(connection) != seen


def windows_after(connection: sqlite3.Connection, after: int, token: str) -> Windows | None:
    """The windows after that number, whose token is `token`; None if there are none yet.

    Raises EngineFault(LOG_GAP) if it is not the same window any more: the file was overwritten with another one.
    """
    rows = connection.execute(
        "SELECT no, before, upto, at, token FROM penstock_windows WHERE no >= ? ORDER BY no LIMIT ?",
        [after, _MOST_WINDOWS + 1],
    ).fetchall()
    if not rows or rows[0][0] != after or rows[0][4] != token:
        raise EngineFault(
            FaultKind.LOG_GAP, "penstock_windows", f"window {after} is gone, or another one: the file was replaced"
        )
    return Windows(tuple(Window(*row) for row in rows[1:])) if len(rows) > 1 else None


def token_of(connection: sqlite3.Connection, number: int) -> str | None:
    row = connection.execute("SELECT token FROM penstock_windows WHERE no = ?", [number]).fetchone()
    return None if row is None else str(row[0])


def prune(connection: sqlite3.Connection, most_rows: int) -> None:
    """Remove at most so many changes that every reader has made durable, and windows before those. The last change stays."""
    row = connection.execute(
        "SELECT w.no, w.upto FROM penstock_windows w WHERE w.no = (SELECT min(durable) FROM penstock_readers)"
    ).fetchone()
    if row is None:
        return
    number, upto = row
    connection.execute(
        "DELETE FROM penstock_changes WHERE no IN (SELECT no FROM penstock_changes WHERE no <= ? AND no < (SELECT max(no) FROM"
        " penstock_changes) ORDER BY no LIMIT ?)",
        [upto, most_rows],
    )
    connection.execute("DELETE FROM penstock_windows WHERE no < ?", [number])


def require(connection: sqlite3.Connection, subject: str) -> None:
    if not is_installed(connection):
        raise EngineFault(FaultKind.LOG_GAP, subject, "the shadow log does not exist")
