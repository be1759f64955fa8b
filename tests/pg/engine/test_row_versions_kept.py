"""Tables whose row versions are kept on the target. Triggers on the source note every change, so the source is the oracle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.model.fault import FaultKind
from engine.model.history import FROM_POSITION, TO_POSITION, VALID_FROM, VALID_TO
from engine.model.position import Lsn
from engine.model.soft_delete import DeleteMode
from engine.model.subscription import ConnectionSpec, QueueMode
from engine.platform.failpoints import Failpoint
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, duckdb_target, subscription_spec, table
from tests.pg.bad_days.conftest import BadDay, Circumstances
from tests.pg.engine.killed_engines import arm, engine, wait_for
from tests.pg.engine.test_deleted_rows_kept import Rows

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]
Query = Callable[[str], list[tuple[Any, ...]]]

SHOP = """
CREATE TABLE kept (id int PRIMARY KEY, n int, big text);
CREATE TABLE plain (id int PRIMARY KEY);
CREATE TABLE bag (n int); ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE noted (seq bigserial, xid xid8 DEFAULT pg_current_xact_id(), id int, n int, big text, gone bool);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    INSERT INTO noted (id, n, big, gone) SELECT id, n, big, true FROM kept;
    RETURN NULL;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO noted (id, n, big, gone) VALUES (OLD.id, OLD.n, OLD.big, true);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO noted (id, n, big, gone) VALUES (NEW.id, NEW.n, NEW.big, false);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON kept FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER cleared BEFORE TRUNCATE ON kept EXECUTE FUNCTION note();
INSERT INTO kept SELECT i, i, CASE WHEN i % 3 = 0 THEN (SELECT string_agg(md5((i * j)::text), '')
  FROM generate_series(1, 300) AS j) END FROM generate_series(1, 60) AS i;
"""
KEPT, PLAIN = table("kept", history=True), table("plain")
ALL = f"SELECT id, n, big, {FROM_POSITION}, {TO_POSITION} FROM kept__history"
AS_OF = (
    f"SELECT id, n, big FROM kept__history WHERE {VALID_FROM} <= TIMESTAMPTZ '{{0}}'"
    f" AND ({VALID_TO} IS NULL OR {VALID_TO} > TIMESTAMPTZ '{{0}}') ORDER BY id"
)


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def rows(database: Database, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.execute(sql)]


def forget_notes(shop: Database) -> None:
    """From here on the rows that there are are the first versions."""
    shop.execute("TRUNCATE noted; INSERT INTO noted (xid, id, n, big, gone) SELECT '0', id, n, big, false FROM kept")


def noted(shop: Database) -> dict[int, list[tuple[Any, ...] | None]]:
    """By id, what each transaction that changed it left: the row, or None."""
    found: dict[int, list[tuple[Any, ...] | None]] = defaultdict(list)
    before: dict[int, str] = {}
    for xid, id_, n, big, gone in rows(shop, "SELECT xid::text, id, n, big, gone FROM noted ORDER BY seq"):
        if before.get(id_) == xid:
            found[id_].pop()
        before[id_] = xid
        found[id_].append(None if gone else (id_, n, big))
    # A row that a transaction inserts and deletes again leaves no trace.
    return {
        id_: [state for i, state in enumerate(states) if state is not None or (i and states[i - 1] is not None)]
        for id_, states in found.items()
    }


def kept(query: Query) -> dict[int, list[tuple[Any, ...] | None]]:
    """The same from the history table; the versions of a row must follow each other."""
    by_id: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in query(ALL):
        by_id[row[0]].append(row)
    found: dict[int, list[tuple[Any, ...] | None]] = {}
    for id_, versions in by_id.items():
        versions.sort(key=lambda row: Lsn.parse(row[3]))
        found[id_] = []
        for at, (*values, since, until) in enumerate(versions):
            found[id_].append(tuple(values))
            assert until is None or Lsn.parse(since) < Lsn.parse(until)
            following = versions[at + 1][3] if at + 1 < len(versions) else None
            if until is not None and until != following:
                assert following is None or Lsn.parse(until) < Lsn.parse(following)
                found[id_].append(None)
            assert until is not None or following is None
    return found


def assert_versions(shop: Database, query: Query) -> None:
    expected = {id_: states for id_, states in noted(shop).items() if states}
    found = kept(query)
    assert found.keys() == expected.keys()
    for id_, states in expected.items():
        assert found[id_] == states, f"versions of {id_}"


def now(shop: Database) -> str:
    """The source's clock at a moment without changes."""
    return str(rows(shop, "SELECT clock_timestamp()::text")[0][0])


