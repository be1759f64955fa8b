"""The shadow log is kept small, its readers are independent, and it gives way before it fills the source."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from engine.model.subscription import ConnectionSpec, GuardPolicy
from engine.sources.postgres_triggers.source import TriggerSource
from engine.sources.postgres_triggers.windows import Pruned, prune
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


CHANGES, AT_ONCE = 12_000, 1_000
COUNTERS = """
SELECT t.seq_tup_read::bigint, i.idx_tup_read::bigint FROM pg_stat_user_tables t JOIN pg_stat_user_indexes i USING (relid)
WHERE t.schemaname = 'penstock' AND t.relname = 'changes'
"""


def test_the_cost_of_reading_and_removing_does_not_grow_with_the_shadow_log(shop: Database) -> None:
    """Without statistics of the table, and while an older transaction keeps removed rows in its index."""
    reader = "penstock_counted"
    with closing(TriggerSource(ConnectionSpec("shop", "postgres", shop.settings))) as source:
        source.sent_tables.prepare([table("orders")], reader)
        shop.execute("ALTER TABLE penstock.changes SET (autovacuum_enabled = off)")
        with source.reader.create(reader) as snapshot:
            start = snapshot.position
        shop.execute(
            f"DO $$ BEGIN FOR n IN 1..{CHANGES // 3} LOOP UPDATE orders SET note = n::text WHERE id < 4; COMMIT; END LOOP; END $$"
        )
        before = shop.execute(COUNTERS)[0]
        with shop.connect() as older:
            older.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            older.execute("SELECT pg_current_xact_id()")
            with closing(source.log.open_stream(reader, start, reader)) as stream:
                rows = 0
                while (chunk := stream.read(0.0)) is not None:
                    rows += len(chunk.offsets) - 1
            with shop.connect() as connection:
                connection.execute("UPDATE penstock.readers SET durable = (SELECT max(no) FROM penstock.windows)")
                pruned = Pruned()
                for _ in range(CHANGES // AT_ONCE):
                    pruned = prune(connection, AT_ONCE, pruned)
        counted = [int(str(now)) - int(str(was)) for now, was in zip(shop.execute(COUNTERS)[0], before, strict=True)]
        assert source.reader.remove(reader) == []
    assert rows > CHANGES
    assert pruned != Pruned()
    whole, by_index = counted
    assert whole == 0, "the whole table was read"
    # Once for the transactions, once for the rows, once to remove them.
    assert by_index < 4 * CHANGES


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
