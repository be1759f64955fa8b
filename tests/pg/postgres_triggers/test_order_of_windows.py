"""Transactions that commit out of order come once and whole, in an order in which each finds what it found on the source."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from engine.model.identity import TableName
from engine.model.position import Lsn
from engine.model.source import LogStream, RecordChunk
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres_triggers.source import TriggerSource
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

SEATS = 12
TABLES = f"""
CREATE TABLE seats (id int PRIMARY KEY, holder text UNIQUE, n int NOT NULL);
ALTER TABLE seats REPLICA IDENTITY FULL;
CREATE TABLE receipts (id uuid PRIMARY KEY);
INSERT INTO seats SELECT i, 'holder ' || i, 0 FROM generate_series(1, {SEATS}) i;
"""
Row = tuple[str | None, ...]


class Followed:
    """What the stream brought: the rows of `seats` after each transaction, and each receipt."""

    def __init__(self, seats: dict[str, Row], position: Lsn) -> None:
        self.seats = seats
        self.position = position
        self.receipts: list[str] = []
        self.history = [(position.value, dict(seats))]
        """The rows after each transaction, by its end."""
        self._names: dict[int, str] = {}
        self._open = False

    def take(self, chunk: RecordChunk) -> None:
        for number in range(chunk.count):
            self._record(chunk.data[chunk.offsets[number] : chunk.offsets[number + 1]].tobytes())
        self.position = chunk.wal_end

    def _record(self, record: bytes) -> None:
        kind = chr(record[0])
        if kind in "BC":
            assert self._open == (kind == "C"), "a transaction within another one"
            self._open = kind == "B"
            holders = [row[1] for row in self.seats.values() if row[1] is not None]
            assert len(holders) == len(set(holders)), "a unique value is there twice"
            if kind == "C":
                (end,) = struct.unpack_from(">Q", record, 10)
                assert end > self.history[-1][0]
                self.history.append((end, dict(self.seats)))
            return
        assert self._open
        (relation,) = struct.unpack_from(">I", record, 1)
        if kind == "R":
            self._names[relation] = record[5:].split(b"\0")[1].decode()
            return
        old, new = images(record)
        if self._names[relation] == "receipts":
            assert new is not None
            self.receipts.append(str(new[0]))
            return
        if old is not None:
            assert self.seats.pop(str(old[0])) == old, "a change of another row than the source changed"
        if new is not None:
            assert str(new[0]) not in self.seats
            self.seats[str(new[0])] = new

    def at(self, position: Lsn) -> dict[str, Row]:
        """The rows after every transaction up to this position."""
        return next(seats for end, seats in reversed(self.history) if end <= position.value)


def images(record: bytes) -> tuple[Row | None, Row | None]:
    """The old and the new row of an insert, update or delete."""
    found: dict[str, Row] = {}
    at = 5
    while at < len(record):
        letter = chr(record[at])
        (count,) = struct.unpack_from(">H", record, at + 1)
        at += 3
        values: list[str | None] = []
        for _ in range(count):
            if record[at] == ord("n"):
                values.append(None)
                at += 1
                continue
            (size,) = struct.unpack_from(">I", record, at + 1)
            values.append(record[at + 5 : at + 5 + size].decode())
            at += 5 + size
        found[letter] = tuple(values)
    return found.get("O"), found.get("N")


class Writers:
    """Sessions that swap, move and count, in transactions of different lengths, and keep the receipt of each that was committed."""

    def __init__(self, database: Database, source: TriggerSource, count: int) -> None:
        self._database = database
        self._source = source
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(count)]
        self._threads.append(threading.Thread(target=self._ask, daemon=True))
        self.committed: list[str] = []
        self.failed: list[BaseException] = []

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def more(self, count: int) -> None:
        wanted = len(self.committed) + count
        wait_until(lambda: len(self.committed) >= wanted or self.failed)

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)
        assert not self.failed, self.failed

    def _ask(self) -> None:
        """Others close windows at any moment."""
        while not self._stopping.wait(0.003):
            self._source.log.now()

    def _work(self, seed: int) -> None:
        chance = random.Random(seed)
        try:
            with self._database.connect() as connection:
                connection.execute("SET deadlock_timeout = '20ms'")
                while not self._stopping.is_set():
                    self._transaction(connection, chance)
        except BaseException as error:
            self.failed.append(error)

    def _transaction(self, connection: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> None:
        try:
            connection.execute("BEGIN")
            for _ in range(chance.randrange(1, 5)):
                self._step(connection, chance)
                if chance.random() < 0.2:
                    connection.execute("SELECT pg_sleep(0.002)")
            (receipt,) = connection.execute("INSERT INTO receipts VALUES (gen_random_uuid()) RETURNING id").fetchall()[
                0
            ]
            if chance.random() < 0.2:
                connection.execute("ROLLBACK")
                return
            connection.execute("COMMIT")
            self.committed.append(str(receipt))
        except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
            connection.execute("ROLLBACK")

    def _step(self, connection: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> None:
        one, other = chance.sample(range(1, SEATS + 1), 2)
        kind = chance.randrange(5)
        if kind == 0:
            connection.execute("UPDATE seats SET n = n + 1 WHERE id = %s", [one])
        elif kind == 1:  # a unique value goes from one row to another
            connection.execute("UPDATE seats SET holder = NULL WHERE id = %s", [one])
            connection.execute("UPDATE seats SET holder = %s WHERE id = %s", [f"holder {one}", other])
        elif kind == 2:
            connection.execute("DELETE FROM seats WHERE id = %s", [one])
            connection.execute("INSERT INTO seats VALUES (%s, NULL, 0) ON CONFLICT DO NOTHING", [one])
        elif kind == 3:
            connection.execute("UPDATE seats SET id = -id WHERE id = %s", [one])
            connection.execute("UPDATE seats SET id = -id WHERE id = %s", [-one])
        else:
            connection.execute("SAVEPOINT s")
            connection.execute("UPDATE seats SET n = n + 1000, holder = NULL WHERE id < %s", [one])
            connection.execute("ROLLBACK TO SAVEPOINT s")


@pytest.fixture(params=["pg16", "pg18"])
def hall(request: pytest.FixtureRequest, database_on: Callable[[EmbeddedPostgres], Database]) -> Database:
    database = database_on(request.getfixturevalue(request.param))
    database.execute(TABLES)
    return database


@pytest.fixture
def source(hall: Database) -> Iterator[TriggerSource]:
    with closing(TriggerSource(ConnectionSpec("hall", "postgres", hall.settings))) as opened:
        yield opened


def seats_at(hall: Database, snapshot: str) -> dict[str, Row]:
    with hall.connect() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
        rows = connection.execute("SELECT id::text, holder, n::text FROM seats").fetchall()
    return {str(row[0]): row for row in rows}


def read_to(stream: LogStream, followed: Followed, position: Lsn) -> None:
    def reached() -> bool:
        chunk = stream.read(0.05)
        if chunk is not None:
            followed.take(chunk)
        return followed.position >= position

    wait_until(reached, 30)


def test_each_window_ends_at_what_its_snapshot_shows(hall: Database, source: TriggerSource) -> None:
    tables = [table("seats"), table("receipts")]
    source.sent_tables.prepare(tables, "penstock_hall")
    with Writers(hall, source, 5) as writers:
        with source.reader.create("penstock_hall") as snapshot:
            followed = Followed(seats_at(hall, snapshot.name), snapshot.position)
            before = {str(row[0]) for row in hall.execute("SELECT id FROM receipts")}
        stream = source.log.open_stream("penstock_hall", followed.position, "penstock-hall-1")
        with closing(stream):
            for _ in range(25):
                writers.more(15)
                with source.copies.snapshot(10) as cut:
                    then = seats_at(hall, cut.name)
                    read_to(stream, followed, cut.position)
                assert followed.at(cut.position) == then
                stream.confirm(followed.position)
            writers.__exit__()
            read_to(stream, followed, source.log.now())
    assert len(followed.receipts) == len(set(followed.receipts)), "a transaction came twice"
    there = {str(row[0]) for row in hall.execute("SELECT id FROM receipts")}
    assert there >= set(writers.committed)
    assert set(followed.receipts) >= there - before
    assert TableName("public", "seats") in {t.source for t in tables}
