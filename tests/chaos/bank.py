"""A workload whose transactions keep sums constant, and the questions that find a half-applied one.

Money moves between accounts of two tables, and every move writes two entries that cancel each other. Besides there are
changing keys, large values left as they are, deletes, truncates, savepoints and large transactions rolled back: whatever
a crash could tear apart.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, LiteralString

import psycopg

from server.cli.client import Document
from tests.chaos import open_transactions, pouring
from tests.chaos.reader import Written
from tests.fixtures.rig import Rig

ACCOUNTS = 200
START_BALANCE = 1_000
TABLES = ("checking", "savings", "entries", "labels", "scratch", "moves", "vault", "poured")

Connection = psycopg.Connection[Any]

_DDL = f"""
CREATE TABLE checking (id integer PRIMARY KEY, balance bigint NOT NULL, statement text NOT NULL);
CREATE TABLE savings (branch integer, id integer, balance numeric(20, 2) NOT NULL, PRIMARY KEY (branch, id));
CREATE TABLE entries (move bigint, side smallint, amount bigint NOT NULL, PRIMARY KEY (move, side));
CREATE TABLE labels (name text PRIMARY KEY, holder integer NOT NULL UNIQUE);
CREATE TABLE scratch (n integer, payload text);
ALTER TABLE scratch REPLICA IDENTITY FULL;
CREATE SEQUENCE own_writes;
CREATE TABLE moves (move bigint NOT NULL, at timestamptz NOT NULL DEFAULT now());
ALTER TABLE checking ALTER COLUMN statement SET STORAGE EXTERNAL;
INSERT INTO checking SELECT n, {START_BALANCE}, repeat(md5(n::text), 100) FROM generate_series(1, {ACCOUNTS}) AS n;
INSERT INTO savings SELECT n % 7, n, {START_BALANCE} FROM generate_series(1, {ACCOUNTS}) AS n;
INSERT INTO labels SELECT 'label ' || n, n FROM generate_series(1, {ACCOUNTS}) AS n;
"""

SUMS = (
    "((SELECT sum(balance) FROM checking) + (SELECT sum(balance) FROM savings))::BIGINT,"
    " coalesce((SELECT sum(amount) FROM entries), 0)::BIGINT,"
    " (SELECT count(*) FROM entries) - 2 * (SELECT count(DISTINCT move) FROM entries),"
    " (SELECT count(DISTINCT holder) FROM labels), (SELECT count(*) FROM checking), (SELECT count(*) FROM savings),"
    " (SELECT count(*) FROM checking) - (SELECT count(*) FROM checking WHERE length(statement) = 3200),"
    f" {pouring.INVARIANTS}"
)
"""What holds also where deletes, and the old keys of rows whose key changed, are found later than other changes."""
SUMS_EXPECTED = [
    2 * ACCOUNTS * START_BALANCE,
    0,
    0,
    ACCOUNTS,
    ACCOUNTS,
    ACCOUNTS,
    0,
    *pouring.EXPECTED,
]
INVARIANTS = f"SELECT {SUMS}, (SELECT count(*) FROM labels), {open_transactions.INVARIANTS}"
EXPECTED = [*SUMS_EXPECTED, ACCOUNTS, *open_transactions.EXPECTED]


def create(connection: Connection) -> None:
    connection.execute((_DDL + open_transactions.DDL + pouring.DDL).encode())


def subscription_tables() -> list[Document]:
    return [{"schema": "public", "name": n, **({"insert_only": True} if n == "moves" else {})} for n in TABLES]


class OwnWrites:
    """Rows of `moves` with numbers of their own, and the positions after their commits."""

    table = "moves"
    errors = (psycopg.OperationalError,)

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def write(self) -> Written:
        with self._rig.connect() as connection:
            number = _one(connection, "SELECT -nextval('own_writes')")
            connection.execute("INSERT INTO moves (move) VALUES (%s)", [number])
            return Written(int(number), self._rig.position_of(connection))


def _one(connection: Connection, sql: str) -> Any:
    row = connection.execute(sql.encode()).fetchone()
    assert row is not None
    return row[0]


class Bank:
    """Open-loop threads that keep working through restarts of the source. `moves` counts what was acknowledged."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        seed: int,
        rate: float = 150,
        threads: int = 4,
        rest: Callable[[], float] | None = None,
    ) -> None:
        """`rest`: returns when the next transaction may begin, the seconds that all have rested up to then."""
        self.moves = 0
        self.failure: BaseException | None = None
        self.no_truncates = threading.Event()
        """A copy of a table that is truncated begins again; and some servers cannot decode a truncate that was under way when the slot
        was made."""
        self._connect = connect
        self._rate = rate
        self._rest = rest or (lambda: 0.0)
        self._numbers = itertools.count(1)
        self._turns = itertools.count()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed}/{n}"),), name=f"bank-{n}", daemon=True)
            for n in range(threads)
        ]
        self._began = 0.0

    def start(self) -> None:
        self._began = monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, rng: random.Random) -> None:
        while not self._stopping.is_set():
            try:
                with self._connect() as connection:
                    connection.execute("SET statement_timeout = '20s'")
                    while self._turn():
                        self._transact(connection, rng)
            except (psycopg.OperationalError, psycopg.Rollback):
                # the source is being restarted, perhaps in the middle of a rollback, or chose us in a deadlock
                self._stopping.wait(0.2)
            except BaseException as error:
                self.failure = error
                return

    def _turn(self) -> bool:
        due = self._began + next(self._turns) / self._rate + self._rest()
        self._stopping.wait(max(0.0, due - monotonic()))
        return not self._stopping.is_set()

    def _transact(self, connection: Connection, rng: random.Random) -> None:
        # Without one or the other the table grows for as long as nothing is truncated, and each shuffle updates most of its rows.
        statement = "DELETE FROM scratch" if self.no_truncates.is_set() else "TRUNCATE scratch"
        empty_scratch = partial(_empty_scratch, statement)
        kinds = [self._move, _rename, _swap_names, _shuffle_scratch, empty_scratch, _large_and_back, _large]
        kind = rng.choices(kinds, [80, 8, 4, 4, 0.3, 1, 0.5])[0]
        kind(connection, rng)
        if kind == self._move:
            with self._lock:
                self.moves += 1

    def _move(self, connection: Connection, rng: random.Random) -> None:
        number, amount = next(self._numbers), rng.randint(1, 50)
        source, target = rng.randint(1, ACCOUNTS), rng.randint(1, ACCOUNTS)
        with connection.transaction() as whole:
            if rng.random() < 0.3:
                with connection.transaction() as savepoint:
                    connection.execute("UPDATE checking SET balance = balance + 999 WHERE id = %s", [source])
                    _roll_back(savepoint)
            connection.execute("UPDATE checking SET balance = balance - %s WHERE id = %s", [amount, source])
            connection.execute("UPDATE savings SET balance = balance + %s WHERE id = %s", [amount, target])
            connection.execute("INSERT INTO entries VALUES (%s, 0, %s), (%s, 1, %s)", [number, -amount, number, amount])
            connection.execute("INSERT INTO moves (move) VALUES (%s)", [number])
            if number % 20 == 0:
                connection.execute("DELETE FROM entries WHERE move BETWEEN %s AND %s", [number - 400, number - 385])
            if rng.random() < 0.05:
                _roll_back(whole)


