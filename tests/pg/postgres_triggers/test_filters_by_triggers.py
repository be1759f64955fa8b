"""Row filters with triggers: the copy is what the log's publications make of the same changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.model.subscription import CaptureSpec
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.pg.engine.repairing import FOLLOWED, FOLLOWED_TABLES, assert_followed_rows_are_equal
from tests.pg.postgres_triggers.conftest import Replicate

pytestmark = pytest.mark.pg

SHOP = """
CREATE TABLE orders (id int PRIMARY KEY, region text, total numeric(10, 2), note text);
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE keyed (tenant int, id int, note int, PRIMARY KEY (tenant, id));
CREATE TABLE plain (id int PRIMARY KEY, region text, day date);
CREATE TABLE exact (id int PRIMARY KEY, region text, tags jsonb);
CREATE TABLE nulls (id int PRIMARY KEY, note text); ALTER TABLE nulls REPLICA IDENTITY FULL;
INSERT INTO orders SELECT i, CASE i % 3 WHEN 0 THEN 'eu' WHEN 1 THEN 'us' END, i, 'n' FROM generate_series(1, 90) i;
INSERT INTO keyed SELECT i % 4, i, i FROM generate_series(1, 40) i;
INSERT INTO nulls SELECT i, CASE i % 2 WHEN 0 THEN 'n' END FROM generate_series(1, 20) i;
INSERT INTO exact SELECT i, CASE i % 2 WHEN 0 THEN 'eu' END, '[null]' FROM generate_series(1, 20) i;
INSERT INTO plain SELECT i, CASE i % 2 WHEN 0 THEN 'eu' END FROM generate_series(1, 20) i;
"""
ORDERS = table("orders", where="region = 'eu' AND (total > 10 OR note IS NULL)", exclude_columns=("total",))
NULLS = table("nulls", where="note IS NULL")
KEYED = table("keyed", where="tenant <= 1")
CHANGES = [
    "UPDATE orders SET region = 'us' WHERE id % 2 = 0; UPDATE orders SET region = 'eu' WHERE id % 5 = 0",
    "UPDATE orders SET total = total - 15 WHERE id < 40; UPDATE orders SET note = NULL WHERE id < 6",
    "INSERT INTO orders VALUES (200, 'eu', 100, 'x'), (201, 'us', 100, 'x'), (202, 'eu', 1, NULL); DELETE FROM orders WHERE id IN (87, 5)",
    "UPDATE keyed SET tenant = 1 WHERE tenant = 3 AND id < 20; UPDATE keyed SET tenant = 2 WHERE id = 1",
    "UPDATE keyed SET tenant = 0, id = id + 500, note = 7 WHERE id = 26; DELETE FROM keyed WHERE id IN (2, 4)",
    "BEGIN; UPDATE orders SET region = 'us'; UPDATE orders SET region = 'eu' WHERE id % 4 = 0; DELETE FROM orders WHERE id = 8; COMMIT",
    "UPDATE orders SET id = id + 1000 WHERE id < 30",
    "UPDATE nulls SET note = 'x' WHERE id < 5; UPDATE nulls SET note = NULL WHERE id IN (3, 8); UPDATE nulls SET id = -id WHERE id > 15",
    "INSERT INTO nulls VALUES (90, NULL), (91, 'x'); DELETE FROM nulls WHERE id < 2",
]


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def test_the_same_rows_as_with_the_log(shop: Database, replicate: Replicate) -> None:
    tables = ORDERS, KEYED, NULLS
    triggers, log = replicate(shop, *tables), replicate(shop, *tables, capture=CaptureSpec("postgres_log"))
    for statement in CHANGES:
        shop.execute(statement)
    for replica in (triggers, log):
        replica.assert_equal()
    for query in ("id, region, note FROM orders", "tenant, id, note FROM keyed", "id, note FROM nulls"):
        assert triggers.query(f"SELECT {query} ORDER BY 1, 2") == log.query(f"SELECT {query} ORDER BY 1, 2") != []
    expected = shop.execute("SELECT id FROM nulls WHERE note IS NULL ORDER BY 1")
    assert triggers.query("SELECT id FROM nulls ORDER BY 1") == expected


def test_any_column_may_be_read_and_another_filter_means_a_new_copy(shop: Database, replicate: Replicate) -> None:
    plain = table("plain", where="region = 'eu'")
    replica = replicate(shop, plain, KEYED, table("exact", where="region = 'eu'"))
    for name in ("plain", "exact"):
        shop.execute(f"UPDATE {name} SET region = 'eu' WHERE id < 5; UPDATE {name} SET region = NULL WHERE id > 15")
    shop.execute("UPDATE exact SET tags = 'null' WHERE id = 6")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM plain") == replica.query("SELECT count(*) FROM exact") == [(9,)]
    replica.replace(replace(plain, where="region IS NULL"), KEYED)
    replica.reports.wait(lambda _: replica.query("SELECT count(*) FROM plain") == [(11,)] or None, "the other rows")
    replica.wait_live()
    shop.execute("UPDATE plain SET region = NULL WHERE id = 2; TRUNCATE keyed")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM plain") == [(12,)]


@pytest.mark.chaos
def test_a_filter_reads_the_columns_that_have_its_names(shop: Database, replicate: Replicate) -> None:
    shop.execute("ALTER TABLE orders ADD COLUMN area text DEFAULT 'eu'")
    replica = replicate(shop, table("orders", where="region = 'eu'"), KEYED)
    shop.execute(
        "BEGIN; UPDATE orders SET note = 'before' WHERE id < 40; ALTER TABLE orders RENAME region TO r;"
        " ALTER TABLE orders RENAME area TO region; ALTER TABLE orders RENAME r TO area; COMMIT"
    )
    replica.reports.wait(
        lambda _: replica.query("SELECT count(*) FROM orders") == [(90,)] or None, "the rows of the other column"
    )
    replica.wait_live()
    shop.execute("UPDATE orders SET region = 'us' WHERE id < 11; UPDATE orders SET area = 'x' WHERE id > 80")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM orders") == [(80,)]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        pytest.param("id = 'abc'", "invalid input syntax", marks=pytest.mark.chaos),
        pytest.param("missing = 1", "missing", marks=pytest.mark.chaos),
        ("day < 'now'", "another time"),
    ],
)
def test_a_filter_that_is_impossible_parks_its_table_alone(
    shop: Database, replicate: Replicate, where: str, words: str
) -> None:
    replica = replicate(shop, table("plain", where=where), KEYED, live=False)
    parked = replica.wait_table("plain", "parked")
    assert parked.code == "table_columns_unfit"
    assert words in (parked.reason or "")
    replica.wait_live("keyed")


def test_what_others_write_in_place_of_a_filter_is_not_run(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, KEYED)
    shop.execute("UPDATE penstock.followed SET row_filter = 'pg_sleep(600) IS NULL'; UPDATE keyed SET note = 1")
    failed = replica.wait_state("failed")
    assert (failed.code, "cannot call functions" in (failed.reason or "")) == ("log_unreadable", True)


def test_digests_are_those_of_the_rows_that_are_followed(database: Database, replicate: Replicate) -> None:
    database.execute(FOLLOWED)
    assert_followed_rows_are_equal(database, replicate(database, *FOLLOWED_TABLES))
