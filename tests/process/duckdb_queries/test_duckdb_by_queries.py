"""DuckDB files that are only read: what a snapshot is, who is kept out of the file, and that nothing is written to it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.duckdb_queries import locked_file
from engine.sources.duckdb_queries.place import DuckDbFile
from tests.fixtures.compared_reads import errors, lines_of, whole
from tests.fixtures.duckdb_program import DuckDbProgram
from tests.fixtures.replication import table
from tests.fixtures.waiting import wait_until
from tests.process.duckdb_queries.conftest import Shop
from tests.process.sqlite_triggers.conftest import Replicate

GOODS = (
    "CREATE TABLE goods (id INTEGER PRIMARY KEY, name VARCHAR, price DOUBLE)",
    "INSERT INTO goods VALUES (1, 'a', 1.5), (2, NULL, 2)",
)
ROWS = [b"1\ta\t1.5", b"2\t\\N\t2"]


def kind_of(call: object) -> FaultKind:
    with pytest.raises(EngineFault) as caught:
        call()  # type: ignore[operator]
    return caught.value.kind


_CHECKPOINTS = """
import sys, threading
import duckdb

connection = duckdb.connect(sys.argv[1])
connection.execute("SET checkpoint_threshold = '1TB'")
connection.execute("SET debug_checkpoint_scan_sleep_ms = 3000")
other = connection.cursor()


def checkpoints():
    while True:
        try:
            other.execute("INSERT INTO large SELECT i FROM range(1000) AS t(i)")
            other.execute("CHECKPOINT")
        except duckdb.Error:
            pass  # The other one's transaction is open.


threading.Thread(target=checkpoints, daemon=True).start()
for number in range(1, 100_000):
    connection.execute(f"INSERT INTO goods VALUES ({number}, 'during')")
    print(number, flush=True)
