"""Which engine runs which subscription: registration, claims and losses, in the control database.

A subscription's epoch increases whenever it is assigned to another engine process, so that reports of the previous one are recognised.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta

from sqlmodel import col, delete, select

from engine.link.messages import Registration
from engine.model.subscription_state import SubscriptionEvent, SubscriptionState, next_state
from engine.model.table_state import Refused
from server.db.models.engine import EngineRow
from server.db.models.subscription import SubscriptionRow
from server.db.session import ReadSession, WriteSession
from server.errors import NotFound
from server.events.service import record_event
from server.subscriptions.reports import set_subscription_state

_KEPT = timedelta(days=7)
"""How long a disconnected engine stays listed."""

Holds = Callable[[str], bool]
"""Whether the engine with this id is connected, or its lease has not expired."""


def register_engine(session: WriteSession, registration: Registration) -> EngineRow:
    """The engine's row, created if the process is not known yet."""
    now = session.now()
    row = session.exec(select(EngineRow).where(EngineRow.instance == registration.instance)).first()
    if row is None:
        row = EngineRow(
            id=f"e{secrets.token_hex(6)}",
            instance=registration.instance,
            name=registration.name,
            version=registration.version,
            registered_at=now,
            seen_at=now,
        )
        record_event(
            session,
            kind="engine_registered",
            severity="info",
            subject=registration.name,
            detail=f"Engine '{registration.name}' has registered.",
        )
        _delete_old_engines(session)
    row.seen_at = now
    session.add(row)
    return row


def _delete_old_engines(session: WriteSession) -> None:
    oldest = session.now() - _KEPT
    owners = select(SubscriptionRow.engine_id).where(col(SubscriptionRow.engine_id).is_not(None))
    session.exec(delete(EngineRow).where(col(EngineRow.seen_at) < oldest, col(EngineRow.id).not_in(owners)))


def require_engine(session: ReadSession, engine_id: str) -> EngineRow:
    """An engine.

    Raises:
        NotFound: it is unknown here and must register.
    """
    row = session.get(EngineRow, engine_id)
    if row is None:
        raise NotFound(f"There is no engine '{engine_id}'.", "Register the engine again.")
    return row


def list_engines(session: ReadSession) -> list[EngineRow]:
    return list(session.exec(select(EngineRow).order_by(col(EngineRow.registered_at).desc(), EngineRow.id)))


def assigned_subscriptions(session: ReadSession, engine_id: str) -> dict[str, int]:
    """Subscriptions of an engine with their epochs."""
    rows = session.exec(select(SubscriptionRow).where(SubscriptionRow.engine_id == engine_id))
    return {row.name: row.epoch for row in rows}


def engines_with_subscriptions(session: ReadSession) -> set[str]:
    """Engines that have subscriptions."""
    found = session.exec(select(SubscriptionRow.engine_id).distinct())
    return {engine_id for engine_id in found if engine_id is not None}


def claim_subscriptions(session: WriteSession, engine_id: str, holds: Holds, connected: Holds) -> dict[str, int]:
    """Assign to an engine its own subscriptions and all that no engine holds; returns all its subscriptions, with epochs.

    Its own subscriptions keep their epoch. Those of a disconnected engine of the same name are reassigned at once: that process was
    restarted.
    """
    engine = require_engine(session, engine_id)
    engine.lost_at = None
    session.add(engine)
    namesakes = set(session.exec(select(EngineRow.id).where(EngineRow.name == engine.name, EngineRow.id != engine_id)))
    for row in session.exec(select(SubscriptionRow).with_for_update()):
        owner = row.engine_id
        replaced = owner in namesakes and not connected(owner)
        if owner == engine_id or (owner is not None and holds(owner) and not replaced):
            continue
        row.engine_id = engine_id
        row.epoch += 1
        session.add(row)
        session.touch(row.name)
    session.flush()
    return assigned_subscriptions(session, engine_id)


def release_engine(session: WriteSession, engine_id: str) -> list[str]:
    """Mark the subscriptions of an engine whose lease has expired. Returns their names."""
    engine = session.get(EngineRow, engine_id)
    if engine is not None:
        engine.lost_at = session.now()
        session.add(engine)
    names = []
    for row in session.exec(select(SubscriptionRow).where(SubscriptionRow.engine_id == engine_id)):
        names.append(row.name)
        after = next_state(SubscriptionState(row.state), SubscriptionEvent.LOST)
        if not isinstance(after, Refused):
            set_subscription_state(session, row, after)
        record_event(
            session,
            kind="engine_lost",
            severity="warning",
            subscription=row.name,
            subject=engine.name if engine else engine_id,
            detail=f"The engine of '{row.name}' is gone; waits continue until their deadline.",
            remedy="Start an engine with 'penstock engine'; it continues the subscription where it was.",
        )
    return names
