"""Cycles over a SQLite file find exactly what changed, whatever the key is."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from engine.model.identity import TableName
from engine.sources.query_diff import table_reading
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from tests.fixtures.compared_reads import held_by
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy
from tests.process.sqlite_queries.test_sqlite_by_queries import database_of
from tests.process.sqlite_triggers.conftest import File

_TABLES = {
    "by_rowid": "id INTEGER PRIMARY KEY, v TEXT, n NUMERIC, r REAL, raw BLOB",
    "by_both": "k TEXT NOT NULL, id INTEGER NOT NULL, v TEXT, n ANY, PRIMARY KEY (k, id)",
    "by_name": "k TEXT COLLATE NOCASE PRIMARY KEY NOT NULL, v TEXT, n NUMERIC",
    "without": "k TEXT PRIMARY KEY, v TEXT, n NUMERIC, g AS (v || n)",
}
_VALUES = ("NULL", "''", "'\\'", "'a' || char(9, 10, 13) || 'c'", "'\\N'", "'é€😀'", "'x'", "'1'", "hex(zeroblob(900))")
_NUMBERS = ("NULL", "0", "0.0", "3", "3.5", "1e30", "'x'", "'3'", "9223372036854775807")
_NAMES = ("'a'", "'A'", "'ab'", "''", "'\\'", "'t' || char(9) || 't'", "'é'")


def _statement(rng: random.Random) -> str:
    value, number, name = rng.choice(_VALUES), rng.choice(_NUMBERS), rng.choice(_NAMES)
    key, other = rng.randint(-20, 40), rng.randint(-20, 40)
    table, named = rng.choice(["by_name", "without"]), f"{name} || {key % 4}"
    return rng.choice(
        [
            f"INSERT INTO by_rowid VALUES ({key}, {value}, {number}, {key} / 3.0, x'0009')",
            f"INSERT OR REPLACE INTO by_rowid SELECT value, {value}, {number}, 1e300 * 10 * value, NULL FROM"
            f" json_each('[{', '.join(map(str, range(100, 110 + abs(key))))}]')",
            f"UPDATE by_rowid SET v = {value}, n = {number} WHERE id = {key}",
            f"UPDATE OR IGNORE by_rowid SET id = {key} WHERE id = {other}",
            f"UPDATE by_rowid SET r = -r WHERE id > {other}",
            f"DELETE FROM by_rowid WHERE id BETWEEN {key} AND {other}",
            f"REPLACE INTO by_both VALUES ({name}, {key}, {value}, {number})",
            f"UPDATE OR IGNORE by_both SET k = {name}, v = {value} WHERE id = {key}",
            f"DELETE FROM by_both WHERE k = {name} AND id < {key}",
            f"REPLACE INTO {table} (k, v, n) VALUES ({named}, {value}, {number})",
            f"UPDATE {table} SET v = {value} WHERE k = {named}",
            f"UPDATE OR IGNORE {table} SET k = {name} || {other % 4} WHERE k = {named}",
            f"DELETE FROM {table} WHERE k = {named}",
            *(["DELETE FROM by_rowid"] if rng.random() < 0.05 else []),
        ]
    )


def create_tables(file: File) -> list[TableName]:
    for name, columns in _TABLES.items():
        file.execute(f"CREATE TABLE {name} ({columns}){' WITHOUT ROWID' if name == 'without' else ''}")
    return [TableName("main", name) for name in _TABLES]


def change(file: File, rng: random.Random) -> None:
    """Some transactions; partly of them are rolled back."""
    with file.connect() as connection:
        for _ in range(rng.randint(0, 5)):
            connection.execute("BEGIN IMMEDIATE")
            try:
                for _ in range(rng.randint(1, 12)):
                    connection.execute(_statement(rng))
            except sqlite3.IntegrityError:
                connection.execute("ROLLBACK")
                continue
            connection.execute(rng.choices(["COMMIT", "ROLLBACK"], [5, 1])[0])


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(2, 40))])
def test_each_cycle_makes_a_copy_like_its_snapshot(
    file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(table_reading, "PIECE_BYTES", 600)
    rng, database = random.Random(seed), database_of(file)
    names = create_tables(file)
    given = Given(0, Method.INCREMENTAL, 10.0, tmp_path / "reader", "shop")
    folder = given.folder
    folder.make()
    folder.follow({name: Follow(None, ALL) for name in names})
    copy = Copy(folder)
    with run_cycle(database, given) as (snapshot, number):
        copy.fill(held_by(database, dict.fromkeys(names), snapshot, 2_000), number)
    seen = 0
    for _ in range(8):
        change(file, rng)
        with run_cycle(database, given) as (snapshot, number):
            change(file, rng)
            expected = held_by(database, dict.fromkeys(names), snapshot, 2_000)
        copy.follow()
        assert (copy.rows, copy.last) == (expected, number)
        seen += sum(map(len, expected.values()))
    assert seen
    assert expected.keys() == _TABLES.keys()
