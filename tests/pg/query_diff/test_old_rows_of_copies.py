"""With the method outer_join, updates and deletes contain the old row wherever the copy on the source is the one that is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff import cycle
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from tests.contract.source_material import described
from tests.contract.source_postgres import JoinedQueriesOrigin
from tests.contract.test_source_contract import followed
from tests.fixtures.postgres import Database
from tests.pg.query_diff.test_copies_on_the_source import (
    FOLLOWED,
    KEPT,
    NAMED,
    THINGS,
    compared,
    copies_on,
    database,
    filled,
    given_in,
)
from tests.pg.query_diff.test_cycles_find_changes import Copy, held_by
from tests.unit.query_diff.test_old_rows import change_of

__all__ = ["compared", "database"]
pytestmark = pytest.mark.pg

Run = Callable[..., dict[str, list[bool]]]
_CHANGE = """
UPDATE things SET n = n + 0.0, t = repeat('long ', 3000), f = '-0' WHERE id < 4;
UPDATE things SET t = E'\\tD\\n\\\\', a = '{1.0,NULL}', p = ROW(NULL, 'x') WHERE id = 5;
DELETE FROM things WHERE id IN (8, 9);
UPDATE things SET id = 1000 WHERE id = 10;
INSERT INTO things (id) VALUES (2000);
UPDATE kept SET v = 'x' WHERE id < 3;
UPDATE kept SET n = 2 WHERE id = 4
"""
_FOUND = {"things": [True] * 7, "named": [], "kept": [True] * 3}
"""Old rows of the changes: of things 4 updates, 2 deletes, and one of a key that changed."""


@pytest.fixture
def follow(database: Database, compared: PostgresDatabase, tmp_path: Path) -> tuple[Given, Run]:
    """A subscription whose copies exist; and runs a cycle, whose result is that of the copy, old rows included: see `Copy.olds`."""
    filled(database)
    database.execute("INSERT INTO named VALUES (1.0, '1 day', 'v'), (2, '1 day', NULL)")
    given = given_in(tmp_path, FOLLOWED)
    copy = Copy(given.folder)
    with run_cycle(compared, given) as (snapshot, number):
        copy.fill(held_by(compared, snapshot, FOLLOWED), number)

    def run(method: Method = Method.OUTER_JOIN) -> dict[str, list[bool]]:
        with run_cycle(compared, replace(given, method=method)) as (snapshot, number):
            expected = held_by(compared, snapshot, FOLLOWED)
        copy.follow()
        assert (copy.rows, copy.last) == (expected, number)
        return copy.olds

    return given, run


@pytest.mark.parametrize("full_every", [cycle.FULL_EVERY, 1])
def test_updates_and_deletes_contain_the_row_before(
    database: Database, follow: tuple[Given, Run], monkeypatch: pytest.MonkeyPatch, full_every: int
) -> None:
    """Also in a cycle that compares all rows."""
    monkeypatch.setattr(cycle, "FULL_EVERY", full_every)
    _, run = follow
    assert run() == {"things": [], "named": [], "kept": []}
    database.execute(_CHANGE)
    assert run() == _FOUND
    # The key is equal and prints differently: one row is gone, and another one is new.
    database.execute("UPDATE named SET l = '24:00' WHERE k = 1; UPDATE named SET v = 'w' WHERE k = 2")
    assert run() == {"things": [], "named": [True, True], "kept": []}
    assert run() == {"things": [], "named": [], "kept": []}


@pytest.mark.parametrize(
    "edit",
    [
        "TRUNCATE {0}",
        "DROP TABLE {0}",
        "UPDATE {0} SET t = 'wrong'",
        "DELETE FROM {0}; INSERT INTO {0} SELECT * FROM things",
    ],
)
@pytest.mark.parametrize("full_every", [cycle.FULL_EVERY, 1])
def test_no_old_row_is_taken_from_a_copy_that_is_not_known(
    database: Database, follow: tuple[Given, Run], monkeypatch: pytest.MonkeyPatch, full_every: int, edit: str
) -> None:
    monkeypatch.setattr(cycle, "FULL_EVERY", full_every)
    _, run = follow
    [copy] = [name for name in copies_on(database) if f"_{_oid(database, 'things')}_" in name]
    database.execute(edit.format(f"penstock.{copy}"))
    database.execute(_CHANGE)
    assert run() == {**_FOUND, "things": [False] * 7}
    database.execute("UPDATE things SET n = 77 WHERE id = 20")
    assert run()["things"] == [True]


@pytest.mark.parametrize("other", [Method.INCREMENTAL, Method.ROW_CHECKSUM, Method.RANGE_CHECKSUM])
def test_another_method_knows_no_old_rows_and_a_new_copy_knows_them_from_its_next_cycle_on(
    database: Database, follow: tuple[Given, Run], other: Method
) -> None:
    _, run = follow
    change = "UPDATE things SET n = n + 1 WHERE id < 4; DELETE FROM things WHERE id = {}"
    without, known = [False] * 4, [True] * 4
    for key, method, found in (
        (11, Method.OUTER_JOIN, known),
        (12, other, without),
        (13, other, without),
        (14, Method.OUTER_JOIN, without),
        (15, Method.OUTER_JOIN, known),
    ):
        database.execute(change.format(key))
        assert run(method)["things"] == found, (key, method)


def test_columns_that_were_added_or_dropped_are_not_in_old_rows_of_before(
    database: Database, follow: tuple[Given, Run]
) -> None:
    _, run = follow
    for change in ("ADD COLUMN more int DEFAULT 7", "DROP COLUMN more", "ALTER COLUMN n TYPE numeric(9, 2)"):
        database.execute(f"ALTER TABLE things {change}; UPDATE things SET t = 'x{len(change)}' WHERE id = 1")
        assert run()["things"] == [False] * 100
        database.execute(f"UPDATE things SET t = 'y{len(change)}' WHERE id = 1")
        assert run()["things"] == [True]


def test_operations_that_are_not_followed_leave_the_old_rows_of_the_others(
    database: Database, follow: tuple[Given, Run], compared: PostgresDatabase
) -> None:
    given, _ = follow
    given.folder.follow(
        {
            THINGS: Follow(None, frozenset({"update"})),
            NAMED: FOLLOWED[NAMED],
            KEPT: Follow(FOLLOWED[KEPT].where, frozenset({"delete", "update"})),
        }
    )
    database.execute(_CHANGE)
    with run_cycle(compared, given) as (_, number):
        found = {table.name: table for table in given.folder.files.read(number).tables}
    assert (found["things"].deletes, found["things"].method) == (None, "outer_join")
    olds = {
        (name, table_file): [
            old is not None
            for batch in given.folder.files.batches(number, file)
            for old in batch.column("old").to_pylist()
        ]
        for name, table in found.items()
        for table_file, file in (("rows", table.rows), ("deletes", table.deletes))
        if file is not None
    }
    assert olds == {("things", "rows"): [True] * 4, ("kept", "rows"): [True], ("kept", "deletes"): [True] * 2}


def test_a_stream_sends_whole_old_rows_where_they_are_known(database: Database) -> None:
    database.execute("CREATE TABLE notes (id bigint PRIMARY KEY, v varchar(100), w numeric)")
    database.execute("INSERT INTO notes VALUES (1, 'one', 1.0), (2, NULL, 2), (3, E'th\tree', 3)")
    with ExitStack() as stack:
        origin = JoinedQueriesOrigin(database, stack)
        (copy,) = copies_after(origin, database)
        with followed(origin, [origin.table("notes")]) as tail:
            for change in (
                "UPDATE notes SET w = 1.00 WHERE id = 1; DELETE FROM notes WHERE id = 2; UPDATE notes SET id = 4 WHERE id = 3",
                f"TRUNCATE penstock.{copy}; UPDATE notes SET v = 'two' WHERE id = 1; DELETE FROM notes WHERE id = 4",
                "UPDATE notes SET v = NULL WHERE id = 1; INSERT INTO notes VALUES (5, 'five', 5)",
            ):
                database.execute(change)
                tail.past(origin.source.log.now())
            net = tail.changes(described(origin, "notes"))
            records = [
                bytes(data[begin:end])
                for _, data, offsets in tail._blocks.values()
                for begin, end in itertools.pairwise(offsets)
            ]
    sent = [change_of(record) for record in records if record[:1] in {b"I", b"U", b"D"}]
    assert sorted(sent[:2], key=str) == [("D", {"O": ("2", None, "2")}), ("D", {"O": ("3", "th\tree", "3")})]
    assert sorted(sent[2:4], key=str) == [
        ("I", {"N": ("4", "th\tree", "3")}),
        ("U", {"O": ("1", "one", "1.0"), "N": ("1", "one", "1.00")}),
    ]
    assert sent[4:6] == [("D", {"K": ("4", None, None)}), ("U", {"N": ("1", "two", "1.00")})]
    assert sorted(sent[6:], key=str) == [
        ("I", {"N": ("5", "five", "5")}),
        ("U", {"O": ("1", "two", "1.00"), "N": ("1", None, "1.00")}),
    ]
    assert (net.counts, net.fault) == ({"insert": 2, "update": 3, "delete": 3}, None)


def copies_after(origin: JoinedQueriesOrigin, database: Database) -> list[str]:
    """The copies on the source after a first cycle over `notes`."""
    origin.source.sent_tables.prepare([origin.table("notes")], origin.slot)
    with origin.source.reader.create(origin.slot):
        return copies_on(database)


def _oid(database: Database, table: str) -> int:
    return int(database.execute(f"SELECT '{table}'::regclass::oid::bigint")[0][0])
