"""The batches of a subscription."""

from __future__ import annotations

from fastapi import APIRouter
from sqlmodel import col, select

from server.batches.schemas import BatchView
from server.db.dependencies import Reading
from server.db.models.batch import BatchRow
from server.errors import NotFound, responses
from server.lookup.subscriptions import require_subscription
from server.paging import Page, PageTokenInvalid, Paging
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/subscriptions/{name}", tags=["batches"], dependencies=[needs(Role.VIEWER)])


@router.get("/batches", operation_id="batches_list", responses=responses(NotFound, PageTokenInvalid))
def list_batches(session: Reading, name: str, paging: Paging) -> Page[BatchView]:
    """Batches that were committed on the target, the newest first."""
    subscription = require_subscription(session, name)
    query = select(BatchRow).where(BatchRow.subscription_id == subscription.id)
    return paging.read(session, query, BatchView.model_validate, col(BatchRow.id), newest_first=True)
