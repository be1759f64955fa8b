"""The shadow log as a stream of records: one window after another, its transactions in their order."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import psycopg
from psycopg import sql

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.positions.windows import end_of, place_in, whole_window
from engine.model.source import RecordChunk
from engine.postgres.sessions import PostgresConnection
from engine.records.history import HistoryCheck, SessionCommits
from engine.records.landing import TableRows, Transaction, chunk_of, rows_of
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.copy_out import COPY_KINDS, copy_out
from engine.sources.postgres_triggers.objects import SHADOW_LOG_GONE, WINDOW_CHANNEL
from engine.sources.postgres_triggers.structures import Structure, Structures, unreadable
from engine.sources.postgres_triggers.terms import POSTGRES_TRIGGERS_TERMS
from engine.sources.postgres_triggers.windows import Windows, close_if_unread, next_windows, prune

WINDOW_S = 0.2
"""Seconds between two looks for new changes; each look that finds some closes a window. A wait for "now" closes one at once."""
_MOST_ROWS = 20_000
"""Most changes that are read at once; a single larger transaction is read in parts. Not measured."""
_MOST_BYTES = 4 * 1024 * 1024
"""Their bytes as stored, compressed. Not measured."""
_TRANSACTIONS_AT_ONCE = 10_000
"""Transactions that the cursor over the windows brings at once; some hundred bytes each. Not measured."""
_CONFIRM_S = 0.2
"""Least seconds between two records of what is durable; each is a commit on the source. Not measured."""
_PRUNED_AT_ONCE = 10_000
"""Most changes removed with each such record, so that one takes some milliseconds. Not measured."""
_STATEMENT_TIMEOUT_MS = 21_600_000
"""Limit of a statement (6 hours): the first windows after a long pause may hold very many changes. Not measured."""
_NAME_BREAK = "\x01"
READER_LOCK = "hashtextextended('penstock reader ' || %s::text, 0)"
"""Key of the advisory lock that the session of a reader's stream holds."""

