"""What tests of sources work with: a database to write to, a writer that does not stop, and the log as the engine reads it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import pytest

from engine.model.batch import BlockRef, LogRange, RelationSeen, TableChanges, TablePart, TaskDescriptor
from engine.model.identity import BatchId, Epoch, Ordinal, SubscriptionName, TableId
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.source import LogStream, RecordChunk, Scanner, Source
from engine.model.subscription import TableSpec
from engine.model.ticket import TicketMarker
from engine.net import decode_copy_text, run_task
from engine.sort.committed import (
    CommittedTransactions,
    StreamedTransaction,
    TransactionRun,
    join_ranges,
    part_announcements,
)
from engine.sort.sorter import TransactionSorter

DEADLINE_S = 30.0
APPLICATION = "penstock-contract-1"
Row = tuple[Any, ...]
State = dict[int, Row]
"""Rows of a table by their first column."""


class Session(Protocol):
    """One transaction of the application, open until the test ends it."""

    def execute(self, statement: str) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class Can(Enum):
    """What a source may be able to do. A test that needs it is skipped for others, and names it."""

    STREAM_OPEN_TRANSACTIONS = "its log brings changes of open transactions"
    SEE_OTHERS = "its positions move with changes of tables that it does not send"
    WRITE_AT_ONCE = "several of its transactions write at the same time"
    PUBLISH = "it sends only the tables that it was prepared for"
    KEEP_READER = "it keeps the state of its reader itself"
    SEE_WRITERS = "it shows its open transactions"
    EVERY_CHANGE = "its log brings each change of a row"
    SNAPSHOT_ALONE = "its snapshots have a position while its log is not read"
    NOW_AT_ONCE = "its position of now is before everything that is committed later"
    BEGIN_ANYWHERE = "it begins at any position that was read, whatever is recorded of it"
    SELECT_COLUMNS = "it leaves columns out"
    TAKE_TICKETS = "its log takes markers of tickets"
    CONTINUE = "its log continues by itself once a database that stopped is back"
    FOLLOW_COLUMNS = "its log brings the columns that a table has got, without a new copy"


class Origin(Protocol):
    """A database of a test's own, and the source over it. Statements are plain SQL that any database takes."""

    can: frozenset[Can]
    source: Source
    slot: str
    scanner: Scanner

    def open(self) -> Source:
        """Another source over the same database; closed with the test."""
        ...

    def table(self, name: str, **options: Any) -> TableSpec: ...

    def session(self) -> AbstractContextManager[Session]: ...

    def stream_early(self) -> None:
        """Let the log bring changes of open transactions at once. Only where it can."""
        ...

    def stop(self) -> None:
        """End the database server at once. Only for an origin that was made to be stopped."""
        ...

    def start(self) -> None: ...


def needs(origin: Origin, *wanted: Can) -> None:
    """Skip the test where the source cannot do what it is about."""
    missing = [each.value for each in wanted if each not in origin.can]
    if missing:
        pytest.skip(f"not this source: {'; '.join(missing)}")


def run(origin: Origin, *statements: str) -> None:
    """One transaction, committed and acknowledged."""
    with origin.session() as session:
        for statement in statements:
            session.execute(statement)
        session.commit()


def described(origin: Origin, name: str, **options: Any) -> TableSchema:
    spec = origin.table(name, **options)
    return origin.source.describe([spec])[spec.source]


def copied(source: Source, schema: TableSchema, spec: TableSpec, snapshot: str, split_bytes: int = 16 * 1024) -> State:
    """The table's rows under a snapshot, read in parts; no row comes twice, and every piece is whole lines."""
    found: list[Row] = []
    for chunk in source.copies.splits(schema, spec, split_bytes):
        pieces = list(source.copies.read_split(chunk, snapshot))
        assert all(piece.endswith(b"\n") for piece in pieces)
        found += rows_of(decode_copy_text(b"".join(pieces), schema))
    state = {row[0]: row for row in found}
    assert len(state) == len(found), "a row came twice"
    return state


def rows_of(held: Any) -> list[Row]:
    """Rows of an Arrow table or batch."""
    return [] if held is None else [tuple(row.values()) for row in held.to_pylist()]


class Writer:
    """An application that continues to write to the tables `moving` and `history` until the block ends.

    It inserts, updates rows that were there before, deletes rows of its own, and rolls every fifth transaction back.
    """

    FIRST = 1_000_001
    ROWS = 1_500

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._stopped = False
        self._failed: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.committed = 0

    @classmethod
    def tables(cls, origin: Origin) -> list[TableSpec]:
        """Make its tables, with rows in them."""
        rows = ", ".join(f"({i}, 'first {i}')" for i in range(1, cls.ROWS + 1))
        run(origin, "CREATE TABLE moving (id bigint PRIMARY KEY, v varchar(100))", f"INSERT INTO moving VALUES {rows}")
        run(origin, "CREATE TABLE history (id bigint PRIMARY KEY, v varchar(100))")
        return [origin.table("moving"), origin.table("history")]

    def __enter__(self) -> Self:
        self._thread.start()
        self.more(3)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = True
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the writer did not end"
        if self._failed is not None and error is None:
            raise self._failed

    def more(self, count: int) -> None:
        """Return when so many more transactions have been acknowledged."""
        with self._changed:
            wanted = self.committed + count
            assert self._changed.wait_for(lambda: self.committed >= wanted or self._failed, DEADLINE_S)

    def _work(self) -> None:
        try:
            with self._origin.session() as session:
                number = 0
                while not self._stopped:
                    number += 1
                    self._transaction(session, self.FIRST + number)
        except BaseException as error:
            with self._changed:
                self._failed = error
                self._changed.notify_all()

    def _transaction(self, session: Session, number: int) -> None:
        session.execute(f"INSERT INTO moving VALUES ({number}, 'new')")
        session.execute(f"INSERT INTO history VALUES ({number}, 'written')")
        session.execute(f"UPDATE moving SET v = 'by {number}' WHERE id % 40 = {number % 40}")
        session.execute(f"DELETE FROM moving WHERE id = {number - 3}")
        if number % 5 == 0:
            session.rollback()
            return
        session.commit()
        with self._changed:
            self.committed += 1
            self._changed.notify_all()


