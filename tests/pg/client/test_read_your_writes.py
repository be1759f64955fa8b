"""Reads that contain the commits of their own thread or task: real source, engine, server and DuckDB copy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from decimal import Decimal

import psycopg
import pytest
from psycopg import pq
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from penstock.client import AsyncClient, Client, TransactionOpen, position_after, position_after_async
from tests.fixtures.service import SUBSCRIPTION, Service

pytestmark = pytest.mark.pg

_WRITE = "INSERT INTO orders VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET total = excluded.total"
_WRITE_TEXT = text("INSERT INTO orders VALUES (:id, :total) ON CONFLICT (id) DO UPDATE SET total = excluded.total")


@pytest.fixture(scope="module")
def engine(service: Service) -> Iterator[Engine]:
    cluster, database = service.database.cluster, service.database.name
    found = create_engine(f"postgresql+psycopg://{cluster.user}@{cluster.host}:{cluster.port}/{database}")
    yield found
    found.dispose()


@pytest.fixture
def connection(service: Service) -> Iterator[psycopg.Connection]:
    """Not in autocommit mode."""
    with psycopg.connect(service.database.dsn) as found:
        yield found


class Base(DeclarativeBase):
    """Tables of this module."""


class Order(Base):
    """An order as the ORM maps it."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[Decimal]


def total(client: Client, key: int) -> Decimal | None:
    """The order's total on the target, as the client's queries see it."""
    rows = client.query(f"SELECT total FROM orders WHERE id = {key}").rows()
    return rows[0][0] if rows else None


class Writer:
    """Writes one order through one kind of connection, in transactions of each shape. `committed`: its last committed total."""

    def __init__(
        self, key: int, source: object, transaction: Callable[[], AbstractContextManager[Callable[[int], None]]]
    ) -> None:
        self.key = key
        self.source = source
        self.committed: Decimal | None = None
        self._transaction = transaction
        self._next = 0

    def _write(self, write: Callable[[int], None]) -> Decimal:
        self._next += 1
        write(self._next)
        return Decimal(self._next)

    def commit(self) -> None:
        with self._transaction() as write:
            written = self._write(write)
        self.committed = written

    def roll_back(self) -> None:
        with suppress(ZeroDivisionError), self._transaction() as write:
            self._write(write)
            raise ZeroDivisionError

    def commit_and_roll_back(self) -> None:
        self.commit()
        self.roll_back()

    def commit_twice(self) -> None:
        self.commit()
        self.commit()


@contextmanager
def psycopg_transaction(connection: psycopg.Connection, key: int) -> Iterator[Callable[[int], None]]:
    """One with a savepoint that is rolled back, and one that is released."""
    with connection.transaction():
        with suppress(ZeroDivisionError), connection.transaction():
            connection.execute(_WRITE, [key, -1])
            raise ZeroDivisionError
        with connection.transaction():
            yield lambda value: connection.execute(_WRITE, [key, value]) and None


@contextmanager
def commands(connection: psycopg.Connection, key: int) -> Iterator[Callable[[int], None]]:
    """Begun by the first statement; `commit` and `rollback` end it."""
    try:
        yield lambda value: connection.execute(_WRITE, [key, value]) and None
    except ZeroDivisionError:
        connection.rollback()
        raise
    connection.commit()


@contextmanager
def engine_transaction(engine: Engine, key: int) -> Iterator[Callable[[int], None]]:
    with engine.begin() as connection, connection.begin_nested():
        yield lambda value: connection.execute(_WRITE_TEXT, {"id": key, "total": value}) and None


@contextmanager
def session_transaction(session: Session, key: int) -> Iterator[Callable[[int], None]]:
    with session.begin(), session.begin_nested():
        yield lambda value: session.execute(_WRITE_TEXT, {"id": key, "total": value}) and None


