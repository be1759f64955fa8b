"""Puts commands for the engine into the outbox of the current transaction; they are sent after its commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from server.db.models.outbox import OutboxRow
from server.db.session import WriteSession


def enqueue(session: WriteSession, subscription: str | None, kind: str, payload: Mapping[str, Any]) -> OutboxRow:
    """Add a command that is sent once `session` is committed. `payload` contains names and ids, no secrets."""
    row = OutboxRow(subscription=subscription, kind=kind, payload=dict(payload), created_at=session.now())
    session.add(row)
    session.ring_outbox()
    if subscription is not None:
        session.declare(subscription)
    return row
