"""Stores the engines' reports of tickets."""

from __future__ import annotations

from engine.link.messages import TicketReport
from engine.model.ticket import TicketState
from server.db.models.subscription import SubscriptionRow
from server.db.models.ticket import TicketRow
from server.db.session import WriteSession
from server.events.service import record_event
from server.tickets.service import UNENDED, total_ms

_PASSAGE = (
    "position",
    "written_at",
    "captured_at",
    "sealed_at",
    "computed_at",
    "applied_at",
    "transactions",
    "commands",
    "counted_since",
)


def write_ticket_report(session: WriteSession, subscription: SubscriptionRow, report: TicketReport) -> None:
    """Store the progress of a ticket; an ended ticket is not changed.

    A report with a capture time replaces all figures: a run that reads the marker again measures it again. A report
    without one, from a run that knows less than an earlier one, deletes none.
    """
    row = session.get(TicketRow, report.ticket_id)
    if row is None or row.subscription_id != subscription.id or row.state not in UNENDED:
        return
    row.state = report.state.value
    row.until = report.until or row.until
    for name in _PASSAGE:
        value = getattr(report, name)
        if report.captured_at is not None or value is not None:
            setattr(row, name, value)
    row.code, row.reason, row.remedy = report.code, report.reason, report.remedy
    session.add(row)
    session.touch(subscription.name)
    if report.state is TicketState.APPLIED:
        _record_applied(session, subscription.name, row)
    elif report.state is TicketState.LOST:
        _record_lost(session, subscription.name, row)


def _record_applied(session: WriteSession, subscription: str, row: TicketRow) -> None:
    took = total_ms(row)
    record_event(
        session,
        kind="ticket_applied",
        severity="info",
        subscription=subscription,
        subject=row.name or row.id,
        detail=f"Ticket '{row.id}' is on the target" + ("." if took is None else f", {took:.0f} ms after the source."),
    )


def _record_lost(session: WriteSession, subscription: str, row: TicketRow) -> None:
    record_event(
        session,
        kind="ticket_lost",
        severity="warning",
        subscription=subscription,
        subject=row.name or row.id,
        detail=f"Ticket '{row.id}' is lost: {row.reason}",
        remedy=row.remedy,
    )
