"""Reads and prunes events."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import col, delete, desc, func, select

from server.db.models.event import EventRow
from server.db.session import ReadSession, WriteSession


def page(
    session: ReadSession,
    *,
    before: int | None,
    limit: int,
    subscription: str | None,
    kind: str | None,
    severity: str | None,
    subject: str | None,
) -> list[EventRow]:
    """Events older than id `before`, newest first."""
    query = select(EventRow).order_by(desc(col(EventRow.id))).limit(limit)
    if before is not None:
        query = query.where(col(EventRow.id) < before)
    if subscription is not None:
        query = query.where(EventRow.subscription == subscription)
    if kind is not None:
        query = query.where(EventRow.kind == kind)
    if severity is not None:
        query = query.where(EventRow.severity == severity)
    if subject is not None:
        query = query.where(EventRow.subject == subject)
    return list(session.exec(query))


def list_after(session: ReadSession, event_id: int, limit: int, subscription: str | None) -> list[EventRow]:
    """Events newer than `event_id`, oldest first."""
    query = select(EventRow).where(col(EventRow.id) > event_id).order_by(col(EventRow.id)).limit(limit)
    if subscription is not None:
        query = query.where(EventRow.subscription == subscription)
    return list(session.exec(query))


def newest_id(session: ReadSession) -> int:
    return session.exec(select(func.max(EventRow.id))).one() or 0


def delete_before(session: WriteSession, moment: datetime) -> None:
    session.exec(delete(EventRow).where(col(EventRow.at) < moment))
