"""Tables of which updates are not followed: cycles keep their keys."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.model.identity import TableName
from engine.sources.query_diff import table_reading
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from tests.fixtures.compared_reads import held_by
from tests.fixtures.replication import table
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy
from tests.process.sqlite_queries.test_sqlite_by_queries import database_of
from tests.process.sqlite_queries.test_sqlite_cycles import change, create_tables
from tests.process.sqlite_triggers.conftest import File, Replicate

WITHOUT_UPDATES = ALL - {"update"}


def follow(given: Given, names: Mapping[TableName, frozenset[str]]) -> None:
    given.folder.make()
    given.folder.follow({name: Follow(None, operations) for name, operations in names.items()})


def found_by(given: Given, number: int) -> Any:
    (found,) = given.folder.files.read(number).tables
    return found


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
def test_cycles_keep_the_keys_of_the_source(
    file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, few: bool
) -> None:
    monkeypatch.setattr(table_reading, "PIECE_BYTES", 600)
    monkeypatch.setattr(table_reading, "FEW_KEYS", 20_000 if few else 0)
    rng, database = random.Random(seed), database_of(file)
    names = create_tables(file)
    given = Given(0, Method.INCREMENTAL, 10.0, tmp_path / "reader", "shop")
    follow(given, dict.fromkeys(names, WITHOUT_UPDATES))
    copy = Copy(given.folder)
    with run_cycle(database, given) as (snapshot, number):
        copy.fill(held_by(database, dict.fromkeys(names), snapshot, 2_000), number)
    seen = 0
    for _ in range(6):
        before = {name: dict(held) for name, held in copy.rows.items()}
        change(file, rng)
        with run_cycle(database, given) as (snapshot, _):
            change(file, rng)
            expected = held_by(database, dict.fromkeys(names), snapshot, 2_000)
        copy.follow()
        for name, held in expected.items():
            assert copy.rows[name] == {key: before[name].get(key, line) for key, line in held.items()}
            seen += sum(key not in before[name] for key in held)
    assert seen


def test_no_row_is_hashed(file: File, tmp_path: Path) -> None:
    file.execute("CREATE TABLE wide (id INTEGER PRIMARY KEY, v TEXT)")
    file.execute(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) INSERT INTO wide SELECT i, hex(zeroblob(500)) FROM n"
    )
    given = Given(0, Method.INCREMENTAL, 10.0, tmp_path / "reader", "shop")
    name, database = TableName("main", "wide"), database_of(file)
    follow(given, {name: WITHOUT_UPDATES})
    for statement in (
        "SELECT 1",
        "UPDATE wide SET v = 'new'; INSERT INTO wide VALUES (501, 'x'); DELETE FROM wide WHERE id = 7",
    ):
        file.execute(statement)
        with run_cycle(database, given) as (_, number):
            pass
    found = found_by(given, number)
    assert (found.method, found.rows_read, found.rows_hashed) == ("keys", 500, 0)
    assert (found.inserted, found.updated, found.deleted) == (1, 0, 1)
    # Updates are followed from now on: the rows are hashed again.
    follow(given, {name: ALL})
    for statement in ("SELECT 1", "UPDATE wide SET v = 'newer' WHERE id < 3"):
        file.execute(statement)
        with run_cycle(database, given) as (_, number):
            pass
    found = found_by(given, number)
    assert (found.method, found.inserted, found.updated, found.deleted) == ("incremental", 0, 2, 0)


def test_rows_stay_as_they_were_inserted(file: File, replicate: Replicate) -> None:
    file.execute(
        "CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO goods VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    )
    replica = replicate(file, table("goods", "main", operations=frozenset({"insert", "delete", "truncate"})))
    file.execute("UPDATE goods SET name = 'z'; DELETE FROM goods WHERE id = 2; INSERT INTO goods VALUES (4, 'd')")
    replica.catch_up()
    assert replica.query("SELECT * FROM goods ORDER BY id") == [(1, "a"), (3, "c"), (4, "d")]


def test_deleted_rows_stay_and_come_back(file: File, replicate: Replicate) -> None:
    file.execute(
        "CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO goods VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    )
    replica = replicate(file, table("goods", "main", operations=frozenset({"insert", "update"})))
    file.execute("UPDATE goods SET name = 'z' WHERE id = 1; DELETE FROM goods WHERE id < 3")
    replica.catch_up()
    assert replica.query("SELECT * FROM goods ORDER BY id") == [(1, "a"), (2, "b"), (3, "c")]
    file.execute("INSERT INTO goods VALUES (2, 'again'); UPDATE goods SET name = 'y' WHERE id = 3")
    replica.catch_up()
    assert replica.query("SELECT * FROM goods ORDER BY id") == [(1, "a"), (2, "again"), (3, "y")]
