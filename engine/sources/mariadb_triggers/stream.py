"""The shadow log as a stream of records: one window after another, each as one transaction."""

from __future__ import annotations

import contextlib
import hashlib
import select
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.positions.windows import end_of
from engine.model.source import RecordChunk
from engine.records.landing import TableRows, Transaction, Transactions, chunk_of, rows_of
from engine.records.window_stream import MOST_BYTES, MOST_ROWS, PRUNED_AT_ONCE, RestedLook, WindowStream, begin_at
from engine.sources.mariadb.catalog import Structure
from engine.sources.mariadb.connect import (
    ERRORS,
    LONG_READ_TIMEOUT_S,
    Connector,
    MariaDbConnection,
    close_quietly,
    fault_of,
    rows,
    run,
)
from engine.sources.mariadb.lines import read_lines
from engine.sources.mariadb_triggers.catalog import marks_now
from engine.sources.mariadb_triggers.objects import SHADOW_LOG_GONE, is_installed
from engine.sources.mariadb_triggers.sources import RecordedSource, read_sources, sources_of
from engine.sources.mariadb_triggers.terms import MARIADB_TRIGGERS_TERMS
from engine.sources.mariadb_triggers.windows import (
    Windows,
    close_window,
    counts_of,
    has_unread,
    next_windows,
    prune,
)

_POLL_S = 0.05
"""Seconds between two looks for windows that others closed: nothing announces them. Not measured."""


@dataclass(slots=True)
class _Page:
    """Rows that are read and not sent yet, of whole windows and of the current one."""

    whole: list[Transaction] = field(default_factory=list)
    tables: list[TableRows] = field(default_factory=list)
    current: list[TableRows] = field(default_factory=list)
    begun: bool = False
    """Whether a part of the current window was sent."""

    @property
    def is_full(self) -> bool:
        held = [*self.tables, *self.current]
        return sum(len(t.data) for t in held) > MOST_BYTES or sum(len(t.no) for t in held) > MOST_ROWS


class ShadowWindows:
    """`WindowLog` of MariaDB."""

    def __init__(self, connector: Connector, connection: MariaDbConnection, reader: str) -> None:
        self._connector = connector
        self._connection = connection
        self._reader = reader
        self._sources: dict[int, RecordedSource] = {}
        self._announced: dict[int, bytes] = {}
        self._has_unread = RestedLook(lambda: has_unread(connection))
        self._prune_from = 0

    def faults(self) -> AbstractContextManager[None]:
        return _faults(self._reader)

    def next_windows(self, after: int) -> Windows | None:
        return next_windows(self._connection, after)

    def close_if_unread(self) -> bool:
        if not self._has_unread():
            return False
        close_window(self._connector)
        return True

    def wait(self, seconds: float, wake: int | None) -> bool:
        readable, _, _ = select.select([] if wake is None else [wake], [], [], min(seconds, _POLL_S))
        return not readable

    def confirm(self, window: int) -> bool:
        statement = "UPDATE penstock.readers SET durable = %s WHERE name = %s AND durable < %s"
        run(self._connection, statement, window, self._reader, window)
        self._prune_from = prune(self._connection, PRUNED_AT_ONCE, self._prune_from)
        return True

    def close(self) -> None:
        close_quietly(self._connection)

    def chunks(self, windows: Windows) -> Iterator[RecordChunk]:
        counts: dict[int, list[tuple[int, int]]] = {}
        for window, source, _, first in counts_of(self._connection, windows):
            counts.setdefault(window, []).append((source, first))
        self._learn({source for listed in counts.values() for source, _ in listed})
        statement = "SELECT relation FROM penstock.followed WHERE reader = %s"
        followed = {int(row[0]) for row in rows(self._connection, statement, self._reader)}
        page, reached = _Page(), end_of(windows.after)
        for window, at_us in windows.closed:
            transaction = Transaction(window, end_of(window), at_us)
            alone = Transactions.of([transaction])
            for part in self._read_window(window, counts.get(window, ()), followed):
                page.current.append(part)
                if page.is_full and page.whole:
                    yield _whole(page)
                if page.is_full:
                    yield chunk_of(alone, page.current, reached, begins=not page.begun, ends=False)
                    page.current, page.begun = [], True
            reached = transaction.end
            if page.begun:
                yield chunk_of(alone, page.current, reached, begins=False, ends=True)
                page.begun = False
            elif page.current:
                page.whole.append(transaction)
                page.tables += page.current
            page.current = []
        if page.whole:
            yield _whole(page)

    def _learn(self, sources: set[int]) -> None:
        missing = sources - self._sources.keys()
        if missing:
            self._sources |= read_sources(self._connection, missing)

    def _read_window(self, window: int, counts: Sequence[tuple[int, int]], followed: set[int]) -> Iterator[TableRows]:
        """The rows of followed tables. In place of a table whose rows may not be all: a record that no structure matches, so that it is
        copied again."""
        known = [
            (self._sources[s], first)
            for s, first in counts
            if s in self._sources and self._sources[s].relation in followed
        ]
        doubtful = {source.relation for source, _ in known if source.structure is None}
        structures = [one.structure for one, _ in known if one.structure is not None]
        now = marks_now(self._connection, {structure.name for structure in structures})
        doubtful |= {one.relation for one, _ in known if not one.is_as_now(now)}
        for relation in sorted(doubtful):
            first = min(first for one, first in known if one.relation == relation)
            yield self._unread(relation, first, window)
        for source, first in known:
            if source.structure is not None and source.relation not in doubtful:
                yield from self._read_rows(source.id, source.structure, window, first)

    def _read_rows(self, source: int, structure: Structure, window: int, first: int) -> Iterator[TableRows]:
        record, width = structure.record(), len(structure.columns)
        keys = [place for place, name in enumerate(structure.names) if name in structure.key]
        try:
            for text in _grouped(read_lines(self._connection, _query(source, width, window))):
                new = self._announced.get(structure.relation) != record
                self._announced[structure.relation] = record
                relation = RelationId(structure.relation)
                yield rows_of(text, relation, width, keys, whole=False, announcement=record if new else None)
        except EngineFault as fault:
            if fault.kind is not FaultKind.VALUE_OUT_OF_DOMAIN:
                raise
            # A row that is too large to be recorded, or printed.
            yield self._unread(structure.relation, first, window)

    def _unread(self, relation: int, no: int, window: int) -> TableRows:
        structure = next(one.structure for one in sources_of(self._connection, [relation]) if one.structure is not None)
        self._announced[relation] = record = structure.unreadable_record()
        none = np.empty(0, np.int64)
        return TableRows(none, none, np.empty(0, np.uint8), np.zeros(1, np.int64), record, (no, window))


