"""A SQLite file through the whole engine: log reader process, queue, batches, copies, verification, target."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.link.verifications import RowCounts
from engine.model.subscription import GuardPolicy, QueueMode
from engine.model.subscription_state import DesiredState
from engine.sources.sqlite_triggers.source import SqliteSource
from tests.fixtures.tellers import Tellers
from tests.fixtures.waiting import wait_until
from tests.pg.engine.repairing import plant, repaired
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
            replica.kill_reader()
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
    place = next(spec.target for spec in replica.spec.tables if spec.source.name == "accounts")
    accounts = f'"{place.schema}".accounts'
    plant(replica, [f"UPDATE {accounts} SET note = '' WHERE id = 30", f"DELETE FROM {accounts} WHERE id = 31"])
    found = repaired(replica)["accounts"]
    assert (found.equal, found.repaired) == (True, RowCounts(inserted=1, updated=1))


def test_recording_stops_before_changes_that_are_not_read_fill_the_disk(bank: File, replicate: Replicate) -> None:
    replica = replicate(
        bank,
        "accounts",
        retained_log_budget_bytes=1024**2,
        guard=GuardPolicy(),
        guard_interval_s=0.2,
        guard_patience_s=0.5,
    )
    replica.pipeline.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    fill = "UPDATE accounts SET note = hex(randomblob(1000))"  # 50 rows of 2 kB, their old values too.
    for _ in range(4):
        bank.execute(fill)
    wait_until(lambda: replica.events_of("slot_retains_log"), 20)
    assert bank.rows("SELECT count(*) FROM penstock_changes")[0][0] >= 200, "a warning removes nothing"
    for _ in range(4):
        bank.execute(fill)
    failed = replica.wait_state("failed")
    assert failed.code == "slot_dropped"
    with_triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'accounts'"
    assert bank.rows(with_triggers) == [(0,)]
    assert bank.rows("SELECT count(*) FROM penstock_changes") == [(1,)]
    bank.execute(fill)
    assert bank.rows("SELECT count(*) FROM penstock_changes") == [(1,)]
    replica.pipeline.reload("all", None)
    replica.pipeline.desire(DesiredState.RUNNING)
    replica.wait_reload("all")
    replica.satisfied()
    bank.execute("UPDATE accounts SET note = 'after it'")
    replica.assert_equal()


def test_a_reader_that_is_dead_holds_its_changes_until_it_is_removed(bank: File, replicate: Replicate) -> None:
    replica = replicate(bank, "accounts")
    source = SqliteSource(bank.connection)
    source.sent_tables.prepare([replica.spec.tables[0]], "penstock_dead")
    with source.reader.create("penstock_dead"):
        pass
    bank.execute("UPDATE accounts SET note = 'second'")
    replica.catch_up()
    assert source.reader.status("penstock_dead").retained_bytes > 1_000
    wait_until(lambda: source.reader.status(replica.spec.reader).retained_bytes == 0, 20)
    assert bank.rows("SELECT count(*) >= 50 FROM penstock_changes") == [(1,)]
    assert source.reader.remove("penstock_dead") == []
    bank.execute("UPDATE accounts SET note = 'third'")
    replica.assert_equal()
    wait_until(lambda: bank.rows("SELECT count(*) < 10 FROM penstock_changes") == [(1,)], 20)
