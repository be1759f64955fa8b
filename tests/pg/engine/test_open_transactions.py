"""Large open transactions: staged before they end, visible with their commit only, and whatever comes in between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from engine.model.history import FROM_POSITION, TO_POSITION, VALID_FROM, VALID_TO
from engine.model.soft_delete import DELETED_AT, DeleteMode
from engine.model.subscription import BatchPolicy
from engine.pipeline.streamed_transactions import StreamedCounts
from tests.fixtures.postgres import Database, Session
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg


def counts(replica: Replica) -> StreamedCounts:
    run = replica.pipeline.run
    assert run is not None
    return run.ahead.counts


def test_a_large_transaction_is_staged_while_it_is_open_and_visible_with_its_commit(
    shop: Database, replica: Replica, session: Session
) -> None:
    session.execute("BEGIN")
    session.execute("INSERT INTO orders SELECT i, 1, repeat('n', 50) FROM generate_series(100001, 120000) i")
    session.execute("UPDATE orders SET total = total + 1 WHERE id % 2 = 0")
    session.execute("DELETE FROM orders WHERE id BETWEEN 500 AND 2000")
    session.execute("INSERT INTO log SELECT i, repeat('l', 50) FROM generate_series(1, 10000) i")
    wait_until(lambda: counts(replica).staged >= 5)
    shop.execute("UPDATE orders SET note = 'other' WHERE id = 1")
    replica.catch_up()
    assert replica.query("select count(*) from orders") == [(20_000,)]
    session.execute("COMMIT")
    replica.assert_equal()
    assert counts(replica).used == counts(replica).staged >= 5
    assert counts(replica).dropped == 0
    wait_until(lambda: not replica.staged_files())


def test_a_rollback_costs_what_was_staged(shop: Database, replica: Replica, session: Session) -> None:
    session.execute("BEGIN; INSERT INTO orders SELECT i, 1, repeat('n', 50) FROM generate_series(100001, 120000) i")
    wait_until(lambda: counts(replica).staged >= 2)
    session.execute("ROLLBACK")
    shop.execute("UPDATE orders SET total = 0 WHERE id = 7")
    replica.assert_equal()
    wait_until(lambda: counts(replica).dropped == counts(replica).staged)
    assert counts(replica).used == 0
    assert not replica.staged_files()


def test_a_savepoint_rolled_back_after_its_rows_were_staged(replica: Replica, session: Session) -> None:
    session.execute("BEGIN; INSERT INTO orders SELECT i, 1, repeat('n', 50) FROM generate_series(100001, 110000) i")
    wait_until(lambda: counts(replica).staged >= 2)
    before = counts(replica).staged
    session.execute("SAVEPOINT s; DELETE FROM orders WHERE id < 15000")
    session.execute("INSERT INTO log SELECT i, repeat('l', 50) FROM generate_series(1, 10000) i")
    wait_until(lambda: counts(replica).staged >= before + 2)
    session.execute("ROLLBACK TO s; UPDATE orders SET note = 'kept' WHERE id < 300; COMMIT")
    replica.assert_equal()
    assert replica.query("select count(*) from orders where note = 'kept'") == [(299,)]
    assert replica.query("select count(*) from log") == [(0,)]


def test_a_column_added_within_the_transaction(replica: Replica, session: Session) -> None:
    session.execute("BEGIN; INSERT INTO orders SELECT i, 1, repeat('n', 50) FROM generate_series(100001, 110000) i")
    wait_until(lambda: counts(replica).staged >= 2)
    before = counts(replica).staged
    session.execute("ALTER TABLE orders ADD COLUMN extra int DEFAULT 5")
    session.execute("UPDATE orders SET extra = id WHERE id > 100000")
    wait_until(lambda: counts(replica).staged > before)
    session.execute("COMMIT")
    replica.assert_equal()
    assert replica.query("select count(*) from orders where extra = id and id > 100000") == [(10_000,)]


def test_a_truncate_within_the_transaction(replica: Replica, session: Session) -> None:
    session.execute("BEGIN; UPDATE orders SET note = repeat('u', 40)")
    wait_until(lambda: counts(replica).staged >= 2)
    session.execute("TRUNCATE orders")
    session.execute("INSERT INTO orders SELECT i, 1, repeat('n', 50) FROM generate_series(1, 9000) i; COMMIT")
    replica.assert_equal()
    assert replica.query("select count(*) from orders") == [(9_000,)]


def test_a_new_session_in_the_middle_sends_the_transaction_again(
    shop: Database, replica: Replica, session: Session
) -> None:
    session.execute("BEGIN; UPDATE orders SET note = repeat('u', 40)")
    wait_until(lambda: counts(replica).staged >= 2)
    shop.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    wait_until(lambda: bool(replica.pipeline.run) and counts(replica).staged >= 2)
    session.execute("COMMIT")
    replica.assert_equal()
    assert replica.query("select count(*) from orders where note like 'uuu%'") == [(20_000,)]


def test_rows_deleted_by_a_large_transaction_have_the_time_of_its_commit(
    shop: Database, replicate: Callable[..., Replica], session: Session
) -> None:
    soft = table("orders", deletes=DeleteMode.MARK)
    replica = replicate(shop, [soft], batch=BatchPolicy(small_rows=0), piece_bytes=256 * 1024)
    session.execute("BEGIN; UPDATE orders SET note = repeat('n', 50); DELETE FROM orders WHERE id <= 10000")
    wait_until(lambda: counts(replica).staged >= 2)
    session.execute("TRUNCATE orders; INSERT INTO orders SELECT i, 1, repeat('m', 50) FROM generate_series(1, 12000) i")
    session.execute("DELETE FROM orders WHERE id <= 6000")
    wait_until(lambda: counts(replica).staged >= 5)
    before = datetime.now(UTC)
    session.execute("COMMIT")
    replica.assert_equal()
    assert counts(replica).used >= 5
    found = replica.query(f"SELECT DISTINCT {DELETED_AT} FROM orders WHERE {DELETED_AT} IS NOT NULL")
    assert len(found) == 1
    assert before < found[0][0] < datetime.now(UTC)
    last = f"SELECT left(note, 1), min(id), max(id), count(*) FROM orders WHERE {DELETED_AT} IS NOT NULL GROUP BY 1 ORDER BY 1"
    assert replica.query(last) == [("m", 1, 6000, 6000), ("n", 12001, 20000, 8000)]


def test_a_large_transaction_has_its_changes_in_order(
    shop: Database, replicate: Callable[..., Replica], session: Session
) -> None:
    replica = replicate(shop, [table("orders", staging=True)], batch=BatchPolicy(small_rows=0), piece_bytes=256 * 1024)
    live = {row[0]: row for row in replica.query("SELECT id, total, note FROM orders")}
    session.execute("BEGIN; UPDATE orders SET note = repeat('n', 50); DELETE FROM orders WHERE id <= 10000")
    wait_until(lambda: counts(replica).staged >= 2)
    session.execute("INSERT INTO orders SELECT i, 1, repeat('m', 50) FROM generate_series(1, 12000) i WHERE i <= 10000")
    session.execute("UPDATE orders SET total = total + 1; DELETE FROM orders WHERE id <= 5000")
    wait_until(lambda: counts(replica).staged >= 5)
    session.execute("COMMIT")
    replica.assert_equal()
    assert counts(replica).used >= 5
    changes = replica.query(
        "SELECT _position, _n, _op, id, total, note FROM orders__cd WHERE _op <> 'R' ORDER BY _position, _n"
    )
    assert len({position for position, *_ in changes}) == 1
    assert [number for _, number, *_ in changes] == list(range(1, len(changes) + 1))
    for _, _, op, *row in changes:
        assert (row[0] in live) == (op != "I")
        if op == "D":
            del live[row[0]]
        else:
            live[row[0]] = tuple(row)
    assert sorted(live.values()) == replica.query("SELECT id, total, note FROM orders ORDER BY id")
    assert replica.look('SELECT count(*), count("transaction"), min(type) FROM penstock.uow') == [(1, 1, "local")]


def test_a_large_transaction_begins_one_version_of_each_row(
    shop: Database, replicate: Callable[..., Replica], session: Session
) -> None:
    replica = replicate(shop, [table("orders", history=True)], batch=BatchPolicy(small_rows=0), piece_bytes=256 * 1024)
    session.execute("BEGIN; UPDATE orders SET note = repeat('n', 50); DELETE FROM orders WHERE id <= 10000")
    wait_until(lambda: counts(replica).staged >= 2)
    session.execute("INSERT INTO orders SELECT i, 1, repeat('m', 50) FROM generate_series(1, 12000) i WHERE i <= 10000")
    session.execute("UPDATE orders SET total = total + 1; DELETE FROM orders WHERE id <= 5000")
    wait_until(lambda: counts(replica).staged >= 5)
    before = datetime.now(UTC)
    session.execute("COMMIT")
    replica.assert_equal()
    assert counts(replica).used >= 5
    history = "FROM orders__history WHERE {} IS NOT NULL"
    ends = replica.query(f"SELECT DISTINCT {TO_POSITION}, {VALID_TO} " + history.format(TO_POSITION))
    begins = replica.query(
        f"SELECT DISTINCT {FROM_POSITION}, {VALID_FROM} FROM orders__history WHERE {TO_POSITION} IS NULL"
    )
    assert ends == begins
    assert len(ends) == 1
    assert before < ends[0][1] < datetime.now(UTC)
    assert replica.query("SELECT count(*), min(note) " + history.format(TO_POSITION)) == [(20_000, "note 1")]
    current = f"SELECT id, total, note FROM orders__history WHERE {VALID_TO} IS NULL ORDER BY id"
    assert replica.query(current) == replica.query("SELECT id, total, note FROM orders ORDER BY id")