@contextlib.contextmanager
def _faults(reader: str) -> Iterator[None]:
    try:
        yield
    except ERRORS as error:
        raise fault_of(error, reader, SHADOW_LOG_GONE) from error


def _whole(page: _Page) -> RecordChunk:
    """The whole windows of the page, which are then no longer in it."""
    chunk = chunk_of(Transactions.of(page.whole), page.tables, page.whole[-1].end, begins=True, ends=True)
    page.whole, page.tables = [], []
    return chunk


def _query(source: int, width: int, window: int) -> str:
    """Lines of COPY text: number, window, operation, old values, new values."""
    none = "'" + r"\t".join([r"\\N"] * width) + "'"
    return (
        rf"SELECT CONCAT(no, '\t', `window`, '\t', op, '\t', IF(op = 'I', {none}, old), '\t', IF(op = 'D', {none}, new))"
        f" FROM penstock.changes FORCE INDEX (by_window) WHERE `window` = {window} AND source = {source} ORDER BY no"
    )


def _grouped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines in larger pieces, of at most about a quarter of what is read at once."""
    held: list[bytes] = []
    for piece in pieces:
        held.append(piece)
        if sum(map(len, held)) >= MOST_BYTES // 4:
            yield b"".join(held)
            held = []
    if held:
        yield b"".join(held)


def lock_of(reader: str) -> str:
    """Name of the lock that the session of a reader's stream holds."""
    return "penstock " + hashlib.md5(reader.encode(), usedforsecurity=False).hexdigest()  # At most 64 characters.


def open_stream(
    connector: Connector, reader: str, start: Lsn, application: str, last: LastCommit | None, wake: int | None
) -> WindowStream[Windows]:
    """See LogSource.open_stream.

    Raises EngineFault: LOG_GAP if the reader does not exist or its windows were removed, SLOT_IN_USE if another session reads for it.
    """
    with _faults(reader):
        connection, durable = _attach(connector, reader, application)
        try:
            begin = begin_at(reader, durable, start, last, MARIADB_TRIGGERS_TERMS)
            if not rows(connection, "SELECT 1 FROM penstock.windows WHERE no = %s", begin.after):
                raise EngineFault(FaultKind.LOG_GAP, reader, f"window {begin.after} of the shadow log is gone")
            return WindowStream(ShadowWindows(connector, connection, reader), begin, wake)
        except BaseException:
            close_quietly(connection)
            raise


def _attach(connector: Connector, reader: str, application: str) -> tuple[MariaDbConnection, int]:
    """A session with the reader's lock, and the last window that was confirmed for it."""
    connection = connector.open(read_timeout_s=LONG_READ_TIMEOUT_S)
    try:
        if not is_installed(connection):
            raise EngineFault(FaultKind.LOG_GAP, reader, "the shadow log does not exist")
        if rows(connection, "SELECT GET_LOCK(%s, 0)", lock_of(reader)) != [(1,)]:
            raise EngineFault(FaultKind.SLOT_IN_USE, reader, "another session reads for it")
        statement = "UPDATE penstock.readers SET session = CONNECTION_ID(), application = %s WHERE name = %s"
        run(connection, statement, application, reader)
        found = rows(connection, "SELECT durable FROM penstock.readers WHERE name = %s", reader)
        if not found:
            raise EngineFault(FaultKind.LOG_GAP, reader, "the reader does not exist any more")
        return connection, int(found[0][0])
    except BaseException:
        close_quietly(connection)
        raise
