"""Reads and writes connections."""

from __future__ import annotations

from collections.abc import Iterable

from sqlmodel import col, or_, select

from engine.connectors import CONNECTIONS
from server.db.models.connection import ConnectionRow, nodes_in
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


def list_connections_with_node(session: ReadSession, row: ConnectionRow) -> list[ConnectionRow]:
    """Connections of which this one is a node."""
    kinds = [kind.name for kind in CONNECTIONS.values() if kind.nodes_of == row.kind]
    query = select(ConnectionRow).where(col(ConnectionRow.kind).in_(kinds)).order_by(col(ConnectionRow.name))
    return [other for other in session.exec(query) if row.name in nodes_in(other.settings).values()]


def list_subscriptions_using(session: ReadSession, *connections: ConnectionRow) -> list[SubscriptionRow]:
    """Subscriptions that use one of these connections themselves, not as a node."""
    ids = [row.id for row in connections]
    query = select(SubscriptionRow).where(
        or_(col(SubscriptionRow.source_id).in_(ids), col(SubscriptionRow.target_id).in_(ids))
    )
    return list(session.exec(query.order_by(col(SubscriptionRow.name))))
