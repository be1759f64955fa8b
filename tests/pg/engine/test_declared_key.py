"""A key that the user declares: followed where it tells rows apart, and a table parked by itself where it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.link.messages import SubscriptionStateReport
from engine.model.fault import FaultKind
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

SHOP = """
CREATE TABLE parts (id int PRIMARY KEY, code text NOT NULL UNIQUE, note text);
ALTER TABLE parts REPLICA IDENTITY FULL;
CREATE TABLE loose (code text NOT NULL, note text);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE TABLE other (id int PRIMARY KEY, v text);
INSERT INTO parts SELECT i, 'c' || i, 'note' FROM generate_series(1, 100) i;
INSERT INTO loose SELECT 'c' || i, 'note' FROM generate_series(1, 100) i;
INSERT INTO other SELECT i, 'v' FROM generate_series(1, 100) i;
"""


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def test_changes_find_their_rows_by_the_declared_key(shop: Database, replicate: Callable[..., Replica]) -> None:
    replica = replicate(shop, [table("parts", key=("code",)), table("loose", key=("code",))])
    assert {e.schema.key for e in replica.pipeline.book.all() if e.schema is not None} == {("code",)}
    shop.execute("UPDATE parts SET id = id + 1000, note = 'moved' WHERE id <= 50")
    shop.execute("UPDATE parts SET code = 'x' || code WHERE id < 60")
    shop.execute("DELETE FROM parts WHERE id % 7 = 0")
    shop.execute("UPDATE loose SET note = code; DELETE FROM loose WHERE code < 'c5'")
    shop.execute("INSERT INTO loose VALUES ('fresh', NULL)")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM parts WHERE note = 'moved'") == [
        tuple(shop.execute("SELECT count(*) FROM parts WHERE note = 'moved'")[0])
    ]


@pytest.mark.parametrize("trouble", ["'c7'", "NULL"], ids=["twice", "missing"])
def test_a_copy_whose_declared_key_is_no_key_parks_its_table_alone(
    shop: Database, replicate: Callable[..., Replica], trouble: str
) -> None:
    shop.execute("ALTER TABLE loose ALTER code DROP NOT NULL")
    shop.execute(f"INSERT INTO loose VALUES ({trouble}, 'trouble')")
    replica = replicate(shop, [table("loose", key=("code",)), table("other")], live=False)
    parked = replica.wait_table("loose", "parked")
    assert parked.code == FaultKind.TABLE_KEY_NOT_UNIQUE.value
    assert "retries" in (parked.remedy or "")
    assert "c7" not in (parked.reason or "")
    replica.wait_live("other")
    shop.execute("INSERT INTO loose VALUES ('late', NULL); UPDATE other SET v = 'more'")
    replica.catch_up()
    assert replica.query("SELECT DISTINCT v FROM other") == [("more",)]
    assert replica.states() == {"loose": "parked", "other": "live"}

    shop.execute("DELETE FROM loose WHERE note = 'trouble'")
    replica.pipeline.reload("again", [replica.table_id("loose")])
    replica.wait_live("loose")
    shop.execute("UPDATE loose SET note = 'followed' WHERE code = 'c7'")
    replica.assert_equal()
    faults = [r for r in replica.reports.all() if isinstance(r, SubscriptionStateReport) and r.code]
    assert not faults, "another table than the one with the wrong key was concerned"


def test_a_reload_that_finds_the_key_no_longer_one_leaves_the_old_rows(
    shop: Database, replicate: Callable[..., Replica]
) -> None:
    replica = replicate(shop, [table("loose", key=("code",)), table("other")])
    shop.execute("INSERT INTO loose VALUES ('c7', 'again')")
    replica.catch_up()
    replica.pipeline.reload("again", [replica.table_id("loose")])
    assert replica.wait_table("loose", "parked").code == FaultKind.TABLE_KEY_NOT_UNIQUE.value
    assert replica.query("SELECT count(*) FROM loose") == [(101,)]
    shop.execute("UPDATE other SET v = 'more'")
    replica.catch_up()
    assert replica.states() == {"loose": "parked", "other": "live"}
