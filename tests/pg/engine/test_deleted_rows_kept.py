"""Tables whose deleted rows stay on the target. Triggers on the source note what is deleted, so the source is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engine.model.fault import FaultKind
from engine.model.soft_delete import DELETED_AT, DeleteMode
from engine.model.subscription import ConnectionSpec, QueueMode
from engine.platform.failpoints import Failpoint
from tests.fixtures.load import Load
from tests.fixtures.postgres import Database, Session
from tests.fixtures.replication import Replica, duckdb_target, subscription_spec, table
from tests.pg.bad_days.conftest import BadDay, Circumstances
from tests.pg.engine.killed_engines import arm, engine, wait_for

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE kept (id int PRIMARY KEY, n int, big text);
CREATE TABLE plain (id int PRIMARY KEY);
CREATE TABLE bag (n int); ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE gone (id int PRIMARY KEY, n int, big text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    INSERT INTO gone SELECT id, n, big FROM kept ON CONFLICT (id) DO UPDATE SET n = excluded.n, big = excluded.big;
  ELSE
    INSERT INTO gone VALUES (OLD.id, OLD.n, OLD.big) ON CONFLICT (id) DO UPDATE SET n = excluded.n, big = excluded.big;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER deleted AFTER DELETE ON kept FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER moved AFTER UPDATE ON kept FOR EACH ROW WHEN (OLD.id <> NEW.id) EXECUTE FUNCTION note();
CREATE TRIGGER cleared BEFORE TRUNCATE ON kept EXECUTE FUNCTION note();
INSERT INTO kept SELECT i, i, CASE WHEN i % 3 = 0 THEN (SELECT string_agg(md5((i * j)::text), '')
  FROM generate_series(1, 300) AS j) END FROM generate_series(1, 60) AS i;
"""
KEPT, PLAIN = table("kept", deletes=DeleteMode.MARK), table("plain")
MARKED = f"SELECT id, n, big FROM kept WHERE {DELETED_AT} IS NOT NULL ORDER BY id"
LIVE = f"SELECT id, n, big FROM kept WHERE {DELETED_AT} IS NULL ORDER BY id"


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def rows(database: Database, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.execute(sql)]


def assert_kept(shop: Database, query: Callable[[str], list[tuple[Any, ...]]]) -> None:
    """The target has the source's rows, and those that were deleted as they were then."""
    assert query(LIVE) == rows(shop, "SELECT id, n, big FROM kept ORDER BY id")
    gone = "SELECT id, n, big FROM gone WHERE id NOT IN (SELECT id FROM kept) ORDER BY id"
    assert query(MARKED) == rows(shop, gone)


@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"], indirect=True)
def test_deleted_rows_stay_through_changes_reloads_and_restarts(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [KEPT, PLAIN])
    before = datetime.now(UTC)
    shop.execute("UPDATE kept SET n = n + 100 WHERE id < 20; DELETE FROM kept WHERE id % 5 = 0")
    shop.execute("INSERT INTO kept VALUES (5, 5, 'again'), (99, 1, 'short'); DELETE FROM kept WHERE id = 99")
    shop.execute("UPDATE kept SET id = id + 200 WHERE id BETWEEN 30 AND 40")
    shop.execute("BEGIN; UPDATE kept SET n = -1 WHERE id = 6; DELETE FROM kept WHERE id = 6; COMMIT")
    replica.assert_equal()
    assert_kept(shop, replica.query)
    times = [row[0] for row in replica.query(f"SELECT {DELETED_AT} FROM kept WHERE {DELETED_AT} IS NOT NULL")]
    assert all(before < at < datetime.now(UTC) for at in times)
    replica.pipeline.reload("r1", [replica.table_id("kept")])
    replica.wait_reload("r1")
    replica.assert_equal()
    assert_kept(shop, replica.query)
    again = [row[0] for row in replica.query(f"SELECT {DELETED_AT} FROM kept WHERE {DELETED_AT} IS NOT NULL")]
    assert sorted(again) == sorted(times)
    shop.execute("UPDATE kept SET n = 7 WHERE id = 12; TRUNCATE kept; INSERT INTO kept VALUES (1, 1, 'x'), (2, 2, 'y')")
    replica.assert_equal()
    assert_kept(shop, replica.query)
    replica.restart()
    replica.wait_state("running")
    shop.execute("ALTER TABLE kept ADD COLUMN extra int DEFAULT 7; UPDATE kept SET n = 3 WHERE id = 2")
    replica.assert_equal()
    shop.execute("ALTER TABLE kept RENAME COLUMN extra TO more; DELETE FROM kept WHERE id = 1")
    replica.assert_equal()
    assert_kept(shop, replica.query)
    assert replica.query(f"SELECT more FROM kept WHERE id = 1 AND {DELETED_AT} IS NOT NULL") == [(7,)]


