"""Whatever writers do, each window's end is the state of the table."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.model.identity import TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.records.relation import parse_relation
from engine.records.scan import RecordScanner
from engine.sources.sqlite_triggers.source import SqliteSource
from tests.contract.source_material import Tail

PLAIN = """CREATE TABLE t (id INTEGER PRIMARY KEY, u TEXT COLLATE NOCASE UNIQUE, v TEXT, n INTEGER);
CREATE UNIQUE INDEX part ON t (n) WHERE n > 3"""
TEXT_KEY = "CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, u TEXT UNIQUE, v TEXT, n INTEGER)"
WITHOUT_ROWID = "CREATE TABLE t (id INTEGER, u TEXT, v TEXT, n INTEGER, PRIMARY KEY (id), UNIQUE (u, n)) WITHOUT ROWID"
BY_UNIQUE = "CREATE TABLE t (id INTEGER NOT NULL UNIQUE, u TEXT UNIQUE, v TEXT, n INTEGER)"
NESTED = """
CREATE TRIGGER after_insert AFTER INSERT ON t WHEN NEW.n % 3 = 0 BEGIN UPDATE t SET v = NEW.v || '!' WHERE id = NEW.id; END;
CREATE TRIGGER after_delete AFTER DELETE ON t WHEN OLD.n % 4 = 0 BEGIN INSERT OR IGNORE INTO t VALUES (OLD.id, OLD.u, 'back', 1); END;
CREATE TRIGGER after_update AFTER UPDATE OF v ON t WHEN NEW.n % 5 = 0 AND OLD.v IS NOT NEW.v BEGIN
    UPDATE t SET n = n + 1 WHERE id = NEW.id; END;
"""
SCHEMAS = {"plain": PLAIN, "text key": TEXT_KEY, "without rowid": WITHOUT_ROWID, "by unique": BY_UNIQUE}


class Shop:
    """A file with one table, and what is read of it."""

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self.writer = self.open()
        self.writer.execute("PRAGMA journal_mode = WAL")
        self.writer.executescript(schema)
        self.source = SqliteSource(
            ConnectionSpec("shop", "sqlite", {"path": str(path), "snapshot_folder": str(path.parent)})
        )
        name = TableName("main", "t")
        self.spec = TableSpec(TableId("t1"), name, name)
        self.source.sent_tables.prepare([self.spec], "reader")
        with self.source.reader.create("reader") as snapshot:
            start = snapshot.position
        self.follow(start)

    def follow(self, start: Lsn) -> None:
        """Read from here on; nothing is written meanwhile."""
        self.tail = Tail(self.source.log.open_stream("reader", start, "penstock-a-1"), RecordScanner(), start)
        self.start = {row[0]: row for row in self.rows()}

    def open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=30)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def schema(self) -> TableSchema:
        return self.source.describe([self.spec])[self.spec.source]

    def rows(self) -> list[tuple[Any, ...]]:
        return self.writer.execute("SELECT * FROM t").fetchall()

    def read(self) -> dict[Any, tuple[Any, ...]]:
        """The table by what was recorded up to now."""
        self.tail.past(self.source.log.now())
        return self.tail.applied(self.schema(), self.start)

    def copied_again(self) -> bool:
        """Whether a record came that no structure matches, because of which the engine copies the table again. Then it is."""
        self.tail.past(self.source.log.now())
        found = any(not parse_relation(record).columns[0].type_oid for record in self.tail.relations)
        if found:
            self.tail.stream.close()
            self.follow(self.tail.wal_end)
        return found

    def assert_equal(self) -> None:
        assert sorted(self.read().values()) == sorted(self.rows())

    def close(self) -> None:
        self.tail.stream.close()
        self.writer.close()


@pytest.fixture
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    made = Shop(tmp_path / "shop.db", getattr(request, "param", PLAIN))
    yield made
    made.close()


def statement(chance: random.Random, text_key: bool) -> str:
    def key() -> str:
        number = chance.randrange(1, 9)
        return f"'k{number}'" if text_key else str(number)

    one, other = key(), key()
    u = chance.choice([f"'{chance.choice('abcABC')}'", "NULL"])
    n = chance.randrange(0, 10)
    return chance.choice(
        [
            f"INSERT INTO t VALUES ({one}, {u}, 'v{n}', {n})",
            f"INSERT OR REPLACE INTO t VALUES ({one}, {u}, 'r{n}', {n})",
            f"REPLACE INTO t SELECT id, u, v || 'x', n FROM t WHERE n > {n}",
            f"INSERT OR IGNORE INTO t VALUES ({one}, {u}, 'i{n}', {n})",
            f"INSERT INTO t VALUES ({one}, {u}, 'c{n}', {n}) ON CONFLICT DO NOTHING",
            f"INSERT INTO t VALUES ({one}, {u}, 'c{n}', {n}) ON CONFLICT (id) DO UPDATE SET v = excluded.v, n = excluded.n",
            f"UPDATE OR REPLACE t SET u = {u} WHERE id = {one}",
            f"UPDATE OR REPLACE t SET id = {other}, n = {n} WHERE id = {one}",
            f"UPDATE OR IGNORE t SET id = {other}, u = {u} WHERE n > {n}",
            f"UPDATE t SET v = v || '{n}', n = {n} WHERE id = {one}",
            f"UPDATE t SET v = upper(v), u = lower(u) WHERE n < {n}",
            f"UPDATE OR FAIL t SET n = n + 1 WHERE n > {n}",
            f"DELETE FROM t WHERE id = {one}",
            f"DELETE FROM t WHERE n = {n}",
            "DELETE FROM t" if chance.random() < 0.1 else "SELECT 1",
        ]
    )


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("temporary", [False, True], ids=["own triggers", "triggers of the writer"])
def test_the_end_of_each_window_is_the_table(tmp_path: Path, name: str, temporary: bool) -> None:
    """REPLACE, IGNORE, upserts, savepoints; and triggers of the owner's that write the row again, before or after Penstock's."""
    for seed in range(6):
        chance = random.Random(f"{name} {temporary} {seed}")
        shop = Shop(tmp_path / f"{seed}.db", SCHEMAS[name])
        nested = NESTED.replace("TRIGGER", "TEMP TRIGGER") if temporary else NESTED
        if seed % 3:
            shop.writer.executescript(nested)
        shop.writer.execute(f"PRAGMA recursive_triggers = {seed == 5:d}")
        for _ in range(25):
            if chance.random() < 0.3:
                shop.writer.execute("VACUUM")
            shop.writer.execute("BEGIN")
            for _ in range(chance.randrange(1, 6)):
                shop.writer.execute("SAVEPOINT s")
                with suppress(sqlite3.IntegrityError):
                    shop.writer.execute(statement(chance, name == "text key"))
                if chance.random() < 0.2:
                    shop.writer.execute("ROLLBACK TO s")
                shop.writer.execute("RELEASE s")
            shop.writer.execute("ROLLBACK" if chance.random() < 0.2 else "COMMIT")
            if chance.random() < 0.5:
                assert not shop.copied_again() or seed % 3, "without other triggers everything is known"
                shop.assert_equal()
        shop.close()
