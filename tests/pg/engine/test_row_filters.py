"""Tables of which only some rows are replicated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.model.fault import FaultKind
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE orders (id int PRIMARY KEY, region text, total numeric(10, 2), note text);
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE keyed (tenant int, id int, note int, PRIMARY KEY (tenant, id));
CREATE TABLE plain (id int PRIMARY KEY, region text);
INSERT INTO orders SELECT i, CASE i % 3 WHEN 0 THEN 'eu' WHEN 1 THEN 'us' END, i, 'n' FROM generate_series(1, 90) i;
UPDATE orders SET note = (SELECT string_agg(md5(j::text), '') FROM generate_series(1, 300) j) WHERE id > 60;
CREATE TABLE large (tenant int, id int, note text, PRIMARY KEY (tenant, id));
INSERT INTO keyed SELECT i % 4, i, i FROM generate_series(1, 40) i;
INSERT INTO plain SELECT i, 'eu' FROM generate_series(1, 9) i;
"""
ORDERS = table("orders", where="region = 'eu' AND (total > 10 OR note IS NULL)", exclude_columns=("total",))
PLAIN = table("plain")


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def rows(database: Database, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in database.execute(sql)]


@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"], indirect=True)
def test_rows_move_across_the_filter(shop: Database, replicate: Replicate) -> None:
    keyed = table("keyed", where="tenant <= 1")
    replica = replicate(shop, [ORDERS, keyed, PLAIN])
    replica.assert_equal()
    shop.execute("UPDATE orders SET region = 'us' WHERE id % 2 = 0; UPDATE orders SET region = 'eu' WHERE id % 5 = 0")
    shop.execute("UPDATE orders SET total = total - 15 WHERE id < 40; UPDATE orders SET note = NULL WHERE id < 6")
    shop.execute(
        "INSERT INTO orders VALUES (200, 'eu', 100, 'x'), (201, 'us', 100, 'x'); DELETE FROM orders WHERE id = 87"
    )
    shop.execute("UPDATE keyed SET tenant = 1 WHERE tenant = 3 AND id < 20; UPDATE keyed SET tenant = 2 WHERE id = 1")
    shop.execute("UPDATE keyed SET tenant = 0, id = id + 500 WHERE id = 26")
    replica.assert_equal()
    condition = "WHERE region = 'eu' AND (total > 10 OR note IS NULL)"
    assert replica.query("SELECT id, region, note FROM orders ORDER BY id") == rows(
        shop, f"SELECT id, region, note FROM orders {condition} ORDER BY id"
    )
    assert replica.query("SELECT tenant, id, note FROM keyed ORDER BY 1, 2") == rows(
        shop, "SELECT tenant, id, note FROM keyed WHERE tenant <= 1 ORDER BY 1, 2"
    )
    replica.restart()
    replica.wait_state("running")
    shop.execute("UPDATE orders SET region = 'eu' WHERE id % 7 = 0; TRUNCATE plain")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM plain") == [(0,)]


@pytest.mark.parametrize("running", [True, False])
def test_another_filter_means_a_new_copy(shop: Database, replicate: Replicate, running: bool) -> None:
    replica = replicate(shop, [ORDERS, PLAIN])
    changed = replace(ORDERS, where="id > 50")
    if not running:
        replica.pipeline.close()
        replica.spec = replace(replica.spec, tables=(changed, PLAIN))
        replica.restart()
        replica.wait_state("running")
    else:
        replica.replace(changed, PLAIN)
    shop.execute("UPDATE orders SET note = 'after' WHERE id IN (1, 60)")
    count = "SELECT count(*) FROM orders"
    replica.reports.wait(lambda _: replica.query(count) == [(40,)] or None, "the new rows")
    replica.wait_live()
    shop.execute("UPDATE orders SET id = 500 WHERE id = 2; UPDATE orders SET id = 3000 WHERE id = 51")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM orders WHERE id > 50") == [(41,)]
    replica.replace(replace(ORDERS, where=None), PLAIN)
    replica.reports.wait(lambda _: replica.query(count) == [(90,)] or None, "every row")
    replica.wait_live()
    replica.assert_equal()


