"""Columns that the source computes: followed where its log carries them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.link.messages import SchemaVersion, TableStateReport
from engine.model.subscription import ApplyMode, ApplyPolicy, BatchPolicy
from engine.sources.postgres import catalog
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE orders (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
CREATE TABLE whole (n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE plain (id int PRIMARY KEY);
INSERT INTO orders SELECT i, i FROM generate_series(1, 50) i;
INSERT INTO whole SELECT i FROM generate_series(1, 50) i;
INSERT INTO plain VALUES (1);
"""


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def copies(replica: Replica, name: str) -> int:
    own = [r for r in replica.reports.all() if isinstance(r, TableStateReport) and r.table == replica.table_id(name)]
    return [r.state for r in own].count("catching_up")


@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"], indirect=True)
def test_a_subscription_made_when_they_were_left_out_gets_them(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [table("orders"), table("whole"), table("plain")]
    with monkeypatch.context() as before:
        before.setattr(catalog, "STORED_VERSION", 1_000_000)
        before.setattr(catalog, "_EXPRESSIONS", catalog._EXPRESSIONS + "LIMIT 0")
        # The server itself refuses changes of such a table while it is published so.
        replica = replicate(shop, tables[::2])
        shop.execute("UPDATE orders SET n = n + 1 WHERE id < 10")
        replica.assert_equal()
        assert replica.query("SELECT * FROM orders WHERE id = 1") == [(1, 2)]
        replica.pipeline.close()
    shop.execute("UPDATE orders SET n = n + 1 WHERE id < 5; INSERT INTO plain VALUES (2)")
    replica.restart()
    replica.wait_state("running")
    replica.reports.wait(lambda _: copies(replica, "orders") == 2, "orders copied anew")
    replica.wait_live()
    shop.execute("UPDATE orders SET n = n + 1 WHERE id < 3; DELETE FROM orders WHERE id = 50")
    replica.assert_equal()
    assert replica.query("SELECT * FROM orders WHERE id IN (1, 4, 9) ORDER BY id") == [
        (1, 4, 8),
        (4, 6, 12),
        (9, 10, 20),
    ]
    assert copies(replica, "plain") == 1
    replica.replace(*tables)
    replica.wait_live()
    shop.execute("UPDATE whole SET n = n + 1 WHERE n < 3; DELETE FROM whole WHERE n = 50")
    replica.assert_equal()


def test_they_are_told_of_in_the_history(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    shop.execute("ALTER TABLE orders ALTER twice DROP EXPRESSION; INSERT INTO orders VALUES (100, 1, 7)")
    replica.catch_up()
    told = [r for r in replica.reports.all() if isinstance(r, SchemaVersion)]
    assert told[-1].changes == ("column twice is not generated any more",)
    assert replica.query("SELECT * FROM orders WHERE id = 100") == [(100, 1, 7)]
    replica.assert_equal()


LEFT_OUT = """
CREATE SCHEMA other; CREATE DOMAIN other.amount AS numeric(10, 2);
CREATE FUNCTION other.scaled(other.amount) RETURNS numeric IMMUTABLE LANGUAGE sql AS 'SELECT $1 * 3';
CREATE TABLE keyed (
  id int PRIMARY KEY, n int, "odd ""name" text, d other.amount, at timestamptz, large text, raw bytea, many int[], f float8,
  made text GENERATED ALWAYS AS (coalesce(n::text, '-') || "odd ""name" || large) STORED,
  scaled numeric GENERATED ALWAYS AS (other.scaled(d)) STORED, sizes int GENERATED ALWAYS AS (length(large) + length(raw)) STORED,
  day timestamp GENERATED ALWAYS AS (at AT TIME ZONE 'UTC') STORED, first int GENERATED ALWAYS AS (many[1]) STORED,
  half float8 GENERATED ALWAYS AS (f / 3) STORED, fixed int GENERATED ALWAYS AS (7) STORED,
  words tsvector GENERATED ALWAYS AS (to_tsvector('english', "odd ""name" || large)) STORED,
  place text GENERATED ALWAYS AS (tableoid::text) STORED);
ALTER TABLE keyed ALTER large SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL;
CREATE TABLE bag (n int, note text, twice int GENERATED ALWAYS AS (n * 2) STORED); ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE log (n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
INSERT INTO keyed (id, n, "odd ""name", d, at, large, raw, many, f)
SELECT i, i, 'x' || i, i / 7.0, '2026-01-01'::timestamptz + i * interval '1 hour', repeat('l', 5000),
  decode(repeat('ab', 5000), 'hex'), ARRAY[i, 2], i / 3.0
FROM generate_series(1, 40) i;
INSERT INTO bag SELECT n % 5, 'b' FROM keyed; INSERT INTO log SELECT n FROM keyed;
"""
CHANGED = (
    'UPDATE keyed SET n = NULL WHERE id < 5; UPDATE keyed SET "odd ""name" = E\'ta\\tb\\\\ "q"\' WHERE id = 6',
    "UPDATE keyed SET id = id + 1000, n = -1 WHERE id IN (10, 11)",
    "UPDATE keyed SET large = NULL WHERE id = 12; UPDATE keyed SET raw = '\\x00ff', d = NULL, many = '{}' WHERE id = 13",
    "DELETE FROM keyed WHERE id > 35 AND id < 100",
    "INSERT INTO keyed (id, n, \"odd \"\"name\", large, f) SELECT i, i, 'n', 'short', 'NaN' FROM generate_series(2000, 2300) i",
    "BEGIN; UPDATE keyed SET n = n + 1; SAVEPOINT s; UPDATE keyed SET d = 1; ROLLBACK TO s;"
    " UPDATE keyed SET f = f + 1 WHERE id % 3 = 0; COMMIT",
    "UPDATE bag SET n = n + 1 WHERE n < 3; DELETE FROM bag WHERE n = 4; INSERT INTO bag VALUES (NULL, 'x')",
    "INSERT INTO log VALUES (1), (NULL)",
    'ALTER TABLE keyed RENAME "odd ""name" TO named; UPDATE keyed SET named = \'renamed\' WHERE id < 9',
    "ALTER TABLE keyed ADD COLUMN more int",
    "ALTER TABLE keyed RENAME scaled TO thrice; UPDATE keyed SET more = n, d = d + 1 WHERE id < 9; DELETE FROM bag WHERE n = 1",
)


@pytest.mark.parametrize("mode", [ApplyMode.AUTO, pytest.param(ApplyMode.TRANSACTIONAL, marks=pytest.mark.chaos)])
def test_an_older_source_is_asked_for_what_its_log_leaves_out(
    pg16: EmbeddedPostgres,
    database_on: Callable[..., Database],
    replicate: Replicate,
    target_kind: str,
    mode: ApplyMode,
) -> None:
    if mode is ApplyMode.TRANSACTIONAL and target_kind == "duckdb":
        mode = ApplyMode.BATCH
    shop = database_on(pg16)
    shop.execute(LEFT_OUT)
    tables = [table("keyed"), table("bag"), table("log", insert_only=True)]
    replica = replicate(shop, tables, apply=ApplyPolicy(mode))
    for statement in CHANGED:
        with shop.connect() as session:
            session.execute(statement)
        replica.catch_up()
    replica.assert_equal()
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'keyed' ORDER BY ordinal_position"
    made = ["made", "thrice", "sizes", "day", "first", "half", "fixed", "words"]
    assert [name for (name,) in replica.query(columns) if name in [*made, "scaled", "place"]] == made
    assert copies(replica, "keyed") == 1
    replica.restart()
    replica.wait_live()
    shop.execute(
        "UPDATE keyed SET n = 5 WHERE id = 1; ALTER TABLE keyed ALTER made DROP EXPRESSION; DELETE FROM keyed WHERE id = 2"
    )
    replica.reports.wait(lambda _: copies(replica, "keyed") == 2, "keyed copied anew")
    replica.wait_live()
    shop.execute("UPDATE keyed SET made = 'given' WHERE id = 1")
    replica.assert_equal()
    assert replica.query("SELECT made FROM keyed WHERE id = 1") == [("given",)]


def test_a_large_open_transaction_that_is_worked_on_before_its_commit(
    pg18: EmbeddedPostgres,
    database_on: Callable[..., Database],
    replicate: Replicate,
    target_kind: str,
) -> None:
    """Of tables whose columns the source computes nothing is staged early; of the others it is, and both come with the commit."""
    shop = database_on(pg18, logical_decoding_work_mem="'64kB'")
    shop.execute(SHOP)
    shop.execute(
        "CREATE TABLE made (id int PRIMARY KEY, note text, size int GENERATED ALWAYS AS (length(note) + id) VIRTUAL)"
    )
    tables = [table("plain"), table("made")]
    replica = replicate(shop, tables, batch=BatchPolicy(small_rows=0), piece_bytes=256 * 1024)
    with shop.connect() as session, session.transaction():
        for first in (10, 10_010, 20_010):
            session.execute(f"INSERT INTO plain SELECT i FROM generate_series({first}, {first} + 9000) i".encode())
            session.execute(
                f"INSERT INTO made SELECT i, repeat('n', 20) FROM generate_series({first}, {first} + 9000) i".encode()
            )
        session.execute("UPDATE made SET note = 'short' WHERE id % 10 = 0")
        run = replica.pipeline.run
        assert run is not None
        wait_until(lambda: run.ahead.counts.staged > 0)
    replica.assert_equal()
    assert replica.query("SELECT size FROM made WHERE id IN (10, 11) ORDER BY id") == [(15,), (31,)]
