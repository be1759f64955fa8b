"""Reads and writes connections."""

from __future__ import annotations

from collections.abc import Iterable

from sqlmodel import col, or_, select

from server.db.models.connection import ConnectionRow
from server.db.models.subscription import SubscriptionRow
from server.db.session import ReadSession, WriteSession


def find_connection(session: ReadSession, name: str) -> ConnectionRow | None:
    return session.exec(select(ConnectionRow).where(ConnectionRow.name == name)).first()


def lock_connection(session: WriteSession, name: str) -> ConnectionRow | None:
    """The connection, locked until the end of the transaction."""
    return session.exec(select(ConnectionRow).where(ConnectionRow.name == name).with_for_update()).first()


def connections_by_id(session: ReadSession, ids: Iterable[int]) -> dict[int, ConnectionRow]:
    rows = session.exec(select(ConnectionRow).where(col(ConnectionRow.id).in_(set(ids))))
    return {row.id: row for row in rows if row.id is not None}


def list_subscriptions_using(session: ReadSession, connection_id: int) -> list[SubscriptionRow]:
    """Subscriptions that use this connection."""
    query = select(SubscriptionRow).where(
        or_(SubscriptionRow.source_id == connection_id, SubscriptionRow.target_id == connection_id)
    )
    return list(session.exec(query.order_by(col(SubscriptionRow.name))))
