"""The ledger over a whole subscription: what it reports, and that a corrupted batch is not reported as applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from engine.link.messages import BatchReport
from engine.model.subscription import ApplyMode, ApplyPolicy, ConnectionSpec
from engine.net import table as netting
from engine.targets.duckdb import changes as duckdb_changes
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]
SHOP = """
CREATE TABLE orders (id bigint PRIMARY KEY, total numeric, note text);
CREATE TABLE lines (id bigint PRIMARY KEY, sku text);
INSERT INTO orders SELECT i, i, 'note ' || i FROM generate_series(1, 100) i;
"""
CHANGES = """
BEGIN;
UPDATE orders SET note = 'first' WHERE id <= 10; UPDATE orders SET note = 'second' WHERE id <= 10;
SAVEPOINT s; DELETE FROM orders WHERE id = 50; ROLLBACK TO s;
DELETE FROM orders WHERE id > 90; INSERT INTO lines VALUES (1, 'a'); UPDATE lines SET sku = 'b';
COMMIT;
"""


def sums(replica: Replica, name: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for report in replica.reports.all():
        if isinstance(report, BatchReport):
            assert report.ledger is not None
            assert report.ledger.captured is not None
            found.update(report.ledger.tables.get(str(replica.table_id(name)), {}))
    return found


def test_the_counts_of_every_batch_are_reported(database: Database, replicate: Replicate) -> None:
    database.execute(SHOP)
    replica = replicate(database, [table("orders"), table("lines")])
    replica.assert_equal()
    database.execute(CHANGES)
    replica.assert_equal()
    orders, lines = sums(replica, "orders"), sums(replica, "lines")
    assert (orders["captured"], orders["applied"] + orders["netted"]) == (30, 30)
    assert (lines["captured"], lines["applied"], lines["netted"]) == (2, 1, 1)


def test_single_changes_are_not_netted(
    database: Database, replicate: Replicate, database_on: Callable[..., Database], pg16: Any
) -> None:
    database.execute(SHOP)
    mart = ConnectionSpec("mart", "postgres", database_on(pg16).settings)
    apply = ApplyPolicy(mode=ApplyMode.TRANSACTIONAL)
    replica = replicate(database, [table("orders"), table("lines")], target=mart, apply=apply)
    replica.assert_equal()
    database.execute(CHANGES)
    replica.assert_equal()
    assert sums(replica, "orders")["netted"] == 0
    assert sums(replica, "orders")["applied"] == 30


def _lost_by_the_netting(monkeypatch: pytest.MonkeyPatch) -> None:
    net_keyed = netting.kernels.net_keyed
    monkeypatch.setattr(netting.kernels, "net_keyed", lambda *given: net_keyed(*given[:6], given[6][1:], *given[7:]))


def _lost_by_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    insert_rows = duckdb_changes.insert_rows
    monkeypatch.setattr(duckdb_changes, "insert_rows", lambda c, place, rows: insert_rows(c, place, rows.slice(1)))


@pytest.mark.parametrize("corrupt", [_lost_by_the_netting, _lost_by_the_target])
def test_a_batch_that_does_not_balance_is_not_reported(
    database: Database,
    replicate: Replicate,
    monkeypatch: pytest.MonkeyPatch,
    corrupt: Callable[[pytest.MonkeyPatch], None],
) -> None:
    database.execute(SHOP)
    replica = replicate(database, [table("orders"), table("lines")])
    replica.assert_equal()
    applied = replica.applied()
    corrupt(monkeypatch)
    database.execute("INSERT INTO lines SELECT i, 'x' FROM generate_series(1, 10) i")
    assert replica.wait_state("failed").code == "ledger_unbalanced"
    lost = replica.now()
    assert applied <= replica.applied() < lost
    # The next start, without the corruption, computes the batch again.
    monkeypatch.undo()
    replica.restart()
    replica.assert_equal()
