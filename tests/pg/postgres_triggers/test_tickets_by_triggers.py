"""Tickets through a subscription that is captured by triggers: every reader finds the marker at its place."""

from __future__ import annotations

import pytest

from engine.link.messages import TicketReport
from engine.model.identity import TicketId
from engine.model.ticket import TicketState
from tests.fixtures.postgres import Database
from tests.pg.postgres_triggers.conftest import Replicate, TriggersReplica

pytestmark = pytest.mark.pg


def asked(replica: TriggersReplica, ticket: str) -> TicketReport:
    """Write a ticket; returns how it ended."""
    replica.pipeline.tickets.ask(TicketId(ticket), None)
    replica.pipeline.send_ticket(TicketId(ticket))

    def ended(_: object) -> TicketReport | None:
        own = (r for r in replica.reports.all() if isinstance(r, TicketReport) and r.ticket_id == ticket)
        return next((r for r in own if r.state in {TicketState.APPLIED, TicketState.LOST}), None)

    return replica.reports.wait(ended, f"ticket {ticket}", 30)


def test_a_ticket_is_timed_at_its_place_and_no_other_reader_minds(database: Database, replicate: Replicate) -> None:
    database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    replica, other = replicate(database, "orders"), replicate(database, "orders")
    first = asked(replica, "tk1")
    assert (first.state, first.code) == (TicketState.APPLIED, None)
    for number in range(5):
        database.execute(f"INSERT INTO orders SELECT {number} * 10 + i, 'x' FROM generate_series(1, 4) i")
    second = asked(replica, "tk2")
    assert (second.commands or 0) - (first.commands or 0) == 20
    assert (second.transactions or 0) - (first.transactions or 0) == 6, "five, and the ticket before"
    assert replica.query("SELECT count(*) FROM orders") == [(20,)]
    replica.restart()
    replica.wait_live()
    other.assert_equal()
    replica.assert_equal()
