"""One subscription from its first copy on: what is visible when, and that nothing is lost over stops, pauses and reloads."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess

import pytest

from engine.link.messages import BatchReport, EventReport, ReloadReport, SchemaVersion, SubscriptionStateReport
from engine.model.position import Lsn
from engine.model.subscription import BatchPolicy, QueueMode, SchemaPolicy
from engine.model.subscription_state import DesiredState
from engine.pipeline.run import ReplicationRun
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(12, 2), note text);
CREATE TABLE lines (order_id bigint, n int, sku text, PRIMARY KEY (order_id, n));
INSERT INTO orders SELECT i, i * 1.5, 'note ' || i FROM generate_series(1, 1000) i;
INSERT INTO lines SELECT i, 1, 'sku' || i FROM generate_series(1, 1000) i;
"""


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


@pytest.mark.parametrize(
    "mode", [QueueMode.MEMORY, QueueMode.PERSIST, pytest.param(QueueMode.AUTO, marks=pytest.mark.chaos)]
)
def test_copy_changes_and_equality_at_a_cut(shop: Database, replicate: Replicate, mode: QueueMode) -> None:
    replica = replicate(shop, [table("orders"), table("lines")], queue_mode=mode)
    assert replica.query("select count(*), sum(total) from orders")[0][0] == 1000
    shop.execute("UPDATE orders SET total = total + 1 WHERE id <= 500")
    shop.execute("DELETE FROM lines WHERE order_id % 2 = 0")
    shop.execute("INSERT INTO orders SELECT i, 7, null FROM generate_series(2001, 2100) i")
    replica.assert_equal()
    assert replica.query("select count(*) from lines") == [(500,)]


