"""What recording by triggers costs those who write to a SQLite file, compared with triggers that record rows as JSON.

Three files have the tables of tpcb: one is not captured, one has Penstock's triggers, one has triggers that write each changed row, old
and new, as JSON into one table, as other tools have them. In each round each file gets the same transactions (three updates and an
insert), in turns. Run as `python -m tests.bench.sqlite_recorders`.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from engine.model.identity import TableId, TableName
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.sources.sqlite_triggers.source import SqliteSource

NONE, OURS, JSON = "not captured", "triggers", "JSON triggers"
_ROWS = {"branches": 10, "tellers": 100, "accounts": 100_000}
_TABLES = {
    "branches": "bid INTEGER PRIMARY KEY, bbalance INT, filler TEXT",
    "tellers": "tid INTEGER PRIMARY KEY, bid INT, tbalance INT, filler TEXT",
    "accounts": "aid INTEGER PRIMARY KEY, bid INT, abalance INT, filler TEXT",
    "history": "id INTEGER PRIMARY KEY, tid INT, bid INT, aid INT, delta INT, mtime TEXT, filler TEXT",
}
_LOG = "CREATE TABLE change_log (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, op TEXT, old TEXT, new TEXT, at REAL)"


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
    return connection


def _make(path: Path) -> None:
    with closing(_connect(path)) as connection:
        for name, columns in _TABLES.items():
            connection.execute(f"CREATE TABLE {name} ({columns})")
        connection.execute("BEGIN")
        for name, count in _ROWS.items():
            fields = len(_TABLES[name].split(", "))
            values = ((i, *[i % 10] * (fields - 2), "f" * 80) for i in range(count))
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * fields)})", values)
        connection.execute("COMMIT")


def _record_by_penstock(path: Path) -> None:
    source = SqliteSource(ConnectionSpec("bench", "sqlite", {"path": str(path)}))
    names = [TableName("main", name) for name in _TABLES]
    source.triggers.install(names)
    source.sent_tables.prepare([TableSpec(TableId(f"t{i}"), name, name) for i, name in enumerate(names)], "reader")
    with source.reader.create("reader"):
        pass
    source.close()


def _record_as_json(path: Path) -> None:
    with closing(_connect(path)) as connection:
        connection.execute(_LOG)
        for name, columns in _TABLES.items():
            fields = [column.split(" ")[0] for column in columns.split(", ")]
            old, new = (", ".join(f"'{field}', {row}.{field}" for field in fields) for row in ("OLD", "NEW"))
            old, new = f"json_object({old})", f"json_object({new})"
            for event, before, after in (("insert", "NULL", new), ("update", old, new), ("delete", old, "NULL")):
                connection.execute(
                    f"CREATE TRIGGER log_{name}_{event} AFTER {event} ON {name} BEGIN INSERT INTO change_log (name, op, old, new, at)"
                    f" VALUES ('{name}', '{event[0]}', {before}, {after}, julianday('now')); END"
                )


_RECORDERS: dict[str, Callable[[Path], None]] = {
    NONE: lambda path: None,
    OURS: _record_by_penstock,
    JSON: _record_as_json,
}


def _write(connection: sqlite3.Connection, seed: int, amount: int) -> float:
    """Seconds for so many transactions."""
    rng = random.Random(seed)
    began = time.perf_counter()
    for _ in range(amount):
        aid, tid, delta = rng.randrange(100_000), rng.randrange(100), rng.randrange(-5_000, 5_000)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE accounts SET abalance = abalance + ? WHERE aid = ?", (delta, aid))
        connection.execute("UPDATE tellers SET tbalance = tbalance + ? WHERE tid = ?", (delta, tid))
        connection.execute("UPDATE branches SET bbalance = bbalance + ? WHERE bid = ?", (delta, tid // 10))
        values = (tid, tid // 10, aid, delta)
        connection.execute("INSERT INTO history (tid, bid, aid, delta, mtime) VALUES (?, ?, ?, ?, 'now')", values)
        connection.execute("COMMIT")
    return time.perf_counter() - began


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--transactions", type=int, default=20_000)
    arguments.add_argument("--rounds", type=int, default=6)
    given = arguments.parse_args()
    ways, ratios = list(_RECORDERS), []
    with tempfile.TemporaryDirectory() as folder:
        paths = {way: Path(folder) / f"{i}.db" for i, way in enumerate(ways)}
        for way, path in paths.items():
            _make(path)
            _RECORDERS[way](path)
        for number in range(given.rounds + 1):
            seconds = {}
            for way in [*ways[number % 3 :], *ways[: number % 3]]:
                with closing(_connect(paths[way])) as connection:
                    seconds[way] = _write(connection, number, given.transactions)
            if number:  # The first round warms up.
                ratios.append((seconds[OURS] - seconds[NONE]) / (seconds[JSON] - seconds[NONE]))
                rates = ", ".join(f"{way} {given.transactions / seconds[way]:,.0f}" for way in ways)
                sys.stdout.write(f"transactions/s: {rates}; triggers add {ratios[-1]:.2f} of what JSON triggers add\n")
    sys.stdout.write(f"median {statistics.median(ratios):.2f}, of {min(ratios):.2f} to {max(ratios):.2f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
