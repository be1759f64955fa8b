"""SQLite: whatever happens to the file between two statements of a cycle, nothing wrong is found, and the next cycle finds all."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.sources.query_diff.database import Method
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_queries.database import SqliteDatabase
from tests.fixtures.lossy_cycles import (
    IN_PARTS,
    NEVER_S,
    ONE_SNAPSHOT,
    ImpossibleError,
    Loss,
    LossyCycles,
    assert_continues_with_the_next_cycle,
    assert_parked,
    followed,
    hurry,
)
from tests.fixtures.waiting import wait_until
from tests.process.sqlite_triggers.conftest import File, Replicate

_BESIDE = ("-wal", "-shm", "-journal")
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_GOODS = "id INTEGER PRIMARY KEY, v TEXT, n REAL DEFAULT 0.5"
_TEXTS = "id INTEGER PRIMARY KEY, v TEXT, n TEXT"
_COUNT = "WITH c (x) AS (SELECT {0} UNION ALL SELECT x + 1 FROM c WHERE x < 40)"
_ROWS = (
    "INSERT INTO goods SELECT 2 * x, 'n', x / 2.0 FROM c",
    "INSERT INTO orders SELECT x, 'n' FROM c WHERE x < 12",
)
_TABLES = {
    "index": (
        "ALTER TABLE goods RENAME TO keyed; CREATE TABLE goods AS SELECT * FROM keyed",
        "DROP TABLE goods; ALTER TABLE keyed RENAME TO goods",
    ),
    "renamed": ("ALTER TABLE goods RENAME TO away", "ALTER TABLE away RENAME TO goods"),
    "dropped": ("DROP TABLE goods", f"CREATE TABLE goods ({_GOODS}); INSERT INTO goods VALUES (4, 'back', 2.5)"),
    "column": ("ALTER TABLE goods DROP COLUMN n", "ALTER TABLE goods ADD COLUMN n REAL DEFAULT 0.5"),
    "added": ("ALTER TABLE goods ADD COLUMN more INTEGER DEFAULT 7", "ALTER TABLE goods DROP COLUMN more"),
    "type": tuple(
        f"CREATE TABLE other ({columns}); INSERT INTO other SELECT * FROM goods; DROP TABLE goods; ALTER TABLE other RENAME TO goods"
        for columns in (_TEXTS, _GOODS)
    ),
    "emptied": ("DELETE FROM goods", "INSERT INTO goods VALUES (5, 'back', 0.1)"),
}
"""What happens to the table, and how it is repaired."""
_GONE = frozenset({FaultKind.TABLE_MISSING, FaultKind.TABLE_STRUCTURE_CHANGED})
LOSSES = (*_TABLES, "replaced", "removed", "locked", "journal")


TWO = (
    "CREATE TABLE goods (id INTEGER PRIMARY KEY, v TEXT); INSERT INTO goods VALUES (1, 'a'), (2, 'b');"
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, v TEXT); INSERT INTO orders VALUES (1, 'a'), (2, 'b')"
)


class Source:
    """A file, and what is done to it."""

    def __init__(self, path: Path, journal: str) -> None:
        self.path = path
        self._journal = journal
        self._rng = random.Random(5)
        self._locker: sqlite3.Connection | None = None
        self.file = self._made(path, 1)

    def _made(self, path: Path, least: int) -> File:
        file = File(path, self._journal, CaptureSpec("query_diff", {"every_seconds": 3600}))
        rows = "; ".join(f"{_COUNT.format(least)} {statement}" for statement in _ROWS)
        file.execute(f"CREATE TABLE goods ({_GOODS}); CREATE TABLE orders (id INTEGER PRIMARY KEY, v TEXT); {rows}")
        return file

    @property
    def connection(self) -> ConnectionSpec:
        settings: dict[str, Any] = {"path": str(self.path), "busy_timeout_ms": 20}
        return ConnectionSpec("shop", "sqlite", {**settings, "snapshot_folder": str(self.path.parent)})

    def change(self) -> None:
        number, key = self._rng.randint(0, 10), self._rng.randint(1, 60)
        self.file.execute(
            f"UPDATE goods SET n = n + 0.25 WHERE id % 7 < 3; DELETE FROM goods WHERE id % 11 = {number};"
            f" INSERT OR IGNORE INTO goods (id, v) VALUES ({key}, 'new'); UPDATE orders SET v = '{number}' || id"
        )

    def at_once(self, script: str) -> Callable[[], None]:
        """Executes a script that does not wait for locks."""

        def act() -> None:
            with closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as connection:
                try:
                    connection.executescript(script)
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF not in _BUSY:
                        raise
                    raise ImpossibleError from error

        return act

    def lock(self) -> None:
        self._locker = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._locker.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            self.unlock()
            raise ImpossibleError from error

    def unlock(self) -> None:
        if self._locker is not None:
            self._locker.close()
            self._locker = None

    def replace(self) -> None:
        """As a backup is put back: with nothing of the former file."""
        other = self.path.with_suffix(".other")
        self._made(other, 20)
        for ending in _BESIDE:
            Path(f"{self.path}{ending}").unlink(missing_ok=True)
        other.replace(self.path)

    def remove(self) -> None:
        for ending in ("", *_BESIDE):
            if Path(f"{self.path}{ending}").exists():
                Path(f"{self.path}{ending}").rename(f"{self.path}.away{ending}")

    def put_back(self) -> None:
        for ending in (*_BESIDE, ""):
            if Path(f"{self.path}.away{ending}").exists():
                Path(f"{self.path}.away{ending}").rename(f"{self.path}{ending}")

    def loss(self, name: str) -> Loss:
        if name in _TABLES:
            begin, repair = _TABLES[name]
            return Loss(self.at_once(f"BEGIN IMMEDIATE; {begin}; COMMIT"), lambda: self.file.execute(repair), _GONE)
        lost = frozenset({FaultKind.SOURCE_UNREACHABLE, FaultKind.COPY_LOST})
        other = "DELETE" if self._journal == "WAL" else "WAL"
        switch, back = (f"PRAGMA journal_mode = {journal}" for journal in (other, self._journal))
        return {
            "replaced": Loss(self.replace, faults=lost | _GONE, is_of_all=True),
            "removed": Loss(self.remove, self.put_back, lost, is_of_all=True),
            "locked": Loss(self.lock, self.unlock, frozenset({FaultKind.SOURCE_TIMEOUT}), is_of_all=True),
            "journal": Loss(self.at_once(switch), lambda: self.file.execute(back), is_of_all=True),
        }[name]


class _Traced(Connector):
    """`before`: called before each statement on a connection to the file."""

    def __init__(self, spec: ConnectionSpec, before: Callable[[], None]) -> None:
        super().__init__(spec, read_only=True)
        self._before = before

    def open(self) -> sqlite3.Connection:
        self._before()
        connection = super().open()
        connection.set_trace_callback(lambda statement: self._before())
        return connection


def cycles_of(source: Source, folder: Path) -> LossyCycles:
    observer = SqliteDatabase(Connector(source.connection, read_only=True))
    cycles = LossyCycles(folder / "reader", followed("main"), Method.INCREMENTAL, observer, source.change)
    cycles.database = SqliteDatabase(_Traced(source.connection, cycles.before_statement))
    cycles.begin()
    return cycles


def _cases() -> Iterator[Any]:
    """Each loss runs always with both kinds of journals, at some statements."""
    for place, loss in enumerate(LOSSES):
        for journal in ("WAL", "DELETE"):
            for parts in (False, True):
                marks = [] if (place % 2 == 0) is (parts is (journal == "WAL")) else [pytest.mark.chaos]
                yield pytest.param(
                    loss, journal, parts, marks=marks, id=f"{loss}-{journal}-{'parts' if parts else 'one'}"
                )


@pytest.mark.parametrize(("loss", "journal", "parts"), list(_cases()))
def test_what_happens_to_the_file_between_two_statements_does_no_harm(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    loss: str,
    journal: str,
    parts: bool,
) -> None:
    hurry(monkeypatch)
    source = Source(tmp_path / "shop.db", journal)
    cycles = cycles_of(source, tmp_path)
    step = 1 if request.node.get_closest_marker("chaos") else 13
    # A journal is switched only while no other connection is open: before the first statement.
    first = 1 if loss == "journal" else 1 + LOSSES.index(loss) % step
    conduct = IN_PARTS if parts else ONE_SNAPSHOT
    happened = cycles.assert_found_wherever(source.loss(loss), conduct, first=first, step=step)
    source.unlock()
    assert happened >= 1
    assert not list(tmp_path.glob("penstock-*"))


@pytest.mark.parametrize("columns", [_TEXTS, "id INTEGER PRIMARY KEY, v BLOB, n REAL"])
def test_a_statement_for_other_types_than_those_of_the_snapshot_is_not_made(tmp_path: Path, columns: str) -> None:
    source = Source(tmp_path / "shop.db", "WAL")
    database, name = SqliteDatabase(Connector(source.connection, read_only=True)), TableName("main", "goods")
    with database.snapshot(1):
        goods = database.tables({name: None})[name]
        source.file.execute(f"DROP TABLE goods; CREATE TABLE goods ({columns})")
        with pytest.raises(EngineFault) as refused:
            database.cycle_reads.splits(goods.schema, goods.spec, 1 << 40)
    assert refused.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED


def test_a_file_that_is_away_is_waited_for(file: File, replicate: Replicate) -> None:
    file.execute(TWO)
    replica = replicate(file, "goods", "orders")
    away = file.path.with_suffix(".away")
    file.path.rename(away)
    replica.reports.wait(lambda reports: "source_unreachable" in repr(reports), "the fault")
    away.rename(file.path)
    file.execute("UPDATE goods SET v = 'again'; DELETE FROM orders")
    wait_until(lambda: replica.pipeline.run is not None, timeout_s=60, what="a run")
    replica.wait_live()
    replica.assert_equal()
    assert replica.query("SELECT DISTINCT v FROM goods") == [("again",)]


def test_a_table_that_is_away_parks_and_the_others_go_on(file: File, replicate: Replicate) -> None:
    file.execute(TWO)
    replica = replicate(file, "goods", "orders", guard_interval_s=NEVER_S)
    replica.satisfied()  # The first check has ended.
    file.execute("ALTER TABLE goods RENAME TO away; UPDATE away SET v = 'changed'; UPDATE orders SET v = 'changed'")
    replica.catch_up()
    assert_parked(replica, FaultKind.TABLE_NOT_READ)
    assert replica.query("SELECT DISTINCT v FROM orders") == [("changed",)]
    assert replica.query("SELECT v FROM goods") == [("a",), ("b",)]
    assert_continues_with_the_next_cycle(replica, lambda: file.execute("ALTER TABLE away RENAME TO goods"))
    assert replica.query("SELECT DISTINCT v FROM goods") == [("changed",)]
