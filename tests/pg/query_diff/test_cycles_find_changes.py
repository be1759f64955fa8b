"""Cycles find exactly what changed: whatever the method, the key, and the moment at which a process dies."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.model.fault import EngineFault
from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.platform.failpoints import arm
from engine.records.row_digest import keyed_lines
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.splits import ReadRules
from engine.sources.postgres_queries import hashing
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff import cycle, table_reading
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import DECLARED, Method
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.folder import Folder, Follow
from engine.sources.query_diff.given import Given
from tests.fixtures import compared_reads
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.stamped_tables import Late, assert_found_by_stamps

pytestmark = pytest.mark.pg

ALL = frozenset({"insert", "update", "delete"})
WHERE = "n IS DISTINCT FROM 3"
_TABLES = {
    "by_number": "id int PRIMARY KEY, v text, n numeric, at timestamptz, raw bytea",
    "by_both": 'k text COLLATE "C", id int, v text, n numeric, PRIMARY KEY (k, id)',
    "by_name": "k char(5) PRIMARY KEY, v text, n numeric",
    "partly": "id int PRIMARY KEY, v text, n numeric",
    "stamped": "id int PRIMARY KEY, v text, at timestamptz",
    "flagged": "id int PRIMARY KEY, v text, at timestamptz, deleted boolean",
    "counted": "id int PRIMARY KEY, v text, at timestamptz NOT NULL, gone smallint",
    "pets": "id int PRIMARY KEY, name text, owner int",
    "owners": "id int PRIMARY KEY, name text",
}
_VIEWS = {
    "joined": "VIEW joined AS SELECT p.id, p.name, o.name AS owner FROM pets p LEFT JOIN owners o ON o.id = p.owner"
    " WHERE p.name IS DISTINCT FROM 'x'",
    "paired": "VIEW paired AS SELECT o.id, coalesce(p.name, '') COLLATE \"C\" AS pet, count(*) AS pets FROM owners o"
    " LEFT JOIN pets p ON p.owner = o.id GROUP BY 1, 2",
    "gathered": "MATERIALIZED VIEW gathered AS SELECT * FROM joined",
}
_CONDITIONS = {"partly": WHERE, "counted": "v <> 'x'", "joined": "owner IS DISTINCT FROM 'ab'"}
FOLLOWED = {TableName("public", name): Follow(_CONDITIONS.get(name), ALL) for name in (*_TABLES, *_VIEWS)}
STAMPED = {
    "stamped": "true",
    "flagged": "NOT coalesce(deleted, false)",
    "counted": "coalesce(gone, 0) = 0 AND coalesce(v <> 'x', false)",
}
"""Tables whose changes are found by their stamps, and which of their rows the copy has."""
DETECTIONS = {
    "public.stamped": TableDetection(method="timestamp", stamp_column="at", sweep_every=9),
    "public.flagged": TableDetection(
        method="timestamp_delete_flag", stamp_column="at", flag_column="deleted", sweep_every=9
    ),
    "public.counted": TableDetection(
        method="timestamp_delete_flag", stamp_column="at", flag_column="gone", sweep_every=9
    ),
    "public.joined": TableDetection(key=["id"]),
    "public.paired": TableDetection(key=["id", "pet"]),
    "public.gathered": TableDetection(key=["id"]),
}
_VALUES = ("NULL", "''", r"E'\\'", r"E'a\tb\nc'", r"'\N'", "'é€😀'", "'x'", "repeat('long ', 400)")
_TIMES = ("now()", "clock_timestamp()", "NULL")
_NUMBERS = ("NULL", "0", "0.0", "3", "3.00", "1e30", "'NaN'")


@pytest.fixture(scope="module")
def database(pg18: Any) -> Iterator[Database]:
    with standing_database(pg18, "cycles") as made:
        assert isinstance(made, Database)
        make_tables(made)
        yield made


def make_tables(made: Database) -> None:
    made.execute("CREATE SCHEMA IF NOT EXISTS penstock")
    for name, columns in _TABLES.items():
        made.execute(f"CREATE TABLE {name} ({columns})")
    made.execute("CREATE INDEX ON counted (at) INCLUDE (id, v, gone)")
    for view in _VIEWS.values():
        made.execute(f"CREATE {view}")
    made.execute("CREATE UNIQUE INDEX ON gathered (id)")


def empty_tables(database: Database) -> None:
    database.execute(f"TRUNCATE {', '.join(_TABLES)}")
    database.execute("REFRESH MATERIALIZED VIEW gathered")


@pytest.fixture
def compared(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresDatabase]:
    """Its small tables are read by two sessions, as large ones are."""
    monkeypatch.setattr(hashing, "_LEAST_PAGES", 1)
    connector = Connector(ConnectionSpec("shop", "postgres", database.settings))
    with closing(PostgresDatabase(connector, Compared(DETECTIONS), ReadRules(sessions=2))) as opened:
        yield opened


class Copy:
    """What the cycles' files make of a copy: lines by key, for each table. Old rows that they contain are those of the copy.

    `olds`: of the last cycle with changes, by table, whether each update and delete contained it.
    """

    def __init__(self, folder: Folder) -> None:
        self.rows: dict[str, dict[bytes, bytes]] = {}
        self.last = 0
        self.olds: dict[str, list[bool]] = {}
        self._files = folder.files

    def fill(self, rows: dict[str, dict[bytes, bytes]], number: int) -> None:
        self.rows, self.last = {name: dict(held) for name, held in rows.items()}, number

    def follow(self) -> None:
        """Apply the cycles that are new. Nothing in them is spurious."""
        for number in self._files.published():
            if number <= self.last:
                continue
            found = self._files.read(number)
            assert found.previous == self.last
            self.last = number
            for table in found.tables:
                held = self.rows[table.name]
                self.olds[table.name] = []
                for line, old in _lines(self._files, number, table.deletes):
                    self._note(table.name, old, held.pop(line.removesuffix(b"\n")))
                for op, key, line, old in _written(self._files, number, table):
                    assert (held.get(key) is None) is (op == "I")
                    assert held.get(key) != line
                    if op == "U":
                        self._note(table.name, old, held[key])
                    held[key] = line
                assert not table.unreadable

    def _note(self, name: str, old: bytes | None, held: bytes) -> None:
        assert old in {None, held}
        self.olds[name].append(old is not None)


def _lines(files: Any, number: int, name: str | None) -> Iterator[tuple[bytes, bytes | None]]:
    for batch in files.batches(number, name) if name is not None else ():
        yield from zip(batch.column("line").to_pylist(), _olds(batch), strict=True)


def _olds(batch: Any) -> list[bytes | None]:
    found: list[bytes | None] = batch.column("old").to_pylist() if "old" in batch.schema.names else [None] * len(batch)
    return found


def _written(files: Any, number: int, table: Any) -> Iterator[tuple[str, bytes, bytes, bytes | None]]:
    for batch in files.batches(number, table.rows) if table.rows is not None else ():
        lines = batch.column("line").to_pylist()
        keys = keyed_lines(b"".join(lines), table.columns, table.keys).column("key").to_pylist()
        yield from zip(map(chr, batch.column("op").to_pylist()), keys, lines, _olds(batch), strict=True)


def held_by(
    database: PostgresDatabase, snapshot: str, followed: Mapping[TableName, Follow] = FOLLOWED
) -> dict[str, dict[bytes, bytes]]:
    """The rows of the source in a snapshot."""
    return compared_reads.held_by(database, {name: follow.where for name, follow in followed.items()}, snapshot)


def present_in(database: Database, snapshot: str) -> dict[str, dict[bytes, bool]]:
    """The keys of rows that are in the tables with stamps in a snapshot, and whether the copy has them."""
    with database.connect() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
        found = {
            name: connection.execute(f"SELECT id, {kept} FROM {name}".encode()).fetchall()
            for name, kept in STAMPED.items()
        }
        connection.execute("COMMIT")
    return {name: {str(key).encode(): kept for key, kept in rows} for name, rows in found.items()}


@contextmanager
def late_in(database: Database, rng: random.Random) -> Iterator[Late]:
    """A session of its own; its stamps are those of the beginnings of its transactions."""
    with database.connect() as session:
        yield Late(lambda statement: session.execute(statement.encode()), rng)


def change(database: Database, rng: random.Random) -> None:
    """Some transactions; partly of them are rolled back."""
    with database.connect() as connection:
        for _ in range(rng.randint(0, 6)):
            connection.execute("BEGIN")
            for _ in range(rng.randint(1, 12)):
                connection.execute("SAVEPOINT before")
                try:
                    connection.execute(_statement(rng).encode())
                except psycopg.errors.UniqueViolation:
                    connection.execute("ROLLBACK TO before")
            connection.execute(rng.choices(["COMMIT", "ROLLBACK"], [5, 1])[0])


def _statement(rng: random.Random) -> str:
    value, number, key, other = rng.choice(_VALUES), rng.choice(_NUMBERS), rng.randint(-20, 60), rng.randint(-20, 60)
    name = rng.choice(["'a'", "'B'", "'ab'", "''", r"E'\\'", r"E't\tt'", "'é'"])
    others = rng.choice([None, None, _flagged(rng, value, key, other), _of_views(rng, name, key, other)])
    return rng.choice(
        others
        or [
            f"INSERT INTO by_number VALUES ({key}, {value}, {number}, now(), '\\x0009')",
            f"INSERT INTO by_number SELECT g, {value} FROM generate_series(1000, {1000 + 3 * abs(key)}) AS g ON CONFLICT DO NOTHING",
            f"UPDATE by_number SET v = {value}, n = {number} WHERE id = {key}",
            f"UPDATE by_number SET id = {key} WHERE id = {other}",
            f"UPDATE by_number SET n = {number} WHERE id > {other}",
            f"DELETE FROM by_number WHERE id BETWEEN {key} AND {other}",
            f"DELETE FROM by_number WHERE id > {1000 + key}",
            f"INSERT INTO by_both VALUES ({name}, {key}, {value}, {number})",
            f"UPDATE by_both SET k = {name}, v = {value} WHERE id = {key}",
            f"DELETE FROM by_both WHERE k = {name} AND id < {key}",
            f"INSERT INTO by_name VALUES ({name} || {key % 5}, {value}, {number})",
            f"UPDATE by_name SET v = {value} WHERE k = {name} || {key % 5}",
            f"UPDATE by_name SET k = {name} || {other % 5} WHERE k = {name} || {key % 5}",
            f"DELETE FROM by_name WHERE k = {name} || {key % 5}",
            f"INSERT INTO partly VALUES ({key}, {value}, {number})",
            f"UPDATE partly SET n = {number} WHERE id = {key}",
            f"DELETE FROM partly WHERE id = {key}",
            f"INSERT INTO stamped VALUES ({key}, {value}, {rng.choice(_TIMES)})",
            f"UPDATE stamped SET v = {value}, at = {rng.choice(_TIMES)} WHERE id = {key}",
            f"UPDATE stamped SET v = {value}, at = {rng.choice(_TIMES)} WHERE id BETWEEN {key} AND 1000",
            f"DELETE FROM stamped WHERE id = {key}",
            *(["TRUNCATE by_number"] if rng.random() < 0.05 else []),
        ]
    )


def _flagged(rng: random.Random, value: str, key: int, other: int) -> list[str]:
    """Statements for tables with delete flags. Rows are also removed, and may come back, deleted or not."""
    flag, number = rng.choice(["true", "false", "NULL"]), rng.choice(["-1", "0", "7", "NULL"])
    key, other = sorted([key % 12, other % 12])
    return [
        f"INSERT INTO flagged VALUES ({key}, {value}, {rng.choice(_TIMES)}, {flag})",
        f"UPDATE flagged SET v = {value}, at = {rng.choice(_TIMES)}, deleted = {flag} WHERE id BETWEEN {key} AND {other}",
        f"UPDATE flagged SET id = {key}, at = {rng.choice(_TIMES)} WHERE id = {other}",
        f"DELETE FROM flagged WHERE id = {key}",
        f"DELETE FROM flagged WHERE deleted AND id < {key}",
        f"INSERT INTO counted VALUES ({key}, {value}, now(), {number})",
        f"INSERT INTO counted SELECT g, {value}, clock_timestamp(), {number} FROM generate_series({key}, {other}) AS g"
        " ON CONFLICT (id) DO UPDATE SET v = excluded.v, at = now(), gone = excluded.gone",
        f"UPDATE counted SET v = {value}, at = now(), gone = {number} WHERE id = {key}",
        f"DELETE FROM counted WHERE id = {key}",
    ]


def _of_views(rng: random.Random, name: str, key: int, other: int) -> list[str]:
    """Statements for the tables of views. Rows come into the views, and leave them, also by changes of the other table."""
    key, other = key % 16, other % 16
    owner = rng.choice(["NULL", str(other % 8)])
    return [
        f"INSERT INTO pets VALUES ({key}, {rng.choice([name, 'NULL', chr(39) + 'x' + chr(39)])}, {owner})",
        f"UPDATE pets SET name = {rng.choice([name, 'NULL', chr(39) + 'x' + chr(39)])} WHERE id = {key}",
        f"UPDATE pets SET owner = {owner} WHERE id BETWEEN {min(key, other)} AND {max(key, other)}",
        f"UPDATE pets SET id = {key} WHERE id = {other}",
        f"DELETE FROM pets WHERE id = {key}",
        f"INSERT INTO owners VALUES ({key % 8}, {name})",
        f"UPDATE owners SET name = {rng.choice([name, 'NULL'])} WHERE id = {key % 8}",
        f"UPDATE owners SET id = {key % 8} WHERE id = {other % 8}",
        f"DELETE FROM owners WHERE id = {key % 8}",
        "REFRESH MATERIALIZED VIEW gathered",
        *(["TRUNCATE owners"] if rng.random() < 0.1 else []),
    ]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FULL_EVERY": 7, "RANGE_ROWS": 5, "_FEW_RANGES": 3, "_FIRST_REST_S": 0.0}.items():
        monkeypatch.setattr(cycle, name, value)
    for name, value in {"PIECE_BYTES": 600, "FEW_KEYS": 12}.items():
        monkeypatch.setattr(table_reading, name, value)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("method", DECLARED)
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(2, 60))])
def test_each_cycle_makes_a_copy_like_its_snapshot(
    database: Database, compared: PostgresDatabase, tmp_path: Path, method: Method, seed: int
) -> None:
    rng = random.Random(f"{seed}/{method}")
    folder = Folder(tmp_path / "reader")
    given = Given(0, method, 10.0, folder.path, "shop", DETECTIONS)
    folder.make()
    folder.follow(FOLLOWED)
    copy = Copy(folder)
    empty_tables(database)
    change(database, rng)
    with run_cycle(compared, given) as (snapshot, number):
        copy.fill(held_by(compared, snapshot), number)
    with late_in(database, rng) as late:
        for _ in range(8):
            given = replace(given, method=rng.choice([*[method] * 6, *DECLARED]))
            _one_cycle(database, compared, given, copy, late, rng)


def _one_cycle(
    database: Database, compared: PostgresDatabase, given: Given, copy: Copy, late: Late, rng: random.Random
) -> None:
    """Changes, and a cycle that dies or is applied."""
    change(database, rng)
    late.go_on()
    died = rng.choice(["", "", "", "", "cycle.written", "cycle.committed"])
    complete = rng.random() < 0.2
    if died:
        arm(f"{died}=raise")
        with pytest.raises(EngineFault, match=died), run_cycle(compared, given, complete=complete):
            pass
        return
    with run_cycle(compared, given, complete=complete) as (snapshot, number):
        expected, present = held_by(compared, snapshot), present_in(database, snapshot)
    copy.follow()
    assert_found_by_stamps(copy.rows, expected, present, complete=complete)
    assert copy.last == number
