"""A PostgreSQL database with a slot that decodes prepared transactions, and what its sessions bring."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import sql

from engine.model.last_commit import LastCommit
from engine.model.position import ZERO, Lsn
from engine.model.source import RecordChunk
from engine.model.subscription import ConnectionSpec
from engine.records.encode import CLOCK_ZERO_US
from engine.records.two_phase import two_phase_of
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_log import position, slots
from engine.sources.postgres_log.stream import PostgresLogStream, open_stream
from tests.fixtures.postgres import Database, Session
from tests.fixtures.waiting import wait_until

DEADLINE_S = 60.0
MESSAGE = "SELECT pg_logical_emit_message(true, 'any', 'text')"
LOCKS = "SELECT * FROM t FOR UPDATE"
"""Locks the rows of `t`, and changes none."""
_TWO_PHASE = b"bPKr"


@dataclass(frozen=True, slots=True)
class Record:
    """A record: its letter, the gid of one of a prepared transaction, and start and end of the log's record where it names them."""

    raw: bytes
    letter: str
    gid: str | None = None
    lsn: Lsn = ZERO
    end: Lsn = ZERO
    xid: int = 0
    time_us: int = 0

    def __str__(self) -> str:
        return self.letter if self.gid is None else f"{self.letter} {self.gid}"

    @classmethod
    def read(cls, raw: bytes) -> Record:
        letter = raw[:1].decode()
        if raw[:1] in _TWO_PHASE:
            found = two_phase_of(raw)
            return cls(raw, letter, found.gid, found.lsn, found.end, found.xid, found.time_us)
        if letter == "C":
            lsn, end, time_us = struct.unpack_from(">QQq", raw, 2)
            return cls(raw, letter, None, Lsn(lsn), Lsn(end), 0, time_us + CLOCK_ZERO_US)
        return cls(raw, letter)


def words(records: list[Record]) -> list[str]:
    """The records as text, such as `P gid`."""
    return [str(record) for record in records]


def only(records: list[Record], word: str) -> Record:
    """The one record of this text."""
    found = [record for record in records if str(record) == word]
    assert len(found) == 1, words(records)
    return found[0]


class Node:
    """A node with the tables `t`, published, and `u`, and one slot."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.slot = f"n_{database.name}"
        self.connector = Connector(ConnectionSpec("node", "postgres", database.settings))
        self.begin = ZERO
        """Where reading begins: the slot's position at its creation, until a test moves it."""

    def create_slot(self) -> Lsn:
        with slots.lasting(self.connector, self.slot, two_phase=True) as snapshot:
            self.begin = snapshot.position
        return self.begin

    def execute(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        for statement in statements:
            self.database.execute(statement)

    def insert_other(self) -> None:
        """A transaction on the table `other`, where there is one."""
        self.execute("INSERT INTO other DEFAULT VALUES")

    def insert(self, number: int) -> None:
        self.execute(insert(number))

    def prepare(self, gid: str, *statements: str, session: Session | None = None) -> None:
        """Prepare a transaction of these statements under this gid."""
        if session is None:
            with self.database.connect() as own:
                return self.prepare(gid, *statements, session=own)
        session.execute("BEGIN")
        for statement in statements:
            session.execute(statement.encode())
        session.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gid)))
        return None

    def finish(self, what: str, gid: str) -> None:
        """`what`: COMMIT or ROLLBACK."""
        with self.database.connect() as session:
            session.execute(sql.SQL("{} PREPARED {}").format(sql.SQL(what), sql.Literal(gid)))  # type: ignore[arg-type]

    def now(self) -> Lsn:
        return position.now(self.connector)

    def flushed(self) -> Lsn:
        """The end of the log, without a write."""
        return position.current(self.connector)

    def confirmed(self) -> Lsn:
        return Lsn.parse(str(self.slot_column("confirmed_flush_lsn")))

    def slot_column(self, column: str) -> object:
        """A column of the slot's row; None where the version lacks it."""
        found = self.database.execute(
            "SELECT to_jsonb(s) ->> %s FROM pg_replication_slots s WHERE slot_name = %s", [column, self.slot]
        )
        return found[0][0]

    def session_of(self, start: Lsn, last: LastCommit | None = None, kept: Lsn | None = None) -> PostgresLogStream:
        """An open session, which the caller closes."""
        publications = ("p",)
        return open_stream(
            self.connector, self.slot, start, "penstock-node-1", publications, last=last, two_phase=True, kept=kept
        )

    @contextmanager
    def session(self, start: Lsn | None = None, last: LastCommit | None = None) -> Iterator[PostgresLogStream]:
        """An open session; after it the slot is free."""
        begin = self.begin if start is None else start
        stream = self.session_of(begin, last)
        try:
            yield stream
        finally:
            stream.close()
            self.await_free()

    def await_free(self) -> None:
        """Wait until no session uses the slot."""
        free = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND NOT active"
        wait_until(lambda: self.database.execute(free, [self.slot]), what="the slot is free")

    def read(
        self, *, confirm: Lsn | None = None, start: Lsn | None = None, last: LastCommit | None = None
    ) -> list[Record]:
        """All that a session brings of the log so far, without positions asked for by the test itself. Then `confirm` is confirmed."""
        with self.session(start, last) as stream:
            found = read_all(stream, self.now())
            assert stream.verified
            if confirm is not None:
                stream.confirm(confirm)
        return found

    def skip(self) -> None:
        """Confirm all that was written so far."""
        end = self.now()
        self.read(confirm=end)
        self.begin = end

    def drop(self) -> None:
        """End what would keep the database from being dropped, and hold up other slots of the cluster."""
        for (gid,) in self.database.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
            self.finish("ROLLBACK", gid)


def read_all(stream: PostgresLogStream, end: Lsn) -> list[Record]:
    """What the session brings up to `end`, the position of a message of `now`, whose commit is after it."""
    found: list[Record] = []
    deadline = time.monotonic() + DEADLINE_S
    while stream.read_to <= end:
        assert time.monotonic() < deadline, (words(found), stream.read_to, end)
        stream.ask_position()
        found += records_of(stream.read(0.05))
    return _without_positions(found)


def records_of(chunk: RecordChunk | None) -> list[Record]:
    """The records of a chunk."""
    if chunk is None:
        return []
    data = chunk.data.tobytes()
    return [Record.read(data[a:b]) for a, b in zip(chunk.offsets[:-1], chunk.offsets[1:], strict=True)]


def _without_positions(records: list[Record]) -> list[Record]:
    """Without the transactions in which `position.now` writes its message."""
    own = [n for n, one in enumerate(records) if one.letter == "M" and b"penstock\0" in one.raw]
    left = {k for n in own for k in (n - 1, n, n + 1)}
    return [one for n, one in enumerate(records) if n not in left]


def insert(number: int, count: int = 1) -> str:
    """An INSERT of rows with these numbers into `t`; each row has 100 bytes."""
    return f"INSERT INTO t SELECT n, repeat('x', 90) || n FROM generate_series({number}, {number + count - 1}) AS n"


@contextmanager
def node_on(database: Database) -> Iterator[Node]:
    """A node in this database, with its slot."""
    node = Node(database)
    node.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE u (id int PRIMARY KEY, v text)")
    node.execute("CREATE PUBLICATION p FOR TABLE t")
    try:
        node.create_slot()
        yield node
    finally:
        if database.cluster.running:
            node.drop()
        node.connector.close()
