"""Tickets of a subscription: how long a change takes from the source to the target, stage by stage."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, status
from sqlmodel import col, select

from server.db.dependencies import Reading, Writing
from server.db.models.ticket import TicketRow
from server.errors import InvalidRequest, NotFound, responses
from server.idempotency import Idempotent
from server.lookup.subscriptions import SubscriptionDeleting, require_subscription
from server.paging import Page, PageTokenInvalid, Paging
from server.security.principal import Role
from server.security.require import needs
from server.tickets import service
from server.tickets.schemas import TicketRequest, TicketView
from server.tickets.service import TicketsNotComparable, TooManyTickets

router = APIRouter(prefix="/subscriptions/{name}/tickets", tags=["tickets"], dependencies=[needs(Role.VIEWER)])

Since = Annotated[
    str | None,
    Query(pattern=r"^[0-9a-z]{1,40}$", description="Id of an earlier ticket: show the throughput between the two."),
]


@router.post(
    "",
    operation_id="tickets_create",
    status_code=status.HTTP_202_ACCEPTED,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(NotFound, SubscriptionDeleting, TooManyTickets, InvalidRequest),
)
def create_ticket(
    request: Request,
    session: Writing,
    idempotency: Idempotent,
    name: str,
    body: TicketRequest | None = None,
) -> TicketView:
    """Write a marker to the source's log, and time it on its way to the target.

    No table is changed. If the subscription is not running, the ticket stays `pending` until it runs.
    """
    row = service.begin_ticket(session, name, body or TicketRequest())
    headers = {"Location": f"{request.url.path}/{row.id}"}
    return idempotency.answer(status.HTTP_202_ACCEPTED, service.ticket_view(session, name, row), headers)


@router.get("", operation_id="tickets_list", responses=responses(NotFound, PageTokenInvalid, InvalidRequest))
def list_tickets(session: Reading, name: str, paging: Paging, since: Since = None) -> Page[TicketView]:
    """Tickets of a subscription, newest first; with `since`, each later one with the throughput since that ticket."""
    subscription = require_subscription(session, name)
    first = None if since is None else service.require_earlier_ticket(session, name, since)
    query = select(TicketRow).where(TicketRow.subscription_id == subscription.id)
    order = col(TicketRow.created_at), col(TicketRow.id)
    return paging.read(
        session, query, lambda row: service.ticket_view(session, name, row, first), *order, newest_first=True
    )


@router.get(
    "/{ticket_id}", operation_id="tickets_get", responses=responses(NotFound, TicketsNotComparable, InvalidRequest)
)
def get_ticket(session: Reading, name: str, ticket_id: str, since: Since = None) -> TicketView:
    """Progress of a ticket; with `since`, also the throughput since that ticket, once both are applied."""
    row = service.require_ticket(session, name, ticket_id)
    first = None if since is None else service.require_earlier_ticket(session, name, since)
    if first is not None:
        service.require_comparable(row, first)
    return service.ticket_view(session, name, row, first)
