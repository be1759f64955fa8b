"""Cycles over MariaDB find exactly what changed, whatever the key is and however rows are compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pymysql.err
import pytest

from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.sources.mariadb.connect import Connector
from engine.sources.mariadb_queries.compared import Compared
from engine.sources.mariadb_queries.database import MariaDbDatabase as ComparedMariaDb
from engine.sources.query_diff import cycle, cycle_snapshot, table_reading
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import DECLARED, Method
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from tests.fixtures.compared_reads import held_by
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.stamped_tables import Late, assert_found_by_stamps
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy

_TABLES = {
    "by_number": "id bigint PRIMARY KEY, v text, n decimal(30, 3), r double, raw varbinary(20), at timestamp(3) NULL",
    "by_both": "k varchar(20) NOT NULL, id int NOT NULL, v text, PRIMARY KEY (k, id)",
    "by_bytes": "k varbinary(12) PRIMARY KEY, d date, v text",
    "by_moment": "k datetime(2) PRIMARY KEY, v text",
    "by_unique": "k bigint unsigned NOT NULL UNIQUE, v varchar(30) CHARACTER SET latin1",
    "by_uuid": "k uuid PRIMARY KEY, v text",
}
_STAMPED_TABLES = {
    "stamped": "id int PRIMARY KEY, v text, at timestamp(6) NULL",
    "flagged": "id int PRIMARY KEY, v text, at datetime(3), deleted boolean, KEY (at)",
    "counted": "id int PRIMARY KEY, v text, at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,"
    " gone bigint unsigned, KEY (at, gone)",
    "dated": "k varchar(9) PRIMARY KEY, v text, at date NOT NULL, gone smallint NOT NULL",
}
_KEPT = {
    "stamped": "TRUE",
    "flagged": "NOT IFNULL(deleted, FALSE)",
    "counted": "IFNULL(gone, 0) = 0",
    "dated": "gone = 0",
}
"""Which rows of the tables with stamps the copy has."""
_DETECTIONS = {
    "stamped": TableDetection(method="timestamp", stamp_column="at", sweep_every=9),
    "flagged": TableDetection(method="timestamp_delete_flag", stamp_column="at", flag_column="deleted", sweep_every=9),
    "counted": TableDetection(method="timestamp_delete_flag", stamp_column="at", flag_column="gone", sweep_every=9),
    "dated": TableDetection(method="timestamp_delete_flag", stamp_column="at", flag_column="gone", sweep_every=9),
}
_TIMES = ("NOW(6)", "SYSDATE(6)", "NULL")
_PATIENT = "time_zone = '+00:00', tx_isolation = 'READ-COMMITTED', innodb_lock_wait_timeout = 0"
"""Sessions of tests that change rows in one thread wait for no lock."""
_LOCKED = 1205
"""Number of the error of a statement that would wait for a lock."""
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


def _stamped_statement(rng: random.Random) -> str:
    """Statements for tables with stamps and flags. Rows are also removed, and may come back, deleted or not."""
    value, at, key, other = rng.choice(_VALUES), rng.choice(_TIMES), rng.randint(-9, 30), rng.randint(-9, 30)
    flag, number = rng.choice(["TRUE", "FALSE", "NULL"]), rng.choice(["0", "7", "NULL"])
    low, high = sorted([key % 12, other % 12])
    return rng.choice(
        [
            f"INSERT IGNORE INTO stamped VALUES ({key}, {value}, {at})",
            f"UPDATE stamped SET v = {value}, at = {at} WHERE id BETWEEN {low} AND 1000",
            f"DELETE FROM stamped WHERE id = {key}",
            f"REPLACE INTO flagged VALUES ({low}, {value}, {at}, {flag})",
            f"UPDATE flagged SET v = {value}, at = {at}, deleted = {flag} WHERE id BETWEEN {low} AND {high}",
            f"UPDATE IGNORE flagged SET id = {low}, at = {at} WHERE id = {high}",
            f"DELETE FROM flagged WHERE deleted AND id < {low}",
            f"INSERT INTO counted (id, v, gone) SELECT seq, {value}, {number} FROM seq_{low}_to_{high}"
            " ON DUPLICATE KEY UPDATE v = VALUES(v), gone = VALUES(gone), at = NOW()",
            f"UPDATE counted SET v = {value}, gone = {number} WHERE id = {low}",
            f"UPDATE IGNORE counted SET id = {low} WHERE id = {high}",
            f"DELETE FROM counted WHERE id = {low}",
            f"REPLACE INTO dated VALUES ('k{low}', {value}, CURRENT_DATE, {abs(other) % 2})",
            f"UPDATE dated SET gone = 1 - gone, at = CURRENT_DATE WHERE k <= 'k{high}'",
        ]
    )


def present_in(mariadb: MariaDbDatabase) -> dict[str, dict[bytes, bool]]:
    """The keys of rows that are in the tables with stamps, and whether the copy has them."""
    return {
        name: {
            str(key).encode(): bool(kept)
            for key, kept in mariadb.execute(f"SELECT {'k' if name == 'dated' else 'id'}, {kept} FROM {name}")
        }
        for name, kept in _KEPT.items()
    }


def change(
    mariadb: MariaDbDatabase, rng: random.Random, statement: Callable[[random.Random], str] = _statement
) -> None:
    """Some transactions; partly of them are rolled back."""
    with mariadb.connect() as session, session.cursor() as cursor:
        cursor.execute(f"SET sql_mode = '', {_PATIENT}")
        for _ in range(rng.randint(0, 5)):
            session.begin()
            for _ in range(rng.randint(1, 12)):
                try:
                    cursor.execute(statement(rng))
                except pymysql.err.IntegrityError:
                    continue
                except pymysql.err.OperationalError as error:
                    if error.args[0] != _LOCKED:
                        raise
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


@pytest.fixture
def stamped(connection: ConnectionSpec, mariadb: MariaDbDatabase) -> Iterator[ComparedMariaDb]:
    """With tables whose changes are found by stamps; its account may see the transactions of others."""
    mariadb.server.execute("GRANT PROCESS ON *.* TO reader@'%'")
    for name, columns in _STAMPED_TABLES.items():
        mariadb.execute(f"CREATE TABLE {name} ({columns})")
    chosen = {f"{mariadb.name}.{name}": detection for name, detection in _DETECTIONS.items()}
    with closing(ComparedMariaDb(Connector(connection), compared=Compared(chosen))) as opened:
        yield opened


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("method", [Method.INCREMENTAL, Method.ROW_CHECKSUM])
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(2, 60))])
def test_each_cycle_by_stamps_finds_late_commits_and_deletes_by_flags(
    mariadb: MariaDbDatabase,
    stamped: ComparedMariaDb,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: Method,
    seed: int,
) -> None:
    # Nothing but the age of the transactions is allowed for.
    monkeypatch.setattr(cycle_snapshot, "_CLOCK_STEP_S", 0.0)
    rng = random.Random(f"stamps/{seed}/{method}")
    names = [TableName(mariadb.name, name) for name in _STAMPED_TABLES]
    chosen = {f"{mariadb.name}.{name}": detection for name, detection in _DETECTIONS.items()}
    given = Given(0, method, 5.0, tmp_path / "reader", "shop", chosen)
    given.folder.make()
    given.folder.follow(dict.fromkeys(names, Follow(None, ALL)))
    copy = Copy(given.folder)
    change(mariadb, rng, _stamped_statement)
    with run_cycle(stamped, given) as (snapshot, reached):
        copy.fill(held_by(stamped, dict.fromkeys(names), snapshot), reached)
    with ExitStack() as sessions:
        open_ones = [sessions.enter_context(mariadb.connect()) for _ in range(3)]
        cursors = [session.cursor() for session in open_ones]
        for cursor in cursors:
            cursor.execute(f"SET {_PATIENT}")
        late = [Late(each.execute, rng, "NOW(6)", 5_000 + 1_000 * n) for n, each in enumerate(cursors)]
        for number in range(7):
            change(mariadb, rng, _stamped_statement)
            for each in rng.sample(late, 2):
                each.go_on()
            complete = rng.random() < 0.2
            with run_cycle(stamped, given, complete=complete) as (snapshot, reached):
                expected, present = held_by(stamped, dict.fromkeys(names), snapshot), present_in(mariadb)
            copy.follow()
            swept = complete or reached % 9 == 0
            assert_found_by_stamps(copy.rows, expected, present, complete=swept)
            assert copy.last == reached, f"cycle {number}"


def test_ranges_are_compared_where_the_key_has_an_order(mariadb: MariaDbDatabase, compared: ComparedMariaDb) -> None:
    tables = compared.tables(dict.fromkeys(TableName(mariadb.name, name) for name in _TABLES))
    ranged = {name.name for name, table in tables.items() if Method.RANGE_CHECKSUM in compared.methods(table)}
    assert ranged == {"by_number", "by_both", "by_bytes", "by_moment"}
    assert all(Method.ROW_CHECKSUM in compared.methods(table) for table in tables.values())
