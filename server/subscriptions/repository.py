"""Deletes what belongs to subscriptions."""

from __future__ import annotations

from sqlmodel import col, delete

from server.db.models.outbox import OutboxRow
from server.db.session import WriteSession


def delete_undelivered(session: WriteSession, name: str) -> None:
    """Delete undelivered commands for a subscription that is being deleted."""
    session.exec(delete(OutboxRow).where(col(OutboxRow.subscription) == name, col(OutboxRow.delivered_at).is_(None)))