@pytest.fixture
def writers(service: Service, engine: Engine, connection: psycopg.Connection) -> Iterator[list[Writer]]:
    service.database.execute("DELETE FROM orders WHERE id <= 5")
    with ExitStack() as stack:
        asynchronous = stack.enter_context(psycopg.connect(service.database.dsn, options="-c synchronous_commit=off"))
        session = stack.enter_context(Session(engine))
        of_engine = stack.enter_context(engine.connect())

        @contextmanager
        def connection_transaction() -> Iterator[Callable[[int], None]]:
            with of_engine.begin():
                yield lambda value: of_engine.execute(_WRITE_TEXT, {"id": 5, "total": value}) and None

        yield [
            Writer(1, connection, lambda: psycopg_transaction(connection, 1)),
            Writer(2, asynchronous, lambda: commands(asynchronous, 2)),
            Writer(3, engine, lambda: engine_transaction(engine, 3)),
            Writer(4, session, lambda: session_transaction(session, 4)),
            Writer(5, of_engine, connection_transaction),
        ]


@pytest.mark.parametrize("transactions", [15, pytest.param(200, marks=[pytest.mark.chaos, pytest.mark.timeout(1200)])])
def test_each_read_sees_exactly_its_own_last_commit(client: Client, writers: list[Writer], transactions: int) -> None:
    rng = random.Random(transactions)
    for number in range(transactions):
        writer = rng.choice(writers)
        act = rng.choices(
            [writer.commit, writer.roll_back, writer.commit_and_roll_back, writer.commit_twice], [6, 2, 1, 1]
        )[0]
        with client.read_your_writes(writer.source):  # type: ignore[arg-type]
            act()
        assert total(client, writer.key) == writer.committed, (number, act.__name__)


def test_reads_within_the_block_see_what_is_committed_in_it(client: Client, connection: psycopg.Connection) -> None:
    with client.read_your_writes(connection):
        for value in range(3):
            connection.execute(_WRITE, [10, value])
            connection.commit()
            assert total(client, 10) == value
        connection.execute(_WRITE, [10, 99])
        assert total(client, 10) == 2
        assert connection.info.transaction_status is pq.TransactionStatus.INTRANS
        connection.rollback()


def test_autocommit_is_one_transaction_a_statement(
    service: Service, client: Client, engine: Engine, connection: psycopg.Connection
) -> None:
    connection.set_autocommit(True)
    with client.read_your_writes(connection):
        connection.execute(_WRITE, [11, 1])
    assert total(client, 11) == 1
    with client.read_your_writes(engine), engine.connect() as found:
        found.execution_options(isolation_level="AUTOCOMMIT").execute(_WRITE_TEXT, {"id": 11, "total": 2})
    assert total(client, 11) == 2
    assert service.database.execute("SELECT total FROM orders WHERE id = 11") == [(2,)]


def test_the_connection_is_left_as_it_was(client: Client, connection: psycopg.Connection, engine: Engine) -> None:
    connection.row_factory = psycopg.rows.dict_row  # type: ignore[assignment]
    with client.read_your_writes(connection):
        connection.execute(_WRITE, [12, 1])
        connection.commit()
    assert connection.info.transaction_status is pq.TransactionStatus.IDLE
    with engine.connect() as found:
        with client.read_your_writes(found):
            found.execute(_WRITE_TEXT, {"id": 12, "total": 2})
            found.commit()
        assert not found.in_transaction()
    assert total(client, 12) == 2


def test_an_exception_does_not_hide_what_was_committed_before(client: Client, connection: psycopg.Connection) -> None:
    with suppress(ZeroDivisionError), client.read_your_writes(connection):
        connection.execute(_WRITE, [13, 1])
        connection.commit()
        raise ZeroDivisionError
    assert total(client, 13) == 1


def test_a_transaction_that_its_enclosing_code_commits_after_an_exception_is_seen(
    client: Client, connection: psycopg.Connection
) -> None:
    with suppress(ZeroDivisionError), client.read_your_writes(connection):
        connection.execute(_WRITE, [14, 1])
        raise ZeroDivisionError
    connection.commit()
    assert total(client, 14) == 1


