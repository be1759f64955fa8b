"""A session that commits, reads the copy through one door, and compares the answer with everything it has written."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import psycopg
import pyarrow as pa
from pyarrow import flight

from bench.histogram import Times
from engine.model.position import Lsn
from penstock.client import PenstockError
from penstock.client import ProblemError as ClientProblem
from server.cli.client import Document, NoServerError, ProblemError
from tests.chaos.doors import Connection, Door
from tests.chaos.outages import Outages
from tests.chaos.own_writes import WINDOW, History, Read
from tests.chaos.steady_writes import ROWS

TABLE = "entries"
DDL = f"CREATE TABLE {TABLE} (session int, number bigint, PRIMARY KEY (session, number))"
READ = (
    f"SELECT coalesce((SELECT string_agg(CAST(number AS varchar), ',' ORDER BY number) FROM {TABLE} WHERE session = {{}}), '') AS numbers,"
    " CAST((SELECT sum(amount) FROM debits) + (SELECT sum(amount) FROM credits) AS bigint) AS total"
)
ERRORS = (ProblemError, NoServerError, PenstockError, psycopg.Error, flight.FlightError, pa.ArrowException)
_END = "SELECT pg_current_wal_insert_lsn()::text"
_ABORTED = 0.1
_WITHOUT_WAIT = 0.25
_AGAIN_S = 0.1
_LEFT_TO_RETRY = frozenset({408, 409, 429})


class Session:
    """A thread from `start` to `stop`. `untrue` is empty as long as each answer was true."""

    def __init__(
        self,
        number: int,
        door: str,
        connect: Callable[[], Connection],
        make_door: Callable[[], Door],
        outages: Outages,
        *,
        seed: int = 1,
        pause_s: float = 0.25,
    ) -> None:
        self.name = f"{door} {number}"
        self.number = number
        self.door = door
        self.history = History()
        self.untrue: list[Document] = []
        self.failure: BaseException | None = None
        self.waited = 0
        self.unwaited = 0
        self.in_doubt = 0
        self.took = Times()
        """Reads that were answered, with their waits."""
        self.errors: Counter[str] = Counter()
        self.unexcused: list[Document] = []
        """Errors outside outages, and answers that a session of its rights must never get."""
        self._connect = connect
        self._make_door = make_door
        self._outages = outages
        self._rng = random.Random(f"{seed}/{number}")
        self._pause_s = pause_s
        self._connection: Connection | None = None
        self._door: Door | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self.failure is None:
            self.failure = AssertionError(f"{self.name} did not end within {timeout_s} s")

    def document(self) -> Document:
        return {
            "session": self.name,
            "transactions": self.history.last,
            "rolled_back": self.history.aborted,
            "in_doubt": self.in_doubt,
            "true_reads_after_wait": self.waited,
            "true_reads_without_wait": self.unwaited,
            "read_p50_ms": self.took.percentile(50),
            "read_p99_ms": self.took.percentile(99),
            "errors": dict(sorted(self.errors.items())),
        }

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and not self.untrue:
                self.turn()
                self._stopping.wait(self._rng.uniform(0, 2 * self._pause_s))
        except BaseException as error:
            self.failure = error
        finally:
            self.close()

    def close(self) -> None:
        """Close its connections."""
        with suppress(*ERRORS):
            self._drop_source()
            self._drop_door()

    def turn(self) -> None:
        """One transaction, and one read of what is committed."""
        began = monotonic()
        try:
            if self._door is None:
                self._door = self._make_door()
            with self._door.writing(self._source()):
                self._write()
        except psycopg.Error as error:
            self._count(error, began, of_source=True)
            self._drop_source()
            self._settle()
            return
        waits = self._rng.random() >= _WITHOUT_WAIT
        asked = monotonic()
        try:
            read = self._door.read(READ.format(self.number), self.history.end if waits else None)
        except ERRORS as error:
            self._count(error, asked)
            self._stopping.wait(_AGAIN_S)
            return
        self.took.record((monotonic() - asked) * 1000)
        self._judge(read)
        if read.wanted is None:
            self.unwaited += 1
        else:
            self.waited += 1
            self._outages.answered(self.name, self.door, began, monotonic())

    def _judge(self, read: Read) -> None:
        found = self.history.judge(read)
        if not found:
            return
        expected = [list(numbers) for numbers in self.history.expected(read.position)]
        self.untrue.append({"session": self.name, "found": found, "read": read.document(), "expected": expected})

    def _write(self) -> None:
        """One transaction. Whether it committed is known at the end, or `_settle` finds out."""
        number = self.history.begin()
        self._floor: Lsn | None = None
        aborts = self._rng.random() < _ABORTED
        connection = self._source()
        amount = self._rng.randint(1, 50)
        with connection.transaction(force_rollback=aborts):
            connection.execute(f"INSERT INTO {TABLE} VALUES (%s, %s)", [self.number, number])
            connection.execute(
                f"DELETE FROM {TABLE} WHERE session = %s AND number <= %s", [self.number, number - WINDOW]
            )
            for table, moved in (("debits", -amount), ("credits", amount)):
                row = self._rng.randint(1, ROWS)
                connection.execute(f"UPDATE {table} SET amount = amount + %s WHERE id = %s".encode(), [moved, row])
            self._floor = _position(connection)
        if aborts:
            self.history.abort()
        else:
            self.history.commit(self._floor, _position(connection))

    def _settle(self) -> None:
        """The connection was lost: find out whether the last transaction committed, as soon as the source answers."""
        if self.history.last == 0:
            return
        self.in_doubt += 1
        while not self._stopping.is_set():
            began = monotonic()
            try:
                connection = self._source()
                asked = [self.number, self.history.last]
                found = connection.execute(f"SELECT FROM {TABLE} WHERE session = %s AND number = %s", asked).rowcount
                end = _position(connection)
            except psycopg.Error as error:
                self._count(error, began, of_source=True)
                self._drop_source()
                self._stopping.wait(_AGAIN_S)
                continue
            if found and not self.history.has_last:
                assert self._floor is not None, "a transaction committed whose COMMIT was not sent"
                self.history.commit(self._floor, end)
            return

    def _source(self) -> Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _drop_source(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _drop_door(self) -> None:
        door, self._door = self._door, None
        if door is not None:
            door.close()

    def _count(self, error: BaseException, began: float, *, of_source: bool = False) -> None:
        now = monotonic()
        kind = f"{'source' if of_source else self.door}: {_kind(error)}"
        self.errors[kind] += 1
        status = error.status if isinstance(error, ProblemError | ClientProblem) else 503
        refused = status < 500 and status not in _LEFT_TO_RETRY
        if refused or not self._outages.covers(began, now):
            self.unexcused.append({"session": self.name, "error": kind, "detail": str(error)[:500]})


def _position(connection: psycopg.Connection[Any]) -> Lsn:
    row = connection.execute(_END).fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def _kind(error: BaseException) -> str:
    if isinstance(error, ProblemError | ClientProblem):
        return f"{error.status} {error.code}"
    state = getattr(error, "sqlstate", None)
    return f"{type(error).__name__}{f' {state}' if state else ''}"
