"""What others do to a file, its tables and Penstock's triggers: followed, or found and named."""

from __future__ import annotations

import sqlite3

import pytest

from engine.model.subscription import TableSpec
from engine.sources.sqlite_triggers.source import SqliteSource
from tests.fixtures.replication import table
from tests.process.sqlite_triggers.conftest import File, Replicate

VALUES = """
CREATE TABLE loose (id INTEGER PRIMARY KEY, t VARCHAR(9), r DOUBLE, b BLOB, n DECIMAL(10, 2), a, d DATETIME,
    g GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE strict (id TEXT PRIMARY KEY, i INT, r REAL, t TEXT, b BLOB, a ANY) STRICT, WITHOUT ROWID;
"""
ROWS = r"""
INSERT INTO loose VALUES
 (1, 'tab	new' || char(10) || 'line back\slash' || char(13) || ' "quoted" é', 0.1, x'00ff5c', 19.99, 'text', '2026-01-02 03:04:05'),
 (2, '\N', 9e999, x'', 12345678901234567, 7, 1767225600), (3, NULL, NULL, NULL, NULL, NULL, NULL), (4, '', -0.0, x'41', -0.10, 1.5, 3),
 (-9223372036854775808, 'null', 1.7976931348623157e308, zeroblob(3), 1e300, 5e-324, ''),
 (9223372036854775807, '{}', 1e15, NULL, 1e22, '1', 2.5);
INSERT INTO strict VALUES ('a', 1, 1.0 / 3, 'x', x'01', 'any'), ('b', NULL, 123456789012.34567, NULL, NULL, 7),
 ('', -5, -1e-300, 'é', x'', NULL);
"""


def keyed(name: str, **options: object) -> TableSpec:
    return table(name, "main", **options)


def test_every_value_arrives_as_it_is(file: File, replicate: Replicate) -> None:
    file.execute(VALUES)
    replica = replicate(file, "loose", "strict")
    file.execute(ROWS)
    replica.assert_equal()
    target = replica.query("SELECT id, t, r, b, n, a, d, g FROM loose ORDER BY id")
    for (i, t, r, b, n, a, d, g), found in zip(file.rows("SELECT * FROM loose ORDER BY id"), target, strict=True):
        assert found[:4] == (i, t, r, b)
        assert [None if x is None else float(x) for x in (found[4], found[7])] == [
            None if x is None else float(x) for x in (n, g)
        ]
        assert (found[5], found[6]) == tuple(
            None if x is None else x if isinstance(x, str) else repr(x) for x in (a, d)
        )
    assert replica.query("SELECT r FROM strict ORDER BY id") == file.rows("SELECT r FROM strict ORDER BY id")
    file.execute(
        "UPDATE loose SET r = r / 3, n = n + 1; UPDATE strict SET id = id || 'x', r = r * 7; DELETE FROM loose WHERE id = 3"
    )
    replica.assert_equal()
    assert replica.query("SELECT r FROM loose ORDER BY id") == file.rows("SELECT r FROM loose ORDER BY id")


@pytest.mark.parametrize("value", ["'twelve'", "x'3132'", "1.5"], ids=["text", "blob", "float"])
def test_a_value_of_another_storage_class_is_refused(file: File, replicate: Replicate, value: str) -> None:
    file.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, v TEXT); CREATE TABLE other (id INTEGER PRIMARY KEY)"
    )
    replica = replicate(file, "t", "other")
    file.execute(f"INSERT INTO t VALUES (1, {value}, 'x')")
    assert replica.wait_table("t", "parked").code == "value_out_of_domain"
    file.execute("INSERT INTO other VALUES (1)")
    replica.wait_applied(replica.now())
    assert replica.query("SELECT id FROM other") == [(1,)]


def test_columns_that_come_or_get_another_name_are_followed(file: File, replicate: Replicate) -> None:
    file.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT UNIQUE, n INT); INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)"
    )
    replica = replicate(file, "t")
    file.execute(
        "BEGIN; INSERT INTO t VALUES (4, 'd', 4); ALTER TABLE t ADD COLUMN w TEXT DEFAULT 'seven';"
        " UPDATE t SET w = 'x', n = 9 WHERE id < 3;"
        " INSERT INTO t VALUES (5, 'e', 5, NULL); REPLACE INTO t VALUES (6, 'c', 6, 'y'); COMMIT"
    )
    replica.assert_equal()
    file.execute(
        "ALTER TABLE t ADD COLUMN r REAL DEFAULT 5; ALTER TABLE t RENAME COLUMN v TO name; UPDATE t SET r = 1.5, name = name || '!'"
    )
    replica.satisfied()
    replica.assert_equal()
    assert not [report for report in replica.states_of("t") if report == "parked"]
    assert replica.query("SELECT id, name, n, w, r FROM t ORDER BY id") == file.rows(
        "SELECT id, name, n, w, r FROM t ORDER BY id"
    )


