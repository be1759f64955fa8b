"""Triggers record whole rows: tables without a replica identity are followed as those with REPLICA IDENTITY FULL."""

from __future__ import annotations

from contextlib import closing

import pytest

from engine.model.source import Severity
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres_triggers.source import TriggerSource
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.pg.postgres_triggers.conftest import Replicate

pytestmark = pytest.mark.pg

TABLES = """
CREATE TABLE bare (a int, b text);
CREATE TABLE nothing (id int PRIMARY KEY, b text); ALTER TABLE nothing REPLICA IDENTITY NOTHING;
CREATE TABLE late (id int, b text, PRIMARY KEY (id) DEFERRABLE);
CREATE TABLE unique_only (id int NOT NULL UNIQUE, b jsonb);
INSERT INTO bare SELECT i % 3, 'twice' FROM generate_series(1, 12) i;
INSERT INTO bare VALUES (NULL, NULL), (NULL, NULL), (NULL, 'x');
INSERT INTO nothing SELECT i, 'a' FROM generate_series(1, 9) i;
INSERT INTO late SELECT i, 'a' FROM generate_series(1, 9) i;
INSERT INTO unique_only SELECT i, '[null]' FROM generate_series(1, 9) i;
"""
NAMES = ("bare", "nothing", "late", "unique_only")


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(TABLES)
    return database


def test_their_checks_have_no_error(shop: Database) -> None:
    with closing(TriggerSource(ConnectionSpec("shop", "postgres", shop.settings))) as source:
        found = source.preflight([table(name) for name in NAMES], None)
        assert [finding for finding in found if finding.severity is Severity.ERROR] == []
        assert {t.name.name: t.problems[0].code for t in source.discover() if t.problems} == {
            "bare": "table_without_key",
            "late": "table_without_key",
        }


def test_they_are_followed(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, *NAMES)
    shop.execute(
        "UPDATE bare SET b = 'once' WHERE ctid = (SELECT min(ctid) FROM bare WHERE a = 1);"
        "DELETE FROM bare WHERE ctid IN (SELECT ctid FROM bare WHERE a = 2 LIMIT 2);"
        "DELETE FROM bare WHERE ctid = (SELECT min(ctid) FROM bare WHERE a IS NULL AND b IS NULL);"
        "UPDATE nothing SET id = id + 100 WHERE id < 4; DELETE FROM nothing WHERE id = 9;"
        "UPDATE late SET id = 10 - id; UPDATE late SET b = 'c' WHERE id = 1;"
        "UPDATE unique_only SET b = 'null' WHERE id < 5; UPDATE unique_only SET id = 50 WHERE id = 1; DELETE FROM unique_only WHERE id = 2"
    )
    replica.assert_equal()
    shop.execute(
        "BEGIN; INSERT INTO bare SELECT 7, 'x' FROM generate_series(1, 3); UPDATE bare SET a = 8 WHERE a = 7; COMMIT; TRUNCATE late"
    )
    replica.assert_equal()


def test_a_key_that_comes_or_goes_is_followed_with_a_new_copy(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, "bare", "unique_only")
    shop.execute(
        "BEGIN; DELETE FROM bare; INSERT INTO bare VALUES (1, 'a'), (2, 'b'); ALTER TABLE bare ADD PRIMARY KEY (a); COMMIT"
    )
    shop.execute("UPDATE bare SET b = 'c' WHERE a = 1")
    replica.satisfied()
    replica.assert_equal()
    shop.execute(
        "BEGIN; UPDATE bare SET b = 'd'; ALTER TABLE bare DROP CONSTRAINT bare_pkey; INSERT INTO bare VALUES (1, 'd'); COMMIT"
    )
    shop.execute("DELETE FROM bare WHERE ctid = (SELECT min(ctid) FROM bare WHERE a = 1)")
    replica.satisfied()
    replica.assert_equal()


def test_inserts_only_where_that_is_declared(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, table("bare", insert_only=True), table("nothing", insert_only=True))
    shop.execute("INSERT INTO bare VALUES (90, 'new'); UPDATE bare SET b = 'unseen'; DELETE FROM nothing WHERE id = 1")
    shop.execute("INSERT INTO nothing VALUES (91, 'new')")
    replica.satisfied()
    assert replica.query("SELECT count(*) FROM bare WHERE b = 'unseen'") == [(0,)]
    assert replica.query("SELECT count(*), max(id) FROM nothing") == [(10, 91)]