def test_rolled_back_work_is_never_visible(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    with shop.connect() as connection:
        connection.execute("BEGIN; INSERT INTO orders VALUES (5000, 1, 'x'); ROLLBACK")
        connection.execute(
            "BEGIN; INSERT INTO orders VALUES (5001, 1, 'kept'); SAVEPOINT s; INSERT INTO orders VALUES (5002, 1, 'gone');"
            " ROLLBACK TO s; INSERT INTO orders VALUES (5003, 1, 'kept'); COMMIT"
        )
    replica.assert_equal()
    assert replica.query("select id from orders where id >= 5000 order by id") == [(5001,), (5003,)]


def test_streamed_transactions_with_savepoints(
    pg18: EmbeddedPostgres, database_on: Callable[..., Database], replicate: Replicate
) -> None:
    shop = database_on(pg18, debug_logical_replication_streaming="immediate")
    shop.execute(SHOP)
    replica = replicate(shop, [table("orders"), table("lines")])
    with shop.connect() as one, shop.connect() as two:
        one.execute("BEGIN; UPDATE orders SET note = 'one' WHERE id = 1; SAVEPOINT s; DELETE FROM orders WHERE id = 2")
        two.execute("BEGIN; UPDATE orders SET note = 'two' WHERE id = 3")
        one.execute("ROLLBACK TO s; INSERT INTO lines VALUES (1, 2, 'late')")
        two.execute("ROLLBACK")
        one.execute("COMMIT")
    replica.assert_equal()
    assert replica.query("select note from orders where id in (1, 2, 3) order by id") == [
        ("one",),
        ("note 2",),
        ("note 3",),
    ]


def test_wait_for_now_on_an_idle_source(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    before = replica.catch_up(timeout_s=10)
    assert replica.catch_up(timeout_s=10) > before


def test_positions_move_with_traffic_that_is_not_replicated(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    shop.execute("CREATE TABLE other AS SELECT i FROM generate_series(1, 10000) i")
    lsn = shop.execute("SELECT pg_current_wal_insert_lsn()")[0][0]
    shop.execute("INSERT INTO other VALUES (1)")
    replica.catch_up(timeout_s=10)
    assert str(replica.applied()) >= str(lsn)
    assert not [r for r in replica.reports.all() if isinstance(r, BatchReport) and r.net_rows]


def test_resumes_after_a_stop(shop: Database, replicate: Replicate) -> None:
    for mode in QueueMode:
        replica = replicate(shop, [table("orders")], queue_mode=mode)
        shop.execute("UPDATE orders SET note = %s", [mode.value])
        replica.catch_up()
        replica.pipeline.close()
        shop.execute("UPDATE orders SET total = total + 1; DELETE FROM orders WHERE id = 1")
        shop.execute("INSERT INTO orders VALUES (1, 1, 'again')")
        replica.restart()
        replica.assert_equal()


def test_a_log_reader_ends_by_itself_when_told_to_while_nothing_comes(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = replicate(shop, [table("orders")])
    replica.catch_up()
    assert replica.pipeline.run is not None
    pid = replica.pipeline.run.reader_pid()
    killed: list[int | None] = []
    kill = BaseProcess.kill

    def seen(process: BaseProcess) -> None:
        killed.append(process.pid)
        kill(process)

    monkeypatch.setattr(BaseProcess, "kill", seen)
    replica.pipeline.close()
    assert pid is not None
    assert pid not in killed


def test_a_killed_log_reader_is_replaced(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    pids = []
    for round_ in range(3):
        assert replica.pipeline.run is not None
        pid = replica.pipeline.run.reader_pid()
        assert pid is not None
        pids.append(pid)
        os.kill(pid, signal.SIGKILL)
        shop.execute("UPDATE orders SET note = %s WHERE id < 100", [f"round {round_}"])
        replica.assert_equal()
    died = [r for r in replica.reports.all() if isinstance(r, EventReport) and r.code == "log_reader_died"]
    assert [(report.subject, report.detail) for report in died] == [
        (f"log reader (pid {pid})", "was ended by SIGKILL") for pid in pids
    ]


def _has_read(run: ReplicationRun, end: Lsn) -> bool:
    return run.captured >= end


def test_a_new_log_reader_releases_nothing_that_only_the_queue_holds(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")], batch=BatchPolicy(max_age_ms=3_600_000))
    for note in ("read by the reader that is killed", "read by its successor"):
        run = replica.pipeline.run
        assert run is not None
        shop.execute("UPDATE orders SET note = %s WHERE id < 100", [note])
        end = replica.now()
        wait_until(partial(_has_read, run, end))
        assert replica.applied() < end
        pid = run.reader_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    replica.restart()
    replica.wait_state("running")
    replica.assert_equal()


def test_pausing_and_stopping_the_subscription(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    shop.execute("UPDATE orders SET note = 'while paused'")
    assert replica.query("select count(*) from orders where note = 'while paused'") == [(0,)]
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    assert replica.pipeline.target is None
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    replica.assert_equal()


def test_reload_of_one_table_while_the_others_go_on(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    replica.pipeline.reload("r1", [replica.table_id("orders")])
    shop.execute("UPDATE orders SET note = 'during the reload' WHERE id < 50; UPDATE lines SET sku = 'x' WHERE n = 1")

    def done(reports: list[object]) -> bool:
        return any(isinstance(r, ReloadReport) and r.state == "succeeded" for r in reports)

    replica.reports.wait(done, "reload succeeded")
    replica.assert_equal()


def test_reload_of_the_whole_subscription(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    replica.pipeline.reload("r1", None)
    replica.reports.wait(
        lambda reports: any(isinstance(r, ReloadReport) and r.state == "succeeded" for r in reports), "reload succeeded"
    )
    shop.execute("DELETE FROM orders WHERE id > 900")
    replica.assert_equal()


def test_added_and_dropped_columns_are_followed(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    shop.execute("ALTER TABLE orders ADD COLUMN state text DEFAULT 'new', ADD COLUMN more int")
    shop.execute("UPDATE orders SET more = 5 WHERE id < 10")
    replica.assert_equal()
    assert replica.query("select distinct state from orders") == [("new",)]
    shop.execute(
        "BEGIN; UPDATE orders SET total = 0 WHERE id = 3; ALTER TABLE orders DROP COLUMN note;"
        " INSERT INTO orders (id) VALUES (7000); COMMIT"
    )
    replica.assert_equal()
    versions = [r for r in replica.reports.all() if isinstance(r, SchemaVersion)]
    assert [c.name for c in versions[-1].columns] == ["id", "total", "state", "more"]


def test_where_changes_are_not_followed_a_reload_heals(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines")], schema_changes=SchemaPolicy.ASK)
    shop.execute("ALTER TABLE orders ALTER COLUMN note TYPE varchar(50)")
    shop.execute("UPDATE orders SET note = 'y' WHERE id = 1; UPDATE lines SET sku = 'y' WHERE n = 1")
    parked = replica.wait_table("orders", "parked")
    assert parked.code == "table_structure_changed"
    assert parked.remedy
    replica.catch_up()
    assert replica.query("select distinct sku from lines") == [("y",)]
    replica.pipeline.reload("r1", [replica.table_id("orders")])
    replica.wait_live()
    replica.assert_equal()


def test_tables_without_identity_and_without_a_key(shop: Database, replicate: Replicate) -> None:
    shop.execute("CREATE TABLE history (at int, what text); INSERT INTO history VALUES (1, 'a'), (1, 'a')")
    shop.execute("CREATE TABLE bag (a int, b text); ALTER TABLE bag REPLICA IDENTITY FULL")
    shop.execute("INSERT INTO bag VALUES (1, null), (1, null), (2, 'x')")
    replica = replicate(shop, [table("history", insert_only=True), table("bag")])
    shop.execute("INSERT INTO history VALUES (2, 'b')")
    shop.execute("DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag); UPDATE bag SET b = 'y' WHERE a = 2")
    replica.assert_equal()
    shop.execute("UPDATE history SET what = 'z'")
    replica.catch_up()
    assert replica.query("select count(*) from history where what = 'z'") == [(0,)]


def test_insert_only_that_changes_means_a_new_copy_and_the_others_go_on(shop: Database, replicate: Replicate) -> None:
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [replace(orders, insert_only=True), lines])
    shop.execute("UPDATE orders SET note = 'unseen' WHERE id = 1; UPDATE lines SET sku = 'seen' WHERE order_id = 1")
    replica.catch_up()
    unseen = "select count(*) from orders where note = 'unseen'"
    assert replica.query(unseen) == [(0,)]
    replica.replace(orders, lines)
    replica.reports.wait(lambda _: replica.query(unseen) == [(1,)] or None, "the new copy")
    replica.wait_live()
    shop.execute("UPDATE orders SET note = 'followed' WHERE id = 2; DELETE FROM lines WHERE order_id = 2")
    replica.assert_equal()
    known = replica.states_of("orders").count("reloading")
    replica.replace(replace(orders, insert_only=True), lines)
    replica.reports.wait(lambda _: replica.states_of("orders").count("reloading") > known or None, "another new copy")
    replica.wait_live()
    shop.execute("INSERT INTO orders VALUES (7000, 1, 'more'); DELETE FROM orders WHERE id = 3")
    replica.catch_up()
    assert replica.query("select count(*) from orders where id in (3, 7000)") == [(2,)]
    assert "failed" not in [r.state for r in replica.reports.all() if isinstance(r, SubscriptionStateReport)]
    assert "reloading" not in replica.states_of("lines")


def test_large_batches_are_cut_by_limits(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")], batch=BatchPolicy(max_transactions=10, small_rows=0))
    with shop.connect() as connection:
        for i in range(60):
            connection.execute("UPDATE orders SET total = %s WHERE id = %s", [i, i + 1])
    replica.assert_equal()
    sizes = [r.transactions for r in replica.reports.all() if isinstance(r, BatchReport)]
    assert max(sizes) <= 10


def test_a_value_outside_its_columns_domain_parks_the_table(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    shop.execute("INSERT INTO orders VALUES (9000, 'NaN', 'not a number'); INSERT INTO lines VALUES (9000, 1, 'fine')")
    parked = replica.wait_table("orders", "parked")
    assert parked.code == "value_out_of_domain"
    assert "map_as" in (parked.remedy or "")
    replica.catch_up()
    assert replica.query("select sku from lines where order_id = 9000") == [("fine",)]


def test_a_dropped_slot_is_a_gap_and_a_reload_heals(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    shop.execute("SELECT pg_drop_replication_slot(%s)", [replica.spec.reader])
    shop.execute("UPDATE orders SET note = 'missed'")
    replica.desire(DesiredState.RUNNING)
    assert replica.wait_state("failed").code == "log_gap"
    assert replica.query("select count(*) from orders where note = 'missed'") == [(0,)]
    replica.pipeline.reload("r1", None)
    replica.wait_state("running")
    replica.wait_live()
    replica.assert_equal()


def test_a_changed_publication_fails_the_subscription(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    shop.execute(f'ALTER PUBLICATION "{replica.spec.reader}" DROP TABLE lines')
    assert replica.wait_state("failed").code == "publication_changed"


def test_a_table_whose_changes_cannot_be_followed_parks_and_the_others_go_on(
    shop: Database, replicate: Replicate
) -> None:
    shop.execute("CREATE TABLE coded (id int PRIMARY KEY, code text NOT NULL); CREATE TABLE keyless (v text)")
    replica = replicate(shop, [table("orders"), table("coded", key=("code",)), table("keyless")], live=False)
    for name in ("coded", "keyless"):
        parked = replica.wait_table(name, "parked")
        assert parked.code == "table_no_identity"
        assert "REPLICA IDENTITY" in (parked.reason or "")
    replica.wait_live("orders")
    shop.execute("DELETE FROM orders WHERE id = 1")
    replica.catch_up()
    assert replica.query("select count(*) from orders") == [(999,)]
