"""Sessions that check their reads: what they find if a read is false, and that they find nothing if it is true.

The doors here read the source itself, which is at each position what a copy has to be, and falsify some answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import psycopg
import pytest

from engine.model.position import Lsn
from tests.chaos import reading_session, steady_writes
from tests.chaos.doors import Connection
from tests.chaos.outages import Outages
from tests.chaos.own_writes import Read
from tests.chaos.reading_session import Session
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

TURNS = 40
Falsify = Callable[[Read], Read]


class SourceDoor:
    """Reads the source. `falsify` changes its answers, and `block` is around transactions."""

    def __init__(self, database: Database) -> None:
        self.falsify: Falsify = lambda read: read
        self.block: Callable[[Connection], AbstractContextManager[None]] = nullcontext
        self._database = database

    def writing(self, source: Connection) -> AbstractContextManager[None]:
        return self.block(source)

    def read(self, sql: str, wanted: Lsn | None) -> Read:
        ((numbers, total),) = self._database.execute(sql)
        ((position,),) = self._database.execute("SELECT pg_current_wal_insert_lsn()::text")
        return self.falsify(Read(wanted, Lsn.parse(position), tuple(int(n) for n in numbers.split(",")), total))

    def close(self) -> None:
        pass


@pytest.fixture
def made(database: Database) -> Iterator[tuple[Session, SourceDoor, Outages]]:
    database.execute(steady_writes.DDL + reading_session.DDL)
    door, outages = SourceDoor(database), Outages(["door 1"])
    session = Session(1, "door", database.connect, lambda: door, outages, pause_s=0.0)
    yield session, door, outages
    session.close()


@pytest.mark.parametrize(
    ("falsify", "found"),
    [
        (lambda read: replace(read, numbers=read.numbers[:-1]), "are missing"),
        (lambda read: replace(read, numbers=read.numbers[1:]), "[1] are missing"),
        (lambda read: replace(read, numbers=(*read.numbers, read.numbers[-1] + 1)), "are too many"),
        (lambda read: replace(read, total=1), "the sum over both tables is 1"),
        (lambda read: replace(read, position=Lsn(read.position.value - 1_000_000)), "after a read that claimed"),
    ],
    ids=["a lost commit", "an early one lost", "a commit that was not", "half a transaction", "back in time"],
)
def test_a_false_read_is_found(made: tuple[Session, SourceDoor, Outages], falsify: Falsify, found: str) -> None:
    session, door, _ = made
    for _ in range(TURNS):
        session.turn()
    assert session.untrue == []
    assert session.waited > session.unwaited > 0
    assert 0 < session.history.aborted < TURNS
    door.falsify = falsify
    session.turn()
    (untrue,) = session.untrue
    assert any(found in each for each in untrue["found"])
    assert untrue["read"]["numbers"]


def test_the_source_is_asked_whether_a_commit_in_doubt_happened(
    made: tuple[Session, SourceDoor, Outages], database: Database
) -> None:
    """The connection is lost once before and once after the commit; neither makes a read untrue."""
    session, door, outages = made
    outages.begin("source", 0.0)
    session.turn()
    for block in (_cut_before, _cut_after):
        door.block = partial(block, database)
        session.turn()
        door.block = nullcontext
    for _ in range(TURNS):
        session.turn()
    assert session.in_doubt == 2
    assert session.untrue == []
    assert session.unexcused == []
    assert session.history.last == TURNS + 3


def test_an_error_outside_outages_is_kept(made: tuple[Session, SourceDoor, Outages]) -> None:
    session, door, _ = made

    def lose(_: Read) -> Read:
        raise psycopg.OperationalError("the connection is lost")

    door.falsify = lose
    session.turn()
    assert session.errors == {"door: OperationalError": 1}
    (kept,) = session.unexcused
    assert kept["detail"] == "the connection is lost"


@contextmanager
def _cut_before(database: Database, source: Connection) -> Iterator[None]:
    _cut(database, source)
    yield


@contextmanager
def _cut_after(database: Database, source: Connection) -> Iterator[None]:
    yield
    _cut(database, source)
    source.execute("SELECT 1")


def _cut(database: Database, source: Connection) -> None:
    database.execute("SELECT pg_terminate_backend(%s, 5000)", [source.info.backend_pid])
