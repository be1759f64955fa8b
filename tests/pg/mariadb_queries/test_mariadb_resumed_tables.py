"""MariaDB: a cycle of several snapshots that loses its connection continues after the last step of its table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pymysql
import pytest

from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.sources.mariadb.connect import Connector
from engine.sources.mariadb_queries.database import MariaDbDatabase as ComparedMariaDb
from engine.sources.query_diff import table_walk
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.table_reading import Conduct
from tests.fixtures.cut_reads import CutReads, assert_of_its_snapshots, make_steps_small
from tests.fixtures.mariadb import MariaDbDatabase
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy

pytestmark = pytest.mark.pg

_TABLES = {
    "goods": "id bigint PRIMARY KEY, v varchar(20), n decimal(8, 2)",
    "orders": "shop int NOT NULL, id int NOT NULL, v text, PRIMARY KEY (shop, id)",
}
_READS = "SELECT id FROM information_schema.processlist WHERE user = 'reader'"
_EVENTS_OF_A_STEP = 11


@pytest.fixture
def cut(connection: ConnectionSpec, mariadb: MariaDbDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[CutReads]:
    make_steps_small(monkeypatch)
    for name, columns in _TABLES.items():
        mariadb.execute(f"CREATE TABLE {name} ({columns})")
    mariadb.execute("INSERT INTO goods SELECT 2 * seq, 'n', 0 FROM seq_1_to_100")
    mariadb.execute("INSERT INTO orders SELECT seq / 9, seq % 9, 'n' FROM seq_1_to_60 ON DUPLICATE KEY UPDATE v = 'm'")
    followed = {TableName(mariadb.name, name): Follow(None, ALL) for name in _TABLES}
    with closing(ComparedMariaDb(Connector(connection))) as opened:
        yield CutReads(opened, followed)


def end_sessions(mariadb: MariaDbDatabase) -> None:
    for (session,) in mariadb.execute(_READS):
        with suppress(pymysql.MySQLError):  # It may have ended.
            mariadb.execute(f"KILL {session}")


def change(mariadb: MariaDbDatabase, rng: random.Random) -> None:
    key, other, count = rng.randint(-5, 230), rng.randint(-5, 230), rng.randint(0, 30)
    value = rng.choice("nm")
    statements = [
        f"UPDATE goods SET v = '{value}' WHERE id BETWEEN {key} AND {key + count}",
        f"UPDATE orders SET v = '{value}' WHERE shop BETWEEN {key % 9} AND {other % 9}",
        f"DELETE FROM goods WHERE id BETWEEN {key} AND {key + count}",
        f"DELETE FROM orders WHERE shop = {key % 9} AND id > {other % 9}",
        f"INSERT IGNORE INTO goods SELECT seq, '{value}', 0 FROM seq_{abs(key)}_to_{abs(key) + count}",
        f"INSERT IGNORE INTO goods SELECT seq, 'n', 0 FROM seq_231_to_{231 + 3 * count}",
        f"UPDATE IGNORE goods SET id = {other} WHERE id = {key}",
        f"UPDATE IGNORE goods SET id = 1000 - id WHERE id BETWEEN {key} AND {key + count} AND id < 231",
        f"UPDATE IGNORE goods SET id = 1000 - id WHERE id > {1000 - key}",
        f"UPDATE IGNORE orders SET shop = {key % 13} WHERE shop = {other % 13}",
    ]
    for statement in rng.sample(statements, rng.randint(1, 4)):
        mariadb.execute(statement)


@pytest.mark.parametrize("method", sorted(table_walk.WALKED))
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(2, 40))])
def test_whatever_changes_while_the_connection_is_lost_again_and_again_is_found(
    mariadb: MariaDbDatabase, cut: CutReads, tmp_path: Path, method: Method, seed: int
) -> None:
    rng = random.Random(f"{seed}/{method}")
    given = Given(0, method, 10.0, tmp_path / "reader", "shop")
    given.folder.make()
    given.folder.follow(cut.followed)
    copy, resumed = Copy(given.folder), 0
    with run_cycle(cut.compared, given) as (snapshot, number):
        copy.fill(cut.held[snapshot], number)
    for _ in range(5):
        change(mariadb, rng)
        since = _EVENTS_OF_A_STEP

        def happens(table: TableName, snapshot: str) -> None:
            nonlocal since
            del table, snapshot
            since += 1
            if rng.random() < 0.2:
                change(mariadb, rng)
            if since > _EVENTS_OF_A_STEP and rng.random() < 0.2:
                since = 0
                end_sessions(mariadb)

        before = {name: dict(rows) for name, rows in copy.rows.items()}
        found = cut.cycle(given, Conduct(snapshot_s=3600.0), happens)
        copy.follow()
        for name in cut.followed:
            assert_of_its_snapshots(copy, before[name.name], cut, name)
        assert found.snapshot is (len(cut.held) == 1)
        resumed += sum(table.snapshots > 1 for table in found.tables)
        if rng.random() < 0.5:
            cut.cycle(given, Conduct(snapshot_s=3600.0))
            copy.follow()
            assert [copy.rows] == list(cut.held.values())
    assert resumed
