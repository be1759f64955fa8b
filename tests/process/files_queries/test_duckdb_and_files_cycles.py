"""Cycles over DuckDB files and folders of files find exactly what changed, whatever the key is and while programs write."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.model.identity import TableName
from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.sources.duckdb.database import ReadDatabase
from engine.sources.duckdb_queries.place import DuckDbFile
from engine.sources.duckdb_queries.terms import DUCKDB_QUERIES_TERMS
from engine.sources.files_queries import place
from engine.sources.files_queries.place import FilesFolder
from engine.sources.files_queries.terms import FILES_QUERIES_TERMS
from engine.sources.query_diff import table_reading
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from tests.fixtures.compared_reads import held_by
from tests.fixtures.duckdb_program import DuckDbProgram
from tests.fixtures.file_tables import FileTables, declared
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy

_TABLES = {
    "by_id": "id INTEGER PRIMARY KEY, v VARCHAR, n DECIMAL(9, 2), d DOUBLE, raw BLOB, w TIMESTAMP",
    "by_both": "k VARCHAR, id INTEGER, v VARCHAR, PRIMARY KEY (k, id)",
    "declared": "k VARCHAR, v VARCHAR",
}
_KEYS = {
    "by_id": (("id",), {"id": "integer", "n": "decimal(9,2)", "d": "double", "w": "timestamp"}),
    "by_both": (("k", "id"), {"id": "integer"}),
    "declared": (("k",), {}),
}
_VALUES = (
    "NULL",
    "''",
    r"'\'",
    "'a' || chr(9) || chr(10) || chr(13) || 'c'",
    r"'\N'",
    "'é€😀'",
    "'x'",
    "'\"'",
    "repeat('long ', 400)",
)
_NUMBERS = ("NULL", "0", "-0.5", "1234567.89", "3")
_DOUBLES = ("NULL", "'inf'", "'-0.0'", "1e300", "0.1", "'nan'")
_NAMES = ("'a'", "'A'", "''", r"'\'", "'t' || chr(9)", "'é'")


def _statement(rng: random.Random) -> str:
    value, number, double, name = (rng.choice(each) for each in (_VALUES, _NUMBERS, _DOUBLES, _NAMES))
    key, other = rng.randint(-20, 40), rng.randint(-20, 40)
    return rng.choice(
        [
            f"INSERT OR REPLACE INTO by_id VALUES ({key}, {value}, {number}, {double}, '\\x00\\x09'::BLOB, now()::TIMESTAMP)",
            f"INSERT OR REPLACE INTO by_id SELECT i, {value}, {number}, i / 3, NULL, NULL FROM range(100, {110 + abs(key)}) AS t(i)",
            f"UPDATE by_id SET v = {value}, n = {number} WHERE id = {key}",
            f"UPDATE by_id SET id = id + 1000 WHERE id = {key} AND id + 1000 NOT IN (SELECT id FROM by_id)",
            f"UPDATE by_id SET d = -d, raw = NULL WHERE id > {other}",
            f"DELETE FROM by_id WHERE id BETWEEN {key} AND {other}",
            f"INSERT OR REPLACE INTO by_both VALUES ({name}, {key}, {value})",
            f"DELETE FROM by_both WHERE k = {name} AND id < {key}",
            f"INSERT INTO declared SELECT {name}, {value} WHERE {name} NOT IN (SELECT k FROM declared)",
            f"UPDATE declared SET v = {value} WHERE k = {name}",
            f"DELETE FROM declared WHERE k = {name}",
            *(["DELETE FROM by_id"] if rng.random() < 0.05 else []),
        ]
    )


class Origin:
    """A database and the program that writes to it. `run`: statements in one transaction."""

    def __init__(self, database: ReadDatabase, schema: str, run: Callable[..., Any]) -> None:
        self.database = database
        self.run = run
        self.names = {TableName(schema, name): None for name in _TABLES}

    def change(self, rng: random.Random) -> None:
        for _ in range(rng.randint(0, 3)):
            self.run(*(_statement(rng) for _ in range(rng.randint(1, 2))))


@pytest.fixture(params=["duckdb", "parquet", "csv"])
def origin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Origin]:
    tables = [f"CREATE TABLE {name} ({columns})" for name, columns in _TABLES.items()]
    if request.param == "duckdb":
        path = tmp_path / "shop.duckdb"
        capture = CaptureSpec("query_diff", {"tables": json.dumps({"main.declared": {"key": ["k"]}})})
        spec = ConnectionSpec("shop", "duckdb", {"path": str(path), "snapshot_folder": str(tmp_path)}, {}, capture)
        with closing(DuckDbProgram(path)) as program:
            program.run(*tables)
            yield Origin(ReadDatabase(DuckDbFile(spec), DUCKDB_QUERIES_TERMS), "main", program.run)
        return
    keys = declared(_KEYS if request.param == "csv" else {name: (key, {}) for name, (key, _) in _KEYS.items()})
    capture = CaptureSpec("query_diff", {"tables": json.dumps(keys)})
    with closing(FileTables(tmp_path, request.param)) as kept:
        kept.execute(*tables)
        spec = ConnectionSpec("shop", "files", {"path": str(kept.path), "format": request.param}, {}, capture)
        yield Origin(ReadDatabase(FilesFolder(spec), FILES_QUERIES_TERMS), "files", kept.execute)


@pytest.mark.parametrize("most_open", [256, 7])
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(2, 40))])
def test_each_cycle_makes_a_copy_like_its_snapshot_of_files(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, most_open: int
) -> None:
    monkeypatch.setattr(table_reading, "PIECE_BYTES", 600)
    monkeypatch.setattr(place, "_MOST_OPEN", most_open)
    rng, database, names = random.Random(seed), origin.database, origin.names
    given = Given(0, Method.INCREMENTAL, 10.0, tmp_path / "reader", "shop")
    folder = given.folder
    folder.make()
    folder.follow({name: Follow(None, ALL) for name in names})
    copy = Copy(folder)
    with run_cycle(database, given) as (snapshot, number):
        copy.fill(held_by(database, names, snapshot), number)
    seen = 0
    for _ in range(4):
        origin.change(rng)
        with run_cycle(database, given) as (snapshot, number):
            if most_open == 256:  # Files that are not open are another snapshot's after a change.
                origin.change(rng)
            expected = held_by(database, names, snapshot, 2_000)
        copy.follow()
        assert (copy.rows, copy.last) == (expected, number)
        seen += sum(map(len, expected.values()))
    assert seen
    assert expected.keys() == _TABLES.keys()
