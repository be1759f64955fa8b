"""Reads and deletes subscriptions."""

from __future__ import annotations

from sqlmodel import col, delete, select

from server.db.models.outbox import OutboxRow
from server.db.models.subscription import SubscriptionRow
from server.db.session import ReadSession, WriteSession


def page(session: ReadSession, after: str | None, limit: int, state: str | None) -> list[SubscriptionRow]:
    query = select(SubscriptionRow).order_by(col(SubscriptionRow.name)).limit(limit)
    if after is not None:
        query = query.where(col(SubscriptionRow.name) > after)
    if state is not None:
        query = query.where(SubscriptionRow.state == state)
    return list(session.exec(query))


def delete_undelivered(session: WriteSession, name: str) -> None:
    """Delete undelivered commands for a subscription that is being deleted."""
    session.exec(delete(OutboxRow).where(col(OutboxRow.subscription) == name, col(OutboxRow.delivered_at).is_(None)))
