"""Comparing a subscription's tables with their source."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, status
from sqlmodel import col, select

from server.db.dependencies import Reading, Writing
from server.db.models.verification import VerificationRow
from server.errors import InvalidRequest, NotFound, responses
from server.idempotency import Idempotent
from server.lookup.subscriptions import require_subscription
from server.paging import Page, PageTokenInvalid, Paging
from server.security.principal import Role
from server.security.require import needs
from server.verifications import service
from server.verifications.schemas import VerificationRequest, VerificationView
from server.verifications.service import SubscriptionNotRunning, VerificationHasEnded, VerificationRunning
from server.verifications.trigger import Trigger

router = APIRouter(
    prefix="/subscriptions/{name}/verifications", tags=["verifications"], dependencies=[needs(Role.VIEWER)]
)


@router.post(
    "",
    operation_id="verifications_create",
    status_code=status.HTTP_202_ACCEPTED,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(NotFound, SubscriptionNotRunning, VerificationRunning, InvalidRequest),
)
def create_verification(
    request: Request,
    session: Writing,
    idempotency: Idempotent,
    name: str,
    body: VerificationRequest | None = None,
) -> VerificationView:
    """Compare tables with the source, both read at one position, while replication continues. A verification that the schedule has
    begun is cancelled for it, and its table is compared later."""
    row = service.begin_verification(session, name, body or VerificationRequest())
    headers = {"Location": f"{request.url.path}/{row.id}"}
    return idempotency.answer(status.HTTP_202_ACCEPTED, service.verification_view(session, row), headers)


@router.get("", operation_id="verifications_list", responses=responses(NotFound, PageTokenInvalid))
def list_verifications(
    session: Reading,
    name: str,
    paging: Paging,
    trigger: Annotated[Trigger | None, Query(description="Only those that this began.")] = None,
) -> Page[VerificationView]:
    """Verifications of a subscription, the newest first. Of those of its schedule, the last one of each table and the newest 100 are
    kept."""
    subscription = require_subscription(session, name)
    query = select(VerificationRow).where(VerificationRow.subscription_id == subscription.id)
    if trigger is not None:
        query = query.where(col(VerificationRow.scheduled) == (trigger is Trigger.SCHEDULE))
    order = col(VerificationRow.created_at), col(VerificationRow.id)
    return paging.read(session, query, lambda row: service.verification_view(session, row), *order, newest_first=True)


@router.get("/{verification_id}", operation_id="verifications_get", responses=responses(NotFound))
def get_verification(session: Reading, name: str, verification_id: str) -> VerificationView:
    """Progress or result of a verification."""
    return service.verification_view(session, service.require_verification(session, name, verification_id))


@router.delete(
    "/{verification_id}",
    operation_id="verifications_cancel",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(NotFound, VerificationHasEnded),
)
def cancel_verification(session: Writing, name: str, verification_id: str) -> None:
    """Cancel a verification; it stays in the list."""
    service.cancel_verification(session, name, verification_id)
