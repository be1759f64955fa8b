"""Tables of which only some operations are followed. Triggers on the source write a journal, which is played with those operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.model.operations import OPERATIONS
from engine.model.subscription import ConnectionSpec, QueueMode
from engine.platform.failpoints import Failpoint
from tests.fixtures.load import Load
from tests.fixtures.postgres import Database, Session
from tests.fixtures.replication import Replica, duckdb_target, subscription_spec, table
from tests.fixtures.waiting import wait_until
from tests.pg.bad_days.conftest import BadDay, Circumstances
from tests.pg.engine.killed_engines import arm, engine, wait_for

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]
Row = tuple[Any, ...]

SETS = {
    "i": frozenset({"insert"}),
    "it": frozenset({"insert", "truncate"}),
    "iu": frozenset({"insert", "update"}),
    "iut": frozenset({"insert", "update", "truncate"}),
    "idt": frozenset({"insert", "delete", "truncate"}),
    "iu_parts": frozenset({"insert", "update"}),
    "idt_parts": frozenset({"insert", "delete", "truncate"}),
    "all": OPERATIONS,
}
"""Tables by name, and the operations of each that are followed; two have partitions, between which keys move."""
SHOP = """
CREATE TABLE journal (no bigserial PRIMARY KEY, tab text, op text, old int, id int, n int, big text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'TRUNCATE' THEN INSERT INTO journal (tab, op) VALUES (TG_ARGV[0], TG_OP);
  ELSIF TG_OP = 'DELETE' THEN INSERT INTO journal (tab, op, old) VALUES (TG_ARGV[0], TG_OP, OLD.id);
  ELSIF TG_OP = 'INSERT' THEN INSERT INTO journal (tab, op, id, n, big) VALUES (TG_ARGV[0], TG_OP, NEW.id, NEW.n, NEW.big);
  ELSE INSERT INTO journal (tab, op, old, id, n, big) VALUES (TG_ARGV[0], TG_OP, OLD.id, NEW.id, NEW.n, NEW.big);
  END IF;
  RETURN NULL;
END $$;
CREATE TABLE bag (n int); ALTER TABLE bag REPLICA IDENTITY FULL;
"""
_PLAIN = "CREATE TABLE t_{0} (id int PRIMARY KEY, n int, big text); ALTER TABLE t_{0} REPLICA IDENTITY {1};"
_PARTS = """
CREATE TABLE t_{0} (id int PRIMARY KEY, n int, big text) PARTITION BY RANGE (id);
CREATE TABLE t_{0}_low PARTITION OF t_{0} FOR VALUES FROM (MINVALUE) TO (20); ALTER TABLE t_{0}_low REPLICA IDENTITY FULL;
CREATE TABLE t_{0}_high PARTITION OF t_{0} FOR VALUES FROM (20) TO (MAXVALUE); ALTER TABLE t_{0}_high REPLICA IDENTITY FULL;
"""
_FILLED = """
INSERT INTO t_{0} SELECT i, i, CASE WHEN i % 3 = 0 THEN (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 300) AS j) END
  FROM generate_series(1, 30) AS i;
CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON t_{0} FOR EACH ROW EXECUTE FUNCTION note('t_{0}');
CREATE TRIGGER cleared BEFORE TRUNCATE ON t_{0} EXECUTE FUNCTION note('t_{0}');
"""
_STREAMED = "SELECT coalesce(sum(stream_txns), 0) > 0 FROM pg_stat_replication_slots"
TABLES = [table(f"t_{name}", operations=operations) for name, operations in SETS.items()]


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")
    database.execute(SHOP)
    for name in SETS:
        made = _PARTS if "parts" in name else _PLAIN
        database.execute((made + _FILLED).format(name, "DEFAULT" if name == "all" else "FULL"))
    return database


def rows(database: Database, sql: str) -> list[Row]:
    return [tuple(row) for row in database.execute(sql)]


class Oracle:
    """The rows that the targets must have: those of the source when it is made, with the wanted operations of the journal since."""

    def __init__(self, shop: Database) -> None:
        self._shop = shop
        self._copied = {name: {row[0]: row for row in rows(shop, f"SELECT * FROM t_{name}")} for name in SETS}

    def rows_of(self, name: str) -> list[Row]:
        held, wanted = dict(self._copied[name]), SETS[name]
        journal = f"SELECT op, old, id, n, big FROM journal WHERE tab = 't_{name}' ORDER BY no"
        for op, old, key, *values in rows(self._shop, journal):
            moved = op == "UPDATE" and old != key
            if op == "TRUNCATE" and "truncate" in wanted:
                held.clear()
            if (op == "DELETE" or moved) and "delete" in wanted:
                del held[old]
            if op == "INSERT" or moved or (op == "UPDATE" and "update" in wanted):
                held[key] = (key, *values)
        return sorted(held.values())

    def assert_target(self, query: Callable[[str], list[Row]]) -> None:
        assert {name: query(f"SELECT id, n, big FROM t_{name} ORDER BY id") for name in SETS} == {
            name: self.rows_of(name) for name in SETS
        }


class Changes(Load):
    """Transactions that insert, update, move, delete and rarely truncate, of few keys, so that keys come back. Some have many rows, which
    the source sends before their commit, and parts that are rolled back."""

    def transact(self, connection: Session) -> None:
        with connection.transaction():
            for name in SETS:
                for _ in range(self.rng.randrange(4)):
                    self._change(connection, f"t_{name}", self.rng.randrange(1, 41), self.rng.randrange(1, 41))
                if self.rng.random() < 0.03:
                    connection.execute(f"TRUNCATE t_{name}".encode())
                if self.rng.random() < 0.01:
                    self._change_many(connection, f"t_{name}")

    def _change_many(self, connection: Session, name: str) -> None:
        n, undone = self.rng.randrange(1000), self.rng.random() < 0.5
        statements = [
            f"INSERT INTO {name} SELECT i, {n}, repeat('{n} ', 100) FROM generate_series(100, 600) AS i ON CONFLICT DO NOTHING",
            f"UPDATE {name} SET n = {n} WHERE id > 100 AND id % 2 = 0",
            f"DELETE FROM {name} WHERE id > 100 AND id % 3 = 0",
            f"UPDATE {name} SET id = id - 90 WHERE id = 100 AND NOT EXISTS (SELECT FROM {name} WHERE id = 10)",
        ]
        self.rng.shuffle(statements)
        connection.execute(b"SAVEPOINT many")
        for statement in statements:
            connection.execute(statement.encode())
        if undone:
            connection.execute(b"ROLLBACK TO many")
        # The log does not show whether a TRUNCATE within a savepoint was of the whole table or of one partition: it is copied again.
        connection.execute(b"RELEASE many")

    def _change(self, connection: Session, name: str, key: int, other: int) -> None:
        n = self.rng.randrange(1000)
        free = f"NOT EXISTS (SELECT FROM {name} WHERE id = {other})"
        statement = self.rng.choice(
            [
                f"INSERT INTO {name} VALUES ({key}, {n}, repeat('{n} ', 3000)) ON CONFLICT DO NOTHING",
                f"INSERT INTO {name} VALUES ({key}, {n}) ON CONFLICT DO NOTHING",
                f"UPDATE {name} SET n = {n} WHERE id BETWEEN {key} AND {key + 5}",
                f"UPDATE {name} SET id = {other} WHERE id = {key} AND {free}",
                f"DELETE FROM {name} WHERE id = {key}",
                f"DELETE FROM {name} WHERE id = {key}; INSERT INTO {name} VALUES ({key}, {n}, 'again')",
            ]
        )
        connection.execute(statement.encode())


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"], indirect=True)
def test_only_wanted_operations_reach_the_target(shop: Database, replicate: Replicate) -> None:
    oracle = Oracle(shop)
    replica = replicate(shop, TABLES)
    with Changes(shop.connect, 3) as load:
        load.more(60)
        replica.restart()
        load.more(60)
    replica.wait_state("running")
    replica.catch_up()
    oracle.assert_target(replica.query)
    wait_until(lambda: rows(shop, _STREAMED) == [(True,)])
    assert all(oracle.rows_of(name) != rows(shop, f"SELECT * FROM t_{name} ORDER BY id") for name in ("i", "iu"))
    assert "parked" not in replica.states().values()


def test_an_engine_that_dies_applies_each_wanted_change_once(
    shop: Database, target_kind: str, tmp_path: Path, armed: Path, request: pytest.FixtureRequest
) -> None:
    target = duckdb_target(tmp_path)
    if target_kind == "postgres":
        mart = request.getfixturevalue("database_on")(request.getfixturevalue("pg18"))
        target = ConnectionSpec("mart", "postgres", mart.settings)
    oracle = Oracle(shop)
    replica = BadDay(shop, tmp_path, [], Circumstances(spec=subscription_spec(shop, target, TABLES)))
    try:
        replica.wait_live()
        replica.close()
        with Changes(shop.connect, 1) as load:
            for point in (Failpoint.COMMIT_AFTER, Failpoint.COMMIT_BEFORE):
                with engine(replica, QueueMode.PERSIST, armed) as process:
                    wait_for(process, "t_all live")
                    load.more(20)
                    arm(armed, point, 2)
                    process.wait(60.0)
        replica.again()
        replica.wait_live()
        replica.catch_up()
        oracle.assert_target(replica.query)
    finally:
        replica.release()


def test_other_operations_mean_a_new_copy(shop: Database, replicate: Replicate) -> None:
    inserts, everything = replace(TABLES[0], operations=SETS["it"]), replace(TABLES[0], operations=OPERATIONS)
    replica = replicate(shop, [inserts, TABLES[-1]])
    shop.execute(
        "UPDATE t_i SET n = -1 WHERE id = 1; DELETE FROM t_i WHERE id = 2; UPDATE t_all SET n = -1 WHERE id = 1"
    )
    replica.catch_up()
    assert replica.query("SELECT id, n FROM t_i WHERE id < 3 ORDER BY id") == [(1, 1), (2, 2)]
    replica.replace(everything, TABLES[-1])
    replica.reports.wait(lambda _: "reloading" in replica.states_of("t_i") or None, "a new copy")
    replica.wait_live()
    shop.execute("DELETE FROM t_i WHERE id = 3")
    replica.assert_equal()
    assert "reloading" not in replica.states_of("t_all")


def test_a_comparison_says_that_the_table_differs_as_declared(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [TABLES[0], TABLES[-1]])
    shop.execute("DELETE FROM t_i WHERE id < 9; DELETE FROM t_all WHERE id < 9")
    verdicts = {verdict.source.name: verdict for verdict in replica.verify()}
    assert verdicts["t_all"].equal
    assert (verdicts["t_i"].status, verdicts["t_i"].code) == ("not_compared", "table_differs_as_declared")
    assert verdicts["t_i"].differences == ()


@pytest.mark.parametrize(
    ("name", "columns", "operations", "words"),
    [
        ("bag", "", SETS["idt"], "needs a key"),
        ("spelled", "(n numeric PRIMARY KEY)", SETS["iu"], "one text for each value"),
    ],
)
def test_a_table_that_cannot_be_followed_so_parks_alone(
    shop: Database, replicate: Replicate, name: str, columns: str, operations: frozenset[str], words: str
) -> None:
    if columns:
        shop.execute(f"CREATE TABLE {name} {columns}")
    replica = replicate(shop, [table(name, operations=operations), TABLES[-1]], live=False)
    parked = replica.wait_table(name, "parked")
    assert parked.code == "table_columns_unfit"
    assert words in (parked.reason or "")
    replica.wait_live("t_all")


def test_a_new_key_without_a_large_value_parks_the_table(shop: Database, replicate: Replicate) -> None:
    shop.execute("ALTER TABLE t_iu REPLICA IDENTITY DEFAULT")
    replica = replicate(shop, [TABLES[2], TABLES[-1]])
    shop.execute("UPDATE t_all SET id = 100 WHERE id = 3; UPDATE t_iu SET id = 100 WHERE id = 3")
    parked = replica.wait_table("t_iu", "parked")
    assert parked.code == "net_change_anomaly"
    assert "REPLICA IDENTITY FULL" in (parked.reason or "")
    replica.wait_live("t_all")