def test_a_copy_in_chunks_marks_what_is_deleted_meanwhile(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is deleted before its chunk was read is unknown to the target; everything else is marked with its last values."""
    monkeypatch.setenv("PENSTOCK_COPY_STRETCH_BYTES", str(64 * 1024))
    shop.execute("INSERT INTO kept SELECT i, i, repeat('c', 60) FROM generate_series(100, 5000) AS i; ANALYZE kept")
    with Rows(shop.connect, 2, most=5000) as load:
        replica = replicate(shop, [KEPT, PLAIN])
        load.more(50)
    replica.assert_equal()
    assert replica.query(LIVE) == rows(shop, "SELECT id, n, big FROM kept ORDER BY id")
    marked = set(replica.query(MARKED))
    assert marked
    assert marked <= set(rows(shop, "SELECT id, n, big FROM gone WHERE id NOT IN (SELECT id FROM kept)"))


def test_deleted_rows_have_their_generated_columns(shop: Database, replicate: Replicate) -> None:
    shop.execute(
        "CREATE TABLE made (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED, big text)"
    )
    shop.execute(
        "INSERT INTO made (id, n, big) SELECT i, i, (SELECT big FROM kept WHERE id = 3) FROM generate_series(1, 9) AS i"
    )
    replica = replicate(shop, [table("made", deletes=DeleteMode.MARK), PLAIN])
    shop.execute("DELETE FROM made WHERE id = 1")
    shop.execute("BEGIN; UPDATE made SET n = 50 WHERE id = 2; DELETE FROM made WHERE id = 2; COMMIT")
    shop.execute("BEGIN; INSERT INTO made (id, n) VALUES (10, 60); DELETE FROM made WHERE id = 10; COMMIT")
    shop.execute("UPDATE made SET id = 20, n = 70 WHERE id = 3")
    replica.assert_equal()
    found = replica.query(f"SELECT id, n, twice, length(big) FROM made WHERE {DELETED_AT} IS NOT NULL ORDER BY id")
    assert found == [(1, 1, 2, 9600), (2, 50, 100, 9600), (3, 3, 6, 9600), (10, 60, 120, None)]


@pytest.mark.parametrize("running", [True, False])
def test_the_option_is_switched_by_a_new_copy(shop: Database, replicate: Replicate, running: bool) -> None:
    unmarked = replace(KEPT, deletes=DeleteMode.DELETE)
    replica = replicate(shop, [unmarked, PLAIN])
    if running:
        replica.replace(KEPT, PLAIN)
    else:
        replica.pipeline.close()
        replica.spec = replace(replica.spec, tables=(KEPT, PLAIN))
        replica.restart()
        replica.wait_state("running")
    shop.execute("UPDATE kept SET n = 0 WHERE id = 1")
    replica.reports.wait(lambda _: "reloading" in replica.states_of("kept") or None, "a new copy")
    replica.wait_live()
    shop.execute("DELETE FROM kept WHERE id < 9")
    replica.assert_equal()
    assert_kept(shop, replica.query)


@pytest.mark.parametrize(("name", "words"), [("bag", "needs a key"), ("kept", f"adds the column {DELETED_AT}")])
def test_a_table_that_cannot_mark_parks_alone(shop: Database, replicate: Replicate, name: str, words: str) -> None:
    shop.execute(f"ALTER TABLE kept ADD COLUMN {DELETED_AT} date")
    replica = replicate(shop, [table(name, deletes=DeleteMode.MARK), PLAIN], live=False)
    parked = replica.wait_table(name, "parked")
    assert parked.code == FaultKind.TABLE_COLUMNS_UNFIT.value
    assert words in (parked.reason or "")
    replica.wait_live("plain")


class Rows(Load):
    """Transactions that insert, update, move, delete and, with few keys and rarely, truncate."""

    def __init__(self, connect: Callable[[], Session], seed: int, most: int = 90) -> None:
        super().__init__(connect, seed)
        self._most = most

    def transact(self, connection: Session) -> None:
        with connection.transaction():
            for _ in range(self.rng.randrange(1, 4)):
                key, other = self.rng.randrange(1, self._most), self.rng.randrange(1, self._most)
                verb = self.rng.choice(["insert", "update", "move", "delete", "delete"])
                if verb == "insert":
                    connection.execute("INSERT INTO kept VALUES (%s, 1, 'y') ON CONFLICT DO NOTHING", [key])
                elif verb == "update":
                    connection.execute("UPDATE kept SET n = n + 1 WHERE id BETWEEN %s AND %s", [key, key + 5])
                elif verb == "move":
                    free = "NOT EXISTS (SELECT FROM kept WHERE id = %s)"
                    connection.execute(
                        f"UPDATE kept SET id = %s WHERE id = %s AND {free}".encode(), [other, key, other]
                    )
                else:
                    connection.execute("DELETE FROM kept WHERE id = %s", [key])
            if self._most < 100 and self.rng.random() < 0.01:
                connection.execute("TRUNCATE kept")


@pytest.mark.parametrize(
    "points",
    [
        [Failpoint.COMMIT_AFTER],
        pytest.param([Failpoint.COMMIT_BEFORE, Failpoint.BATCH_AFTER_JOB] * 3, marks=pytest.mark.chaos),
    ],
    ids=["once", "often"],
)
def test_an_engine_that_dies_marks_each_row_once(
    shop: Database,
    target_kind: str,
    tmp_path: Path,
    armed: Path,
    points: list[Failpoint],
    request: pytest.FixtureRequest,
) -> None:
    target = duckdb_target(tmp_path)
    if target_kind == "postgres":
        mart = request.getfixturevalue("database_on")(request.getfixturevalue("pg18"))
        target = ConnectionSpec("mart", "postgres", mart.settings)
    spec = subscription_spec(shop, target, [KEPT, PLAIN])
    replica = BadDay(shop, tmp_path, [], Circumstances(spec=spec))
    try:
        replica.wait_live()
        replica.close()
        with Rows(shop.connect, 1) as load:
            for point in points:
                with engine(replica, QueueMode.PERSIST, armed) as process:
                    wait_for(process, "kept live")
                    load.more(20)
                    arm(armed, point, 2)
                    process.wait(60.0)
        replica.again()
        replica.wait_live()
        replica.assert_equal()
        assert_kept(shop, replica.query)
    finally:
        replica.release()
