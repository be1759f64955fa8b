"""Two sources into one target, each by a subscription of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.model.identity import TableName
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = [pytest.mark.pg, pytest.mark.parametrize("target_kind", ["duckdb", "postgres"])]

Replicate = Callable[..., Replica]
SHOP = "CREATE TABLE orders (id int PRIMARY KEY, n int); INSERT INTO orders SELECT i, 0 FROM generate_series(1, 200) i"
TRANSACTIONS = 60


def work(shop: Database) -> None:
    """Many small transactions over the same rows."""
    with shop.connect() as connection:
        for i in range(TRANSACTIONS):
            connection.execute("UPDATE orders SET n = n + 1 WHERE id %% 3 = %s", [i % 3])
            connection.execute("INSERT INTO orders VALUES (%s, 0)", [1000 + i])


def test_each_goes_on_by_itself_and_has_its_own_place(
    database: Database,
    database_on: Callable[[EmbeddedPostgres], Database],
    pg18: EmbeddedPostgres,
    replicate: Replicate,
    target_kind: str,
) -> None:
    """A DuckDB file belongs to one engine; into a PostgreSQL target each subscription has an engine of its own."""
    shops = {"eu": database, "us": database_on(pg18)}
    for shop in shops.values():
        shop.execute(SHOP)
    eu = replicate(shops["eu"], [table("orders", target=TableName("eu", "orders"))])
    in_the_way = table("orders", target=TableName("eu", "orders"))
    one_engine = eu if target_kind == "duckdb" else None
    us = replicate(shops["us"], [in_the_way], target=eu.spec.target, beside=one_engine, live=False)
    assert us.wait_table("orders", "parked").code == "table_name_collision"
    mapped = table("orders", target=TableName("us", "orders"))
    us.replace(mapped)
    us.wait_live()
    with ThreadPoolExecutor(2) as both:
        working = [both.submit(work, shop) for shop in shops.values()]
        us.pipeline.reload("r1", [mapped.table])
        for each in working:
            each.result()
    us.wait_live()
    for replica in (eu, us):
        replica.assert_equal()
    replicas = {"eu": eu, "us": us}
    counted = [replicas[schema].query(f"SELECT count(*), sum(n) FROM {schema}.orders") for schema in shops]
    assert counted[0] == counted[1]
    assert counted[0][0][0] == 200 + TRANSACTIONS
    us.replace()
    us.catch_up()
    shops["eu"].execute("DELETE FROM orders WHERE id < 100")
    eu.assert_equal()
