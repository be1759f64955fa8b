"""Staging tables: an applier in SQL alone rebuilds the target's tables from them, whatever ends in between."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.model.identity import TableName
from engine.model.soft_delete import DeleteMode
from engine.model.subscription import BatchPolicy, ConnectionSpec, QueueMode
from engine.platform.failpoints import Failpoint
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, duckdb_target, subscription_spec, table
from tests.fixtures.staging_applier import StagingApplier
from tests.pg.bad_days.conftest import BadDay, Circumstances
from tests.pg.engine.killed_engines import arm, engine, wait_for
from tests.pg.engine.repairing import plant, repaired

pytestmark = pytest.mark.pg

SHOP = """
CREATE TABLE orders (id int PRIMARY KEY, total numeric(12, 2), big text);
CREATE TABLE lines (order_id int, n int, sku text, PRIMARY KEY (order_id, n));
CREATE TABLE notes (n int, body text); ALTER TABLE notes REPLICA IDENTITY FULL;
CREATE TABLE marks (xid bigint PRIMARY KEY);
INSERT INTO orders SELECT i, i * 1.5, (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 300) AS j)
  FROM generate_series(1, 30) AS i;
INSERT INTO lines SELECT i % 30, i, 'sku' || i FROM generate_series(1, 60) AS i;
INSERT INTO notes SELECT i % 5, 'note' FROM generate_series(1, 20) AS i;
"""
KEYS = {"orders": ["id"], "lines": ["order_id", "n"], "notes": [], "marks": ["xid"]}
TABLES = [table(name, staging=True) for name in KEYS]
MARK = "INSERT INTO marks SELECT pg_current_xact_id()::text::bigint"
Target = tuple[ConnectionSpec, Database | None]


@pytest.fixture(params=["duckdb", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "duckdb":
        return duckdb_target(tmp_path), None
    database = request.getfixturevalue("database_on")(request.getfixturevalue("pg18"))
    return ConnectionSpec("mart", "postgres", database.settings), database


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


@pytest.fixture
def replica(shop: Database, target: Target, tmp_path: Path) -> Iterator[BadDay]:
    spec = subscription_spec(shop, target[0], TABLES, batch=BatchPolicy(max_transactions=7))
    found = BadDay(shop, tmp_path, [], Circumstances(spec=spec))
    try:
        found.wait_live()
        yield found
    finally:
        found.release()


def applier_of(replica: Replica, target: Target, keys: dict[str, list[str]] = KEYS) -> StagingApplier:
    return StagingApplier(target[0], target[1], str(replica.spec.name), keys)


STATEMENTS: list[Callable[[random.Random], str]] = [
    lambda rng: f"UPDATE orders SET total = total + 1 WHERE id % 7 = {rng.randrange(7)}",
    lambda rng: (
        f"INSERT INTO orders VALUES ({rng.randrange(40)}, 1, 'short') ON CONFLICT (id) DO UPDATE SET total = -1"
    ),
    lambda rng: f"DELETE FROM orders WHERE id = {rng.randrange(40)}",
    lambda rng: f"UPDATE orders SET id = id + 1000 WHERE id = {rng.randrange(40)}",
    lambda rng: "UPDATE orders SET id = id - 1000 WHERE id > 1000 AND id - 1000 NOT IN (SELECT id FROM orders)",
    lambda rng: f"UPDATE lines SET sku = sku || 'x' WHERE order_id = {rng.randrange(30)}",
    lambda rng: f"DELETE FROM lines WHERE n = {rng.randrange(60)}",
    lambda rng: f"INSERT INTO lines VALUES (1, {rng.randrange(60)}, 'new') ON CONFLICT DO NOTHING",
    lambda rng: f"INSERT INTO notes VALUES ({rng.randrange(5)}, 'note'), (NULL, 'other')",
    lambda rng: f"DELETE FROM notes WHERE ctid = (SELECT min(ctid) FROM notes WHERE n = {rng.randrange(5)})",
    lambda rng: f"UPDATE notes SET n = n + 1 WHERE n = {rng.randrange(5)}",
]
RARE = ["TRUNCATE lines", "TRUNCATE lines, notes", "DELETE FROM orders WHERE id > 20"]


def change(shop: Database, rng: random.Random, count: int) -> None:
    """Random transactions, of which each notes its id."""
    with shop.connect() as session:
        for _ in range(count):
            session.execute("BEGIN")
            session.execute(MARK.encode())
            for _ in range(rng.randint(1, 5)):
                rare = rng.random() < 0.05
                session.execute((rng.choice(RARE) if rare else rng.choice(STATEMENTS)(rng)).encode())
            session.execute("ROLLBACK" if rng.random() < 0.1 else "COMMIT")


def assert_rebuilt(applier: StagingApplier, shop: Database) -> None:
    for name in KEYS:
        on_target = Counter(applier.rows(name, applied=False))
        assert Counter(applier.rows(name, applied=True)) == on_target, name
        assert Counter(shop.execute(f"SELECT * FROM {name}")) == on_target, name


def units(applier: StagingApplier) -> list[tuple[Any, ...]]:
    """What the applier has kept of the transactions: id, gtid and type."""
    with applier.session() as run:
        return run('SELECT "transaction", gtid, type FROM applied.units ORDER BY position')


def assert_each_once(applier: StagingApplier, shop: Database) -> None:
    expected = [(xid, None, "local") for (xid,) in shop.execute("SELECT xid FROM marks")]
    assert Counter(units(applier)) == Counter(expected)
    with applier.session() as run:
        assert run("SELECT count(*) FROM applied.units WHERE commit_time IS NULL") == [(0,)]


@pytest.mark.parametrize(
    "points",
    [
        [Failpoint.COMMIT_BEFORE, Failpoint.COMMIT_AFTER],
        pytest.param(
            [Failpoint.COMMIT_AFTER, Failpoint.BATCH_AFTER_JOB, Failpoint.CONFIRM_BEFORE] * 3, marks=pytest.mark.chaos
        ),
    ],
    ids=["once", "often"],
)
def test_tables_are_rebuilt_after_kills(
    shop: Database, replica: BadDay, target: Target, armed: Path, points: list[Failpoint]
) -> None:
    applier, rng = applier_of(replica, target), random.Random(3)
    change(shop, rng, 20)
    replica.catch_up()
    replica.close()
    applied = applier.apply(3)
    assert applied > 0
    for point in points:
        with engine(replica, QueueMode.PERSIST, armed) as process:
            wait_for(process, "orders live")
            arm(armed, point, 2)
            change(shop, rng, 30)
            process.wait(60.0)
        applier.apply(rng.choice([1, 4, 1000]))
    replica.again()
    change(shop, rng, 20)
    replica.assert_equal()
    replica.close()
    applier.apply(2)
    assert_rebuilt(applier, shop)
    assert_each_once(applier, shop)


def test_a_reload_says_that_the_table_is_to_be_read_again(shop: Database, replica: BadDay, target: Target) -> None:
    applier, rng = applier_of(replica, target), random.Random(5)
    change(shop, rng, 5)
    replica.catch_up()
    replica.pipeline.reload("r1", [replica.table_id("orders"), replica.table_id("notes")])
    replica.wait_reload("r1")
    change(shop, rng, 5)
    replica.assert_equal()
    replica.close()
    with applier.session() as run:
        assert run("SELECT count(*) FROM orders__cd WHERE _op = 'R'") == [(2,)]
    applier.apply(2)
    assert_rebuilt(applier, shop)


def test_columns_follow_the_table(shop: Database, replica: BadDay, target: Target) -> None:
    applier = applier_of(replica, target)
    shop.execute("UPDATE orders SET total = 7 WHERE id = 1")
    replica.catch_up()
    shop.execute("ALTER TABLE orders ADD COLUMN seen int; UPDATE orders SET seen = 3 WHERE id = 2")
    replica.catch_up()
    shop.execute("ALTER TABLE orders RENAME COLUMN seen TO noted; DELETE FROM orders WHERE id = 3")
    replica.assert_equal()
    replica.close()
    with applier.session() as run:
        found = run("SELECT _op, id, total, noted, big IS NULL FROM orders__cd WHERE _op <> 'R' ORDER BY _position, _n")
    assert [(op, id_, noted, bare) for op, id_, _, noted, bare in found] == [
        ("U", 1, None, False),
        ("U", 2, 3, False),
        ("D", 3, None, True),
    ]


def test_a_large_transaction_is_one(shop: Database, replica: BadDay, target: Target) -> None:
    """It is sent while it is open, and its changes are computed in slices."""
    applier = applier_of(replica, target)
    with shop.connect() as session, session.transaction():
        session.execute(MARK.encode())
        session.execute("INSERT INTO orders SELECT i, 1, repeat('x', 200) FROM generate_series(5000, 30000) AS i")
        session.execute("UPDATE orders SET total = 2 WHERE id % 2 = 0")
        session.execute("DELETE FROM orders WHERE id % 3 = 0")
    replica.assert_equal()
    replica.close()
    applier.apply(2)
    assert_rebuilt(applier, shop)
    assert_each_once(applier, shop)


def test_a_name_that_is_taken_parks_the_table(shop: Database, target: Target, tmp_path: Path) -> None:
    clash = replace(table("notes"), target=TableName("public", "orders__cd"))
    spec = subscription_spec(shop, target[0], [clash, table("marks", staging=True)])
    first = BadDay(shop, tmp_path, [], Circumstances(spec=spec))
    try:
        first.wait_live()
        first.close()
        first.again(replace(spec, tables=(clash, table("orders", staging=True))))
        parked = first.wait_table("orders", "parked")
        assert parked.code == "table_name_collision"
        assert "orders__cd" in (parked.reason or "")
    finally:
        first.release()


def reloads(applier: StagingApplier, name: str) -> int:
    with applier.session() as run:
        return int(run(f"SELECT count(*) FROM {name}__cd WHERE _op = 'R'")[0][0])


def test_what_a_table_missed_is_to_be_read_again(shop: Database, replica: BadDay, target: Target) -> None:
    """Changes of a paused table, and rows that a repair wrote."""
    applier, rng = applier_of(replica, target), random.Random(8)
    paused = [replace(one, paused=one.source.name == "orders") for one in TABLES]
    replica.replace(*paused)
    replica.wait_table("orders", "paused")
    change(shop, rng, 5)
    replica.catch_up()
    replica.replace(*TABLES)
    replica.wait_live()
    replica.assert_equal()
    plant(replica, ["UPDATE public.lines SET sku = 'wrong' WHERE n = (SELECT min(n) FROM public.lines)"])
    assert repaired(replica)["lines"].repaired is not None
    change(shop, rng, 5)
    replica.assert_equal()
    replica.close()
    assert [reloads(applier, name) for name in ("orders", "lines", "marks")] == [2, 2, 1]
    applier.apply(2)
    assert_rebuilt(applier, shop)


def test_staging_tables_begin_again_with_another_log(shop: Database, replica: BadDay, target: Target) -> None:
    applier, rng = applier_of(replica, target), random.Random(9)
    change(shop, rng, 5)
    replica.catch_up()
    replica.close()
    shop.execute(f"SELECT pg_drop_replication_slot('{replica.spec.reader}')")
    replica.again()
    replica.wait_state("failed")
    replica.reload_all()
    replica.wait_state("running")
    replica.wait_live()
    replica.assert_equal()
    replica.close()
    with applier.session() as run:
        assert run("SELECT count(*) FROM penstock.uow") == [(0,)]
        assert run("SELECT _op FROM orders__cd") == [("R",)]
    replica.again()
    replica.wait_live()
    change(shop, rng, 5)
    replica.assert_equal()
    replica.close()
    applier.apply(2)
    assert_rebuilt(applier, shop)


def test_other_kinds_of_tables(shop: Database, target: Target, tmp_path: Path) -> None:
    """Inserts only, computed columns, deleted rows that stay; and a transaction that leaves nothing."""
    shop.execute("CREATE TABLE events (n int)")
    shop.execute(
        "CREATE TABLE made (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED, big text)"
    )
    shop.execute("INSERT INTO made (id, n, big) SELECT id, id, big FROM orders")
    tables = [
        table("events", insert_only=True, staging=True),
        table("made", staging=True),
        table("lines", deletes=DeleteMode.MARK, staging=True, history=True),
    ]
    replica = BadDay(shop, tmp_path, [], Circumstances(spec=subscription_spec(shop, target[0], tables)))
    try:
        replica.wait_live()
        shop.execute("INSERT INTO events VALUES (1), (1), (2)")
        shop.execute("UPDATE made SET n = n + 1 WHERE id < 9; DELETE FROM made WHERE id = 9")
        shop.execute("UPDATE made SET id = id + 100 WHERE id < 5; INSERT INTO made (id, n) VALUES (1, 1)")
        shop.execute("DELETE FROM lines WHERE n < 30; UPDATE lines SET sku = 'x' WHERE n > 50")
        shop.execute("INSERT INTO made (id) VALUES (77); DELETE FROM made WHERE id = 77")
        shop.execute("TRUNCATE events; INSERT INTO events VALUES (3)")
        replica.assert_equal()
        replica.close()
        applier = applier_of(replica, target, {"events": [], "made": ["id"]})
        with applier.session() as run:
            ops = run("SELECT _op, count(*) FROM lines__cd WHERE _op <> 'R' GROUP BY _op ORDER BY _op")
            assert ops == [("D", 29), ("U", 10)]
            assert run("SELECT count(*) FROM penstock.uow") == [(6,)]
        assert applier.apply(1) == 6
        for name in ("events", "made"):
            rebuilt = Counter(applier.rows(name, applied=True))
            assert rebuilt == Counter(applier.rows(name, applied=False)), name
            assert rebuilt == Counter(shop.execute(f"SELECT * FROM {name}")), name
    finally:
        replica.release()
