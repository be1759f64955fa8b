"""The shadow log is kept small, its readers are independent, and it gives way before it fills the source."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from engine.model.subscription import ConnectionSpec, GuardPolicy
from engine.sources.postgres_triggers.source import TriggerSource
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.fixtures.waiting import wait_until
from tests.pg.postgres_triggers.conftest import Replicate

pytestmark = pytest.mark.pg

BUDGET = 2 * 1024 * 1024


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, note text); CREATE TABLE other (id bigint PRIMARY KEY, note text)"
    )
    database.execute("INSERT INTO orders SELECT i, 'note' FROM generate_series(1, 100) i")
    return database


def recorded(database: Database) -> int:
    return int(str(database.execute("SELECT count(*) FROM penstock.changes")[0][0]))


def test_what_all_readers_have_is_removed_and_a_dead_reader_holds_it(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, "orders")
    shop.execute("UPDATE orders SET note = 'first'")
    replica.catch_up()
    wait_until(lambda: recorded(shop) == 0, 20)
    with closing(TriggerSource(ConnectionSpec("shop", "postgres", shop.settings))) as source:
        source.sent_tables.prepare([table("orders")], "penstock_dead")
        with source.reader.create("penstock_dead"):
            pass
        shop.execute("UPDATE orders SET note = 'second'")
        replica.catch_up()
        own = replica.spec.reader
        wait_until(lambda: (source.reader.status(own).retained_bytes, recorded(shop)) == (0, 100), 20)
        assert source.reader.status("penstock_dead").retained_bytes > 5_000
        assert source.reader.remove("penstock_dead") == []
    shop.execute("UPDATE orders SET note = 'third'")
    replica.assert_equal()
    wait_until(lambda: recorded(shop) == 0, 20)


def test_recording_stops_before_the_shadow_log_fills_the_source(shop: Database, replicate: Replicate) -> None:
    replica = replicate(
        shop,
        "orders",
        retained_log_budget_bytes=BUDGET,
        guard=GuardPolicy(),
        guard_interval_s=0.2,
        guard_patience_s=0.5,
    )
    replica.desire_paused()
    for _ in range(4):
        shop.execute(
            "UPDATE orders SET note = (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 250))"
        )
    failed = replica.wait_state("failed")
    assert failed.code == "slot_dropped"
    assert recorded(shop) == 0
    assert shop.execute("SELECT count(*) FROM pg_trigger WHERE tgname LIKE '!penstock%%'") == [(0,)]
    replica.pipeline.reload("all", None)
    replica.desire_running()
    replica.wait_reload("all")
    replica.satisfied()
    shop.execute("UPDATE orders SET note = 'after it'")
    replica.assert_equal()


def test_two_subscriptions_read_one_shadow_log(shop: Database, replicate: Replicate) -> None:
    one, other = replicate(shop, "orders"), replicate(shop, "orders", "other")
    shop.execute("UPDATE orders SET note = 'both'; INSERT INTO other VALUES (1, 'one only')")
    one.assert_equal()
    other.assert_equal()
    one.close()
    with closing(TriggerSource(one.spec.source)) as source:
        assert source.reader.remove(one.spec.reader) == []
    shop.execute("UPDATE orders SET note = 'still recorded'")
    other.assert_equal()


def test_cascades_are_recorded(shop: Database, replicate: Replicate) -> None:
    shop.execute(
        "CREATE TABLE lines (id int PRIMARY KEY, order_id bigint REFERENCES orders ON DELETE CASCADE ON UPDATE CASCADE);"
        "CREATE TABLE marks (id int PRIMARY KEY, line int REFERENCES lines ON DELETE SET NULL);"
        "INSERT INTO lines SELECT i, i FROM generate_series(1, 50) i; INSERT INTO marks SELECT i, i FROM generate_series(1, 50) i"
    )
    replica = replicate(shop, "lines", "marks")
    shop.execute("DELETE FROM orders WHERE id < 10; UPDATE orders SET id = id + 1000 WHERE id < 20")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM marks WHERE line IS NULL") == [(9,)]


def test_prepared_transactions_come_when_they_are_committed(
    private_cluster: Callable[..., object], database_on: Callable[..., Database], replicate: Replicate
) -> None:
    database = database_on(private_cluster(18, max_prepared_transactions="5"))
    database.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, note text); INSERT INTO orders VALUES (1, 'a'), (2, 'b')"
    )
    replica = replicate(database, "orders")
    with database.connect() as connection:
        for name, key in (("kept", 1), ("gone", 2)):
            connection.execute("BEGIN")
            connection.execute("UPDATE orders SET note = 'prepared' WHERE id = %s", [key])
            connection.execute(f"PREPARE TRANSACTION '{name}'".encode())
    database.execute("INSERT INTO orders VALUES (3, 'between')")
    replica.catch_up()
    assert replica.query("SELECT note FROM orders ORDER BY id") == [("a",), ("b",), ("between",)]
    database.execute("COMMIT PREPARED 'kept'")
    database.execute("ROLLBACK PREPARED 'gone'")
    replica.assert_equal()
    assert replica.query("SELECT note FROM orders ORDER BY id") == [("prepared",), ("b",), ("between",)]


def test_a_window_cannot_be_closed_by_an_older_snapshot(shop: Database, replicate: Replicate) -> None:
    replicate(shop, "orders")
    with shop.connect() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(Exception, match="READ COMMITTED"):
            connection.execute("SELECT penstock.close_window()")
