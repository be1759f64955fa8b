"""Cycles over MariaDB find exactly what changed, whatever the key is and however rows are compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pymysql.err
import pytest

from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.sources.mariadb.connect import Connector
from engine.sources.mariadb_queries.database import MariaDbDatabase as ComparedMariaDb
from engine.sources.query_diff import cycle, table_reading
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import DECLARED, Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from tests.fixtures.compared_reads import held_by
from tests.fixtures.mariadb import MariaDbDatabase
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy

_TABLES = {
    "by_number": "id bigint PRIMARY KEY, v text, n decimal(30, 3), r double, raw varbinary(20), at timestamp(3) NULL",
    "by_both": "k varchar(20) NOT NULL, id int NOT NULL, v text, PRIMARY KEY (k, id)",
    "by_bytes": "k varbinary(12) PRIMARY KEY, d date, v text",
    "by_moment": "k datetime(2) PRIMARY KEY, v text",
    "by_unique": "k bigint unsigned NOT NULL UNIQUE, v varchar(30) CHARACTER SET latin1",
    "by_uuid": "k uuid PRIMARY KEY, v text",
}
_VALUES = ("NULL", "''", r"'\\'", r"'a\tb\nc\r'", r"'\\N'", "'é€😀'", "'x'", "'X '", "REPEAT('long ', 300)")
_NAMES = ("'a'", "'A'", "'ab'", "''", r"'\\'", r"'t\tt'", "'é'", "'it''s'")


@pytest.fixture
def compared(connection: ConnectionSpec, mariadb: MariaDbDatabase) -> Iterator[ComparedMariaDb]:
    for name, columns in _TABLES.items():
        mariadb.execute(f"CREATE TABLE {name} ({columns})")
    with closing(ComparedMariaDb(Connector(connection))) as opened:
        yield opened


def _statement(rng: random.Random) -> str:
    value, key, other = rng.choice(_VALUES), rng.randint(-20, 60), rng.randint(-20, 60)
    number, name = rng.choice(["NULL", "0", "0.5", "-7.125", "1e20"]), rng.choice(_NAMES)
    moment = f"TIMESTAMP'2026-01-01 00:00:00' + INTERVAL {key % 7} / 4 SECOND"
    return rng.choice(
        [
            f"INSERT IGNORE INTO by_number VALUES ({key}, {value}, {number}, {key} / 3, X'0009', NOW(3))",
            f"INSERT IGNORE INTO by_number (id, v) SELECT seq, {value} FROM seq_1000_to_{1000 + 3 * abs(key)}",
            f"UPDATE by_number SET v = {value}, n = {number} WHERE id = {key}",
            f"UPDATE IGNORE by_number SET id = {key} WHERE id = {other}",
            f"UPDATE by_number SET r = -r, at = NULL WHERE id > {other}",
            f"DELETE FROM by_number WHERE id BETWEEN {key} AND {other}",
            f"DELETE FROM by_number WHERE id > {1000 + key}",
            f"REPLACE INTO by_both VALUES ({name}, {key}, {value})",
            f"UPDATE IGNORE by_both SET k = {name}, v = {value} WHERE id = {key}",
            f"DELETE FROM by_both WHERE k = {name} AND id < {key}",
            f"REPLACE INTO by_bytes VALUES (CHAR({key % 7 * 40}, {other % 5}, 0), '2026-02-03', {value})",
            f"UPDATE IGNORE by_bytes SET k = CONCAT(k, X'FF'), v = {value} WHERE k < CHAR({key % 7 * 40})",
            f"DELETE FROM by_bytes WHERE k = CHAR({key % 7 * 40}, {other % 5}, 0)",
            f"REPLACE INTO by_moment VALUES ({moment}, {value})",
            f"DELETE FROM by_moment WHERE k > {moment}",
            f"REPLACE INTO by_unique VALUES (18446744073709551615 - {abs(key)} % 4, 'é{other}'), ({abs(other)}, NULL)",
            f"DELETE FROM by_unique WHERE k > {abs(key)}",
            f"REPLACE INTO by_uuid VALUES ('00000000-0000-0000-0000-0000000000{abs(key) % 10}{abs(other) % 10}', {value})",
            "DELETE FROM by_uuid LIMIT 1",
            *(["TRUNCATE TABLE by_number"] if rng.random() < 0.05 else []),
        ]
    )


def change(mariadb: MariaDbDatabase, rng: random.Random) -> None:
    """Some transactions; partly of them are rolled back."""
    with mariadb.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for _ in range(rng.randint(0, 5)):
            session.begin()
            for _ in range(rng.randint(1, 12)):
                try:
                    cursor.execute(_statement(rng))
                except pymysql.err.IntegrityError:
                    continue
            rng.choices([session.commit, session.rollback], [5, 1])[0]()


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reading, "PIECE_BYTES", 600)
    monkeypatch.setattr(cycle, "RANGE_ROWS", 7)
    monkeypatch.setattr(cycle, "_FEW_RANGES", 3)
    monkeypatch.setattr(table_reading, "FEW_KEYS", 20)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("method", DECLARED)
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(2, 40))])
def test_each_cycle_makes_a_copy_like_its_snapshot(
    mariadb: MariaDbDatabase, compared: ComparedMariaDb, tmp_path: Path, method: Method, seed: int
) -> None:
    rng = random.Random(f"{seed}/{method}")
    names = [TableName(mariadb.name, name) for name in _TABLES]
    given = Given(0, method, 5.0, tmp_path / "reader", "shop")
    given.folder.make()
    given.folder.follow(dict.fromkeys(names, Follow(None, ALL)))
    copy = Copy(given.folder)
    for number in range(6):
        given = replace(given, method=rng.choice([method, method, method, *DECLARED]))
        change(mariadb, rng)
        with run_cycle(compared, given) as (snapshot, reached):
            held = held_by(compared, dict.fromkeys(names), snapshot)
            change(mariadb, rng)
            if not number:
                copy.fill(held, reached)
        copy.follow()
        assert copy.rows == held, f"cycle {number} by {given.method}"


def test_ranges_are_compared_where_the_key_has_an_order(mariadb: MariaDbDatabase, compared: ComparedMariaDb) -> None:
    tables = compared.tables(dict.fromkeys(TableName(mariadb.name, name) for name in _TABLES))
    ranged = {name.name for name, table in tables.items() if Method.RANGE_CHECKSUM in compared.methods(table)}
    assert ranged == {"by_number", "by_both", "by_bytes", "by_moment"}
    assert all(Method.ROW_CHECKSUM in compared.methods(table) for table in tables.values())
