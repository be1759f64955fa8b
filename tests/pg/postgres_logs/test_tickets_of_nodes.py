"""Tickets of several nodes: complete when everything is on the target that any node had committed before the request, whatever ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.link.messages import TicketReport
from engine.model.identity import TicketId
from engine.model.subscription import BatchPolicy, CaptureSpec, ConnectionSpec, QueueMode
from engine.model.ticket import TicketState
from engine.platform.failpoints import Failpoint
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until
from tests.pg.postgres_logs.test_nodes_replicated import silent

pytestmark = pytest.mark.pg
COUNT = 3
ENDED = {TicketState.APPLIED, TicketState.LOST}
Replicate = Callable[..., Replica]
Shop = list[Database]


@pytest.fixture
def shop(pg18: EmbeddedPostgres, database_on: Callable[..., Database]) -> Shop:
    databases = [database_on(pg18) for _ in range(COUNT)]
    for database in databases:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    return databases


def replica_of(shop: Shop, replicate: Replicate, **options: object) -> Replica:
    listed = [{"name": f"n{number}", "settings": dict(one.settings)} for number, one in enumerate(shop)]
    capture = CaptureSpec("postgres_logs", {})
    source = ConnectionSpec("shop", "partitioned", {"nodes": json.dumps(listed)}, capture=capture)
    replica = replicate(shop[0], [table("orders")], source=source, **options)
    replica.wait_live()
    return replica


def order_on_each(shop: Shop, first: int) -> set[int]:
    """A committed order on each node; their ids."""
    found = {first * COUNT + number for number in range(COUNT)}
    for number, database in enumerate(shop):
        database.execute(f"INSERT INTO orders VALUES ({first * COUNT + number}, 'new')")
    return found


def ask(replica: Replica, ticket: str) -> None:
    """As the engine hears of it from the server."""
    replica.pipeline.tickets.ask(TicketId(ticket), None)
    replica.pipeline.send_ticket(TicketId(ticket))


def on_target(replica: Replica) -> set[int]:
    return {int(row[0]) for row in replica.query("SELECT id FROM orders")}


def reports_of(replica: Replica, ticket: str) -> list[TicketReport]:
    return [r for r in replica.reports.all() if isinstance(r, TicketReport) and r.ticket_id == ticket]


def wait_report(replica: Replica, ticket: str, what: Callable[[TicketReport], bool]) -> TicketReport:
    return replica.reports.wait(
        lambda _: next((r for r in reports_of(replica, ticket) if what(r)), None), f"ticket {ticket}", 60
    )


def assert_applied_once(replica: Replica, ticket: str, ids: set[int]) -> TicketReport:
    """Wait for the end; then these orders are on the target."""
    end = wait_report(replica, ticket, lambda r: r.state in ENDED)
    assert ids <= on_target(replica)
    assert (end.state, end.code, end.until) == (TicketState.APPLIED, None, None)
    times = [end.written_at, end.captured_at, end.sealed_at, end.computed_at, end.applied_at]
    assert None not in times
    assert times == sorted(times)  # type: ignore[type-var]
    assert end.position is not None
    assert replica.applied() >= end.position
    return end


def test_nodes_that_are_idle_take_a_ticket_and_the_next_counts_what_came_between(
    shop: Shop, replicate: Replicate
) -> None:
    replica = replica_of(shop, replicate)
    # The announcement of the table counts, too.
    early = order_on_each(shop, 9)
    ask(replica, "tk1")
    first = assert_applied_once(replica, "tk1", early)
    ids = order_on_each(shop, 0)
    ask(replica, "tk2")
    ask(replica, "tk2")
    second = assert_applied_once(replica, "tk2", ids)
    assert second.counted_since == first.counted_since
    assert (second.commands or 0) - (first.commands or 0) == COUNT
    assert (second.transactions or 0) - (first.transactions or 0) > COUNT
    assert first.position is not None
    assert second.position is not None
    assert first.position < second.position
    replica.assert_equal()


@pytest.mark.parametrize("mode", [QueueMode.MEMORY, QueueMode.PERSIST])
def test_a_ticket_waits_for_a_silent_node_and_is_written_again_if_the_reader_is_killed(
    shop: Shop, replicate: Replicate, mode: QueueMode
) -> None:
    replica = replica_of(shop, replicate, queue_mode=mode)
    with silent(shop[1]):
        ids = order_on_each(shop, 0)
        ask(replica, "tk1")
        # In the causal order others pass the silent node, and the ticket does not.
        wait_until(lambda: {0, 2} <= on_target(replica), 30, "orders of the other nodes")
        assert reports_of(replica, "tk1") == []
        replica.kill_reader()
    assert_applied_once(replica, "tk1", ids)
    ask(replica, "tk2")
    assert_applied_once(replica, "tk2", ids)
    replica.assert_equal()


@pytest.mark.parametrize("point", [Failpoint.READER_BEFORE_APPEND, Failpoint.READER_AFTER_APPEND])
def test_a_marker_that_died_with_its_reader_is_written_again(
    shop: Shop, replicate: Replicate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: Failpoint
) -> None:
    armed = tmp_path / "armed"
    armed.mkdir()
    monkeypatch.setenv("PENSTOCK_FAILPOINTS_FOLDER", str(armed))
    replica = replica_of(shop, replicate, queue_mode=QueueMode.PERSIST)
    (armed / point.value).write_text("hold@1")
    ids = order_on_each(shop, 0)
    wait_until((armed / f"{point.value}.held").exists, 30, "the reader is held")
    ask(replica, "tk1")
    assert reports_of(replica, "tk1") == []
    replica.kill_reader()
    (armed / f"{point.value}.held").unlink()
    assert_applied_once(replica, "tk1", ids)
    replica.assert_equal()


@pytest.mark.parametrize("mode", [QueueMode.MEMORY, QueueMode.PERSIST])
def test_a_ticket_that_was_read_before_the_engine_ended_is_applied_by_the_next(
    shop: Shop, replicate: Replicate, mode: QueueMode
) -> None:
    """As the server asks for it: it has no position up to which the marker is in the log."""
    replica = replica_of(shop, replicate, queue_mode=mode, batch=BatchPolicy(max_age_ms=600_000))
    ids = order_on_each(shop, 0)
    ask(replica, "tk1")
    before = wait_report(replica, "tk1", lambda r: r.captured_at is not None)
    assert (before.state, before.until) == (TicketState.UNDER_WAY, None)
    replica.restart()
    ask(replica, "tk1")
    wait_report(replica, "tk1", lambda r: r.epoch == replica.spec.epoch and r.captured_at is not None)
    assert ids.isdisjoint(on_target(replica))
    replica.catch_up()
    assert_applied_once(replica, "tk1", ids)
    assert len([r for r in reports_of(replica, "tk1") if r.state in ENDED]) == 1


def test_tickets_of_many_threads_come_in_the_order_of_the_log_while_readers_die(
    shop: Shop, replicate: Replicate
) -> None:
    replica = replica_of(shop, replicate)
    ids: dict[str, set[int]] = {}

    def work(worker: int) -> None:
        for number in range(4):
            first = 100 * worker + number
            ticket = f"tk{worker}x{number}"
            ids[ticket] = order_on_each(shop, first)
            ask(replica, ticket)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    replica.kill_reader()
    for thread in threads:
        thread.join()
    replica.kill_reader()
    for ticket, before in ids.items():
        assert_applied_once(replica, ticket, before)
    replica.assert_equal()
