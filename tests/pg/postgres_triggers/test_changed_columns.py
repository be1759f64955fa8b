"""Updates of which only the changed columns and the key are recorded arrive as those of whole rows."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.sources.postgres_triggers.source import TriggerSource
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.pg.postgres_triggers.conftest import Replicate

pytestmark = pytest.mark.pg

TABLES = """
CREATE TABLE pages (id int, "select" text, body text, at timestamp, n numeric, ok bool, PRIMARY KEY (id, "select"));
CREATE TABLE bare (a int, b text);
CREATE TABLE exact (id int PRIMARY KEY, tags jsonb);
INSERT INTO pages SELECT i, 'x''\\y', repeat(md5(i::text), 50), '2026-01-01', i, true FROM generate_series(1, 40) i;
INSERT INTO bare SELECT i, 'b' FROM generate_series(1, 5) i;
INSERT INTO exact SELECT i, '[null]' FROM generate_series(1, 5) i;
"""
NAMES = ("pages", "bare", "exact")


def changed_only(*names: str) -> CaptureSpec:
    return CaptureSpec("triggers", {"changed_columns": json.dumps([f"public.{name}" for name in names])})


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(TABLES)
    return database


def test_only_what_changed_is_recorded(shop: Database) -> None:
    spec = ConnectionSpec("shop", "postgres", shop.settings, {}, changed_only(*NAMES))
    with closing(TriggerSource(spec)) as source:
        source.sent_tables.prepare([table(name) for name in NAMES], "penstock_shop")
        found = source.triggers.status()
        variants = {"pages": "json changed", "bare": "json", "exact": "exact"}
        assert ({t.table.name: t.variant for t in found.tables}, found.current) == (variants, True)
        warned = [f.what for f in source.preflight([table(n) for n in NAMES], None) if f.code == "recorded_whole"]
        assert [what.partition(" is ")[0] for what in warned] == ["public.bare", "public.exact"]
    for change in ("n = 7, ok = NULL WHERE id = 3", "id = 300 WHERE id = 4", "n = n WHERE id = 5"):
        shop.execute(f"UPDATE pages SET {change}")
    rows = shop.execute("SELECT op::text, old IS NULL, new FROM penstock.changes ORDER BY no")
    assert [row[:2] for row in rows] == [("P", True), ("U", False), ("P", True)]
    assert rows[0][2] == {"id": [3], "select": ["x'\\y"], "body": [], "at": [], "n": 7, "ok": None}


def test_all_of_it_arrives(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, *NAMES, capture=changed_only(*NAMES))
    shop.execute(
        "BEGIN; UPDATE pages SET body = '[]' WHERE id < 9; UPDATE pages SET n = 1.0 WHERE id < 12; UPDATE pages SET n = 1.00 WHERE id = 1;"
        "UPDATE pages SET id = id + 1000 WHERE id < 5; UPDATE pages SET ok = false WHERE id > 1000; DELETE FROM pages WHERE id = 7;"
        "INSERT INTO pages (id, \"select\", body) VALUES (7, 'again', '[]'); UPDATE pages SET at = 'infinity' WHERE id = 7; COMMIT"
    )
    shop.execute(
        "UPDATE pages SET at = '0044-03-15 BC', n = 'NaN' WHERE id > 20; UPDATE pages SET ok = NULL WHERE id > 30"
    )
    shop.execute("UPDATE bare SET b = NULL WHERE a = 1; UPDATE exact SET tags = 'null' WHERE id = 1")
    replica.assert_equal()


@pytest.mark.chaos
def test_changes_of_the_table_are_followed(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, "pages", capture=changed_only("pages"))
    shop.execute("UPDATE pages SET ok = NOT ok WHERE id = 1")
    replica.assert_equal()
    shop.execute(
        "BEGIN; UPDATE pages SET n = 1 WHERE id < 20; ALTER TABLE pages ADD COLUMN level int DEFAULT 7;"
        " UPDATE pages SET ok = false WHERE id < 10; ALTER TABLE pages DROP COLUMN n; UPDATE pages SET level = 1 WHERE id < 5; COMMIT"
    )
    replica.assert_equal()
    assert "reloading" not in replica.states_of("pages")
    shop.execute(
        "BEGIN; UPDATE pages SET body = 'b' WHERE id < 20; ALTER TABLE pages RENAME body TO b; ALTER TABLE pages RENAME \"select\" TO body;"
        ' ALTER TABLE pages RENAME b TO "select"; UPDATE pages SET level = 2; COMMIT'
    )
    replica.satisfied()
    replica.assert_equal()


def test_a_change_of_another_key_than_was_recorded_is_not_guessed_at(shop: Database, replicate: Replicate) -> None:
    """The triggers know the former key, and take an update of the new one for one of a value."""
    shop.execute(
        "ALTER TABLE pages DROP COLUMN at, DROP COLUMN ok, DROP COLUMN n, ADD COLUMN nr int NOT NULL DEFAULT 0"
    )
    shop.execute("UPDATE pages SET nr = id; ALTER TABLE pages ADD UNIQUE (nr)")
    replica = replicate(shop, "pages", capture=changed_only("pages"))
    shop.execute("UPDATE pages SET body = 'known' WHERE id = 1")
    replica.assert_equal()
    shop.execute(
        "BEGIN; ALTER TABLE pages REPLICA IDENTITY USING INDEX pages_nr_key;"
        " UPDATE pages SET nr = nr + 100, body = 'all' WHERE id > 20; COMMIT"
    )
    shop.execute("UPDATE pages SET nr = nr + 1000, body = 'again' WHERE id > 30")
    replica.satisfied()
    replica.assert_equal()
    shop.execute(
        "ALTER TABLE pages REPLICA IDENTITY FULL; UPDATE pages SET nr = -nr WHERE id < 9; UPDATE pages SET body = 'x' WHERE id < 20"
    )
    replica.satisfied()
    replica.assert_equal()


def test_a_row_filter_of_another_subscription_keeps_whole_rows(shop: Database, replicate: Replicate) -> None:
    one = replicate(shop, "pages", capture=changed_only("pages"))
    other = replicate(shop, table("pages", where="ok"))
    with closing(TriggerSource(ConnectionSpec("shop", "postgres", shop.settings))) as source:
        assert [t.variant for t in source.triggers.status().tables] == ["json"]
    shop.execute("UPDATE pages SET ok = false WHERE id < 5; UPDATE pages SET ok = NOT ok, n = 0 WHERE id < 9")
    for replica in (one, other):
        replica.assert_equal()
    one.restart()
    one.wait_live()
    shop.execute("UPDATE pages SET ok = NOT ok WHERE id < 20")
    for replica in (one, other):
        replica.assert_equal()
        assert "parked" not in replica.states_of("pages")