@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"], indirect=True)
def test_every_version_is_there_through_reloads_and_structures(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [KEPT, PLAIN])
    forget_notes(shop)
    states = {}
    for statements in (
        "UPDATE kept SET n = n + 100 WHERE id < 20; DELETE FROM kept WHERE id % 5 = 0",
        "INSERT INTO kept VALUES (5, 5, 'again'), (99, 1, 'short')",
        "DELETE FROM kept WHERE id = 99; UPDATE kept SET id = id + 200 WHERE id BETWEEN 30 AND 40",
        "UPDATE kept SET n = 0; UPDATE kept SET n = 1",
        "UPDATE kept SET n = 2 WHERE id < 9",
    ):
        shop.execute(statements)
        states[now(shop)] = rows(shop, "SELECT id, n, big FROM kept ORDER BY id")
    with shop.connect() as session, session.transaction():
        for statement in (
            "UPDATE kept SET n = -1 WHERE id = 6",
            "DELETE FROM kept WHERE id = 7",
            "INSERT INTO kept VALUES (7, 7, 'new')",
        ):
            session.execute(statement.encode())
    replica.assert_equal()
    assert_versions(shop, replica.query)
    for moment, state in states.items():
        assert replica.query(AS_OF.format(moment)) == state
    shop.execute("UPDATE kept SET n = 7 WHERE id = 12; TRUNCATE kept; INSERT INTO kept VALUES (1, 1, 'x'), (2, 2, 'y')")
    replica.assert_equal()
    assert_versions(shop, replica.query)
    replica.pipeline.reload("r1", [replica.table_id("kept")])
    replica.wait_reload("r1")
    replica.assert_equal()
    assert_versions(shop, replica.query)
    replica.restart()
    replica.wait_state("running")
    shop.execute("ALTER TABLE kept ADD COLUMN extra int DEFAULT 7; UPDATE kept SET n = 3 WHERE id = 2")
    replica.assert_equal()
    shop.execute("ALTER TABLE kept RENAME COLUMN extra TO more; DELETE FROM kept WHERE id = 1")
    replica.assert_equal()
    assert_versions(shop, replica.query)
    assert set(replica.query("SELECT DISTINCT more FROM kept__history")) == {(7,)}
    shop.execute("ALTER TABLE kept DROP COLUMN more; UPDATE kept SET n = 4 WHERE id = 2")
    replica.assert_equal()
    assert_versions(shop, replica.query)


def test_deleted_rows_may_stay_in_the_table_too(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [replace(KEPT, deletes=DeleteMode.MARK), PLAIN])
    forget_notes(shop)
    shop.execute("DELETE FROM kept WHERE id = 3; INSERT INTO kept VALUES (3, 3, 'again'); TRUNCATE kept")
    shop.execute("INSERT INTO kept VALUES (1, 1, NULL); UPDATE kept SET n = 2")
    replica.assert_equal()
    assert_versions(shop, replica.query)
    replica.pipeline.reload("r1", [replica.table_id("kept")])
    replica.wait_reload("r1")
    replica.assert_equal()
    assert_versions(shop, replica.query)


def test_versions_have_their_generated_columns(shop: Database, replicate: Replicate) -> None:
    shop.execute(
        "CREATE TABLE made (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED, big text)"
    )
    shop.execute("INSERT INTO made (id, n, big) SELECT 1, 1, (SELECT big FROM kept WHERE id = 3)")
    replica = replicate(shop, [table("made", history=True), PLAIN])
    for n in range(2, 5):
        shop.execute(f"UPDATE made SET n = {n}")
    replica.assert_equal()
    found = replica.query("SELECT n, twice, length(big) FROM made__history ORDER BY n")
    assert found == [(n, 2 * n, 9600) for n in range(1, 5)]


@pytest.mark.parametrize("running", [True, False])
def test_the_option_is_switched_by_a_new_copy(shop: Database, replicate: Replicate, running: bool) -> None:
    replica = replicate(shop, [replace(KEPT, history=False), PLAIN])
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
    forget_notes(shop)
    shop.execute("DELETE FROM kept WHERE id < 9")
    replica.assert_equal()
    assert_versions(shop, replica.query)


def test_a_table_without_a_key_parks_alone(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("bag", history=True), PLAIN], live=False)
    parked = replica.wait_table("bag", "parked")
    assert parked.code == FaultKind.TABLE_COLUMNS_UNFIT.value
    assert "needs a key" in (parked.reason or "")
    replica.wait_live("plain")


@pytest.mark.parametrize(
    "points",
    [
        [Failpoint.COMMIT_AFTER],
        pytest.param([Failpoint.COMMIT_BEFORE, Failpoint.BATCH_AFTER_JOB] * 3, marks=pytest.mark.chaos),
    ],
    ids=["once", "often"],
)
def test_an_engine_that_dies_keeps_each_version_once(
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
    replica = BadDay(shop, tmp_path, [], Circumstances(spec=subscription_spec(shop, target, [KEPT, PLAIN])))
    try:
        replica.wait_live()
        replica.close()
        forget_notes(shop)
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
        assert_versions(shop, replica.query)
    finally:
        replica.release()
