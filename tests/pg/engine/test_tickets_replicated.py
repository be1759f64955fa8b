"""Tickets through a real subscription: on an idle source, over pauses and restarts, with what came before each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.link.messages import TicketReport
from engine.model.identity import Epoch, TicketId
from engine.model.position import Lsn
from engine.model.subscription import BatchPolicy, QueueMode
from engine.model.subscription_state import DesiredState
from engine.model.ticket import TicketState
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]
LATE = BatchPolicy(max_age_ms=600_000)
"""Batches that nothing but a demand closes."""


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    return database


def ask(replica: Replica, ticket: str, until: Lsn | None = None) -> None:
    """As the engine hears of it from the server."""
    replica.pipeline.tickets.ask(TicketId(ticket), until)
    replica.pipeline.send_ticket(TicketId(ticket))


def wait_ticket(
    replica: Replica, ticket: str, what: Callable[[TicketReport], bool], epoch: Epoch | None = None
) -> TicketReport:
    """The first report of a ticket of which this is true."""

    def found(_: object) -> TicketReport | None:
        own = (r for r in replica.reports.all() if isinstance(r, TicketReport) and r.ticket_id == ticket)
        return next((r for r in own if r.epoch == (epoch or r.epoch) and what(r)), None)

    return replica.reports.wait(found, f"ticket {ticket}", 30)


def wait_ticket_end(replica: Replica, ticket: str) -> TicketReport:
    """How it ended in the engine that runs now."""
    return wait_ticket(
        replica, ticket, lambda r: r.state in {TicketState.APPLIED, TicketState.LOST}, replica.spec.epoch
    )


def test_an_idle_source_takes_a_ticket_and_the_next_counts_what_came_between(
    shop: Database, replicate: Replicate
) -> None:
    replica = replicate(shop, [table("orders")])
    ask(replica, "tk1")
    first = wait_ticket_end(replica, "tk1")
    assert (first.state, first.code) == (TicketState.APPLIED, None)
    times = [first.captured_at, first.sealed_at, first.computed_at, first.applied_at]
    assert None not in times
    assert times == sorted(times)  # type: ignore[type-var]
    with shop.connect() as session:
        for order in range(5):
            session.execute("INSERT INTO orders SELECT %s * 10 + i, 'x' FROM generate_series(1, 4) i", [order])
        session.execute("UPDATE orders SET note = 'y'")
    ask(replica, "tk2")
    second = wait_ticket_end(replica, "tk2")
    assert second.counted_since == first.counted_since
    assert (second.commands or 0) - (first.commands or 0) == 40
    assert (second.transactions or 0) - (first.transactions or 0) == 7, "six, and the ticket before"
    assert first.position is not None
    assert second.position is not None
    assert second.position > first.position
    assert replica.applied() >= second.position
    assert replica.query("SELECT count(*) FROM orders WHERE note = 'y'") == [(20,)]


def test_a_paused_subscription_writes_it_when_it_runs_again(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    ask(replica, "tk1")
    assert not [r for r in replica.reports.all() if isinstance(r, TicketReport)]
    replica.desire(DesiredState.RUNNING)
    assert wait_ticket_end(replica, "tk1").state is TicketState.APPLIED


@pytest.mark.parametrize("mode", [QueueMode.MEMORY, QueueMode.PERSIST])
def test_one_that_was_captured_before_the_engine_ended_is_applied_by_the_next(
    shop: Database, replicate: Replicate, mode: QueueMode
) -> None:
    replica = replicate(shop, [table("orders")], batch=LATE, queue_mode=mode)
    ask(replica, "tk1")
    before = wait_ticket(replica, "tk1", lambda r: r.captured_at is not None and r.until is not None)
    assert before.state is TicketState.UNDER_WAY
    replica.restart()
    ask(replica, "tk1", before.until)
    after = wait_ticket_end(replica, "tk1")
    assert (after.state, after.position) == (TicketState.APPLIED, before.position)
    assert before.position is not None
    replica.wait_applied(before.position)


def test_one_that_was_applied_before_the_engine_could_tell_ends_as_lost(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    ask(replica, "tk1")
    before = wait_ticket_end(replica, "tk1")
    shop.execute("INSERT INTO orders VALUES (1, 'x')")
    replica.catch_up()
    replica.restart()
    ask(replica, "tk1", before.until)
    after = wait_ticket_end(replica, "tk1")
    assert (after.state, after.code, after.remedy) == (TicketState.LOST, "ticket_missed", "Make another ticket.")
    assert after.reason