def test_a_block_that_ends_before_its_transaction_is_an_error(
    client: Client, connection: psycopg.Connection, engine: Engine
) -> None:
    with pytest.raises(TransactionOpen, match="Commit it first"), client.read_your_writes(connection):
        connection.execute(_WRITE, [15, 1])
    with pytest.raises(TransactionOpen):
        position_after(connection)
    with Session(engine) as session, pytest.raises(TransactionOpen), client.read_your_writes(session):
        session.execute(_WRITE_TEXT, {"id": 16, "total": 1})


def test_a_session_that_holds_changes_back_is_an_open_transaction(client: Client, engine: Engine) -> None:
    with Session(engine) as session:
        with client.read_your_writes(session):
            session.add(Order(id=22, total=Decimal(1)))
            session.commit()
        assert total(client, 22) == 1
        with pytest.raises(TransactionOpen), client.read_your_writes(session):
            session.add(Order(id=23, total=Decimal(1)))


@pytest.mark.parametrize("how", ["closed", "terminated", "in a failed transaction"])
def test_a_connection_that_is_lost_after_the_commit_makes_the_read_wait_for_now(
    service: Service, client: Client, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = psycopg.connect(service.database.dsn)
    with client.read_your_writes(connection):
        connection.execute(_WRITE, [17, len(how)])
        connection.commit()
        if how == "closed":
            connection.close()
        elif how == "terminated":
            pid = connection.info.backend_pid
            assert service.database.execute("SELECT pg_terminate_backend(%s, 5000)", [pid]) == [(True,)]
        else:
            with suppress(psycopg.Error):
                connection.execute("SELECT 1 / 0")
    assert client._requests.floor.now
    assert total(client, 17) == len(how)
    assert not client._requests.floor.now
    assert "could not be read" in caplog.text
    connection.close()


async def test_the_asynchronous_client_reads_its_writes(service: Service) -> None:
    async with (
        AsyncClient(service.url, service.token, subscription=SUBSCRIPTION) as client,
        await psycopg.AsyncConnection.connect(service.database.dsn) as connection,
    ):
        for value in range(3):
            async with client.read_your_writes(connection), connection.transaction():
                await connection.execute(_WRITE, [18, value])
            async with client.read_your_writes(connection):
                await connection.execute(_WRITE, [18, -1])
                await connection.rollback()
            result = await client.query("SELECT total FROM orders WHERE id = 18")
            assert result.rows() == [(value,)]
            assert connection.info.transaction_status is pq.TransactionStatus.IDLE
        receipt = await client.wait(await position_after_async(connection), ["public.orders"])
        assert [table.name for table in receipt.tables] == ["orders"]


def test_another_process_waits_for_a_position_that_it_is_given(
    service: Service, client: Client, connection: psycopg.Connection
) -> None:
    connection.execute(_WRITE, [19, 7])
    connection.commit()
    position = position_after(connection)
    with Client(service.url, service.token) as other:
        other.at_least(position)
        assert total(other, 19) == 7
        result = other.query("SELECT count(*) FROM orders WHERE id = 19", "latest")
        assert result.receipt is not None
        assert result.receipt.position >= position
    assert client.wait(position).position == position


def test_a_position_that_an_idle_source_has_not_flushed_is_reached(
    service: Service, client: Client, connection: psycopg.Connection
) -> None:
    """Another session's open transaction has written after the commit: the log's inserted end is not its flushed end."""
    with service.database.connect() as other:
        other.execute("BEGIN")
        unflushed = 0
        for value in range(30):
            with client.read_your_writes(connection):
                connection.execute(_WRITE, [20, value])
                connection.commit()
                other.execute(_WRITE, [21, value])
            inserted, flushed = other.execute(
                "SELECT pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn(), total FROM orders WHERE id = 20"
            ).fetchall()[0]
            assert flushed == value
            rows = client.query("SELECT total FROM orders WHERE id = 20", timeout=5).rows()
            assert rows == [(value,)]
            unflushed += inserted  # The server's own processes flush now and then.
            if unflushed == 3:
                break
        assert unflushed == 3
        other.execute("ROLLBACK")
