"""Windows of the shadow log: the commits between two consistent snapshots, which are nested because a lock is held while one is closed.

Closing a window marks the changes that its snapshot shows and no earlier one did. Their numbers may be lower than those of earlier windows:
a long transaction draws its numbers before it commits. Two changes of one row have ascending numbers, because the second writer waited for
the first one's lock; so all changes of a window in the order of their numbers lead to the rows of its snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pymysql
import pymysql.cursors

from engine.model.fault import EngineFault, FaultKind
from engine.sources.mariadb.connect import (
    LONG_READ_TIMEOUT_S,
    Connector,
    MariaDbConnection,
    close_quietly,
    rows,
    run,
)
from engine.sources.mariadb_triggers.objects import SHADOW_LOG_GONE, is_installed

_MOST_WINDOWS = 200
"""Most windows that are read together: each wait for "now" closes one, and reading has fixed costs."""
_RUNS_AT_ONCE = 200
"""Runs of numbers that one statement marks. Not measured."""
_UNREAD = "SELECT 1 FROM penstock.changes FORCE INDEX (by_window) WHERE `window` IS NULL LIMIT 1"
_RUNS = """
SELECT MIN(no), MAX(no) FROM (
    SELECT no, no - ROW_NUMBER() OVER (ORDER BY no) AS run FROM penstock.changes FORCE INDEX (by_window) WHERE `window` IS NULL) AS unread
GROUP BY run
"""
"""The numbers of visible changes that are in no window yet, as first and last of each run without a gap."""
_SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
_INSERT = "INSERT INTO penstock.windows VALUES (%s, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED))"
_PART = """
SELECT MAX(`window`) FROM (
    SELECT `window` FROM penstock.changes FORCE INDEX (by_window) WHERE `window` >= %s AND `window` <= %s
    ORDER BY `window`, source, no LIMIT %s) AS part
"""
_REMOVE = "DELETE FROM penstock.changes WHERE `window` >= %s AND `window` <= %s ORDER BY `window`, source, no LIMIT %s"
_NEXT = f"SELECT no, at_us FROM penstock.windows WHERE no > %s ORDER BY no LIMIT {_MOST_WINDOWS}"


@dataclass(frozen=True, slots=True)
class Windows:
    """Closed windows that are read together, after number `after`: numbers, and when they were closed in microseconds since 1970."""

    after: int
    closed: tuple[tuple[int, int], ...]

    @property
    def last(self) -> int:
        return self.closed[-1][0]


def next_windows(connection: MariaDbConnection, after: int) -> Windows | None:
    """The windows after that number; None if there are none yet."""
    found = rows(connection, _NEXT, after)
    return Windows(after, tuple((int(no), int(at)) for no, at in found)) if found else None


def has_unread(connection: MariaDbConnection) -> bool:
    """Whether something was committed that is in no window."""
    return bool(rows(connection, _UNREAD))


def last_window(connection: MariaDbConnection) -> int:
    return int(rows(connection, "SELECT last_window FROM penstock.control")[0][0])


def close_window(connector: Connector) -> int:
    """Close a window, which includes every commit so far. Returns its number."""
    with snapshot_at_window(connector) as (_, number):
        return number


@contextmanager
def snapshot_at_window(connector: Connector, reader: str | None = None) -> Iterator[tuple[MariaDbConnection, int]]:
    """A session whose transaction reads the end of a new window, and the window's number. `reader`: a reader that begins there, created
    with the window.

    Raises EngineFault: SLOT_IN_USE if a reader of this name exists, LOG_GAP if there is no shadow log.
    """
    holder = connector.open(read_timeout_s=LONG_READ_TIMEOUT_S)
    try:
        yield holder, _close(connector, holder, reader)
    finally:
        close_quietly(holder)


def _close(connector: Connector, holder: MariaDbConnection, reader: str | None) -> int:
    """Close a window at whose end `holder` gets its snapshot; returns the window's number."""
    with connector.session(reader, SHADOW_LOG_GONE) as marking:
        if not is_installed(marking):
            raise EngineFault(FaultKind.LOG_GAP, connector.name, "the shadow log does not exist")
        marking.begin()
        number = int(rows(marking, "SELECT last_window FROM penstock.control FOR UPDATE")[0][0]) + 1
        run(holder, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        run(holder, _SNAPSHOT)
        _mark_changes(holder, marking, number)
        run(marking, _INSERT, number)
        run(marking, "UPDATE penstock.control SET last_window = %s", number)
        if reader is not None:
            _create(marking, reader, number)
        marking.commit()
        return number


def _mark_changes(holder: MariaDbConnection, marking: MariaDbConnection, number: int) -> None:
    """Mark each change that the snapshot shows and no window has. Other writers' changes are neither marked nor waited for."""
    with holder.cursor(pymysql.cursors.SSCursor) as cursor:
        cursor.execute(_RUNS)
        while runs := cursor.fetchmany(_RUNS_AT_ONCE):
            condition = " OR ".join(f"no BETWEEN {int(first)} AND {int(last)}" for first, last in runs)
            run(marking, f"UPDATE penstock.changes FORCE INDEX (PRIMARY) SET `window` = {number} WHERE {condition}")


def _create(connection: MariaDbConnection, reader: str, window: int) -> None:
    added = run(connection, "INSERT IGNORE INTO penstock.readers (name, durable) VALUES (%s, %s)", reader, window)
    if not added:
        raise EngineFault(FaultKind.SLOT_IN_USE, reader, "a reader of this name exists")


def prune(connection: MariaDbConnection, most_rows: int, begin: int) -> int:
    """Remove at most so many recorded changes that every reader has made durable, and windows before those; returns the first window of
    which some may be left.

    `begin`: what an earlier call returned. Removed rows stay in the index while any snapshot on the server is older, and would be passed
    each time.
    """
    durable = rows(connection, "SELECT MIN(durable) FROM penstock.readers")[0][0]
    if durable is None:
        return begin
    last = rows(connection, _PART, begin, durable, most_rows)[0][0]
    run(connection, _REMOVE, begin, durable, most_rows)
    run(connection, "DELETE FROM penstock.windows WHERE no < %s", durable)
    return begin if last is None else int(last)


def counts_of(connection: MariaDbConnection, windows: Windows) -> Sequence[tuple[int, int, int, int]]:
    """The sources that have changes in these windows: window, source, number of changes, the first of them; in order."""
    statement = (
        "SELECT `window`, source, COUNT(*), MIN(no) FROM penstock.changes WHERE `window` > %s AND `window` <= %s"
        " GROUP BY `window`, source ORDER BY `window`, source"
    )
    return [(int(w), int(s), int(c), int(n)) for w, s, c, n in rows(connection, statement, windows.after, windows.last)]
