"""The fake source without a log, through the whole engine: log reader process, queue, batches, copies, verification, target.

Its database is served to the reader process by a manager; nothing else differs from the database of the contract suite.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from multiprocessing.connection import Client
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any, cast

import pytest

from engine.link.messages import EventReport
from engine.model.identity import Epoch, SubscriptionName
from engine.model.source import Source
from engine.model.subscription import BatchPolicy, ConnectionSpec, QueueMode, SubscriptionSpec
from tests.contract.rows_database import RowsDatabase
from tests.contract.source_rows import RowsSource
from tests.fixtures.replication import Replica, duckdb_target, table

_KEY = b"rows"
OF_POSTGRES = re.compile(r"\b(slots?|publications?|timelines?|LSN|WAL|[0-9A-F]+/[0-9A-F]+)\b")


class _Served(BaseManager):
    """Gives other processes the database."""


class _Reached(BaseManager):
    """What they reach it with."""


_Reached.register("database")
_HERE: dict[tuple[str, int], RowsDatabase] = {}
"""Databases that this process serves, by their address: a proxy to oneself, freed while a call is accepted, would wait for itself."""


def open_rows(connection: ConnectionSpec) -> Source:
    """Importable by name: the log reader process and tasks of copies call it."""
    address = (str(connection.settings["host"]), int(connection.settings["port"]))
    if address in _HERE:
        return RowsSource(_HERE[address])
    reached = _Reached(address, _KEY)
    reached.connect()
    return RowsSource(cast("Any", reached).database())


class RowsReplica(Replica):
    """A subscription of tables of the database, into a DuckDB file."""

    open_source = staticmethod(open_rows)


@pytest.fixture
def rows() -> RowsDatabase:
    database = RowsDatabase("shop")
    run(database, "CREATE TABLE notes (id bigint PRIMARY KEY, v varchar(100))")
    run(database, "CREATE TABLE lines (id bigint PRIMARY KEY, n bigint)")
    run(database, *(f"INSERT INTO notes VALUES ({i}, 'first {i}')" for i in range(1, 200)))
    return database


@pytest.fixture
def address(rows: RowsDatabase) -> Iterator[tuple[str, int]]:
    """Where the database is served."""
    _Served.register("database", callable=lambda: rows)
    server: Any = _Served(("127.0.0.1", 0), _KEY).get_server()
    server.stop_event = threading.Event()

    def accept() -> None:
        while True:
            connection = server.listener.accept()
            if server.stop_event.is_set():
                connection.close()
                return
            threading.Thread(target=server.handle_request, args=(connection,), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    _HERE[server.address] = rows
    yield server.address
    del _HERE[server.address]
    server.stop_event.set()
    # Closing the listener would not wake a thread that waits in accept.
    Client(server.address).close()
    accepting.join()
    server.listener.close()


@pytest.fixture
def replica(address: tuple[str, int], tmp_path: Path) -> Iterator[RowsReplica]:
    host, port = address
    spec = SubscriptionSpec(
        name=SubscriptionName("rows"),
        epoch=Epoch(1),
        source=ConnectionSpec("rows", "rows", {"host": host, "port": port}),
        target=duckdb_target(tmp_path),
        tables=(table("notes"), table("lines")),
        reader="penstock_rows",
        desired="running",
        queue_mode=QueueMode.PERSIST,
        batch=BatchPolicy(max_age_ms=20),
    )
    made = RowsReplica(cast("Any", None), tmp_path, spec)
    try:
        made.wait_live()
        yield made
    finally:
        made.close()
    texts = [f"{report.detail} {report.remedy}" for report in made.reports.all() if isinstance(report, EventReport)]
    assert any("rows as of" in text for text in texts)
    assert not [text for text in texts if OF_POSTGRES.search(text)]


def run(database: RowsDatabase, *statements: str) -> None:
    session = database.session()
    for statement in statements:
        session.execute(statement)
    session.commit()


def of_source(database: RowsDatabase, name: str) -> set[tuple[Any, ...]]:
    found = database.tables[name]
    kinds = [int if each.type.startswith("int") else str for each in found.structure.fields]
    return {
        tuple(None if value is None else kind(value) for kind, value in zip(kinds, row, strict=True))
        for row in found.rows.values()
    }


def settled(replica: RowsReplica, database: RowsDatabase) -> None:
    """Everything committed is on the target, row by row, and a verification at a cut says the same."""
    replica.satisfied()
    for name in ("notes", "lines"):
        assert set(replica.query(f"SELECT * FROM {name}")) == of_source(database, name)
    assert [verdict.equal for verdict in replica.verify()] == [True, True]


def test_copies_changes_and_a_cut(replica: RowsReplica, rows: RowsDatabase) -> None:
    settled(replica, rows)
    run(
        rows,
        "INSERT INTO notes VALUES (1000, 'tab\there, back\\slash')",
        "UPDATE notes SET v = 'by key' WHERE id = 7",
        "DELETE FROM notes WHERE id = 8",
        "INSERT INTO lines VALUES (1, 10)",
    )
    run(rows, "UPDATE notes SET id = 2000 WHERE id = 9")
    settled(replica, rows)
    run(rows, "TRUNCATE notes", "INSERT INTO notes VALUES (1, 'after it')")
    settled(replica, rows)


def test_nothing_is_lost_or_doubled_over_restarts_while_it_changes(replica: RowsReplica, rows: RowsDatabase) -> None:
    chance = random.Random(5)
    for number in range(3):
        for each in range(40):
            key = 10_000 + 100 * number + each
            run(
                rows,
                f"INSERT INTO lines VALUES ({key}, {each})",
                f"UPDATE notes SET v = '{key}' WHERE id % 9 = {each % 9}",
            )
            if chance.random() < 0.3:
                run(rows, f"DELETE FROM lines WHERE id = {key - 1}")
        replica.restart()
        replica.wait_live()
    settled(replica, rows)


def test_a_column_that_comes_and_goes_is_followed(replica: RowsReplica, rows: RowsDatabase) -> None:
    run(rows, "ALTER TABLE lines ADD COLUMN w bigint", "INSERT INTO lines VALUES (5, 6, 7)")
    settled(replica, rows)
    run(rows, "ALTER TABLE lines DROP COLUMN n", "INSERT INTO lines VALUES (6, 8)")
    settled(replica, rows)


def test_rolled_back_work_leaves_no_trace(replica: RowsReplica, rows: RowsDatabase) -> None:
    session = rows.session()
    session.execute("INSERT INTO lines VALUES (1, 1)")
    session.rollback()
    session.execute("INSERT INTO lines VALUES (2, 2)")
    session.execute("SAVEPOINT s")
    session.execute("INSERT INTO lines VALUES (3, 3)")
    session.execute("ROLLBACK TO SAVEPOINT s")
    session.commit()
    settled(replica, rows)
    assert replica.query("SELECT id FROM lines") == [(2,)]
