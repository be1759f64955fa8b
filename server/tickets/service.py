"""Tickets: created here, written to the source's log and timed by the engine, shown here."""

from __future__ import annotations

import secrets
from datetime import datetime
from itertools import pairwise

from sqlmodel import col, delete, func, select

from engine.model.position import ZERO
from engine.model.positions import PositionForm, text_of
from engine.model.ticket import UNENDED_TICKET, TicketState
from server.db.models.subscription import SubscriptionRow
from server.db.models.ticket import TicketRow
from server.db.outbox import enqueue
from server.db.session import ReadSession, WriteSession
from server.errors import Conflict, FieldError, InvalidRequest, NotFound
from server.lookup.subscriptions import lock_changeable_subscription, position_form, require_subscription
from server.tickets.schemas import (
    ThroughputView,
    TicketCounts,
    TicketDurations,
    TicketRequest,
    TicketTimes,
    TicketView,
)
from server.tickets.throughput import Figures, throughput_between

UNENDED = tuple(state.value for state in UNENDED_TICKET)
KEPT = 10_000
"""Tickets kept per subscription; older ones are deleted, except unended ones."""
MOST_UNENDED = 100


class TooManyTickets(Conflict):
    code = "too_many_tickets"
    title = "Too many tickets are in progress"
    default_remedy = "Wait until some of them are applied; where the subscription does not run, start it."


class TicketsNotComparable(Conflict):
    code = "tickets_not_comparable"
    title = "The two tickets cannot be compared"
    default_remedy = "Name an earlier ticket that was applied."


def begin_ticket(session: WriteSession, name: str, request: TicketRequest) -> TicketRow:
    """Ask the engine for a ticket. If the subscription is not running, the ticket waits.

    Raises:
        NotFound, SubscriptionDeleting, TooManyTickets.
    """
    subscription = lock_changeable_subscription(session, name)
    waiting = select(func.count()).where(
        TicketRow.subscription_id == subscription.id, col(TicketRow.state).in_(UNENDED)
    )
    if session.exec(waiting).one() >= MOST_UNENDED:
        raise TooManyTickets(f"{MOST_UNENDED} tickets of '{name}' have not ended.", subscription.remedy)
    row = TicketRow(
        id=f"tk{secrets.token_hex(6)}",
        subscription_id=subscription.id or 0,
        name=request.name,
        state=TicketState.PENDING.value,
        created_at=session.now(),
    )
    session.add(row)
    session.flush()
    _delete_old_tickets(session, subscription)
    enqueue(session, name, "ticket", {"id": row.id})
    session.touch(name)
    return row


def _delete_old_tickets(session: WriteSession, subscription: SubscriptionRow) -> None:
    mine = col(TicketRow.subscription_id) == subscription.id
    newest = select(TicketRow.created_at).where(mine).order_by(col(TicketRow.created_at).desc())
    oldest = session.exec(newest.offset(KEPT).limit(1)).first()
    if oldest is not None:
        ended = col(TicketRow.state).not_in(UNENDED)
        session.exec(delete(TicketRow).where(mine, ended, col(TicketRow.created_at) <= oldest))


def list_unended(session: ReadSession, subscription: SubscriptionRow) -> list[TicketRow]:
    """Tickets of a subscription that are pending or on their way, oldest first."""
    query = select(TicketRow).where(TicketRow.subscription_id == subscription.id, col(TicketRow.state).in_(UNENDED))
    return list(session.exec(query.order_by(col(TicketRow.created_at), col(TicketRow.id))))


def require_ticket(session: ReadSession, name: str, ticket_id: str) -> TicketRow:
    """A ticket of a subscription; NotFound if there is none with this id."""
    row = _find(session, require_subscription(session, name), ticket_id)
    if row is None:
        raise NotFound(f"Subscription '{name}' has no ticket '{ticket_id}'.")
    return row


