"""A subscription whose rows go into tables that their owner made on the target."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.model.subscription import ApplyMode, ApplyPolicy, ConnectionSpec
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

SHOP = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE orders (id int, day date, mood mood, tags mood[], total numeric(10, 2), note text, PRIMARY KEY (id, day));
ALTER TABLE orders ALTER note SET STORAGE EXTERNAL;
CREATE TABLE empty (id int PRIMARY KEY, note text);
INSERT INTO orders SELECT i, date '2026-01-01' + i % 60, 'glad', '{sad,NULL}', i, repeat('long', 1000) FROM generate_series(1, 300) i;
"""
MART = """
CREATE TYPE mood AS ENUM ('glad', 'other', 'sad');
CREATE TABLE orders (
  id bigint, day date, mood mood, tags mood[], total numeric, note varchar, seen timestamptz NOT NULL DEFAULT now(),
  gross numeric GENERATED ALWAYS AS (total * 1.2) STORED, PRIMARY KEY (day, id)
) PARTITION BY RANGE (day);
CREATE TABLE january PARTITION OF orders FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE later PARTITION OF orders DEFAULT;
CREATE INDEX ON orders (mood);
CREATE TABLE empty (id int PRIMARY KEY);
"""
CHANGES = """
UPDATE orders SET mood = 'sad', tags = '{}' WHERE id % 3 = 0;
UPDATE orders SET day = day + 30 WHERE id % 7 = 0;
DELETE FROM orders WHERE id % 11 = 0;
INSERT INTO orders VALUES (1000, '2026-01-05', NULL, NULL, 0.5, NULL);
ALTER TABLE orders ADD COLUMN more int DEFAULT 5, DROP COLUMN tags;
UPDATE orders SET more = id WHERE id < 50;
"""


def test_a_subscription_into_tables_that_stand_there(
    database: Database,
    pg18: object,
    database_on: Callable[..., Database],
    replicate: Callable[..., Replica],
) -> None:
    mart = database_on(pg18)
    database.execute(SHOP)
    mart.execute(MART)
    tables = [table(name, into_existing=True) for name in ("orders", "empty")]
    target = ConnectionSpec("mart", "postgres", mart.settings)
    replica = replicate(database, tables, target=target, live=False)
    parked = replica.wait_table("empty", "parked")
    assert parked.code == "table_unfit"
    assert 'ALTER TABLE "public"."empty" ADD COLUMN "note" text' in (parked.reason or "")
    assert "retries" in (parked.remedy or "")
    replica.wait_live("orders")

    database.execute(CHANGES)
    mart.execute("ALTER TABLE empty ADD COLUMN note text")
    replica.pipeline.reload("again", [tables[1].table])
    replica.wait_live()
    database.execute("INSERT INTO empty VALUES (1, 'x')")
    replica.assert_equal()

    replica.pipeline.reload("once more", [tables[0].table])
    replica.wait_table("orders", "reloading")
    replica.wait_live()
    replica.assert_equal()
    parts = "SELECT tableoid::regclass::text, count(*) FROM orders WHERE gross = total * 1.2 AND tags IS NULL GROUP BY 1 ORDER BY 1"
    assert [part for part, _ in mart.execute(parts)] == ["january", "later"]
    assert len(mart.execute("SELECT 1 FROM pg_indexes WHERE tablename = 'orders'")) == 2


@pytest.mark.parametrize("mode", [ApplyMode.BATCH, ApplyMode.TRANSACTIONAL])
def test_columns_that_both_sides_generate_are_left_to_the_target(
    database: Database,
    pg18: object,
    database_on: Callable[..., Database],
    replicate: Callable[..., Replica],
    mode: ApplyMode,
) -> None:
    mart = database_on(pg18)
    made = "id int, n int, note text, twice int GENERATED ALWAYS AS (n * 2) STORED"
    database.execute(
        f"CREATE TABLE keyed ({made}, PRIMARY KEY (id)); ALTER TABLE keyed ALTER note SET STORAGE EXTERNAL;"
        f"CREATE TABLE bag ({made}); ALTER TABLE bag REPLICA IDENTITY FULL;"
        "INSERT INTO keyed SELECT i, i, repeat('x', 5000) FROM generate_series(1, 40) i; INSERT INTO bag SELECT id % 5, id % 5 FROM keyed"
    )
    identity = made.replace("id int", "id int GENERATED ALWAYS AS IDENTITY")
    mart.execute(f"CREATE TABLE keyed ({identity}, PRIMARY KEY (id)); CREATE TABLE bag ({made})")
    tables = [table(name, into_existing=True) for name in ("keyed", "bag")]
    target = ConnectionSpec("mart", "postgres", mart.settings)
    replica = replicate(database, tables, target=target, apply=ApplyPolicy(mode))
    for statement in (
        "UPDATE keyed SET n = n + 1 WHERE id < 9",
        "UPDATE keyed SET id = id + 100 WHERE id < 5",
        "UPDATE keyed SET note = 'short' WHERE id = 6",
        "DELETE FROM keyed WHERE id > 140 OR id = 7",
        "INSERT INTO keyed SELECT i, i, 'new' FROM generate_series(1000, 1800) i",
        "UPDATE bag SET n = n + 1 WHERE n < 3; DELETE FROM bag WHERE n = 4; INSERT INTO bag VALUES (1, NULL)",
        "TRUNCATE bag; INSERT INTO bag VALUES (1, 1), (1, 1), (2, NULL)",
        "DELETE FROM bag WHERE ctid = '(0,1)'",
    ):
        database.execute(statement)
    replica.assert_equal()
    assert mart.execute("SELECT count(*) FROM pg_attribute WHERE attgenerated = 's' AND attname = 'twice'") == [(2,)]
    # What the source does not generate any more is the target's no more.
    database.execute("ALTER TABLE keyed ALTER twice DROP EXPRESSION; UPDATE keyed SET twice = 7 WHERE id = 6")
    parked = replica.wait_table("keyed", "parked")
    assert (parked.code, "make it an ordinary column" in (parked.reason or "")) == ("table_unfit", True)
