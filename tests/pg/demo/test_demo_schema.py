"""The demonstration's schema against a real PostgreSQL, and the bank of other tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from server.demo import schema
from server.demo.embedded import EmbeddedPostgres
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
