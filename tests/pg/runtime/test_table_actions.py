"""What is done to one table while the subscription goes on: removed with its table on the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.link.messages import TableDropped
from engine.model.identity import TableId
from engine.model.subscription import TableSpec
from engine.model.subscription_state import DesiredState
from engine.model.target import QueryRefused
from tests.contract.targets import builder
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = [pytest.mark.pg, pytest.mark.parametrize("target_kind", ["duckdb", "postgres"])]

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE orders (id bigint PRIMARY KEY, note text);
CREATE TABLE lines (id bigint PRIMARY KEY, note text);
INSERT INTO orders SELECT i, 'o' FROM generate_series(1, 100) i;
INSERT INTO lines SELECT i, 'l' FROM generate_series(1, 100) i;
"""


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def remove(replica: Replica, gone: TableSpec) -> None:
    """As the engine hears of a table that is removed with its table on the target."""
    spec = replica.pipeline.spec
    tables = tuple(t for t in spec.tables if t.table != gone.table)
    replica.spec = replace(replica.spec, tables=tables, dropped=frozenset({gone.table}))
    replica.pipeline.update(replace(spec, tables=tables, dropped=spec.dropped | {gone.table}))


def told(replica: Replica, gone: TableId) -> TableDropped:
    def found(_: object) -> TableDropped | None:
        return next((r for r in replica.reports.all() if isinstance(r, TableDropped) and r.table == gone), None)

    return replica.reports.wait(found, "what became of the table on the target", 20)


def test_a_table_is_removed_with_its_target_table_and_added_again(shop: Database, replicate: Replicate) -> None:
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines])
    shop.execute("UPDATE orders SET note = 'x'")
    remove(replica, orders)
    assert told(replica, orders.table).left is None
    with pytest.raises(QueryRefused):
        replica.query("SELECT * FROM public.orders")
    shop.execute("UPDATE orders SET note = 'y'; UPDATE lines SET note = 'y'")
    replica.assert_equal()
    again = table("orders")
    replica.spec = replace(replica.spec, tables=(lines, again))
    replica.pipeline.update(replace(replica.pipeline.spec, tables=(lines, again)))
    replica.wait_live()
    replica.assert_equal()


def test_a_table_removed_while_nothing_runs_is_dropped_at_the_next_start(shop: Database, replicate: Replicate) -> None:
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines])
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    replica.spec = replace(replica.spec, desired="stopped")
    remove(replica, orders)
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    assert told(replica, orders.table).left is None
    with pytest.raises(QueryRefused):
        replica.query("SELECT * FROM public.orders")
    replica.assert_equal()


def test_a_target_table_that_a_view_shows_stays_and_the_others_go_on(shop: Database, replicate: Replicate) -> None:
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines])
    target = replica.pipeline.target
    assert target is not None
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    builder(target)("CREATE VIEW public.seen AS SELECT * FROM public.orders")
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    remove(replica, orders)
    report = told(replica, orders.table)
    assert "seen" in str(report.left)
    assert report.remedy is not None
    shop.execute("DELETE FROM orders; UPDATE lines SET note = 'y'")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM public.seen") == [(100,)]