TRAPS = {
    "dropped": "DROP TRIGGER {t}",
    "put back": "DROP TRIGGER {t}; UPDATE t SET n = n + 1; {create}",
}


@pytest.mark.parametrize(
    ("trap", "event"), [("dropped", "before_update"), ("put back", "update"), ("put back", "before_insert")]
)
def test_a_table_whose_triggers_others_changed_is_parked_until_it_is_reloaded(
    file: File, replicate: Replicate, trap: str, event: str
) -> None:
    file.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n INT UNIQUE); INSERT INTO t VALUES (1, 1); CREATE TABLE other (id INTEGER PRIMARY KEY)"
    )
    replica = replicate(file, "t", "other")
    triggers = file.rows("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 't'")
    ((name, create),) = [each for each in triggers if each[0].split("_", 2)[2] == event]
    file.execute(TRAPS[trap].format(t=name, create=create))
    parked = replica.wait_table("t", "parked", timeout_s=15)
    assert parked.code == "change_triggers_changed"
    file.execute("INSERT INTO other VALUES (7)")
    replica.pipeline.reload("again", [replica.table_id("t")])
    replica.wait_live()
    file.execute("UPDATE t SET n = n + 1; INSERT INTO t VALUES (2, 9)")
    replica.assert_equal()


def test_no_wait_for_now_is_satisfied_past_changes_that_triggers_missed(file: File, replicate: Replicate) -> None:
    """The next regular check is far: reading "now" finds the change of the triggers."""
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 1)")
    replica = replicate(file, "t", guard_interval_s=300.0)
    replica.satisfied()
    ((name,),) = file.rows(
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'penstock\\_%\\_delete' ESCAPE '\\'"
    )
    file.execute(f"DROP TRIGGER {name}; DELETE FROM t")
    with pytest.raises(AssertionError, match="for waits"):
        replica.satisfied(1.0)
    assert replica.wait_table("t", "parked").code == "change_triggers_changed"


def test_a_table_that_is_created_again_is_copied_again(file: File, replicate: Replicate) -> None:
    file.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 1); CREATE TABLE other (id INTEGER PRIMARY KEY)"
    )
    replica = replicate(file, "t", "other")
    file.execute("DROP TABLE t; CREATE TABLE t (id INTEGER PRIMARY KEY, n INT); INSERT INTO t VALUES (5, 5)")
    assert replica.wait_table("t", "reloading", timeout_s=15).code == "table_structure_changed"
    replica.assert_equal()
    assert replica.query("SELECT id FROM t") == [(5,)]


@pytest.mark.parametrize("replaced", [False, True], ids=["overwritten", "another file"])
def test_a_file_that_was_restored_is_a_gap(file: File, replicate: Replicate, replaced: bool) -> None:
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 1)")
    replica = replicate(file, "t")
    file.execute("INSERT INTO t VALUES (2, 2)")
    replica.assert_equal()
    copy = file.path.with_suffix(".copy")
    file.execute(f"VACUUM INTO '{copy}'")
    for number in range(3, 6):
        file.execute(f"INSERT INTO t VALUES ({number}, 2)")
        replica.assert_equal()
    if replaced:
        copy.replace(file.path)
        for suffix in ("-wal", "-shm"):
            file.path.with_name(file.path.name + suffix).unlink(missing_ok=True)
    else:
        with sqlite3.connect(copy) as old, file.connect() as now:
            old.backup(now)
        old.close()
    for number in range(13, 20):
        file.execute(f"INSERT INTO t VALUES ({number}, 2)")
    assert replica.wait_state("failed").code == "log_gap"


def test_vacuum_changes_nothing(file: File, replicate: Replicate) -> None:
    file.execute(
        "CREATE TABLE gone (a); CREATE TABLE t (id TEXT PRIMARY KEY, n INT UNIQUE); INSERT INTO t VALUES ('a', 1)"
    )
    replica = replicate(file, "t")
    file.execute(
        "DROP TABLE gone; CREATE TABLE later (a); INSERT INTO t VALUES ('b', 2); VACUUM; REPLACE INTO t VALUES ('c', 2); VACUUM"
    )
    replica.satisfied()
    replica.assert_equal()
    assert replica.states_of("t")[-1] == "live"
    assert "parked" not in replica.states_of("t")