def _roll_back(transaction: psycopg.Transaction) -> None:
    raise psycopg.Rollback(transaction)


def _rename(connection: Connection, rng: random.Random) -> None:
    holder = rng.randint(1, ACCOUNTS)
    connection.execute("UPDATE labels SET name = %s WHERE holder = %s", [f"label {rng.random()}", holder])


def _swap_names(connection: Connection, rng: random.Random) -> None:
    """Two keys change places, by way of a third."""
    one, other = sorted(rng.sample(range(1, ACCOUNTS + 1), 2))
    with connection.transaction():
        rows = connection.execute(
            "SELECT name FROM labels WHERE holder IN (%s, %s) ORDER BY holder FOR UPDATE", [one, other]
        ).fetchall()
        connection.execute("UPDATE labels SET name = %s WHERE holder = %s", [f"on the way {one}", one])
        connection.execute("UPDATE labels SET name = %s WHERE holder = %s", [rows[0][0], other])
        connection.execute("UPDATE labels SET name = %s WHERE holder = %s", [rows[1][0], one])


def _shuffle_scratch(connection: Connection, rng: random.Random) -> None:
    """Equal rows without a key: some come, some change, some go."""
    with connection.transaction():
        connection.execute("INSERT INTO scratch SELECT n % 3, 'same' FROM generate_series(1, 6) AS n")
        connection.execute("UPDATE scratch SET payload = %s WHERE n = 1", [f"p{rng.randint(1, 3)}"])
        connection.execute("DELETE FROM scratch WHERE n = 2 AND random() < 0.5")


def _empty_scratch(statement: LiteralString, connection: Connection, rng: random.Random) -> None:
    with connection.transaction():
        connection.execute(statement)
        connection.execute("INSERT INTO scratch VALUES (%s, NULL)", [rng.randint(1, 3)])


def _large_and_back(connection: Connection, rng: random.Random) -> None:
    """More than the source holds in memory for decoding: it is streamed before it is rolled back."""
    with connection.transaction() as whole:
        connection.execute("INSERT INTO scratch SELECT n, repeat('x', 100) FROM generate_series(1, 3000) AS n")
        connection.execute("UPDATE checking SET balance = balance + 1")
        _roll_back(whole)


def _large(connection: Connection, rng: random.Random) -> None:
    """Streamed, with a savepoint rolled back in between, and committed."""
    with connection.transaction():
        connection.execute("INSERT INTO scratch SELECT n, 'kept' FROM generate_series(100, 2100) AS n")
        with connection.transaction() as savepoint:
            connection.execute("INSERT INTO scratch SELECT n, 'undone' FROM generate_series(1, 2000) AS n")
            _roll_back(savepoint)
        connection.execute("DELETE FROM scratch WHERE n >= 100")
