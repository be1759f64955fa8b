"""The demonstration's schema and workload against a real PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Callable

import psycopg
import pytest

from server.demo import schema
from server.demo.embedded import EmbeddedPostgres
from server.demo.transactions import (
    MIX,
    ROLLED_BACK,
    Kind,
    Shop,
    abandon_order,
    place_with_second_thoughts,
    replace_card,
)
from server.demo.workload import Workload
from tests.chaos import bank
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg


@pytest.fixture
def shop_database(database: Database) -> Database:
    with database.connect() as connection:
        schema.create(connection, orders=50)
    return database


def test_tables_are_those_of_the_subscription(shop_database: Database) -> None:
    found = shop_database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert sorted(name for (name,) in found) == sorted(schema.TABLES)
    assert [t["name"] for t in schema.subscription_tables() if t.get("insert_only")] == ["order_events"]


def test_creating_again_changes_nothing(shop_database: Database) -> None:
    before = shop_database.execute("SELECT count(*) FROM orders")
    with shop_database.connect() as connection:
        schema.create(connection, orders=50)
    assert shop_database.execute("SELECT count(*) FROM orders") == before == [(50,)]


@pytest.mark.parametrize("kind", [kind for kind, _ in MIX], ids=lambda kind: kind.__name__)
def test_every_kind_commits_or_leaves_no_trace(shop_database: Database, kind: Kind) -> None:
    rows = " UNION ALL ".join(f"SELECT {name!r} || {name}::text AS t FROM {name}" for name in schema.TABLES)
    digest = f"SELECT md5(string_agg(t, '' ORDER BY t)) FROM ({rows})".encode()
    with shop_database.connect() as connection:
        before = connection.execute(digest).fetchone()
        kind(connection, random.Random(7), Shop.read_from(connection))
        after = connection.execute(digest).fetchone()
    assert (before == after) == (kind in ROLLED_BACK)


def test_savepoint_rolled_back_leaves_only_the_other_order(shop_database: Database) -> None:
    with shop_database.connect() as connection:
        shop = Shop.read_from(connection)
        place_with_second_thoughts(connection, random.Random(1), shop)
        abandon_order(connection, random.Random(1), shop)
        rows = connection.execute("SELECT id - 50, total, note FROM orders WHERE id > 50").fetchall()
    assert rows == [(1, 1, "reconsidered")]


def test_replaced_card_has_another_key(shop_database: Database) -> None:
    with shop_database.connect() as connection:
        replace_card(connection, random.Random(1), Shop.read_from(connection))
        assert connection.execute("SELECT count(*) FROM loyalty_cards WHERE card_no NOT LIKE '%-0'").fetchone() == (1,)


def test_open_loop_keeps_its_rate_and_counts_what_committed(shop_database: Database) -> None:
    load = Workload(shop_database.connect, rate=150, connections=3)
    load.start()
    with shop_database.connect() as connection:
        connection.execute("LISTEN never")
        list(connection.notifies(timeout=2.0))
    load.stop()
    assert load.failure is None
    assert 150 <= load.transactions + load.rolled_back <= 400
    placed = shop_database.execute("SELECT count(*) FROM order_events WHERE kind = 'placed'")[0][0]
    assert 0 < placed < load.transactions


def test_error_of_the_workload_is_told(shop_database: Database) -> None:
    shop_database.execute("DROP TABLE order_events")
    load = Workload(shop_database.connect, rate=200, connections=1)
    load.start()
    for thread in load._threads:
        thread.join(20)
    load.stop()
    assert isinstance(load.failure, psycopg.errors.UndefinedTable)


def test_bank_keeps_its_sums_through_a_crash(private_cluster: Callable[..., EmbeddedPostgres]) -> None:
    cluster = private_cluster(18, logical_decoding_work_mem="'64kB'")
    with cluster.connect() as connection:
        bank.create(connection)
    work = bank.Bank(cluster.connect, seed=3, rate=300)
    work.start()
    with cluster.connect() as connection:
        connection.execute("LISTEN never")
        list(connection.notifies(timeout=1.0))
    before = work.moves
    cluster.kill9()
    cluster.start()
    with cluster.connect() as connection:
        connection.execute("LISTEN never")
        list(connection.notifies(timeout=2.0))
    work.stop()
    assert work.failure is None
    assert work.moves > before > 0
    assert [list(row) for row in cluster.execute(bank.INVARIANTS)] == [bank.EXPECTED]
