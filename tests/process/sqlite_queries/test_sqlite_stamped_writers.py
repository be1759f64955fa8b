"""Cycles by stamps find every change of several writers of a SQLite file, whatever the order of their statements, ends and cycles."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.model.identity import TableName
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from engine.sources.sqlite.catalog import live_tables
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_queries.compared import Compared
from engine.sources.sqlite_queries.database import SqliteDatabase
from engine.sources.sqlite_queries.stamp_script import flag_sql, stamp_sql
from tests.fixtures.compared_reads import held_by
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy
from tests.process.sqlite_triggers.conftest import File

STAMPED, FLAGGED = TableName("main", "stamped"), TableName("main", "flagged")
NEVER = 100_000
CHOSEN = {
    str(STAMPED): TableDetection(method="timestamp", stamp_column="at", sweep_every=NEVER),
    str(FLAGGED): TableDetection(
        method="timestamp_delete_flag", stamp_column="at", flag_column="gone", sweep_every=NEVER
    ),
}
WRITERS = 3
_BASE_MS = 1_767_225_600_000
FORMS: dict[str, tuple[str, Callable[[int], object]]] = {
    "seconds": ("TEXT", lambda ms: f"2026-01-01 00:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}"),
    "iso": ("DATETIME", lambda ms: f"2026-01-01T00:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000:03}Z"),
    "unix": ("INTEGER", lambda ms: (_BASE_MS + ms) // 1000),
    "days": ("REAL", lambda ms: 2461041.5 + ms / 86_400_000),
    "counter": ("INTEGER NOT NULL", lambda ms: ms // 300),
    "offered": ("", lambda _: None),
}
"""By name: the type of the column, and the stamp at a time by the clock. `offered`: the columns, triggers and index that a check offers."""
_SAME = "UPDATE {0} SET at = stamp() WHERE {1} = NEW.{1}"


class Clock:
    """Of all programs that use the file. It moves by steps of a test only."""

    def __init__(self, form: str) -> None:
        self.ms = 0
        self._stamp = FORMS[form][1]

    def stamp(self) -> object:
        return self._stamp(self.ms)


def make(file: File, form: str) -> None:
    """Both tables, each with a row that stays."""
    kind = FORMS[form][0]
    stamped = f"at {kind}, " if kind else ""
    flagged = f"at {kind}, gone BOOLEAN, " if kind else ""
    with file.connect() as connection:
        connection.create_function("stamp", 0, Clock(form).stamp)
        connection.execute(f"CREATE TABLE stamped ({stamped}k TEXT, v TEXT, PRIMARY KEY (k)) WITHOUT ROWID")
        connection.execute(f"CREATE TABLE flagged ({flagged}id INTEGER PRIMARY KEY, v TEXT)")
        if kind:
            for table, key in (("stamped", "k"), ("flagged", "id")):
                connection.execute(f"CREATE INDEX {table}_at ON {table} (at)")
                for event in ("INSERT", "UPDATE"):
                    body = _SAME.format(table, key)
                    connection.execute(f"CREATE TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN {body}; END")
            connection.execute(
                "CREATE TRIGGER marks BEFORE DELETE ON flagged BEGIN"
                " UPDATE flagged SET gone = 1 WHERE id = OLD.id; SELECT RAISE(IGNORE); END"
            )
        else:
            tables = live_tables(connection)
            for name, table in tables.items():
                statements = stamp_sql(table.structure, "at")
                for statement in (*statements, *(flag_sql(table.structure, "gone") if name == "flagged" else ())):
                    connection.execute(statement)
        default = 0 if "NOT NULL" in kind else None
        for name, key, value in (("stamped", "k", "'stays'"), ("flagged", "id", "-1")):
            columns, values = (f"{key}, at", f"{value}, {default}") if default is not None else (key, value)
            connection.execute(f"INSERT INTO {name} ({columns}) VALUES ({values})")


KEYS = st.integers(0, 5)
_WRITES = (
    "INSERT OR IGNORE INTO flagged ({at}id, v) VALUES ({zero}{key}, '{value}')",
    "UPDATE flagged SET v = '{value}' WHERE id = {key}",
    "UPDATE flagged SET v = v || '.' WHERE id > {key}",
    "DELETE FROM flagged WHERE id = {key}",
    "UPDATE flagged SET gone = NOT coalesce(gone, 0), v = '{value}' WHERE id = {key}",
    "REPLACE INTO flagged ({at}id, v) VALUES ({zero}{key}, '{value}')",
    "INSERT OR IGNORE INTO stamped ({at}k, v) VALUES ({zero}'k{key}', '{value}')",
    "UPDATE stamped SET v = '{value}' WHERE k = 'k{key}'",
    "DELETE FROM stamped WHERE k = 'k{key}'",
)
STEPS = st.one_of(
    st.tuples(st.just("begin"), st.integers(0, WRITERS - 1), st.sampled_from(["DEFERRED", "IMMEDIATE"])),
    st.tuples(st.just("read"), st.integers(0, WRITERS - 1), st.just("")),
    st.tuples(st.just("write"), st.integers(0, WRITERS - 1), st.tuples(st.integers(0, len(_WRITES) - 1), KEYS)),
    st.tuples(st.just("write"), st.integers(0, WRITERS - 1), st.tuples(st.integers(0, len(_WRITES) - 1), KEYS)),
    st.tuples(st.just("end"), st.integers(0, WRITERS - 1), st.sampled_from(["COMMIT", "COMMIT", "ROLLBACK"])),
    st.tuples(st.just("tick"), st.sampled_from([1, 40, 500, 2_500]), st.just("")),
    st.tuples(st.just("cycle"), st.integers(0, 5), st.just("")),
    st.tuples(st.just("cycle"), st.integers(0, 5), st.just("")),
)
Step = tuple[str, int, object]


class Programs:
    """Writers of one file. What SQLite refuses, since another one writes, ends its transaction."""

    def __init__(self, file: File, clock: Clock, required: bool, block: ExitStack) -> None:
        self._clock = clock
        self._number = 0
        self._at = ("at, ", "0, ") if required else ("", "")
        self._sessions = [block.enter_context(file.connect()) for _ in range(WRITERS)]
        for session in self._sessions:
            session.execute("PRAGMA busy_timeout = 0")
            session.create_function("stamp", 0, clock.stamp)

    def step(self, what: str, which: int, how: object) -> None:
        if what == "tick":
            self._clock.ms += which
            return
        session = self._sessions[which]
        try:
            if what == "begin" and not session.in_transaction:
                session.execute(f"BEGIN {how}")
            elif what == "read":
                session.execute("SELECT count(*) FROM flagged").fetchall()
            elif what == "write" and isinstance(how, tuple):
                self._number += 1
                at, zero = self._at
                statement = _WRITES[how[0]].format(at=at, zero=zero, key=how[1], value=f"v{self._number}")
                session.execute(statement)
            elif what == "end" and session.in_transaction:
                session.execute(str(how))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            if session.in_transaction:
                session.execute("ROLLBACK")


class Follower:
    """What cycles make of a copy."""

    def __init__(self, file: File, path: Path) -> None:
        self._database = SqliteDatabase(Connector(file.connection, read_only=True), Compared(CHOSEN))
        self._given = Given(0, Method.INCREMENTAL, 10.0, path, "shop", CHOSEN)
        self._given.folder.make()
        self._given.folder.follow({name: Follow(None, ALL) for name in (STAMPED, FLAGGED)})
        self._copy = Copy(self._given.folder)
        self.by_stamps = 0
        with run_cycle(self._database, self._given) as (snapshot, number):
            self._copy.fill(self._held(snapshot), number)

    def _held(self, snapshot: str) -> dict[str, dict[bytes, bytes]]:
        return held_by(self._database, {STAMPED: None, FLAGGED: None}, snapshot)

    def assert_cycle(self, *, complete: bool) -> None:
        """The copy is like the snapshot; without `complete`, rows of `stamped` may still be there that are removed."""
        with run_cycle(self._database, self._given, complete=complete) as (snapshot, number):
            expected = self._held(snapshot)
        self._copy.follow()
        found = {table.name: table.since_stamp for table in self._given.folder.files.read(number).tables}
        assert set(found.values()) == {not complete}
        self.by_stamps += not complete
        if not complete:
            kept = self._copy.rows["stamped"]
            expected["stamped"] = {**{key: kept[key] for key in kept}, **expected["stamped"]}
        assert (self._copy.rows, self._copy.last) == (expected, number)


REFUSED_FIRST: list[Step] = [
    ("begin", 0, "DEFERRED"),
    ("read", 0, ""),
    ("write", 1, (0, 1)),
    ("tick", 2_500, ""),
    ("cycle", 1, ""),
    ("write", 0, (1, 1)),
    ("write", 0, (1, 1)),
    ("begin", 2, "IMMEDIATE"),
    ("write", 2, (0, 2)),
    ("tick", 500, ""),
    ("cycle", 1, ""),
    ("end", 2, "COMMIT"),
    ("cycle", 1, ""),
    ("write", 1, (1, 2)),
    ("cycle", 1, ""),
    ("write", 1, (3, 2)),
    ("cycle", 1, ""),
]
"""A deferred transaction reads first, and writes when another one and a cycle have ended: it is refused, and tries again."""


@given(
    form=st.sampled_from(list(FORMS)),
    journal=st.sampled_from(["WAL", "DELETE"]),
    steps=st.lists(STEPS, min_size=10, max_size=60),
)
@example(form="seconds", journal="WAL", steps=REFUSED_FIRST)
@example(form="offered", journal="DELETE", steps=REFUSED_FIRST)
@settings(max_examples=8)
def test_every_change_is_found_by_the_next_cycle(form: str, journal: str, steps: list[Step]) -> None:
    assert_found(form, journal, steps)


@pytest.mark.chaos
@given(
    form=st.sampled_from(list(FORMS)),
    journal=st.sampled_from(["WAL", "DELETE"]),
    steps=st.lists(STEPS, min_size=10, max_size=60),
)
@settings(max_examples=200)
def test_every_change_is_found_in_many_orders(form: str, journal: str, steps: list[Step]) -> None:
    assert_found(form, journal, steps)


def assert_found(form: str, journal: str, steps: list[Step]) -> None:
    """By each cycle, all changes that were committed before it."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as block:
        file = File(Path(folder) / "shop.db", journal)
        make(file, form)
        clock = Clock(form)
        programs = Programs(file, clock, "NOT NULL" in FORMS[form][0], block)
        follower = Follower(file, Path(folder) / "reader")
        for what, which, how in steps:
            if what == "cycle":
                follower.assert_cycle(complete=which == 0)
            else:
                programs.step(what, which, how)
        follower.assert_cycle(complete=False)
        assert follower.by_stamps