class Tail:
    """A stream and everything it has brought, sorted into committed transactions."""

    def __init__(self, stream: LogStream, scanner: Scanner, start: Lsn) -> None:
        self.stream = stream
        self.start = self.wal_end = start
        self.relations: list[bytes] = []
        self.records = 0
        self._sorter = TransactionSorter(start)
        self._scanner = scanner
        self._blocks: dict[str, tuple[BlockRef, Any, Any]] = {}
        self.closed: list[CommittedTransactions] = []

    @property
    def streamed(self) -> int:
        """Committed transactions that came while they were open."""
        return sum(isinstance(closed, StreamedTransaction) for closed in self.closed)

    def past(self, position: Lsn) -> Self:
        """Read until everything committed up to `position` has come."""
        return self.read_until(lambda: self.wal_end >= position)

    def read_until(self, done: Callable[[], bool]) -> Self:
        deadline = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < deadline, f"the log is only at {self.wal_end}, with {self.records} records"
            self.stream.ask_position()
            self._take(self.stream.read(0.05))
        return self

    @property
    def tickets(self) -> list[TicketMarker]:
        """The markers that have come, in the order of the log."""
        return list(part_announcements(self.closed)[2])

    def changes(self, schema: TableSchema, until: Lsn | None = None) -> TableChanges:
        """Net changes of a table in transactions after the start, up to `until`."""
        ranges, relations = self._committed(until)
        versions = sum(seen.relation == schema.relation for seen in relations)
        part = TablePart(TableId("t0c"), (schema,) * (1 + versions), self.start)
        blocks = tuple(block for block, _, _ in self._blocks.values())
        task = TaskDescriptor(
            SubscriptionName("contract"), Epoch(1), BatchId(1), 0, 0, 1, join_ranges(ranges), blocks, (part,), ""
        )
        found = run_task(task, lambda blocks: (self._blocks[block.path][1:] for block in blocks), self._scanner).tables
        assert all(table.fault is None for table in found), found
        return found[0] if found else TableChanges(part.table, False, None, None, None)

    def applied(self, schema: TableSchema, rows: Mapping[int, Row], until: Lsn | None = None) -> State:
        """`rows` with the changes since the start; what is deleted must be there, and what is inserted must not."""
        changes = self.changes(schema, until)
        state = {} if changes.truncated else dict(rows)
        for (key,) in rows_of(changes.deletes):
            assert key in state, f"row {key} was lost"
            del state[key]
        assert changes.partials is None
        for row in rows_of(changes.inserts):
            assert row[0] not in state, f"row {row[0]} came twice"
            state[row[0]] = row
        return state

    def _committed(self, until: Lsn | None) -> tuple[list[LogRange], list[RelationSeen]]:
        parts: list[CommittedTransactions] = []
        for closed in self.closed:
            count = closed.count if until is None else closed.through(until.value)
            if count == closed.count:
                parts.append(closed)
            elif count and isinstance(closed, TransactionRun):
                parts.append(closed.split(count)[0])
        announced = [seen for part in parts for seen in part.announcements if isinstance(seen, RelationSeen)]
        return [r for part in parts for r in part.ranges()], announced

    def _take(self, chunk: RecordChunk | None) -> None:
        if chunk is None:
            return
        assert chunk.wal_end >= self.wal_end
        self.wal_end = chunk.wal_end
        first, count = self.records, len(chunk.offsets) - 1
        block = BlockRef(f"chunk {first}", 0, len(chunk.data), 0, Ordinal(first), count)
        if count:
            self._blocks[block.path] = (block, np.array(chunk.data), np.array(chunk.offsets))
        controls = np.array(chunk.controls)
        controls["ordinal"] += first
        self.relations += [payload for payload in chunk.relations.values() if payload[:1] == b"R"]
        self._sorter.feed(controls, {first + at: payload for at, payload in chunk.relations.items()})
        self.closed += self._sorter.drain()
        self.records += count


def ends(closed: Sequence[CommittedTransactions]) -> list[int]:
    """End positions of all transactions, in the order in which the log brought them."""
    found: list[int] = []
    for each in closed:
        found += each.ends.tolist() if isinstance(each, TransactionRun) else [each.end]
    return found
