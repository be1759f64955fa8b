"""Columns that have another name on the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.model.fault import FaultKind
from engine.model.partitions import ListBound
from engine.model.quarantine import RefusedPolicy
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE orders (id int PRIMARY KEY, n int, note text, twice int GENERATED ALWAYS AS (n * 2) STORED);
CREATE TABLE bag (n int, note text);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO orders SELECT i, i, 'n' || i FROM generate_series(1, 60) i;
INSERT INTO bag SELECT i % 7, 'n' FROM generate_series(1, 60) i;
"""
ORDERS = {"id": "order id", "n": "note", "note": "n", "twice": "double"}


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def columns(replica: Replica, name: str) -> list[str]:
    found = replica.query(f"SELECT column_name FROM information_schema.columns WHERE table_name = '{name}'")
    return sorted(column for (column,) in found)


@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"], indirect=True)
def test_columns_are_followed_under_their_names_on_the_target(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders", rename=ORDERS), table("bag", rename={"note": "word"})])
    shop.execute("UPDATE orders SET n = n + 1, note = NULL WHERE id < 9; UPDATE orders SET id = id + 100 WHERE id > 50")
    shop.execute("DELETE FROM orders WHERE id = 20; DELETE FROM bag WHERE n = 3; UPDATE bag SET note = 'm' WHERE n = 4")
    replica.assert_equal()
    assert columns(replica, "orders") == ["double", "n", "note", "order id"]
    assert columns(replica, "bag") == ["n", "word"]
    assert replica.query('SELECT "order id", note, n, "double" FROM orders WHERE "order id" IN (3, 10) ORDER BY 1') == [
        (3, 4, None, 8),
        (10, 10, "n10", 20),
    ]


def test_the_schema_of_the_source_changes_under_them(shop: Database, replicate: Replicate) -> None:
    orders, bag = table("orders", rename={"note": "word", "later": "late"}), table("bag")
    replica = replicate(shop, [orders, bag])
    shop.execute("ALTER TABLE orders ADD COLUMN later int DEFAULT 5; UPDATE orders SET later = 6 WHERE id < 9")
    replica.assert_equal()
    assert columns(replica, "orders") == ["id", "late", "n", "twice", "word"]
    shop.execute("ALTER TABLE orders RENAME COLUMN note TO remark; UPDATE orders SET remark = 'r' WHERE id < 9")
    replica.assert_equal()
    assert columns(replica, "orders") == ["id", "late", "n", "remark", "twice"]
    replica.replace(replace(orders, rename={"remark": "word", "later": "late"}), bag)
    shop.execute("ALTER TABLE orders ALTER later TYPE bigint; INSERT INTO orders (id, n, later) VALUES (900, 1, 9)")
    replica.reports.wait(lambda _: "word" in columns(replica, "orders") or None, "the column has its name")
    replica.wait_live()
    shop.execute("ALTER TABLE orders DROP COLUMN later; UPDATE orders SET remark = 's' WHERE id = 900")
    replica.assert_equal()
    assert columns(replica, "orders") == ["id", "n", "twice", "word"]
    replica.restart()
    replica.wait_state("running")
    shop.execute("UPDATE orders SET remark = 't' WHERE id < 4")
    replica.assert_equal()


def test_two_columns_of_one_name_park_their_table_alone(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders", rename={"note": "n"}), table("bag")], live=False)
    parked = replica.wait_table("orders", "parked")
    assert parked.code == FaultKind.TABLE_COLUMNS_UNFIT.value
    assert "one name on the target: n" in (parked.reason or "")
    replica.wait_live("bag")


def test_a_new_column_that_has_a_name_that_was_given_parks_its_table(shop: Database, replicate: Replicate) -> None:
    orders, bag = table("orders", rename={"note": "word"}), table("bag")
    replica = replicate(shop, [orders, bag])
    shop.execute("ALTER TABLE orders ADD COLUMN word text; UPDATE orders SET word = 'w' WHERE id < 4")
    assert replica.wait_table("orders", "parked").code == FaultKind.TABLE_COLUMNS_UNFIT.value
    shop.execute("UPDATE bag SET note = 'on' WHERE n = 1")
    replica.catch_up()
    replica.replace(replace(orders, rename={"note": "words"}), bag)
    replica.pipeline.reload("again", [replica.table_id("orders")])
    replica.wait_live("orders")
    replica.assert_equal()
    assert columns(replica, "orders") == ["id", "n", "twice", "word", "words"]


def test_a_rejected_row_is_shown_by_the_names_on_the_target(shop: Database, replicate: Replicate) -> None:
    shop.execute("CREATE TABLE prices (id int PRIMARY KEY, price numeric(10, 2)); INSERT INTO prices VALUES (1, 1)")
    replica = replicate(shop, [table("prices", rename={"price": "amount"}, refused_rows=RefusedPolicy.SET_ASIDE)])
    shop.execute("INSERT INTO prices VALUES (2, 'NaN'), (3, 3)")
    replica.catch_up()
    rows = replica.query("SELECT id, amount::text FROM prices ORDER BY id")
    if (2, "NaN") not in rows:
        assert rows == [(1, "1.00"), (3, "3.00")]
        assert replica.pipeline.target is not None
        (refused,) = replica.pipeline.target.refused_rows(replica.spec.name, replica.table_id("prices"))
        assert "amount" in str(refused)
        assert "price'" not in str(refused)


def test_partitions_and_key_ranges_of_renamed_columns(shop: Database, replicate: Replicate) -> None:
    shop.execute("CREATE TABLE sales (region text, id int, PRIMARY KEY (region, id)) PARTITION BY LIST (region)")
    shop.execute("CREATE TABLE sales_eu PARTITION OF sales FOR VALUES IN ('eu'); INSERT INTO sales VALUES ('eu', 1)")
    tables = [table("sales", rename={"region": "area"}), table("orders", rename=ORDERS)]
    replica = replicate(shop, tables)
    shop.execute("UPDATE sales SET id = 2")
    replica.assert_equal()
    source = replica.open_source(replica.spec.source)
    schemas = source.describe(tables)
    (partition,) = source.partitioned.partitions(schemas[tables[0].source])
    assert (partition.obstacle, partition.region) == (None, (ListBound("area", ("eu",)),))
    walk = source.copies.walk_key(schemas[tables[1].source], None, 500, 3)
    assert walk is not None
    assert len(walk.splits) > 1
    assert all(one.upto is not None and 'WHERE ("id")' in one.split.sql for one in walk.splits[1:])
    source.close()
