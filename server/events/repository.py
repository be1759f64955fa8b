"""Reads and prunes events."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import col, delete, func, select
from sqlmodel.sql.expression import SelectOfScalar

from server.db.models.event import EventRow
from server.db.session import ReadSession, WriteSession


def select_events(**wanted: str | None) -> SelectOfScalar[EventRow]:
    """The query for events with these values in the columns of these names; None: any value."""
    return select(EventRow).filter_by(**{name: value for name, value in wanted.items() if value is not None})


def list_after(session: ReadSession, event_id: int, limit: int, subscription: str | None) -> list[EventRow]:
    """Events newer than `event_id`, oldest first."""
    query = select_events(subscription=subscription).where(col(EventRow.id) > event_id)
    return list(session.exec(query.order_by(col(EventRow.id)).limit(limit)))


def newest_id(session: ReadSession) -> int:
    return session.exec(select(func.max(EventRow.id))).one() or 0


def delete_before(session: WriteSession, moment: datetime) -> None:
    session.exec(delete(EventRow).where(col(EventRow.at) < moment))
