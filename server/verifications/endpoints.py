"""Comparing a subscription's tables with their source."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Request, Response, status
from sqlmodel import and_, col, or_, select

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
    response: Response,
    session: Writing,
    idempotency: Idempotent,
    name: str,
    body: VerificationRequest | None = None,
) -> VerificationView:
    """Compare every row with the source, both read at one position, while replication goes on."""
    row = service.begin_verification(session, name, body or VerificationRequest())
    view = service.verification_view(session, row)
    headers = {"Location": f"{request.url.path}/{row.id}"}
    response.headers.update(headers)
    idempotency.remember(status.HTTP_202_ACCEPTED, view, headers)
    return view


@router.get("", operation_id="verifications_list", responses=responses(NotFound, PageTokenInvalid))
def list_verifications(session: Reading, name: str, paging: Paging) -> Page[VerificationView]:
    """Verifications of a subscription, the newest first."""
    subscription = require_subscription(session, name)
    created, key = col(VerificationRow.created_at), col(VerificationRow.id)
    query = select(VerificationRow).where(VerificationRow.subscription_id == subscription.id)
    behind = paging.behind(datetime, str)
    if behind:
        query = query.where(or_(created < behind[0], and_(created == behind[0], key < behind[1])))
    found = session.exec(query.order_by(created.desc(), key.desc()).limit(paging.limit)).all()
    rows, more = paging.split(found)
    token = paging.token([rows[-1].created_at, rows[-1].id]) if more else None
    return Page(items=[service.verification_view(session, row) for row in rows], next_page_token=token)


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
    """End a verification before its time; it stays in the list."""
    service.cancel_verification(session, name, verification_id)