def require_earlier_ticket(session: ReadSession, name: str, ticket_id: str) -> TicketRow:
    """The earlier ticket of a comparison; InvalidRequest if there is none with this id."""
    row = _find(session, require_subscription(session, name), ticket_id)
    if row is None:
        detail = f"Subscription '{name}' has no ticket '{ticket_id}'."
        raise InvalidRequest(detail, errors=[FieldError(pointer="/since", detail=detail, location="query")])
    return row


def _find(session: ReadSession, subscription: SubscriptionRow, ticket_id: str) -> TicketRow | None:
    row = session.get(TicketRow, ticket_id)
    return row if row is not None and row.subscription_id == subscription.id else None


def require_comparable(row: TicketRow, since: TicketRow) -> None:
    """Raises TicketsNotComparable if the throughput from `since` to `row` can never be computed."""
    for one in (since, row):
        if one.state == TicketState.LOST.value:
            raise TicketsNotComparable(f"Ticket '{one.id}' is lost: {one.reason}")
    if row.id == since.id or (
        row.position is not None and since.position is not None and row.position < since.position
    ):
        raise TicketsNotComparable(f"Ticket '{since.id}' is not earlier than '{row.id}'.")


def ticket_view(session: ReadSession, name: str, row: TicketRow, since: TicketRow | None = None) -> TicketView:
    """The ticket of the subscription `name` as the REST interface shows it; with the throughput since `since` if both are applied, `since`
    earlier."""
    form = position_form(session.get_one(SubscriptionRow, row.subscription_id))
    view = TicketView(
        id=row.id,
        name=row.name,
        state=TicketState(row.state),
        position=text_of(form, row.position),
        times=TicketTimes.model_validate(row),
        durations=_durations(row),
        counts=_counts(row, form),
        throughput=None if since is None else _throughput(row, since, form),
        code=row.code,
        reason=row.reason,
        remedy=row.remedy,
        created_at=row.created_at,
    )
    view.name_actions({"subscription": name})
    return view


def total_ms(row: TicketRow) -> float | None:
    """Milliseconds from source to target, by the clocks of both; None if it is not applied."""
    return _span_ms(row.written_at, row.applied_at)


def _durations(row: TicketRow) -> TicketDurations:
    stages = (row.written_at, row.captured_at, row.sealed_at, row.computed_at, row.applied_at)
    capture, seal, compute, apply = (_span_ms(begin, end) for begin, end in pairwise(stages))
    return TicketDurations(capture_ms=capture, seal_ms=seal, compute_ms=compute, apply_ms=apply, total_ms=total_ms(row))


def _span_ms(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None or end is None else round((end - begin).total_seconds() * 1000, 3)


def _counts(row: TicketRow, form: PositionForm) -> TicketCounts | None:
    if row.position is None or row.transactions is None or row.commands is None or row.counted_since is None:
        return None
    return TicketCounts(
        log_bytes=form.lag(row.position, ZERO),
        transactions=row.transactions,
        commands=row.commands,
        counted_since=row.counted_since,
    )


def _throughput(row: TicketRow, since: TicketRow, form: PositionForm) -> ThroughputView | None:
    first, last = _figures(since), _figures(row)
    if first is None or last is None or last.position <= first.position:
        return None
    found = throughput_between(first, last, form)
    return ThroughputView(
        since=since.id,
        seconds=found.seconds,
        log_bytes=found.log_bytes,
        transactions=found.transactions,
        commands=found.commands,
        log_gib_per_hour=found.log_gib_per_hour,
        commands_per_second=found.commands_per_second,
        transactions_per_second=found.transactions_per_second,
    )


def _figures(row: TicketRow) -> Figures | None:
    if row.position is None or row.captured_at is None or row.applied_at is None:
        return None
    if row.transactions is None or row.commands is None or row.counted_since is None:
        return None
    return Figures(
        position=row.position,
        captured_at=row.captured_at,
        applied_at=row.applied_at,
        transactions=row.transactions,
        commands=row.commands,
        counted_since=row.counted_since,
    )
