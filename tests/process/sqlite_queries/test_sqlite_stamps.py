"""SQLite tables by stamps and delete flags: what cycles read and find, what checks say, and what the offered statements do."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.model.identity import TableName
from engine.model.source import Finding, Severity
from engine.model.subscription import CaptureSpec, OriginFilter
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_queries.compared import Compared
from engine.sources.sqlite_queries.database import SqliteDatabase
from engine.sources.sqlite_queries.stamp_script import REMOVED
from tests.fixtures.replication import table
from tests.fixtures.stamped_tables import FLAGGED, Cycles
from tests.process.sqlite_triggers.conftest import File, Replicate

NAME = TableName("main", "orders")
_NEVER = 100_000
STAMPED = TableDetection(method="timestamp", stamp_column="changed_at", sweep_every=_NEVER)
COLUMNS = "id INTEGER PRIMARY KEY, note TEXT, changed_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, deleted {flag}"
MAKE = (
    f"CREATE TABLE orders ({COLUMNS}); WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)"
    " INSERT INTO orders SELECT i, 'note', '2020-01-01 00:00:00', 0 FROM n"
)


def database_of(file: File, chosen: TableDetection = FLAGGED) -> SqliteDatabase:
    return SqliteDatabase(Connector(file.connection, read_only=True), Compared({str(NAME): chosen}))


def cycles_of(file: File, path: Path, chosen: TableDetection = FLAGGED) -> Cycles:
    return Cycles(database_of(file, chosen), path / "reader", Method.INCREMENTAL, NAME, chosen)


def checked(file: File, chosen: TableDetection = FLAGGED) -> list[Finding]:
    found = database_of(file, chosen).preflight([table("orders", "main")], OriginFilter.ANY)
    assert all(finding.what and finding.remedy for finding in found)
    return [finding for finding in found if finding.code != "rollback_journal"]


def mended(file: File, chosen: TableDetection = FLAGGED) -> list[str]:
    """Run what the findings offer; their codes."""
    found = checked(file, chosen)
    with file.connect() as connection:
        for statement in (statement for finding in found for statement in finding.sql):
            connection.execute(statement)
    return [finding.code for finding in found if finding.severity is not Severity.INFO]


@pytest.mark.parametrize("flag", ["BOOLEAN", "INTEGER"])
def test_a_flag_deletes_and_one_that_is_taken_back_inserts(file: File, tmp_path: Path, flag: str) -> None:
    file.execute(MAKE.format(flag=flag))
    cycles = cycles_of(file, tmp_path)
    file.execute("UPDATE orders SET deleted = 2, changed_at = CURRENT_TIMESTAMP WHERE id <= 3")
    file.execute("INSERT INTO orders (id, deleted) VALUES (60, 1), (61, 0), (62, NULL)")
    assert cycles.run() == (2, 0, 3)
    # They are read again while their stamps are recent.
    assert cycles.run() == (0, 0, 0)
    file.execute("UPDATE orders SET deleted = 0, changed_at = CURRENT_TIMESTAMP WHERE id = 1")
    assert cycles.run() == (1, 0, 0)
    # A row that is removed later was deleted before; one that was not is found where all rows are compared.
    file.execute("DELETE FROM orders WHERE id IN (2, 3, 4)")
    assert cycles.run() == (0, 0, 0)
    assert cycles.run(complete=True) == (0, 0, 1)


def test_what_is_read_follows_the_number_of_changes(file: File, tmp_path: Path) -> None:
    file.execute(MAKE.format(flag="BOOLEAN"))
    cycles = cycles_of(file, tmp_path)
    file.execute("UPDATE orders SET note = 'other', changed_at = '2026-01-01 00:00:00' WHERE id IN (7, 8)")
    assert cycles.found().rows_read == 50  # All stamps are equal.
    file.execute("UPDATE orders SET note = 'new', changed_at = '2026-01-01 00:01:00' WHERE id = 9")
    assert (cycles.found().rows_read, cycles.found().rows_read) == (3, 1)


def test_a_stamp_without_a_value_is_read_each_time(file: File, tmp_path: Path) -> None:
    file.execute(MAKE.format(flag="BOOLEAN").replace("NOT NULL DEFAULT CURRENT_TIMESTAMP", ""))
    cycles = cycles_of(file, tmp_path)
    file.execute("UPDATE orders SET note = 'unknown', changed_at = NULL WHERE id = 5")
    file.execute("UPDATE orders SET note = 'another form', changed_at = 1767225600 WHERE id = 6")
    file.execute("UPDATE orders SET note = 'newer', changed_at = '2026-01-01 00:01:00' WHERE id = 7")
    assert cycles.run() == (0, 3, 0)
    assert cycles.found().rows_read == 3
    file.execute("UPDATE orders SET note = 'again' WHERE id IN (5, 6)")
    assert cycles.run() == (0, 2, 0)


@pytest.mark.parametrize("recursive", [0, 1])
@pytest.mark.parametrize(
    "form",
    ["id INTEGER PRIMARY KEY, part TEXT, n REAL", "part TEXT COLLATE NOCASE, id INT, n REAL, PRIMARY KEY (id, part)"],
)
@pytest.mark.parametrize("without", ["", " WITHOUT ROWID"])
def test_the_offered_statements_make_a_table_whose_changes_are_found(
    file: File, tmp_path: Path, recursive: int, form: str, without: str
) -> None:
    file.execute(f"CREATE TABLE orders ({form}){without}")
    file.execute("INSERT INTO orders (id, part, n) VALUES (1, 'a', 1), (2, 'b', 2), (3, '', 3)")
    assert mended(file) == ["table_columns_unfit", "table_columns_unfit"]
    assert mended(file) == []
    cycles = cycles_of(file, tmp_path)
    with file.connect() as connection:
        connection.execute(f"PRAGMA recursive_triggers = {recursive}")
        connection.execute("DELETE FROM orders WHERE id = 1")
        connection.execute("INSERT INTO orders (id, part, n) VALUES (4, 'd', 4), (5, 'e', 5)")
        connection.execute("UPDATE orders SET n = 9 WHERE id = 3")
        assert cycles.run() == (2, 1, 1)
        connection.execute("UPDATE orders SET n = 8, changed_at = '1999' WHERE id = 4")
        connection.execute("DELETE FROM orders")
        assert connection.execute("SELECT sum(deleted) FROM orders").fetchone() == (5,)
        found = cycles.found()
        assert (found.inserted, found.updated, found.deleted, str(found.known_before)[:2]) == (0, 0, 4, "20")
        # As the guide says; an application's DELETE leaves marked rows.
        connection.execute("BEGIN")
        connection.execute(f"UPDATE orders SET deleted = {REMOVED} WHERE deleted AND changed_at < '3000-01-01'")
        connection.execute(f"DELETE FROM orders WHERE deleted = {REMOVED}")
        connection.execute("COMMIT")
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert file.rows("SELECT count(*) FROM orders") == [(0,)]
    assert cycles.run(complete=True) == (0, 0, 0)


def test_the_offered_stamp_does_not_follow_a_clock_that_is_set_back(file: File, tmp_path: Path) -> None:
    file.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, v TEXT); INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    mended(file, STAMPED)
    # The clock was years ahead for a moment.
    [(trigger,)] = file.rows("SELECT sql FROM sqlite_schema WHERE name = 'orders_penstock_stamp_update'")
    file.execute("DROP TRIGGER orders_penstock_stamp_update")
    file.execute(f"UPDATE orders SET v = 'ahead', changed_at = '2999-01-01 00:00:00.000' WHERE id = 1; {trigger}")
    cycles = cycles_of(file, tmp_path, STAMPED)
    file.execute("UPDATE orders SET v = 'set back' WHERE id = 2; INSERT INTO orders (id, v) VALUES (3, 'c')")
    assert cycles.run() == (1, 1, 0)


@pytest.mark.parametrize(
    "change",
    [
        # The procedure of SQLite's documentation for changes that ALTER TABLE cannot make.
        f"CREATE TABLE new ({COLUMNS.format(flag='BOOLEAN')});"
        " INSERT INTO new SELECT id, upper(note), changed_at, deleted FROM orders; DROP TABLE orders; ALTER TABLE new RENAME TO orders",
        "CREATE TABLE other (a); UPDATE orders SET note = 'NOTE'",
    ],
    ids=["remade", "schema"],
)
def test_stamps_of_an_older_schema_do_not_count(file: File, tmp_path: Path, change: str) -> None:
    file.execute(MAKE.format(flag="BOOLEAN"))
    cycles = cycles_of(file, tmp_path)
    file.execute("UPDATE orders SET changed_at = '2026-01-01 00:00:00' WHERE id = 1")
    cycles.run()
    file.execute(change)
    with run_cycle(database_of(file), cycles.given, complete=False):
        pass
    (found,) = cycles.given.folder.files.reports(1)[0].tables
    assert (found.since_stamp, found.updated, found.deleted) == (False, 50, 0)
    file.execute("UPDATE orders SET note = 'last', changed_at = '2026-01-02 00:00:00' WHERE id = 2")
    assert cycles.run() == (0, 1, 0)


def test_stamps_of_another_file_do_not_count(file: File, tmp_path: Path) -> None:
    file.execute(MAKE.format(flag="BOOLEAN"))
    older = File(tmp_path / "older.db", file.rows("PRAGMA journal_mode")[0][0])
    older.execute(MAKE.format(flag="BOOLEAN"))
    older.execute("UPDATE orders SET note = 'restored' WHERE id = 3")
    cycles = cycles_of(file, tmp_path)
    file.execute("UPDATE orders SET changed_at = '2026-01-01 00:00:00' WHERE id = 1")
    cycles.run()
    assert file.rows("PRAGMA schema_version") == older.rows("PRAGMA schema_version")
    older.path.replace(file.path)
    with run_cycle(database_of(file), cycles.given, complete=False):
        pass
    (found,) = cycles.given.folder.files.reports(1)[0].tables
    assert (found.since_stamp, found.updated) == (False, 2)


def test_a_schema_that_changes_between_snapshot_and_look_does_not_count(file: File) -> None:
    file.execute(MAKE.format(flag="BOOLEAN"))
    database = database_of(file)
    (seen,) = database.tables({NAME: None}).values()
    with database.snapshot(1) as snapshot:
        assert database.newest_stamp(seen, snapshot, "changed_at", 0.0) == "2020-01-01 00:00:00"
        file.execute("CREATE TABLE other (a)")
        (changed,) = database.tables({NAME: None}).values()
        assert changed.generation != seen.generation
        assert database.newest_stamp(changed, snapshot, "changed_at", 0.0) is None


def test_a_flag_of_another_type_is_refused_and_no_row_goes(file: File, tmp_path: Path) -> None:
    file.execute(MAKE.format(flag="BOOLEAN"))
    cycles = cycles_of(file, tmp_path)
    database, orders = database_of(file), table("orders", "main")
    assert database.describe([orders])[NAME].row_filter is not None
    file.execute("ALTER TABLE orders DROP COLUMN deleted; ALTER TABLE orders ADD COLUMN deleted TEXT DEFAULT 'no'")
    assert [f.code for f in checked(file) if f.severity is Severity.ERROR] == ["table_columns_unfit"]
    assert (database.describe([orders]), database.tables({NAME: None})) == ({}, {})
    with run_cycle(database, cycles.given):
        pass
    (found,) = cycles.given.folder.files.reports(1)[0].tables
    assert (found.fault, found.deleted, found.deletes) == ("table_missing", 0, None)


def test_texts_in_a_flag_delete_nothing(file: File, tmp_path: Path) -> None:
    file.execute(MAKE.format(flag="BOOLEAN"))
    cycles = cycles_of(file, tmp_path)
    file.execute("UPDATE orders SET deleted = 'false', changed_at = CURRENT_TIMESTAMP WHERE id = 1")
    file.execute("UPDATE orders SET deleted = '1', changed_at = CURRENT_TIMESTAMP WHERE id = 2")
    assert cycles.run() == (0, 1, 1)


@pytest.mark.parametrize(
    ("columns", "codes"),
    [
        ("id INTEGER PRIMARY KEY, changed_at TEXT, deleted INT", ["stamp_without_index"]),
        ("id INTEGER PRIMARY KEY, changed_at, deleted INT", ["table_columns_unfit"]),
        ("id INTEGER PRIMARY KEY, changed_at BLOB, deleted REAL", ["table_columns_unfit", "table_columns_unfit"]),
        ("id INTEGER, changed_at TEXT, deleted INT", ["table_no_identity"]),
    ],
)
def test_what_a_check_finds(file: File, columns: str, codes: list[str]) -> None:
    file.execute(f"CREATE TABLE orders ({columns})")
    assert [f.code for f in checked(file) if f.severity is not Severity.INFO] == codes


def test_stamps_in_several_forms_are_a_finding(file: File) -> None:
    file.execute(MAKE.format(flag="BOOLEAN"))
    file.execute("CREATE INDEX recent ON orders (changed_at)")
    assert [f.code for f in checked(file)] == ["method_costs"]
    file.execute("UPDATE orders SET changed_at = 1767225600 WHERE id = 1")
    mixed, _ = checked(file)
    assert (mixed.code, "integer and text" in mixed.what) == ("stamp_mixed", True)


def test_costs_and_candidates_are_listed(file: File) -> None:
    file.execute(MAKE.format(flag="BOOLEAN").replace("i < 50", "i < 20000").replace("'note'", "hex(zeroblob(50))"))
    assert checked(file, TableDetection()) == []
    without = {f.code: f for f in checked(file, STAMPED)}
    file.execute("CREATE INDEX recent ON orders (changed_at)")
    assert [f.code for f in checked(file, TableDetection())] == ["stamp_possible"]
    (costs,) = checked(file, STAMPED)
    whole, stamped = (_pages(costs.what, way) for way in ("incremental", "timestamp"))
    assert 10 * stamped < whole < _pages(without["method_costs"].what, "timestamp")
    [(size, page)] = file.rows("SELECT page_count, page_size FROM pragma_page_count, pragma_page_size")
    assert size / 2 < whole < 2 * size, page


def _pages(words: str, way: str) -> int:
    return int(words.partition(f" {way} ")[2].partition(" pages")[0].replace(",", ""))


def test_a_copy_follows_marked_rows(file: File, replicate: Replicate) -> None:
    file.execute(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT); INSERT INTO orders VALUES (1, 'a'), (2, 'b')"
    )
    mended(file)
    file.execute("DELETE FROM orders WHERE id = 2")
    tables = {str(NAME): FLAGGED.model_dump(exclude_defaults=True)}
    settings: dict[str, Any] = {"every_seconds": 1, "tables": json.dumps(tables)}
    file.capture = CaptureSpec("query_diff", settings)
    orders = replace(table("orders", "main"), exclude_columns=("changed_at", "deleted"))
    replica = replicate(file, orders)
    assert replica.query("SELECT * FROM orders") == [(1, "a")]
    file.execute("INSERT INTO orders (id, note) VALUES (3, 'c'); DELETE FROM orders WHERE id = 1")
    replica.catch_up()
    assert replica.query("SELECT * FROM orders") == [(3, "c")]
    file.execute("UPDATE orders SET deleted = 0, note = 'back' WHERE id = 1")
    replica.catch_up()
    assert replica.query("SELECT * FROM orders ORDER BY id") == [(1, "back"), (3, "c")]


def test_deletes_by_cascades_are_refused_as_the_guide_says(file: File) -> None:
    file.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
    file.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, parent REFERENCES parents (id) ON DELETE CASCADE)")
    mended(file)
    file.execute("INSERT INTO parents VALUES (1); INSERT INTO orders (id, parent) VALUES (1, 1)")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        file.execute("DELETE FROM parents")
    assert file.rows("SELECT id, deleted FROM orders") == [(1, 0)]


def test_a_row_that_would_replace_another_one_is_refused_where_triggers_are_recursive(file: File) -> None:
    file.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, u TEXT UNIQUE); INSERT INTO orders VALUES (1, 'a')")
    mended(file)
    with file.connect() as connection:
        connection.execute("REPLACE INTO orders (id, u) VALUES (2, 'a')")
        connection.execute("PRAGMA recursive_triggers = 1")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("REPLACE INTO orders (id, u) VALUES (3, 'a')")
        assert connection.execute("SELECT id, u, deleted FROM orders").fetchall() == [(2, "a", 0)]
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
