"""Triggers are created between the owner's transactions, and reading a backlog keeps none open."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from engine.model.identity import TableName
from engine.model.source import RecordChunk
from engine.model.subscription import ConnectionSpec
from engine.records.window_stream import MOST_ROWS
from engine.sources.postgres_triggers.source import TriggerSource
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

WAITING = (
    "SELECT pid FROM pg_locks WHERE relation = 'orders'::regclass AND NOT granted AND mode = 'ShareRowExclusiveLock'"
)
SESSION = "SELECT state, xact_start, backend_xmin FROM pg_stat_activity WHERE application_name = 'penstock-backlog'"


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    return database


def test_writers_get_through_while_triggers_wait_for_an_open_transaction(shop: Database) -> None:
    installed: list[object] = []

    def install() -> None:
        with closing(TriggerSource(ConnectionSpec("shop", "postgres", shop.settings))) as source:
            installed.append(source.triggers.install([TableName("public", "orders")]))

    with shop.connect() as open_writer, shop.connect() as writer:
        open_writer.execute("BEGIN; INSERT INTO orders VALUES (1, 'open')")
        thread = threading.Thread(target=install, daemon=True)
        thread.start()
        writer.execute("SET lock_timeout = '3s'")
        for number in (2, 3):
            wait_until(lambda: shop.execute(WAITING))
            writer.execute("INSERT INTO orders VALUES (%s, 'after the open one')", [number])
            assert installed == []
        open_writer.execute("COMMIT")
        thread.join(30)
    assert len(installed) == 1
    shop.execute("DELETE FROM orders WHERE id = 1")
    assert shop.execute("SELECT op::text FROM penstock.changes") == [("D",)]


def test_no_transaction_is_open_between_the_parts_of_a_backlog(shop: Database) -> None:
    rows, parts = 3 * MOST_ROWS // 2, 4
    with closing(TriggerSource(ConnectionSpec("shop", "postgres", shop.settings))) as source:
        source.sent_tables.prepare([table("orders")], "penstock_backlog")
        with source.reader.create("penstock_backlog") as snapshot:
            start = snapshot.position
        for part in range(parts):
            shop.execute(f"INSERT INTO orders SELECT {part * rows} + i, 'note' FROM generate_series(1, {rows}) i")
        end = source.log.now()
        with closing(source.log.open_stream("penstock_backlog", start, "penstock-backlog")) as stream:
            read: list[RecordChunk] = []

            def reached() -> bool:
                chunk = stream.read(0.05)
                if chunk is not None and chunk.count:
                    read.append(chunk)
                    assert shop.execute(SESSION) == [("idle", None, None)]
                return chunk is not None and chunk.wal_end >= end

            wait_until(reached, 30)
    assert len(read) >= parts
    inserted = sum(int((chunk.data[chunk.offsets[:-1]] == ord("I")).sum()) for chunk in read)
    assert inserted == parts * rows
