"""The end of each window is a state that the source had, whatever its writers do at the same time."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from pymysql.connections import Connection

from tests.contract.source_mariadb import MariaDbOrigin
from tests.contract.source_material import DEADLINE_S, State, Tail, copied, described
from tests.fixtures.mariadb import MariaDbDatabase

pytestmark = pytest.mark.pg

TABLE = "CREATE TABLE things (id bigint PRIMARY KEY, u int UNIQUE, p int, v varchar(20), FOREIGN KEY (p) REFERENCES parents (id))"
_LOST = frozenset({1062, 1205, 1213, 1452, 1020})
"""Errors that a statement of the workload may meet: a value that is taken, a lost race, a parent that is missing."""
WRITERS = 4
CUTS = 12


def statements(chance: random.Random) -> Iterator[str]:
    """Changes of few rows, of which many do not take place."""
    one, other, value = chance.randrange(1, 30), chance.randrange(1, 30), chance.randrange(1, 40)
    u = chance.choice([str(value), "NULL"])
    yield chance.choice(
        [
            f"INSERT INTO things VALUES ({one}, {u}, {value % 5}, 'new')",
            f"INSERT IGNORE INTO things VALUES ({one}, {u}, {value % 7}, 'ignored')",
            f"INSERT INTO things VALUES ({one}, {u}, 1, 'new') ON DUPLICATE KEY UPDATE v = 'again', u = {other + 20}",
            f"INSERT IGNORE INTO things VALUES ({one}, {u}, 1, 'new') ON DUPLICATE KEY UPDATE u = {value}, id = {other}",
            f"REPLACE INTO things VALUES ({one}, {u}, 2, 'replaced')",
            f"UPDATE things SET v = CONCAT('v', {value}) WHERE id BETWEEN {one} AND {other}",
            f"UPDATE IGNORE things SET u = {value} WHERE id IN ({one}, {other})",
            f"UPDATE IGNORE things SET id = {other}, v = 'moved' WHERE id = {one}",
            f"UPDATE IGNORE things SET p = {value % 9} WHERE id <= {one}",
            f"UPDATE IGNORE things SET id = id + 1, u = u + 1 WHERE id < {one} ORDER BY id DESC",
            f"UPDATE things SET u = {value} WHERE id = {one}",
            f"UPDATE things a JOIN things b ON a.id = b.id + 1 SET a.u = NULL, b.v = 'joined' WHERE a.id = {one}",
            f"DELETE FROM things WHERE id IN ({one}, {other})",
            f"DELETE IGNORE FROM parents WHERE id = {value % 5}",
            f"DELETE FROM things ORDER BY id LIMIT {value % 3}",
        ]
    )


def work(connection: Connection, chance: random.Random) -> None:
    """One transaction; errors take back a statement, or all of it."""
    ends = ["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]
    with connection.cursor() as cursor:
        cursor.execute(f"SET tx_isolation = '{chance.choice(['READ-COMMITTED', 'REPEATABLE-READ'])}'")
        plan = ["BEGIN", *(each for _ in range(chance.randrange(1, 5)) for each in statements(chance))]
        if chance.random() < 0.3:
            inside = [each for _ in range(2) for each in statements(chance)]
            plan += ["SAVEPOINT s", *inside, chance.choice(["ROLLBACK TO s", "RELEASE SAVEPOINT s"])]
        for statement in [*plan, chance.choice(ends)]:
            try:
                cursor.execute(statement)
            except connection.Error as error:
                if error.args[0] == 1305:  # A deadlock took the savepoint back too.
                    continue
                if error.args[0] not in _LOST:
                    raise


@contextmanager
def writing(database: MariaDbDatabase, seed: int) -> Iterator[None]:
    stopping, failed = threading.Event(), list[BaseException]()

    def loop(number: int) -> None:
        try:
            with database.connect() as connection:
                chance = random.Random(seed * 100 + number)
                while not stopping.is_set():
                    work(connection, chance)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=loop, args=(n,), daemon=True) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert not failed, failed


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.chaos), pytest.param(3, marks=pytest.mark.chaos)]
)
def test_each_window_ends_with_the_rows_of_its_snapshot(mariadb: MariaDbDatabase, seed: int) -> None:
    mariadb.execute("CREATE TABLE parents (id int PRIMARY KEY);\nINSERT INTO parents VALUES (0), (1), (2), (3), (4)")
    mariadb.execute(TABLE)
    with ExitStack() as stack:
        origin = MariaDbOrigin(mariadb, stack)
        table, source = origin.table("things"), origin.source
        source.sent_tables.prepare([table], origin.slot)
        schema = described(origin, "things")
        cuts: list[tuple[object, State]] = []
        with writing(mariadb, seed):
            with source.reader.create(origin.slot) as snapshot:
                first, start = copied(source, schema, table, snapshot.name), snapshot.position
            for _ in range(CUTS):
                with source.copies.snapshot(DEADLINE_S) as cut:
                    cuts.append((cut.position, copied(source, schema, table, cut.name)))
        stream = source.log.open_stream(origin.slot, start, "penstock-order-1")
        stack.callback(stream.close)
        tail = Tail(stream, origin.scanner, start).past(source.log.now())
        for position, rows in cuts:
            assert tail.applied(schema, first, position) == rows, position
        assert len({repr(rows) for _, rows in cuts}) > CUTS // 2
