"""Tables of which updates are not followed: cycles read their keys, and the rows whose keys are new."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.splits import ReadRules
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from tests.fixtures import compared_reads
from tests.fixtures.postgres import Database
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy

pytestmark = pytest.mark.pg

WITHOUT_UPDATES = ALL - {"update"}
WIDE = TableName("public", "wide")


@pytest.fixture
def wide(database: Database) -> Database:
    database.execute("CREATE TABLE wide (v text, id int, k text, PRIMARY KEY (k, id))")
    database.execute("INSERT INTO wide SELECT repeat('wide ', 200), i, 'k' || i % 3 FROM generate_series(1, 2000) AS i")
    return database


@pytest.fixture
def compared(wide: Database) -> Iterator[PostgresDatabase]:
    connector = Connector(ConnectionSpec("shop", "postgres", wide.settings))
    with closing(PostgresDatabase(connector, Compared({}), ReadRules())) as opened:
        yield opened


def follow(folder: Path, method: Method, operations: frozenset[str]) -> Given:
    given = Given(0, method, 10.0, folder / "reader", "shop")
    given.folder.make()
    given.folder.follow({WIDE: Follow(None, operations)})
    return given


@pytest.mark.parametrize("method", [Method.INCREMENTAL, Method.ROW_CHECKSUM, Method.OUTER_JOIN])
def test_only_new_rows_are_read(wide: Database, compared: PostgresDatabase, tmp_path: Path, method: Method) -> None:
    given = follow(tmp_path, method, WITHOUT_UPDATES)
    with run_cycle(compared, given):
        pass
    wide.execute(
        "UPDATE wide SET v = 'new'; INSERT INTO wide VALUES ('x', 9000, E'\\t'); DELETE FROM wide WHERE id < 8"
    )
    with run_cycle(compared, given) as (_, number):
        pass
    (found,) = given.folder.files.read(number).tables
    assert (found.method, found.rows_read, found.rows_hashed) == ("keys", 1, 1994)
    assert (found.inserted, found.updated, found.deleted) == (1, 0, 7)
    assert found.bytes_read < 20 * 2000
    # Updates are followed from the next cycle on.
    given = follow(tmp_path, Method.ROW_CHECKSUM, ALL)
    for statement in ("SELECT 1", "UPDATE wide SET v = 'newer' WHERE id = 9"):
        wide.execute(statement)
        with run_cycle(compared, given) as (_, number):
            pass
    (found,) = given.folder.files.read(number).tables
    assert (found.method, found.inserted, found.updated, found.deleted) == ("row_checksum", 0, 1, 0)


@pytest.mark.parametrize("method", [Method.INCREMENTAL, Method.RANGE_CHECKSUM])
def test_cycles_keep_the_keys_of_the_source(
    wide: Database, compared: PostgresDatabase, tmp_path: Path, method: Method
) -> None:
    rng, given = random.Random(5), follow(tmp_path, method, WITHOUT_UPDATES)
    copy = Copy(given.folder)
    with run_cycle(compared, given) as (snapshot, number):
        copy.fill(compared_reads.held_by(compared, {WIDE: None}, snapshot), number)
    for _ in range(6):
        before = dict(copy.rows["wide"])
        low = rng.randrange(2000)
        wide.execute(
            f"UPDATE wide SET v = 'at {low}' WHERE id > {low}; DELETE FROM wide WHERE id BETWEEN {low} AND {low + 90}"
        )
        wide.execute(
            f"INSERT INTO wide SELECT 'new', i, 'n' FROM generate_series({low}, {low + 70}) AS i ON CONFLICT DO NOTHING"
        )
        wide.execute(f"UPDATE wide SET id = id + 10000 WHERE id BETWEEN {low + 100} AND {low + 120}")
        with run_cycle(compared, given) as (snapshot, _):
            there = compared_reads.held_by(compared, {WIDE: None}, snapshot)["wide"]
        copy.follow()
        assert copy.rows["wide"] == {key: before.get(key, line) for key, line in there.items()}
        assert there.keys() - before.keys()