def test_a_filter_reads_the_columns_that_have_its_names(shop: Database, replicate: Replicate) -> None:
    shop.execute("ALTER TABLE orders ADD COLUMN area text DEFAULT 'eu'")
    replica = replicate(shop, [table("orders", where="region = 'eu'"), PLAIN])
    shop.execute(
        "BEGIN; ALTER TABLE orders RENAME region TO r; ALTER TABLE orders RENAME area TO region;"
        " ALTER TABLE orders RENAME r TO area; COMMIT"
    )
    replica.reports.wait(
        lambda _: replica.query("SELECT count(*) FROM orders") == [(90,)] or None, "the rows of the other column"
    )
    replica.wait_live()
    shop.execute("UPDATE orders SET region = 'us' WHERE id < 11; UPDATE orders SET area = 'x' WHERE id > 80")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM orders") == [(80,)]


@pytest.mark.parametrize(
    ("name", "where", "words"),
    [
        ("plain", "region = 'eu'", "outside the replica identity"),
        ("large", "tenant < 2", "unchanged large values"),
        ("orders", "id = 'abc'", "invalid input syntax"),
        ("orders", "id", "must be type boolean"),
        ("orders", "missing = 1", "missing"),
        ("orders", "true) or (id = id", "closed that was not opened"),
        ("orders", "id in (select id from plain)", "select"),
        ("orders", "pg_sleep(10) is null", "cannot call functions"),
    ],
)
def test_a_filter_that_is_impossible_parks_its_table_alone(
    shop: Database, replicate: Replicate, name: str, where: str, words: str
) -> None:
    other = "keyed"
    replica = replicate(shop, [table(name, where=where), table(other)], live=False)
    parked = replica.wait_table(name, "parked")
    assert parked.code == FaultKind.TABLE_COLUMNS_UNFIT.value
    assert words in (parked.reason or "")
    replica.wait_live(other)
    shop.execute("UPDATE plain SET region = 'x'; UPDATE orders SET note = 'x'; UPDATE keyed SET note = 1")
    shop.execute("INSERT INTO large VALUES (1, 1, 'x'); UPDATE large SET id = 2")
    replica.catch_up()


def test_a_filter_that_may_change_its_result_is_refused_by_the_source(shop: Database, replicate: Replicate) -> None:
    shop.execute(
        "CREATE TABLE times (id int PRIMARY KEY, at timestamptz, day date); ALTER TABLE times REPLICA IDENTITY FULL"
    )
    replica = replicate(shop, [table("times", where="at > day"), PLAIN], live=False)
    parked = replica.wait_table("times", "parked")
    assert parked.code == FaultKind.TABLE_COLUMNS_UNFIT.value
    assert "the source refuses where" in (parked.reason or "")
    replica.wait_live("plain")


def test_a_replica_identity_that_no_longer_has_the_columns_lets_the_application_go_on(
    shop: Database, replicate: Replicate
) -> None:
    replica = replicate(shop, [ORDERS, PLAIN])
    shop.execute("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    assert replica.wait_table("orders", "parked").code == FaultKind.TABLE_COLUMNS_UNFIT.value
    replica.reports.wait(lambda _: not published(shop, "orders") or None, "the table is not published any more")
    shop.execute("UPDATE orders SET note = 'on'; UPDATE plain SET region = 'us'")
    replica.catch_up()
    shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    replica.pipeline.reload("again", [replica.table_id("orders")])
    replica.wait_live("orders")
    shop.execute("UPDATE orders SET note = NULL WHERE id = 3")
    replica.assert_equal()


def published(database: Database, name: str) -> bool:
    return bool(database.execute(f"SELECT 1 FROM pg_publication_tables WHERE tablename = '{name}'"))
