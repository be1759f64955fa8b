"""Finds subscriptions by name, for reading and for changing."""

from __future__ import annotations

from sqlalchemy.orm import object_session
from sqlmodel import select

from engine.connectors import DEFAULT_CAPTURE, SOURCES
from engine.kinds import Consistency, SourceKind
from engine.model.position import Lsn
from engine.model.positions import PositionForm, text_of
from server.db.models.connection import ConnectionRow
from server.db.models.subscription import SubscriptionRow
from server.db.session import ReadSession, WriteSession
from server.declarations.captures import CAPTURES, FORMS
from server.errors import Conflict, NotFound


class SubscriptionDeleting(Conflict):
    code = "subscription_deleting"
    title = "The subscription is being deleted"
    default_remedy = "Wait until a GET answers 404, or DELETE it with force=true."


def require_subscription(session: ReadSession, name: str) -> SubscriptionRow:
    """The subscription of this name.

    Raises:
        NotFound: there is none.
    """
    row = session.exec(select(SubscriptionRow).where(SubscriptionRow.name == name)).first()
    if row is None:
        raise NotFound(f"There is no subscription named '{name}'.", "GET /api/v1/subscriptions lists them.")
    return row


def lock_subscription(session: WriteSession, name: str) -> SubscriptionRow | None:
    """The subscription, locked until the end of the transaction."""
    return session.exec(select(SubscriptionRow).where(SubscriptionRow.name == name).with_for_update()).first()


def lock_changeable_subscription(session: WriteSession, name: str) -> SubscriptionRow:
    """The subscription, locked, if it may be changed.

    Raises:
        NotFound: there is none.
        SubscriptionDeleting: it is being deleted.
    """
    row = lock_subscription(session, name)
    if row is None:
        return require_subscription(session, name)
    if row.deleting:
        raise SubscriptionDeleting(f"The subscription '{name}' is being deleted.")
    return row


def position_form(row: SubscriptionRow) -> PositionForm:
    """How positions of the subscription's source are written and measured."""
    kind = _source_kind(row)
    return FORMS[_capture(row)] if kind is None else kind.terms.form


def consistency_of(row: SubscriptionRow) -> Consistency:
    """Which states of its source readers of the subscription see."""
    kind = _source_kind(row)
    capture = CAPTURES[_capture(row)] if kind is None else kind.capture
    return capture.model_validate(row.capture).promised()


def _source_kind(row: SubscriptionRow) -> SourceKind | None:
    """How its changes are captured; None if only one kind of connection has a capture of this name, or the row is of no session."""
    capture = _capture(row)
    session = object_session(row) if sum(name == capture for _, name in SOURCES) > 1 else None
    connection = None if session is None else session.get(ConnectionRow, row.source_id)
    return None if connection is None else SOURCES.get((connection.kind, capture))


def _capture(row: SubscriptionRow) -> str:
    return str(row.capture.get("kind", DEFAULT_CAPTURE))


def position_text(session: ReadSession, subscription_id: int, position: Lsn | None) -> str | None:
    """A position in the text form of the subscription's source."""
    return (
        None
        if position is None
        else text_of(position_form(session.get_one(SubscriptionRow, subscription_id)), position)
    )
