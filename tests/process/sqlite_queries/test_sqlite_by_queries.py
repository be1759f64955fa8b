"""SQLite files that are only read: what a snapshot is, and that nothing is written to the file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.source import Severity, TableSplit
from engine.model.subscription import OriginFilter, TableSpec
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_queries.database import SqliteDatabase
from tests.fixtures.replication import table, wait_progress
from tests.process.sqlite_triggers.conftest import File, Replicate

GOODS = "CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT, price REAL); INSERT INTO goods VALUES (1, 'a', 1.5), (2, NULL, 2)"
ROWS = b"1\ta\t1.5\n2\t\\N\t2\n"


def database_of(file: File) -> SqliteDatabase:
    return SqliteDatabase(Connector(file.connection, read_only=True))


def whole(database: SqliteDatabase) -> TableSplit:
    goods = table("goods", "main")
    (split,) = database.reads.splits(database.describe([goods])[goods.source], goods, 1 << 40)
    return split


def read(database: SqliteDatabase, split: TableSplit, snapshot: str) -> bytes:
    return b"".join(database.reads.read_split(split, snapshot))


def errors(database: SqliteDatabase, *specs: TableSpec) -> list[str]:
    found = database.preflight(specs, OriginFilter.ANY)
    assert all(finding.what and finding.remedy for finding in found)
    return [finding.code for finding in found if finding.severity is Severity.ERROR]


def test_a_copy_follows_rows_and_structures_and_nothing_is_written(file: File, replicate: Replicate) -> None:
    file.execute(GOODS)
    before = file.path.read_bytes()
    replica = replicate(file, "goods")
    replica.assert_equal()
    assert file.path.read_bytes() == before
    file.execute(
        "UPDATE goods SET name = '' WHERE id = 2; REPLACE INTO goods VALUES (1, 'b', 3); INSERT INTO goods VALUES (3, 'c', 4);"
        " DELETE FROM goods WHERE id = 3; UPDATE goods SET id = 7 WHERE id = 1"
    )
    replica.assert_equal()
    assert replica.query("SELECT * FROM goods ORDER BY id") == [(2, "", 2.0), (7, "b", 3.0)]
    seen = wait_progress(replica, lambda r: r.lag_seconds is not None)
    wait_progress(
        replica, lambda r: (r.lag_seconds or 0.0) > (seen.lag_seconds or 0.0) + 0.4
    )  # Without another cycle it grows.
    file.execute("ALTER TABLE goods ADD COLUMN stock INTEGER DEFAULT 5; INSERT INTO goods VALUES (8, 'd', 1, 0)")
    replica.assert_equal()
    assert replica.query("SELECT id, stock FROM goods ORDER BY id") == [(2, 5), (7, 5), (8, 0)]
    file.execute("DROP TABLE goods; CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT, price REAL, stock INTEGER)")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM goods") == [(0,)]
    assert file.rows("SELECT name FROM sqlite_schema") == [("goods",)]


def test_a_snapshot_is_one_state_and_writers_go_on(file: File) -> None:
    file.execute(GOODS)
    database = database_of(file)
    split = whole(database)
    with database.snapshot(1) as snapshot:
        file.execute("INSERT INTO goods VALUES (3, 'later', 0)")
        for _ in range(2):
            assert read(database, split, snapshot) == ROWS
    with pytest.raises(EngineFault) as over:
        read(database, split, snapshot)
    assert over.value.kind is FaultKind.COPY_LOST
    assert not list(file.path.parent.glob("penstock-*"))


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE goods RENAME COLUMN name TO title",
        "DROP TABLE goods; CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT, price INTEGER)",
        "DROP TABLE goods; CREATE TABLE goods (id INTEGER, name TEXT PRIMARY KEY, price REAL)",
    ],
    ids=["renamed", "type", "key"],
)
def test_a_split_of_another_structure_is_refused(file: File, change: str) -> None:
    file.execute(GOODS)
    database = database_of(file)
    split = whole(database)
    file.execute(change)
    with database.snapshot(1) as snapshot, pytest.raises(EngineFault) as refused:
        read(database, split, snapshot)
    assert refused.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED


def test_what_cannot_be_compared_is_found_before(file: File) -> None:
    file.execute(
        f"{GOODS}; CREATE TABLE loose (a); CREATE TABLE untyped (a PRIMARY KEY) WITHOUT ROWID;"
        " CREATE TABLE many (a INTEGER, b TEXT NOT NULL UNIQUE)"
    )
    database = database_of(file)
    assert errors(database, table("goods", "main"), table("many", "main")) == []
    assert errors(database, table("loose", "main", insert_only=True)) == ["table_no_identity"]
    assert errors(database, table("untyped", "main")) == ["table_not_logged"]
    assert errors(database, table("missing", "main")) == ["table_missing"]
    assert errors(database, table("goods", "main", where="id > 1")) == ["table_columns_unfit"]
    names = [TableName("main", name) for name in ("goods", "loose", "untyped", "many", "missing")]
    assert database.tables(dict.fromkeys(names)).keys() == {names[0], names[3]}


_AS_ANOTHER_USER = """
import os, sys
from engine.model.subscription import ConnectionSpec
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_queries.database import SqliteDatabase
from tests.process.sqlite_queries import test_sqlite_by_queries as here
if os.getuid() == 0:
    os.setuid(65534)
database = SqliteDatabase(Connector(ConnectionSpec("shop", "sqlite", {"path": sys.argv[1]}), read_only=True))
found = here.errors(database, here.table("goods", "main"))
if not found:
    split = here.whole(database)
    with database.snapshot(1) as snapshot:
        found = here.read(database, split, snapshot) == here.ROWS
print(found)
"""


def as_another_user(path: Path, *, writes: bool) -> str:
    """Read the file as a user who may not write to it; `writes`: but to its folder."""
    for each in path.parent.iterdir():
        each.chmod(0o444)
    path.parent.chmod(0o777 if writes else 0o555)
    given = [sys.executable, "-c", _AS_ANOTHER_USER, str(path)]
    run = subprocess.run(given, capture_output=True, text=True, check=False)
    path.parent.chmod(0o755)
    return run.stdout.strip() or run.stderr


@pytest.fixture
def theirs(file: File) -> Iterator[File]:
    """In a folder that every user may read."""
    file.execute(GOODS)
    with tempfile.TemporaryDirectory() as folder:
        file.path = Path(shutil.move(file.path, folder))
        yield file


def test_a_file_where_the_user_may_not_write_is_read_as_far_as_sqlite_can(theirs: File) -> None:
    logged = theirs.rows("PRAGMA journal_mode") == [("wal",)]
    # SQLite needs the file -shm of a write-ahead log, and cannot create it.
    assert as_another_user(theirs.path, writes=False) == ("['source_unreachable']" if logged else "True")
    with theirs.connect() as program:
        program.execute("SELECT * FROM goods").fetchall()
        assert as_another_user(theirs.path, writes=False) == "True"


@pytest.mark.skipif(os.geteuid() != 0, reason="reads as another user")
def test_no_files_of_ours_are_left_that_the_owners_programs_cannot_write(theirs: File) -> None:
    logged = theirs.rows("PRAGMA journal_mode") == [("wal",)]
    assert as_another_user(theirs.path, writes=True) == ("['source_unreachable']" if logged else "True")
    assert list(theirs.path.parent.iterdir()) == [theirs.path]
    with theirs.connect() as program:
        program.execute("SELECT * FROM goods").fetchall()
        assert as_another_user(theirs.path, writes=True) == "True"
