"""What recording by triggers costs those who write to a SQLite file, and how fast its records reach a target, compared with Debezium.

Three files have the tables of tpcb: one is not captured, one has Penstock's triggers, one has triggers as those of Debezium's connector for
SQLite (source: its class TriggerGenerator, 2026-09): each changed row, old and new, as JSON in one table. In each round each file gets the
same transactions (three updates and an insert), in turns. Afterwards both logs are drained: Penstock's into DuckDB by a paused
subscription that continues, the JSON into a PostgreSQL, in batches as large as the connector's, by one statement for each row. The
connector itself, a Java program that sends to Kafka, does more for each row. Run as `python -m tests.bench.sqlite_recorders`.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg

from engine.model.identity import Epoch, SubscriptionName, TableId, TableName
from engine.model.subscription import ConnectionSpec, SubscriptionSpec, TableSpec
from engine.model.subscription_state import DesiredState
from engine.sources.sqlite_triggers.source import SqliteSource
from server.demo.embedded import EmbeddedPostgres, server_folder
from tests.fixtures.replication import duckdb_target, table
from tests.process.sqlite_triggers.conftest import File, FileReplica

NONE, OURS, JSON = "not captured", "triggers", "JSON triggers"
_BATCH_ROWS = 2_048
"""Rows that the connector reads together (`max.batch.size`)."""
_ROWS = {"branches": 10, "tellers": 100, "accounts": 100_000}
_TABLES = {
    "branches": "bid INTEGER PRIMARY KEY, bbalance INT, filler TEXT",
    "tellers": "tid INTEGER PRIMARY KEY, bid INT, tbalance INT, filler TEXT",
    "accounts": "aid INTEGER PRIMARY KEY, bid INT, abalance INT, filler TEXT",
    "history": "id INTEGER PRIMARY KEY, tid INT, bid INT, aid INT, delta INT, mtime TEXT, filler TEXT",
}
_LOG = (
    "CREATE TABLE _debezium_cdc_log (change_id INTEGER PRIMARY KEY AUTOINCREMENT, table_name TEXT NOT NULL, operation TEXT NOT NULL,"
    " old_row_data TEXT, new_row_data TEXT, committed_at INTEGER NOT NULL)"
)
_NOW = "CAST(unixepoch('now'{}) * 1000 AS INTEGER)".format(
    ", 'subsec'" if sqlite3.sqlite_version_info >= (3, 42) else ""
)
"""Before SQLite 3.42 without fractions of a second, which costs the JSON triggers less."""
_HIGHEST = "SELECT coalesce(max(no), 0) FROM penstock_changes"
_READ = (
    "SELECT change_id, table_name, operation, old_row_data, new_row_data FROM _debezium_cdc_log WHERE change_id > ? ORDER BY change_id"
    " LIMIT ?"
)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
    return connection


def _make(path: Path) -> None:
    with closing(_connect(path)) as connection:
        for name, columns in _TABLES.items():
            connection.execute(f"CREATE TABLE {name} ({columns})")
        connection.execute("BEGIN")
        for name in _ROWS:
            connection.executemany(
                f"INSERT INTO {name} VALUES ({', '.join('?' * len(_fields(name)))})", _first_rows(name)
            )
        connection.execute("COMMIT")


def _first_rows(table: str) -> Iterator[tuple[int | str, ...]]:
    others = len(_fields(table)) - 2
    return ((i, *[i % 10] * others, "f" * 80) for i in range(_ROWS.get(table, 0)))


def _record_by_penstock(path: Path) -> None:
    source = SqliteSource(ConnectionSpec("bench", "sqlite", {"path": str(path)}))
    names = [TableName("main", name) for name in _TABLES]
    source.triggers.install(names)
    source.sent_tables.prepare([TableSpec(TableId(f"t{i}"), name, name) for i, name in enumerate(names)], "reader")
    with source.reader.create("reader"):
        pass
    source.close()


def _fields(table: str) -> list[str]:
    return [column.split(" ")[0] for column in _TABLES[table].split(", ")]


def _as_json(row: str, fields: list[str]) -> str:
    def value(field: str) -> str:
        given = f'{row}."{field}"'
        return f"CASE WHEN typeof({given}) = 'blob' THEN json_object('hex', hex({given})) ELSE {given} END"

    return "json_object(" + ", ".join(f"'{field}', {value(field)}" for field in fields) + ")"


def _record_as_json(path: Path) -> None:
    with closing(_connect(path)) as connection:
        connection.execute(_LOG)
        for name in _TABLES:
            old, new = _as_json("OLD", _fields(name)), _as_json("NEW", _fields(name))
            for event, before, after in (("insert", "NULL", new), ("update", old, new), ("delete", old, "NULL")):
                connection.execute(
                    f"CREATE TRIGGER log_{name}_{event} AFTER {event} ON {name} BEGIN INSERT INTO _debezium_cdc_log (table_name, operation,"
                    f" old_row_data, new_row_data, committed_at) VALUES ('{name}', '{event[0]}', {before}, {after}, {_NOW}); END"
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


def _drain_json(path: Path, target: psycopg.Connection[Any]) -> float:
    """Rows a second, from the recorded JSON into a PostgreSQL that has the rows from before."""
    statements = {}
    for name, columns in _TABLES.items():
        target.execute(f"CREATE TABLE {name} ({columns.replace('INT,', 'bigint,')})")
        fields = _fields(name)
        marks, sets = ", ".join(["%s"] * len(fields)), ", ".join(f"{field} = %s" for field in fields)
        statements[name, "i"] = f"INSERT INTO {name} VALUES ({marks})"
        statements[name, "u"] = f"UPDATE {name} SET {sets} WHERE {fields[0]} = %s"
        with target.cursor() as cursor:
            cursor.executemany(statements[name, "i"], list(_first_rows(name)))
    began, last, count = time.perf_counter(), 0, 0
    with closing(_connect(path)) as source:
        while batch := source.execute(_READ, (last, _BATCH_ROWS)).fetchall():
            # executemany sends the rows of one statement without waiting for each result.
            with target.transaction(), target.cursor() as cursor:
                for kind, rows in groupby(batch, key=lambda row: (row[1], row[2])):
                    cursor.executemany(statements[kind], [_values(old, new) for *_, old, new in rows])
            last = batch[-1][0]
            count += len(batch)
        seconds = time.perf_counter() - began
        for name in _TABLES:
            query = f"SELECT * FROM {name} ORDER BY 1"
            if source.execute(query).fetchall() != target.execute(query).fetchall():
                raise AssertionError(f"{name} is not equal after the drain")
    return count / seconds


def _values(old: str | None, new: str) -> list[object]:
    key = list(json.loads(old).values())[:1] if old else []
    return [*json.loads(new).values(), *key]


def _drain_penstock(path: Path, folder: Path, write: Callable[[], None]) -> float:
    """Rows a second, of what `write` writes, into DuckDB."""
    folder.mkdir()
    file = File(path)
    tables = tuple(table(name, "main") for name in _TABLES)
    name = SubscriptionName("drain")
    spec = SubscriptionSpec(name, Epoch(1), file.connection, duckdb_target(folder), tables, "drain")
    replica = FileReplica(file, folder, spec)
    try:
        replica.wait_live(timeout_s=60)
        replica.catch_up(60)
        replica.desire(DesiredState.PAUSED)
        replica.wait_state("paused")
        first = file.rows(_HIGHEST)[0][0]
        write()
        count = file.rows(_HIGHEST)[0][0] - first
        began = time.perf_counter()
        replica.desire(DesiredState.RUNNING)
        replica.catch_up(300)
        seconds = time.perf_counter() - began
        replica.assert_equal()
    finally:
        replica.close()
    return count / seconds


def _written(path: Path, amount: int) -> None:
    with closing(_connect(path)) as connection:
        _write(connection, 7, amount)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--transactions", type=int, default=20_000)
    arguments.add_argument("--rounds", type=int, default=6)
    arguments.add_argument(
        "--drained", type=int, default=200_000, help="transactions that both logs have when they are drained"
    )
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
        ours = _drain_penstock(paths[OURS], Path(folder) / "home", lambda: _written(paths[OURS], given.drained))
        recorded = Path(folder) / "json.db"
        _make(recorded)
        _record_as_json(recorded)
        _written(recorded, given.drained)
        cluster = EmbeddedPostgres(server_folder("penstock-bench-pg-"))
        try:
            with cluster, cluster.connect() as target:
                theirs = _drain_json(recorded, target)
        finally:
            cluster.destroy()
    sys.stdout.write(f"rows/s drained: {OURS} {ours:,.0f}, {JSON} {theirs:,.0f}, {ours / theirs:.1f} times\n")
    sys.stdout.write(f"median {statistics.median(ratios):.2f}, of {min(ratios):.2f} to {max(ratios):.2f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
