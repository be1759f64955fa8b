"""A SQLite file through the whole engine: log reader process, queue, batches, copies, verification, target."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.model.subscription import QueueMode
from tests.fixtures.tellers import Tellers
from tests.fixtures.waiting import wait_until
from tests.process.sqlite_triggers.conftest import File, FileReplica, Replicate

BANK = """
CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, note TEXT, nick TEXT UNIQUE);
CREATE TABLE moves (id INTEGER PRIMARY KEY, sender INTEGER NOT NULL REFERENCES accounts ON DELETE CASCADE, receiver INTEGER,
    amount INTEGER);
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 50)
INSERT INTO accounts SELECT i, 1000, NULL, 'nick ' || i FROM n;
"""
TOTAL = 50_000


@pytest.fixture
def bank(file: File) -> File:
    file.execute(BANK)
    return file


class SqliteTellers(Tellers):
    pause_s = 0.001

    def __init__(self, file: File) -> None:
        super().__init__(file, 2)

    def move(self, connection: sqlite3.Connection, chance: random.Random) -> None:
        one, other = sorted(chance.sample(range(1, 51), 2))
        amount = chance.randrange(-50, 50)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE accounts SET balance = balance - ? WHERE id = ?", [amount, one])
        connection.execute("SAVEPOINT s")
        connection.execute("UPDATE accounts SET balance = balance + 1000000, note = 'undone' WHERE id = ?", [other])
        connection.execute("ROLLBACK TO SAVEPOINT s")
        connection.execute("UPDATE accounts SET balance = balance + ? WHERE id = ?", [amount, other])
        connection.execute("INSERT INTO moves (sender, receiver, amount) VALUES (?, ?, ?)", [one, other, amount])
        if chance.random() < 0.2:
            connection.execute("DELETE FROM moves WHERE id = (SELECT min(id) FROM moves)")
        if chance.random() < 0.2:
            connection.execute(
                "REPLACE INTO accounts SELECT id, balance, 'replaced', nick FROM accounts WHERE id = ?", [one]
            )
        connection.execute("ROLLBACK" if chance.random() < 0.2 else "COMMIT")


@contextmanager
def watched(replica: FileReplica) -> Iterator[list[object]]:
    """A reader of the copy sees the constant sum at any moment."""
    seen: list[object] = []
    stopping = threading.Event()

    def look() -> None:
        while not stopping.is_set():
            seen.append(replica.query("SELECT sum(balance) FROM accounts")[0][0])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        thread.join(30)
    assert set(map(int, map(str, seen))) == {TOTAL}


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_each_boundary_is_a_state_that_the_source_had(tmp_path: Path, replicate: Replicate, journal: str) -> None:
    bank = File(tmp_path / "bank.db", journal)
    bank.execute(BANK)
    with SqliteTellers(bank) as tellers:
        replica = replicate(bank, "accounts", "moves")
        with watched(replica) as seen:
            for _ in range(4):
                tellers.more(40)
                replica.catch_up()
            replica.assert_equal()
            wait_until(lambda: len(seen) > 5)
    replica.assert_equal()
    assert bank.rows("SELECT sum(balance) FROM accounts") == [(TOTAL,)]


def reader_pid(replica: FileReplica) -> int | None:
    run = replica.pipeline.run
    return None if run is None else run.reader_pid()


def test_nothing_is_lost_or_doubled_over_deaths(bank: File, replicate: Replicate) -> None:
    replica = replicate(bank, "accounts", "moves", queue_mode=QueueMode.PERSIST)
    with SqliteTellers(bank) as tellers:
        for number in range(3):
            tellers.more(30)
            wait_until(lambda: reader_pid(replica) is not None)
            os.kill(reader_pid(replica) or 0, signal.SIGKILL)
            tellers.more(30)
            if number % 2:
                replica.restart()
                replica.wait_live()
    replica.assert_equal()
    assert not replica.events_of("log_gap")
    # What is durable for the reader does not stay in the file.
    wait_until(lambda: bank.rows("SELECT count(*) FROM penstock_changes")[0][0] < 200)


def test_a_large_transaction_comes_in_parts_and_cascades_come(bank: File, replicate: Replicate) -> None:
    replica = replicate(bank, "accounts", "moves")
    bank.execute(
        "BEGIN; WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 50000) INSERT INTO moves (sender, receiver,"
        " amount) SELECT 1 + i % 50, 2, i FROM n; UPDATE moves SET amount = amount + 1 WHERE id % 2 = 0; COMMIT"
    )
    replica.assert_equal()
    bank.execute("DELETE FROM accounts WHERE id < 26")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM moves") == [(bank.rows("SELECT count(*) FROM moves")[0][0],)]
    bank.execute("DELETE FROM moves; INSERT INTO moves (sender, receiver, amount) VALUES (40, 2, 3)")
    replica.assert_equal()