_INSIDE = """
(c.xid >= pg_snapshot_xmax({before}) OR c.xid = ANY(ARRAY(SELECT pg_snapshot_xip({before}))))
AND c.xid < pg_snapshot_xmax({this}) AND pg_visible_in_snapshot(c.xid, {this})
"""
_TRANSACTIONS = (
    """
SELECT t.*, row_number() OVER (PARTITION BY w.no ORDER BY t.greatest), w.no
FROM (SELECT c.xid::text::bigint AS number, count(*),
             coalesce(sum(coalesce(pg_column_size(c.old), 0) + coalesce(pg_column_size(c.new), 0)), 0)::bigint,
             (extract(epoch FROM max(c.at)) * 1000000)::bigint, array_agg(DISTINCT c.relation::bigint), max(c.no) AS greatest, c.xid
      FROM penstock.changes c WHERE """
    + _INSIDE
    + """ GROUP BY c.xid) AS t
CROSS JOIN LATERAL (SELECT min(w.no) AS no FROM penstock.windows w
                    WHERE w.no > {after} AND w.no <= {last} AND pg_visible_in_snapshot(t.xid, w.snapshot)) AS w
ORDER BY w.no, t.greatest
"""
)
"""Each transaction with the window in which it became visible, and its number there."""
_FOLLOWED = "SELECT relation::bigint FROM penstock.followed WHERE reader = %s"
_BORDER = "SELECT max(no) FROM (SELECT no FROM penstock.changes WHERE xid = %s::text::xid8 AND no > %s ORDER BY no LIMIT %s) AS part"
_NAMES = "array_to_string(ARRAY(SELECT json_object_keys(coalesce(c.new, c.old))), chr(1))"
_LACKS_TEXT = "c.op <> 'T' AND c.new_row IS NULL AND c.old_row IS NULL"
_UNCONVERTIBLE = {**COPY_KINDS, "22": FaultKind.TABLE_STRUCTURE_CHANGED, "23": FaultKind.TABLE_STRUCTURE_CHANGED}
"""A recorded value is none of the column's type or domain any more: its labels or its checks were changed."""
_KINDS_OF_ROWS = (
    "SELECT CASE WHEN c.op = 'T' THEN NULL ELSE "
    + _NAMES
    + " END, bool_and(coalesce(c.new_row, c.old_row) IS NOT NULL) FROM penstock.changes c WHERE {rows} GROUP BY 1 ORDER BY min(c.no)"
)
_ROWS = """
SELECT c.no, c.xid, c.op{columns} FROM penstock.changes c CROSS JOIN LATERAL (
    SELECT CASE WHEN c.old_row IS NULL THEN json_populate_record(NULL::{table}, c.old) ELSE c.old_row::{table} END AS o,
           CASE WHEN c.new_row IS NULL THEN json_populate_record(NULL::{table}, c.new) ELSE c.new_row::{table} END AS n OFFSET 0) AS v
WHERE {rows}
"""
_CONFIRM = "UPDATE penstock.readers SET durable = %s, at = clock_timestamp() WHERE name = %s AND durable < %s RETURNING durable"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A transaction of a window, before its rows are read."""

    xid: int
    rows: int
    bytes: int
    relations: frozenset[int]
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class _Page:
    """Changes that are read at once: those of some transactions, or a part of one, by change number."""

    entries: tuple[_Entry, ...]
    after: int | None = None
    upto: int | None = None
    begins: bool = True
    ends: bool = True

    @property
    def relations(self) -> frozenset[int]:
        return frozenset().union(*(entry.relations for entry in self.entries))


@dataclass(frozen=True, slots=True)
class _Begin:
    """Where a session begins. `after`: the last window that was read, whose snapshot is `before`; `start`: what the engine has."""

    start: Lsn
    after: int
    before: str
    history: HistoryCheck


class TriggerStream:
    """`LogStream` over the windows."""

    def __init__(
        self, connector: Connector, connection: PostgresConnection, reader: str, begin: _Begin, wake: int | None
    ) -> None:
        self._connector = connector
        self._connection = connection
        self._reader = reader
        self._start = begin.start
        self._after = begin.after
        self._before = begin.before
        self._history = begin.history
        self._wake = wake
        self._commits = SessionCommits()
        self._structures = Structures(connection)
        self._announced: dict[int, bytes] = {}
        self._pages: Iterator[RecordChunk] | None = None
        self._looked = 0.0
        self._reported = -1
        self._durable = -1
        self._confirmed_s = 0.0
        self._sent_durable = -1
        connection.execute(f"LISTEN {WINDOW_CHANNEL}")

    @property
    def verified(self) -> bool:
        return self._history.done

    def read(self, timeout_s: float) -> RecordChunk | None:
        deadline = time.monotonic() + timeout_s
        with self._faults():
            while True:
                chunk = self._next_chunk()
                if chunk is not None:
                    return self._checked(chunk)
                self._release()
                if self._reported != self._after:
                    self._reported = self._after
                    return self._checked(_nothing(end_of(self._after)))
                if not self._wait(min(deadline, self._looked + WINDOW_S) - time.monotonic()):
                    return None
                if time.monotonic() >= deadline:
                    return None

    def confirm(self, durable: Lsn) -> None:
        self._durable = max(self._durable, whole_window(durable))
        with self._faults():
            self._release()

    def ask_position(self) -> None:
        """Look for windows and changes at once."""
        self._looked = 0.0
        with self._faults():
            self._confirmed_s = 0.0
            self._release()

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error, EngineFault):
            if not self._connection.closed and self._pages is None:
                self._confirmed_s = 0.0
                self._release()
        self._connection.close()

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise SOURCE.fault(error, self._reader, SHADOW_LOG_GONE) from error

    def _next_chunk(self) -> RecordChunk | None:
        """Records of the next part of a window; None if nothing was committed that has not been read."""
        while True:
            if self._pages is not None:
                chunk = next(self._pages, None)
                if chunk is not None:
                    return chunk
                self._pages = None
            windows = next_windows(self._connection, self._after, self._before)
            if windows is None:
                if time.monotonic() < self._looked + WINDOW_S:
                    return None
                self._looked = time.monotonic()
                if not close_if_unread(self._connection, self._before):
                    return None
                continue
            self._pages = self._read_windows(windows)

    def _checked(self, chunk: RecordChunk) -> RecordChunk:
        if not self._history.done:
            commits = self._commits.commits_of(chunk.data, chunk.offsets, chunk.controls)
            self._history.check_commits(commits, chunk.wal_end)
        # A session begins earlier than its start, with what it has to check.
        return chunk if chunk.wal_end >= self._start else replace(chunk, wal_end=self._start)

    def _wait(self, seconds: float) -> bool:
        """Until a window may have been closed, or for so long. False if the engine has a command."""
        readers = [self._connection.fileno(), *([] if self._wake is None else [self._wake])]
        readable, _, _ = select.select(readers, [], [], max(0.0, seconds))
        if self._connection.fileno() in readable:
            for _ in self._connection.notifies(timeout=0, stop_after=1_000):
                pass
        return self._wake not in readable if self._wake is not None else True

    def _release(self) -> None:
        """Record what is durable on the target, and remove some of what all readers have made durable."""
        now = time.monotonic()
        if not self._history.done or self._durable <= self._sent_durable or now < self._confirmed_s + _CONFIRM_S:
            return
        if self._pages is not None:  # a transaction with a cursor is open
            return
        self._confirmed_s = now
        self._sent_durable = self._durable
        self._connection.execute(_CONFIRM, [self._durable, self._reader, self._durable])
        prune(self._connection, _PRUNED_AT_ONCE)

    def _read_windows(self, windows: Windows) -> Iterator[RecordChunk]:
        """The records of these windows in parts. Afterwards the last of them is the last one that was read."""
        followed = {row[0] for row in self._connection.execute(_FOLLOWED, [self._reader]).fetchall()}
        reached = end_of(windows.after)
        with self._connection.transaction():
            for page in self._pages_of(windows, followed):
                chunk = self._read_page(page, followed, windows, reached)
                reached = chunk.wal_end
                yield chunk
        self._after, self._before = windows.last, windows.snapshot
        self._reported = windows.last
        yield _nothing(end_of(windows.last))

    def _pages_of(self, windows: Windows, followed: set[int]) -> Iterator[_Page]:
        held: list[_Entry] = []
        rows = size = 0
        for entry in self._entries(windows):
            if not entry.relations & followed:
                continue
            if held and (rows + entry.rows > _MOST_ROWS or size + entry.bytes > _MOST_BYTES):
                yield _Page(tuple(held))
                held, rows, size = [], 0, 0
            if entry.rows > _MOST_ROWS or entry.bytes > 2 * _MOST_BYTES:
                yield from self._parts_of(entry)
                continue
            held.append(entry)
            rows, size = rows + entry.rows, size + entry.bytes
        if held:
            yield _Page(tuple(held))

    def _entries(self, windows: Windows) -> Iterator[_Entry]:
        """The transactions in their order, numbered in each window whatever tables this reader follows."""
        inside = sql.SQL(_TRANSACTIONS).format(
            before=_snapshot(windows.before),
            this=_snapshot(windows.snapshot),
            after=sql.Literal(windows.after),
            last=sql.Literal(windows.last),
        )
        with self._connection.cursor(name="penstock_windows") as cursor:
            cursor.itersize = _TRANSACTIONS_AT_ONCE
            cursor.execute(inside)
            for xid, rows, size, time_us, relations, _, _, number, window in cursor:
                transaction = Transaction(xid & 0xFFFFFFFF, place_in(window, number), time_us)
                yield _Entry(xid, rows, size, frozenset(relations), transaction)

    def _parts_of(self, entry: _Entry) -> Iterator[_Page]:
        """A large transaction in parts of change numbers."""
        most = max(1, min(_MOST_ROWS, _MOST_BYTES * entry.rows // max(1, entry.bytes)))
        after = 0
        upto = self._border(entry.xid, after, most)
        while upto is not None:
            following = self._border(entry.xid, upto, most)
            yield _Page((entry,), after, upto, begins=after == 0, ends=following is None)
            after, upto = upto, following

    def _border(self, xid: int, after: int, rows: int) -> int | None:
        found = self._connection.execute(_BORDER, [str(xid), after, rows]).fetchall()[0][0]
        return None if found is None else int(found)

    def _read_page(self, page: _Page, followed: set[int], windows: Windows, reached: Lsn) -> RecordChunk:
        relations = page.relations & followed
        while True:
            structures = self._structures.look(relations, windows.before)
            announced = dict(self._announced)
            tables = [
                rows
                for oid, structure in sorted(structures.items())
                for rows in self._read_table(structure, page, windows, announced)
            ]
            again = self._structures.look(relations, windows.before)
            if {oid: one.mark for oid, one in again.items()} == {oid: one.mark for oid, one in structures.items()}:
                break
        self._announced = announced
        transactions = {entry.xid: entry.transaction for entry in page.entries}
        end = page.entries[-1].transaction.end if page.ends else reached
        return chunk_of(transactions, tables, end, begins=page.begins, ends=page.ends)

    def _read_table(
        self, structure: Structure, page: _Page, windows: Windows, announced: dict[int, bytes]
    ) -> Iterator[TableRows]:
        rows = _condition(structure.table.oid, page)
        if structure.is_settled(windows.before) and not (structure.is_exact and self._lacks_text(rows)):
            yield self._rows(structure, structure.columns, rows, announced)
            return
        for names, is_text in self._connection.execute(sql.SQL(_KINDS_OF_ROWS).format(rows=rows)).fetchall():
            if names is None:  # TRUNCATE
                yield self._rows(structure, structure.columns, rows + sql.SQL(" AND c.op = 'T'"), announced)
                continue
            found = names.split(_NAME_BREAK)
            these = rows + sql.SQL(" AND c.op <> 'T' AND " + _NAMES + " = {}").format(sql.Literal(names))
            wrong = unreadable(found, structure)
            if wrong is None and is_text and tuple(found) != structure.names:
                wrong = found[0]  # The text has no names.
            if wrong is None and structure.is_exact and not is_text:
                wrong = found[0]  # Recorded before the table got a column that JSON does not hold exactly.
            if wrong is not None:
                yield self._unread(structure, wrong, these, announced)
                continue
            columns = tuple(name for name in structure.columns if name in found)
            yield self._rows(structure, columns, these, announced)

    def _lacks_text(self, rows: sql.Composable) -> bool:
        query = sql.SQL("SELECT EXISTS (SELECT FROM penstock.changes c WHERE {} AND " + _LACKS_TEXT + ")").format(rows)
        return bool(self._connection.execute(query).fetchall()[0][0])

    def _rows(
        self, structure: Structure, columns: Sequence[str], rows: sql.Composable, announced: dict[int, bytes]
    ) -> TableRows:
        table = structure.table
        values = [sql.SQL(", (v.{}).{}").format(sql.SQL(row), sql.Identifier(name)) for row in "on" for name in columns]
        query = sql.SQL(_ROWS).format(
            columns=sql.SQL("").join(values), table=sql.Identifier(table.name.schema, table.name.name), rows=rows
        )
        text = self._copied(query.as_string(self._connection), f"relation {table.oid}")
        if text is None:
            return self._unread(structure, columns[0], rows, announced)
        record = structure.record(columns)
        announcement = record if text and announced.get(table.oid) != record else None
        if text:
            announced[table.oid] = record
        keys = structure.keys(columns)
        return rows_of(
            text, RelationId(table.oid), len(columns), keys, whole=structure.is_whole, announcement=announcement
        )

    def _copied(self, query: str, subject: str) -> bytes | None:
        """COPY output of recorded rows; None if a value cannot be converted any more."""
        try:
            with self._connection.transaction():  # a savepoint: the cursor over the transactions stays open
                return b"".join(copy_out(self._connector, self._connection, query, subject, _UNCONVERTIBLE))
        except EngineFault as fault:
            if fault.kind is FaultKind.TABLE_STRUCTURE_CHANGED:
                return None
            raise

    def _unread(
        self, structure: Structure, column: str, rows: sql.Composable, announced: dict[int, bytes]
    ) -> TableRows:
        """In place of rows that cannot be read: a record that no structure matches, so that the table is copied again."""
        query = sql.SQL("SELECT no, xid::text::bigint FROM penstock.changes c WHERE {} ORDER BY no LIMIT 1").format(
            rows
        )
        no, xid = self._connection.execute(query).fetchall()[0]
        announced[structure.table.oid] = record = structure.unreadable_record(column)
        none = np.empty(0, np.int64)
        return TableRows(none, none, np.empty(0, np.uint8), np.zeros(1, np.int64), record, (int(no), int(xid)))


def _nothing(wal_end: Lsn) -> RecordChunk:
    return chunk_of({}, [], wal_end, begins=True, ends=True)


def _condition(relation: int, page: _Page) -> sql.Composed:
    xids = "{" + ",".join(str(entry.xid) for entry in page.entries) + "}"
    found = sql.SQL("c.relation = {} AND c.xid = ANY({}::xid8[])").format(sql.Literal(relation), sql.Literal(xids))
    if page.after is not None:
        found += sql.SQL(" AND c.no > {} AND c.no <= {}").format(sql.Literal(page.after), sql.Literal(page.upto))
    return found


def _snapshot(text: str) -> sql.Composable:
    return sql.SQL("{}::pg_snapshot").format(sql.Literal(text))


def open_stream(
    connector: Connector, reader: str, start: Lsn, application: str, last: LastCommit | None, wake: int | None
) -> TriggerStream:
    """See LogSource.open_stream.

    Raises EngineFault: LOG_GAP if the reader does not exist or its windows were removed, SLOT_IN_USE if another session reads for it.
    """
    connection = connector.open(application, statement_timeout_ms=_STATEMENT_TIMEOUT_MS)
    try:
        durable = _attached(connection, reader)
        if end_of(durable) > start:
            text = POSTGRES_TRIGGERS_TERMS.text
            detail = f"window {durable} was confirmed for the reader, read was only up to {text(start)}: changes between are gone"
            raise EngineFault(FaultKind.LOG_GAP, reader, detail)
        history = HistoryCheck(reader, last or LastCommit.unknown(start), start, POSTGRES_TRIGGERS_TERMS)
        history.confirmed(end_of(durable))
        after = max(durable, whole_window(history.begin))
        found = connection.execute("SELECT snapshot::text FROM penstock.windows WHERE no = %s", [after]).fetchone()
        if found is None:
            raise EngineFault(FaultKind.LOG_GAP, reader, f"window {after} of the shadow log is gone")
        return TriggerStream(connector, connection, reader, _Begin(start, after, str(found[0]), history), wake)
    except psycopg.Error as error:
        connection.close()
        raise SOURCE.fault(error, reader) from error
    except BaseException:
        connection.close()
        raise


def _attached(connection: PostgresConnection, reader: str) -> int:
    """Take the reader's lock for this session; returns the last window that was confirmed for it."""
    if connection.execute("SELECT to_regclass('penstock.readers') IS NULL").fetchall()[0][0]:
        raise EngineFault(FaultKind.LOG_GAP, reader, "the shadow log does not exist")
    if not connection.execute("SELECT pg_try_advisory_lock(" + READER_LOCK + ")", [reader]).fetchall()[0][0]:
        raise EngineFault(FaultKind.SLOT_IN_USE, reader, "another session reads for it")
    row = connection.execute("SELECT durable FROM penstock.readers WHERE name = %s", [reader]).fetchone()
    if row is None:
        raise EngineFault(FaultKind.LOG_GAP, reader, "the reader does not exist any more")
    return int(row[0])