def test_removal_leaves_the_file_as_it_was(file: File, replicate: Replicate) -> None:
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 1)")
    schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
    before = file.rows(schema)
    replica = replicate(file, "t")
    assert file.rows(schema) != before
    source = SqliteSource(replica.spec.source)
    replica.pipeline.close()
    assert source.reader.remove(replica.spec.reader) == []
    assert file.rows(schema) == before
    assert file.rows("PRAGMA integrity_check") == [("ok",)]
    assert not list(file.path.parent.glob("penstock-sqlite-*"))


def test_tables_that_cannot_be_recorded_are_refused_with_a_reason(file: File) -> None:
    file.execute(
        "CREATE VIRTUAL TABLE words USING fts5(w); CREATE TABLE loose (id PRIMARY KEY, v); CREATE VIEW seen AS SELECT 1 AS id;"
        " CREATE TABLE exprs (id INTEGER PRIMARY KEY, v TEXT); CREATE UNIQUE INDEX e ON exprs (lower(v));"
        " CREATE TABLE t (id INTEGER PRIMARY KEY)"
    )
    source = SqliteSource(file.connection)
    asked = [keyed("words"), keyed("loose"), keyed("seen"), keyed("exprs"), keyed("t", where="id > 1")]
    codes = [[f.code for f in source.preflight([each], None) if f.severity.value == "error"] for each in asked]
    assert codes == [
        ["table_not_logged"],
        ["table_not_logged"],
        ["table_missing"],
        ["table_not_logged"],
        ["table_columns_unfit"],
    ]
    assert source.describe(asked) == {}


def test_an_open_transaction_of_the_application_holds_up_waits_but_breaks_nothing(
    file: File, replicate: Replicate
) -> None:
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT)")
    replica = replicate(file, "t")
    file.execute("INSERT INTO t VALUES (1, 1)")
    with file.connect() as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t VALUES (2, 2)")
        position = replica.now()
        connection.execute("COMMIT")
    replica.wait_applied(position)
    replica.assert_equal()


def test_a_new_unique_index_has_the_table_copied_again(file: File, replicate: Replicate) -> None:
    """REPLACE removes rows by it, which triggers of before do not look for."""
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n TEXT); INSERT INTO t VALUES (1, 1), (2, 2)")
    replica = replicate(file, "t")
    file.execute(
        "BEGIN; CREATE UNIQUE INDEX by_n ON t (n); REPLACE INTO t VALUES (3, 2); COMMIT; REPLACE INTO t VALUES (4, 1)"
    )
    replica.satisfied()
    replica.assert_equal()
    assert replica.query("SELECT id, n FROM t ORDER BY id") == [(3, "2"), (4, "1")]
    file.execute("REPLACE INTO t VALUES (5, 1)")
    replica.assert_equal()


def test_one_of_two_readers_goes_and_the_other_goes_on(file: File, replicate: Replicate) -> None:
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT)")
    replica, other = replicate(file, "t"), replicate(file, "t")
    file.execute("INSERT INTO t VALUES (1, 1)")
    other.assert_equal()
    other.pipeline.close()
    source = SqliteSource(file.connection)
    assert source.reader.remove(other.spec.reader) == []
    file.execute("INSERT INTO t VALUES (2, 1); ALTER TABLE t ADD COLUMN v TEXT DEFAULT 'x'; UPDATE t SET v = n")
    replica.assert_equal()
    with replica.source.connect() as connection:
        connection.execute("DROP TABLE penstock_windows")
    assert replica.wait_state("failed").code == "log_gap"
    replica.pipeline.reload("all", None)
    replica.wait_reload("all")
    file.execute("INSERT INTO t VALUES (3, 1, 'y')")
    replica.satisfied()
    replica.assert_equal()


def test_recorded_changes_cannot_be_removed_by_hand(file: File, replicate: Replicate) -> None:
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT)")
    replica = replicate(file, "t")
    file.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    replica.assert_equal()
    with file.connect() as connection:
        for statement in ("DELETE FROM penstock_changes", "DELETE FROM penstock_changes WHERE no > 1"):
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(statement)
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (3, 3), (4, 4)")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("DELETE FROM penstock_changes WHERE no = (SELECT max(no) - 1 FROM penstock_changes)")
        connection.execute("COMMIT")
    replica.assert_equal()
