"""Windows of the shadow log: the commits between two snapshots, which are nested because a lock is held while one is closed.

A window's end is a snapshot of the source, so copies and cuts have exact positions. Inside a window, transactions go in the order of their
greatest change number: a transaction that depends on another one wrote, after that had committed, a number greater than all of its.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import psycopg

from engine.model.fault import EngineFault, FaultKind
from engine.model.positions.windows import end_of
from engine.model.source import ExportedSnapshot
from engine.platform.compiled import Array
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres_triggers.objects import SHADOW_LOG_GONE, WINDOW_LOCK, is_installed

_MOST_WINDOWS = 200
"""Most windows that are read together: each wait for "now" closes one, and reading has fixed costs."""
_NEXT = f"""
SELECT no, snapshot::text
FROM (SELECT no, snapshot FROM penstock.windows WHERE no > %s ORDER BY no LIMIT {_MOST_WINDOWS}) AS next ORDER BY no DESC LIMIT 1
"""
_UNREAD = """
(SELECT xid FROM penstock.changes WHERE xid >= pg_snapshot_xmax(%(after)s::pg_snapshot) ORDER BY xid LIMIT 1) IS NOT NULL
OR EXISTS (SELECT FROM penstock.changes WHERE xid = ANY(ARRAY(SELECT pg_snapshot_xip(%(after)s::pg_snapshot))))
"""
"""Sorted, because the index is used then. Without it, a planner without statistics expects a row soon, and reads the whole table."""
_CLOSE_IF_UNREAD = f"SELECT CASE WHEN {_UNREAD} THEN penstock.close_window() END"
_INSERT = """
INSERT INTO penstock.windows SELECT max(no) + 1, %s::text::pg_snapshot, clock_timestamp() FROM penstock.windows RETURNING no
"""
_PRUNE = """
WITH gone AS (
    DELETE FROM penstock.changes WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM penstock.changes WHERE (xid, no) > (%s::text::xid8, %s) AND xid < %s::text::xid8 ORDER BY xid, no LIMIT %s
        FOR UPDATE SKIP LOCKED))
    RETURNING xid, no)
SELECT gone.xid::text, gone.no FROM gone ORDER BY gone.xid DESC, gone.no DESC LIMIT 1
"""
_BY_INDEX = "SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)"
"""For the transaction. A planner without statistics would read and sort every change that may be removed, for each part."""
_LAST = "SELECT no, snapshot::text FROM penstock.windows ORDER BY no DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class Windows:
    """Closed windows that are read together, from the one after number `after` to number `last`. `before` and `snapshot`: the snapshots at
    the ends of these two, as text."""

    after: int
    last: int
    before: str
    snapshot: str


def close_window(connector: Connector) -> int:
    """Close a window, which includes every commit so far. Returns its number."""
    with connector.session() as connection:
        _check_installed(connector, connection)
        with shadow_log_faults():
            return int(connection.execute("SELECT penstock.close_window()").fetchall()[0][0])


@contextmanager
def shadow_log_faults() -> Iterator[None]:
    """Errors in the block, which uses the shadow log only, are raised as EngineFault: LOG_GAP if others have dropped it."""
    try:
        yield
    except psycopg.Error as error:
        raise SOURCE.fault(error, "the shadow log", SHADOW_LOG_GONE) from error


def _check_installed(connector: Connector, connection: PostgresConnection) -> None:
    if not is_installed(connection):
        raise EngineFault(FaultKind.LOG_GAP, connector.name, "the shadow log does not exist")


def next_windows(connection: PostgresConnection, after: int, before: str) -> Windows | None:
    """The windows after that number, whose snapshot is `before`; None if there are none yet."""
    row = connection.execute(_NEXT, [after]).fetchone()
    return None if row is None else Windows(after, int(row[0]), before, str(row[1]))


def close_if_unread(connection: PostgresConnection, before: str) -> bool:
    """Close a window if something was committed that this snapshot does not include."""
    row = connection.execute(_CLOSE_IF_UNREAD, {"after": before}).fetchone()
    return row is not None and row[0] is not None


def last_window(connection: PostgresConnection) -> tuple[int, bool]:
    """The number of the last window, and whether something was committed since."""
    number, snapshot = connection.execute(_LAST).fetchall()[0]
    row = connection.execute(f"SELECT {_UNREAD}", {"after": snapshot}).fetchall()[0]
    return int(number), bool(row[0])


@contextmanager
def snapshot_at_window(connector: Connector, reader: str | None = None) -> Iterator[ExportedSnapshot]:
    """An exported snapshot that is the end of a new window. `reader`: a reader that begins there, created with the window.

    Raises EngineFault: SLOT_IN_USE if a reader of this name exists.
    """
    with connector.open() as holder:
        with connector.session(reader) as connection:
            _check_installed(connector, connection)
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [WINDOW_LOCK])
                holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                name, snapshot = holder.execute("SELECT pg_export_snapshot(), pg_current_snapshot()::text").fetchall()[
                    0
                ]
                number = connection.execute(_INSERT, [snapshot]).fetchall()[0][0]
                if reader is not None:
                    _create(connection, reader, int(number))
        yield ExportedSnapshot(str(name), end_of(int(number)))


def _create(connection: PostgresConnection, reader: str, window: int) -> None:
    added = connection.execute(
        "INSERT INTO penstock.readers VALUES (%s, %s, clock_timestamp()) ON CONFLICT DO NOTHING RETURNING name",
        [reader, window],
    ).fetchone()
    if added is None:
        raise EngineFault(FaultKind.SLOT_IN_USE, reader, "a reader of this name exists")


@dataclass(frozen=True, slots=True)
class Pruned:
    """The last change that was removed, by transaction and number; those before it need not be looked for again."""

    xid: str = "0"
    no: int = 0


def prune(connection: PostgresConnection, most_rows: int, after: Pruned) -> Pruned:
    """Remove at most so many recorded changes that every reader has made durable, and windows before those.

    `after`: what was removed already. Removed rows stay in the index while any transaction on the server is older than their removal, and
    would be passed each time. What another session was just removing is left to that one.
    """
    row = connection.execute(
        "SELECT w.no, pg_snapshot_xmin(w.snapshot)::text FROM penstock.windows w WHERE w.no = (SELECT min(durable) FROM penstock.readers)"
    ).fetchone()
    if row is None:
        return after
    number, oldest = row
    with connection.transaction():
        connection.execute(_BY_INDEX)
        last = connection.execute(_PRUNE, [after.xid, after.no, oldest, most_rows]).fetchone()
    connection.execute("DELETE FROM penstock.windows WHERE no < %s", [number])
    return after if last is None else Pruned(str(last[0]), int(last[1]))


def numbered(windows: Array, before: int, number: int) -> Array:
    """The number of each transaction in its window, from 1. `windows`: of all, ascending; `number`: of the last one before, in `before`."""
    places = np.arange(len(windows))
    begins = np.full(len(windows), -number)
    new = np.flatnonzero(np.diff(windows, prepend=before))
    begins[new] = new
    return places - np.maximum.accumulate(begins) + 1
