"""A large window is read in parts, and each part costs as much as it has changes."""

from __future__ import annotations

import sqlite3
from itertools import count
from pathlib import Path

import pytest

from engine.model.identity import TableId, TableName
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_triggers import stream
from engine.sources.sqlite_triggers.source import SqliteSource

ROWS = 6_000
STEP = 100
"""Instructions of SQLite between two counts."""


def instructions(monkeypatch: pytest.MonkeyPatch, path: Path, part: int) -> int:
    """Hundreds of instructions of SQLite to read one window of two tables in parts of so many changes."""
    with sqlite3.connect(path, isolation_level=None) as writer:
        writer.executescript("CREATE TABLE a (id INTEGER PRIMARY KEY, v TEXT); CREATE TABLE b (id INTEGER PRIMARY KEY)")
    source = SqliteSource(ConnectionSpec("shop", "sqlite", {"path": str(path), "snapshot_folder": str(path.parent)}))
    names = [TableName("main", name) for name in "ab"]
    source.sent_tables.prepare([TableSpec(TableId(f"t{n}"), name, name) for n, name in enumerate(names)], "reader")
    with source.reader.create("reader") as snapshot:
        start = snapshot.position
    with sqlite3.connect(path) as writer:
        writer.executemany("INSERT INTO a VALUES (?, 'value')", ((n,) for n in range(ROWS)))
        writer.executemany("INSERT INTO b VALUES (?)", ((n,) for n in range(ROWS)))
    writer.close()
    used, opened = count(), Connector.open

    def counted(connector: Connector) -> sqlite3.Connection:
        connection = opened(connector)
        connection.set_progress_handler(lambda: next(used) and None, STEP)
        return connection

    monkeypatch.setattr(stream, "MOST_ROWS", part)
    monkeypatch.setattr(Connector, "open", counted)
    log = source.log.open_stream("reader", start, "penstock-a-1")
    monkeypatch.setattr(Connector, "open", opened)
    parts, reached = 0, start
    while reached == start:
        chunk = log.read(0.0)
        if chunk is not None:
            reached = chunk.wal_end
            parts += 1
    log.close()
    source.close()
    assert parts >= 2 * ROWS // part
    return next(used)


def test_smaller_parts_of_a_window_cost_as_much_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    few = instructions(monkeypatch, tmp_path / "few.db", 6_000)
    many = instructions(monkeypatch, tmp_path / "many.db", 200)
    assert many < 1.5 * few, "each of 60 parts reads its own changes only"
