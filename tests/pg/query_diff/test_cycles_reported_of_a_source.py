"""What the cycles of a source are reported to have read and found is what they read and found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.connectors import open_source
from engine.model.cycles import Cycle, CycleTable
from engine.model.positions.windows import end_of
from engine.model.source import Source
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.replication import table

pytestmark = pytest.mark.pg


@pytest.fixture(scope="module")
def database(pg18: Any) -> Iterator[Database]:
    with standing_database(pg18, "reported_cycles") as made:
        assert isinstance(made, Database)
        made.execute("CREATE SCHEMA penstock")
        yield made


def counts(found: CycleTable) -> tuple[int, int, int]:
    return found.inserted, found.updated, found.deleted


def next_cycle(source: Source) -> Cycle:
    """The cycle of a copy's snapshot."""
    with source.copies.snapshot(10.0) as snapshot:
        [cycle] = source.cycles.ended(None, 1)
        assert cycle.position == snapshot.position
    return cycle


@pytest.mark.parametrize("method", ["incremental", "row_checksum", "range_checksum", "outer_join"])
def test_a_cycle_says_what_it_read_and_found(database: Database, tmp_path: Path, method: str) -> None:
    database.execute("DROP TABLE IF EXISTS orders; CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    database.execute("INSERT INTO orders SELECT i, 'note' FROM generate_series(1, 100) i")
    settings = {"every_seconds": 60, "method": method, FOLDER: str(tmp_path / "reader")}
    spec = ConnectionSpec("shop", "postgres", database.settings, capture=CaptureSpec("query_diff", settings))
    with closing(open_source(spec)) as source:
        source.sent_tables.prepare([table("orders")], "reader")
        with source.reader.create("reader") as begun:
            assert begun.position == end_of(1)
        [first] = source.cycles.ended(None, 5)
        assert (first.number, first.one_snapshot, source.cycles.applied(begun.position)) == (1, True, 1)
        [orders] = first.tables
        assert (orders.filled, orders.rows_read + orders.rows_hashed, counts(orders)) == (True, 100, (0, 0, 0))

        database.execute("INSERT INTO orders VALUES (101, 'new'); DELETE FROM orders WHERE id < 3")
        database.execute("UPDATE orders SET note = 'other' WHERE id IN (7, 8, 9)")
        # What was asked for before the cycle began is in it.
        wanted = source.cycles.request()
        second = next_cycle(source)
        assert (second.number, wanted, second.taken_us > first.ended_us) == (2, 2, True)
        [orders] = second.tables
        assert counts(orders) == (1, 3, 2)
        assert orders.method == method
        assert orders.rows_read == (99 if method == "incremental" else 4)
        assert orders.bytes_read > 0
        ahead = source.cycles.ahead()
        assert (ahead.running, ahead.requested, ahead.due_us) == (None, None, second.taken_us + 60_000_000)

        # A column more changes what every row is compared by.
        database.execute("ALTER TABLE orders ADD COLUMN level int DEFAULT 7")
        [orders] = next_cycle(source).tables
        assert (orders.unreadable, counts(orders)) == (False, (0, 99, 0))
        # Rows with another key cannot be compared with those before.
        database.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, level)")
        [orders] = next_cycle(source).tables
        assert (orders.unreadable, orders.filled, counts(orders)) == (True, True, (0, 0, 0))
        assert [cycle.number for cycle in source.cycles.ended(3, 2)] == [3, 2]


def test_a_copy_is_not_made_in_chunks_that_need_a_cycle_each(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE large (id bigint PRIMARY KEY, note text)")
    database.execute("INSERT INTO large SELECT i, 'note' FROM generate_series(1, 5000) i")
    settings = {"every_seconds": 60, FOLDER: str(tmp_path / "reader")}
    spec = ConnectionSpec("shop", "postgres", database.settings, capture=CaptureSpec("query_diff", settings))
    with closing(open_source(spec)) as source:
        (schema,) = source.describe([table("large")]).values()
        assert source.copies.walk_key(schema, None, 1024, 4, 1024) is None
        # A comparison walks the key under one snapshot.
        assert source.copies.walk_key(schema, None, 1024, 4) is not None