"""


def test_a_copy_follows_rows_and_structures_and_nothing_is_written(shop: Shop, replicate: Replicate) -> None:
    shop.run(*GOODS)
    before = shop.path.read_bytes()
    replica = replicate(shop, "goods")
    replica.assert_equal()
    assert shop.path.read_bytes() == before
    shop.run(
        "UPDATE goods SET name = '', price = NULL WHERE id = 2",
        "INSERT INTO goods VALUES (3, 'c', 4), (4, NULL, NULL)",
        "DELETE FROM goods WHERE id = 3",
        "UPDATE goods SET id = 7 WHERE id = 1",
    )
    replica.assert_equal()
    assert replica.query("SELECT * FROM goods ORDER BY id") == [(2, "", None), (4, None, None), (7, "a", 1.5)]
    shop.run("ALTER TABLE goods ADD COLUMN stock INTEGER DEFAULT 5", "INSERT INTO goods VALUES (8, 'd', 1, 0)")
    replica.assert_equal()
    assert replica.query("SELECT id, stock FROM goods ORDER BY id") == [(2, 5), (4, 5), (7, 5), (8, 0)]
    shop.run(
        "DROP TABLE goods", "CREATE TABLE goods (id INTEGER PRIMARY KEY, name VARCHAR, price DOUBLE, stock INTEGER)"
    )
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM goods") == [(0,)]
    assert list(shop.path.parent.glob("penstock-*")) == []


def test_a_file_that_takes_its_place_is_compared_by_its_rows(shop: Shop, replicate: Replicate) -> None:
    shop.run(*GOODS)
    replica = replicate(shop, "goods")
    replica.assert_equal()
    other = shop.path.with_suffix(".other")
    program = DuckDbProgram(other)
    program.run(*GOODS, "UPDATE goods SET price = 9 WHERE id = 1", "DELETE FROM goods WHERE id = 2")
    program.close()
    other.replace(shop.path)
    replica.assert_equal()
    assert replica.query("SELECT * FROM goods") == [(1, "a", 9.0)]


def test_a_snapshot_is_one_state_and_writers_go_on(shop: Shop) -> None:
    shop.run(*GOODS)
    database, goods = shop.database, table("goods", "main")
    split = whole(database, goods)
    with database.snapshot(1) as snapshot:
        shop.run("INSERT INTO goods VALUES (3, 'later', 0)")
        for _ in range(2):
            assert lines_of(database, split, snapshot) == ROWS
    assert kind_of(lambda: lines_of(database, split, snapshot)) is FaultKind.COPY_LOST
    assert list(shop.path.parent.glob("penstock-*")) == []


def test_a_file_that_a_program_has_open_for_writing_is_waited_for(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.run(*GOODS)
    database, goods = shop.database, table("goods", "main")
    monkeypatch.setattr(locked_file, "_WAIT_S", 0.2)
    with shop.program.session() as session:
        session.execute("INSERT INTO goods VALUES (3, 'open', 0)")
        assert errors(database, goods) == ["source_timeout"]
        assert kind_of(lambda: database.snapshot(1).__enter__()) is FaultKind.SOURCE_TIMEOUT
        assert kind_of(lambda: database.describe([goods])) is FaultKind.SOURCE_TIMEOUT
        assert kind_of(database.discover) is FaultKind.SOURCE_TIMEOUT
        session.commit()
    with database.snapshot(1) as snapshot:
        assert lines_of(database, whole(database, goods), snapshot) == [*ROWS, b"3\topen\t0"]


def test_a_subscription_goes_on_when_the_program_has_closed_the_file(
    shop: Shop, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locked_file, "_WAIT_S", 0.2)
    shop.run(*GOODS)
    replica = replicate(shop, "goods")
    replica.assert_equal()
    with shop.program.session() as session:
        session.execute("UPDATE goods SET price = 7 WHERE id = 1")
        replica.now()
        replica.reports.wait(lambda reports: "a program has the file open for writing" in repr(reports), "the fault")
        session.commit()
    wait_until(lambda: replica.pipeline.run is not None, timeout_s=60, what="a run")
    replica.wait_live()
    replica.assert_equal()
    assert replica.query("SELECT price FROM goods WHERE id = 1") == [(7.0,)]


def test_what_was_committed_before_a_program_was_killed_is_read(shop: Shop) -> None:
    shop.run(*GOODS)
    with shop.program.session() as other, shop.program.session() as session:
        other.execute("SELECT 1")  # The file stays open, so that no checkpoint is made.
        session.execute("INSERT INTO goods VALUES (3, 'in the log', 0)")
        session.commit()
        other.execute("INSERT INTO goods VALUES (4, 'open', 0)")
        shop.program.kill()
        shop.program._process.wait(10)
        other._open = False
    assert Path(f"{shop.path}.wal").exists()
    log = Path(f"{shop.path}.wal").read_bytes()
    database, goods = shop.database, table("goods", "main")
    with database.snapshot(1) as snapshot:
        assert lines_of(database, whole(database, goods), snapshot) == [*ROWS, b"3\tin the log\t0"]
    assert Path(f"{shop.path}.wal").read_bytes() == log


def test_what_was_committed_during_a_checkpoint_that_a_kill_ended_is_read(shop: Shop) -> None:
    shop.run("CREATE TABLE goods (id INTEGER, name VARCHAR)", "CREATE TABLE large AS SELECT i FROM range(1000) AS t(i)")
    shop.program.close()
    shop.keys = {"goods": ["id"]}
    beside = Path(f"{shop.path}.wal.checkpoint")
    with subprocess.Popen([sys.executable, "-c", _CHECKPOINTS, str(shop.path)], stdout=subprocess.PIPE) as program:
        wait_until(
            lambda: beside.exists() and beside.stat().st_size > 500, timeout_s=60, what="commits during a checkpoint"
        )
        program.kill()
        assert program.stdout is not None
        committed = program.stdout.read().splitlines()
    files = {path.name: path.read_bytes() for path in shop.path.parent.iterdir() if path.is_file()}
    database, goods = shop.database, table("goods", "main")
    with database.snapshot(1) as snapshot:
        found = lines_of(database, whole(database, goods), snapshot)
    assert len(committed) > 1
    assert {number + b"\tduring" for number in committed} <= set(found)
    assert len(found) <= len(committed) + 1
    assert {path.name: path.read_bytes() for path in shop.path.parent.iterdir() if path.is_file()} == files


@pytest.mark.parametrize("how", ["missing", "garbage", "empty", "relative"])
def test_a_file_that_cannot_be_read_is_found_before(shop: Shop, how: str, tmp_path: Path) -> None:
    shop.run(*GOODS)
    goods = table("goods", "main")
    if how == "missing":
        shop.path.unlink()
    elif how == "relative":
        shop.path = Path("shop.duckdb")
    else:
        shop.path.write_bytes(b"no database" * 2000 if how == "garbage" else b"")
    assert errors(shop.database, goods) == ["source_unreachable"]
    assert kind_of(lambda: shop.database.snapshot(1).__enter__()) is FaultKind.SOURCE_UNREACHABLE
    assert list(tmp_path.glob("penstock-*")) == []


def test_a_file_of_which_this_process_is_the_writer_keeps_its_lock(shop: Shop) -> None:
    shop.run(*GOODS)
    with duckdb.connect(str(shop.path)) as target:
        target.execute("SELECT 1").fetchall()
        for path in (shop.path, shop.path.with_suffix(".link")):
            if path != shop.path:
                path.hardlink_to(shop.path)
            shop.path = path
            assert errors(shop.database, table("goods", "main")) == ["source_timeout"]
        code = f"import duckdb; duckdb.connect({str(shop.path)!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "lock" in other.stderr


def test_what_cannot_be_compared_is_found_before(shop: Shop) -> None:
    shop.run(
        *GOODS,
        "CREATE TABLE loose (a INTEGER, b INTEGER)",
        "CREATE TABLE lists (id INTEGER PRIMARY KEY, many INTEGER[], s STRUCT(a INTEGER))",
        "CREATE TABLE many (a INTEGER, b VARCHAR NOT NULL UNIQUE)",
        "CREATE VIEW seen AS SELECT 1 AS id",
        "CREATE SCHEMA penstock",
        "CREATE TABLE penstock.own (id INTEGER PRIMARY KEY)",
    )
    shop.keys = {"bad": ["a"], "goods": ["id"]}
    database = shop.database
    assert errors(database, table("goods", "main"), table("many", "main")) == []
    assert errors(database, table("loose", "main")) == ["table_no_identity"]
    assert errors(database, table("loose", "main", insert_only=True)) == ["table_no_identity"]
    assert errors(database, table("lists", "main")) == ["table_columns_unfit"]
    assert errors(database, table("lists", "main", exclude_columns=("many",))) == ["table_columns_unfit"]
    assert errors(database, table("lists", "main", exclude_columns=("many", "s"))) == []
    assert errors(database, table("missing", "main")) == ["table_missing"]
    assert errors(database, table("seen", "main")) == ["table_missing"]
    assert errors(database, table("goods", "main", where="id > 1")) == ["table_columns_unfit"]
    names = {found.name.name for found in database.discover()}
    assert names == {"goods", "loose", "lists", "many"}
    shop.keys = {"loose": ["a", "c"]}
    assert errors(shop.database, table("loose", "main")) == ["table_no_identity"]
    shop.keys = {"loose": ["a"]}
    assert errors(shop.database, table("loose", "main")) == []


def test_columns_that_cannot_be_read_are_left_out(shop: Shop, replicate: Replicate) -> None:
    shop.run(
        "CREATE TABLE lists (id INTEGER PRIMARY KEY, many INTEGER[], name VARCHAR)",
        "INSERT INTO lists VALUES (1, [1], 'a')",
    )
    replica = replicate(shop, table("lists", "main", exclude_columns=("many",)))
    replica.assert_equal()
    shop.run("UPDATE lists SET many = [2], name = 'b'")
    replica.assert_equal()
    assert replica.query("SELECT * FROM lists") == [(1, "b")]


@pytest.mark.parametrize(
    ("rows", "what"),
    [("(1, 'a'), (1, 'b')", "several rows have the same id"), ("(1, 'a'), (NULL, 'b')", "id is NULL in 1 rows")],
)
def test_a_declared_key_that_identifies_no_row_is_refused(shop: Shop, rows: str, what: str) -> None:
    shop.run("CREATE TABLE loose (id INTEGER, name VARCHAR)", f"INSERT INTO loose VALUES {rows}")
    shop.keys = {"loose": ["id"]}
    database, loose = shop.database, table("loose", "main")
    split = whole(database, loose)
    with database.snapshot(1) as snapshot, pytest.raises(EngineFault) as refused:
        lines_of(database, split, snapshot)
    assert refused.value.kind is FaultKind.TABLE_KEY_NOT_UNIQUE
    assert what in refused.value.detail


def test_a_table_whose_declared_key_is_not_unique_parks_and_the_others_go_on(shop: Shop, replicate: Replicate) -> None:
    shop.run(*GOODS, "CREATE TABLE loose (id INTEGER, name VARCHAR)", "INSERT INTO loose VALUES (1, 'a'), (2, 'b')")
    shop.keys = {"loose": ["id"]}
    replica = replicate(shop, "goods", "loose")
    replica.assert_equal()
    shop.run("INSERT INTO loose VALUES (2, 'again')", "DELETE FROM goods WHERE id = 1")
    replica.catch_up()
    parked = replica.wait_table("loose", "parked")
    assert parked.reason is not None
    assert "table_key_not_unique" in repr(parked)
    replica.catch_up()
    assert replica.query("SELECT id FROM goods") == [(2,)]
    assert replica.query("SELECT * FROM loose ORDER BY id") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (["ALTER TABLE goods RENAME COLUMN name TO title"], FaultKind.TABLE_STRUCTURE_CHANGED),
        (["ALTER TABLE goods ALTER COLUMN price TYPE FLOAT"], FaultKind.TABLE_STRUCTURE_CHANGED),
        (["DROP TABLE goods"], FaultKind.TABLE_MISSING),
    ],
    ids=["renamed", "type", "dropped"],
)
def test_a_split_of_another_structure_is_refused(shop: Shop, change: list[str], kind: FaultKind) -> None:
    shop.run(*GOODS)
    shop.run("CREATE TABLE aside AS FROM goods")
    database, goods = shop.database, table("goods", "main")
    split = whole(database, goods)
    if "RENAME" in change[0] or "ALTER COLUMN" in change[0]:
        shop.run("DROP TABLE goods", "CREATE TABLE goods (id INTEGER, name VARCHAR, price DOUBLE)", *change)
    else:
        shop.run(*change)
    with database.snapshot(1) as snapshot:
        assert kind_of(lambda: lines_of(database, split, snapshot)) is kind


def test_the_catalog_is_read_again_only_after_a_change(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.run(*GOODS)
    read: list[int] = []
    catalog = DuckDbFile._catalog
    monkeypatch.setattr(DuckDbFile, "_catalog", lambda self: read.append(1) or catalog(self))
    database, goods = shop.database, table("goods", "main")
    wait_until(lambda: database.describe([goods]) and len(read) >= 1)

    def is_known() -> bool:
        before = len(read)
        database.describe([goods])
        return len(read) == before

    wait_until(is_known, what="a stamp that counts")
    before = len(read)
    database.describe([goods])
    assert len(read) == before
    shop.run("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    assert errors(database, table("other", "main")) == []
    assert len(read) > before


def test_a_file_that_is_overwritten_while_it_is_copied_is_copied_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run(*GOODS)
    copy, again = locked_file._copy, shop.path.with_suffix(".again")
    shutil.copy(shop.path, again)
    replaced: list[int] = []

    def overwritten(source: int, path: Path) -> None:
        copy(source, path)
        if not replaced:
            replaced.append(1)
            again.replace(shop.path)

    monkeypatch.setattr(locked_file, "_copy", overwritten)
    database = shop.database
    assert kind_of(lambda: database.snapshot(1).__enter__()) is FaultKind.COPY_LOST
    with database.snapshot(1) as snapshot:
        assert lines_of(database, whole(database, table("goods", "main")), snapshot) == ROWS
    assert database.tables({TableName("main", "goods"): None}).keys() == {TableName("main", "goods")}
