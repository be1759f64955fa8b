"""The end of each window is a state that the source had, whatever its writers do at the same time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from pymysql.connections import Connection

from engine.model.identity import RelationId
from engine.model.position import Lsn
from engine.model.positions.windows import end_of
from tests.contract.source_mariadb import MariaDbOrigin
from tests.contract.source_material import DEADLINE_S, State, Tail, copied, described
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

Statements = Callable[[random.Random], Iterator[str]]

TABLE = """
CREATE TABLE parents (id int PRIMARY KEY);
INSERT INTO parents VALUES (0), (1), (2), (3), (4);
CREATE TABLE things (id bigint PRIMARY KEY, u int UNIQUE, p int, v varchar(20), FOREIGN KEY (p) REFERENCES parents (id))
"""
CASCADES = """
CREATE TABLE owners (id int PRIMARY KEY, code varchar(10) CHARACTER SET latin1 UNIQUE, u int UNIQUE);
CREATE TABLE blockers (id int PRIMARY KEY, owner int, FOREIGN KEY (owner) REFERENCES owners (id));
CREATE TABLE parts (id int PRIMARY KEY, owner int, code varchar(10) CHARACTER SET latin1, v int, g int AS (owner * 2) VIRTUAL,
    KEY (id, owner), FOREIGN KEY (owner) REFERENCES owners (id) ON DELETE CASCADE ON UPDATE CASCADE,
    FOREIGN KEY (code) REFERENCES owners (code) ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TABLE twins (id int PRIMARY KEY, boss int, v int, FOREIGN KEY (id) REFERENCES parts (id) ON DELETE CASCADE ON UPDATE CASCADE,
    FOREIGN KEY (boss) REFERENCES twins (id) ON DELETE SET NULL);
CREATE TABLE nodes (id int PRIMARY KEY, up int, a int, b int, FOREIGN KEY (up) REFERENCES nodes (id) ON DELETE CASCADE,
    FOREIGN KEY (a, b) REFERENCES parts (id, owner) ON DELETE SET NULL ON UPDATE CASCADE)
"""
"""Cascades of every action, on keys of the rows themselves, on several paths, to the same table, and of a table that is not followed."""
_LOST = frozenset({1062, 1205, 1213, 1451, 1452, 1020, 1296, 1761, 1762})
"""Errors that a statement of the workload may meet: a value that is taken, a lost race, a row that refers or is referred to."""
WRITERS = 4
CUTS = 12
TRANSACTIONS = 30
"""That end at least between two cuts."""


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
            # Without parents there would soon be no things any more.
            "INSERT IGNORE INTO parents VALUES (0), (1), (2), (3), (4)",
            f"DELETE FROM things ORDER BY id LIMIT {value % 3}",
        ]
    )


def cascading(chance: random.Random) -> Iterator[str]:
    """Changes of rows on which others depend, and of those others."""
    one, other, value = chance.randrange(1, 8), chance.randrange(1, 8), chance.randrange(1, 20)
    code, ignored = chance.choice("abcABC"), chance.choice(["", "IGNORE"])
    yield chance.choice(
        [
            f"INSERT IGNORE INTO owners VALUES ({one}, '{code}', {value % 9})",
            f"INSERT IGNORE INTO blockers VALUES ({one}, {other})",
            f"DELETE FROM blockers WHERE id >= {one}",
            f"INSERT IGNORE INTO owners VALUES ({other}, '{code}', NULL)",
            *[f"INSERT IGNORE INTO parts (id, owner, code, v) VALUES ({value}, {one}, '{code}', 0)"] * 6,
            *[f"INSERT IGNORE INTO twins VALUES ({value}, NULL, 0), ({value + 1}, {value}, 0)"] * 4,
            *[f"INSERT IGNORE INTO nodes SELECT {value + one}, {value}, id, owner FROM parts LIMIT 1"] * 4,
            f"INSERT IGNORE INTO nodes VALUES ({value}, NULL, NULL, NULL), ({value + 1}, {value}, {one}, {other})",
            f"DELETE {ignored} FROM owners WHERE id IN ({one}, {other})",
            f"UPDATE {ignored} owners SET id = {other} WHERE id = {one}",
            f"UPDATE {ignored} owners SET id = id + 3, code = UPPER(code) WHERE id < {one} ORDER BY id DESC",
            f"UPDATE {ignored} owners SET code = '{code}', u = {value % 9} WHERE id = {one}",
            f"REPLACE INTO owners VALUES ({one}, '{code}', {value % 9})",
            f"INSERT INTO owners VALUES ({one}, '{code}', 1) ON DUPLICATE KEY UPDATE id = {other}, code = 'odd'",
            f"UPDATE {ignored} parts SET id = {value + 20} WHERE id = {value}",
            f"UPDATE parts SET owner = {other}, v = v + 1 WHERE owner = {one}",
            f"DELETE p FROM parts p JOIN owners o ON o.id = p.owner WHERE o.id = {one}",
            f"DELETE o, p FROM owners o LEFT JOIN parts p ON p.owner = o.id WHERE o.id = {one}",
            f"DELETE {ignored} FROM twins WHERE id = {value}",
            f"UPDATE {ignored} nodes SET up = {one} WHERE id = {value}",
            f"DELETE FROM nodes WHERE id = {value}",
        ]
    )


WORKLOADS = {"things": (TABLE, ("things",), statements), "cascades": (CASCADES, ("parts", "twins", "nodes"), cascading)}


def work(connection: Connection, chance: random.Random, statements: Statements) -> None:
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
def writing(database: MariaDbDatabase, seed: int, statements: Statements) -> Iterator[Callable[[], None]]:
    """Writers, and a function that waits until they have ended some more transactions."""
    stopping, failed, ended = threading.Event(), list[BaseException](), [0] * WRITERS

    def more() -> None:
        until = sum(ended) + TRANSACTIONS
        wait_until(lambda: failed or sum(ended) >= until)

    def loop(number: int) -> None:
        try:
            with database.connect() as connection:
                chance = random.Random(seed * 100 + number)
                while not stopping.is_set():
                    work(connection, chance, statements)
                    ended[number] += 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=loop, args=(n,), daemon=True) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield more
    finally:
        stopping.set()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert not failed, failed


def doubtful(database: MariaDbDatabase) -> dict[RelationId, Lsn]:
    """The tables of which changes may be missing, and from where: they would be copied again."""
    query = """SELECT s.relation, MIN(c.`window`) FROM penstock.changes c JOIN penstock.sources s ON s.id = c.source
        WHERE c.op = 'S' GROUP BY s.relation"""
    return {RelationId(relation): end_of(window) for relation, window in database.execute(query)}


SEEDS = [1, pytest.param(2, marks=pytest.mark.chaos), pytest.param(3, marks=pytest.mark.chaos)]


def _different(cuts: list[tuple[Lsn, dict[str, State]]]) -> int:
    """How many states they show."""
    return len({repr(rows) for _, rows in cuts})


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_window_ends_with_the_rows_of_its_snapshot(mariadb: MariaDbDatabase, seed: int, workload: str) -> None:
    created, names, statements = WORKLOADS[workload]
    mariadb.execute(created)
    with ExitStack() as stack:
        origin = MariaDbOrigin(mariadb, stack)
        tables, source = {name: origin.table(name) for name in names}, origin.source
        source.sent_tables.prepare(list(tables.values()), origin.slot)
        schemas = {name: described(origin, name) for name in names}

        def read(snapshot: str) -> dict[str, State]:
            return {name: copied(source, schemas[name], tables[name], snapshot) for name in names}

        cuts: list[tuple[Lsn, dict[str, State]]] = []
        with writing(mariadb, seed, statements) as more:
            with source.reader.create(origin.slot) as snapshot:
                first, start = read(snapshot.name), snapshot.position
            # Chance decides whether a statement changes rows.
            while len(cuts) < CUTS or (_different(cuts) <= CUTS // 2 and len(cuts) < 10 * CUTS):
                more()
                with source.copies.snapshot(DEADLINE_S) as cut:
                    cuts.append((cut.position, read(cut.name)))
        stream = source.log.open_stream(origin.slot, start, "penstock-order-1")
        stack.callback(stream.close)
        tail = Tail(stream, origin.scanner, start).past(source.log.now())
        doubted = doubtful(mariadb)
        compared = 0
        for position, rows in cuts:
            for name in names:
                if position < doubted.get(schemas[name].relation, end_of(1 << 30)):
                    compared += 1
                    assert tail.applied(schemas[name], first[name], position) == rows[name], (name, position)
        assert compared
        assert _different(cuts) > CUTS // 2
