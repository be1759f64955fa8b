"""Read points of a subscription by name, and why one that no engine keeps has ended."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import select

from server.db.models.read_point import ReadPointRow
from server.db.session import ReadSession
from server.errors import Conflict, NotFound
from server.lookup.subscriptions import require_subscription


class ReadPointEnded(Conflict):
    code = "read_point_ended"
    title = "The read point has ended"
    default_remedy = "Create another read point, and give it the time that its queries need."


def find_read_point(session: ReadSession, subscription: str, name: str) -> ReadPointRow | None:
    """The last read point of this name. Raises NotFound if there is no such subscription."""
    owner = require_subscription(session, subscription)
    query = select(ReadPointRow).where(ReadPointRow.subscription_id == owner.id, ReadPointRow.name == name)
    return session.exec(query).first()


def unknown_read_point(name: str) -> NotFound:
    return NotFound(
        f"There is no read point '{name}'.",
        "Create it, or check its name in the list of the subscription's read points.",
    )


def why_not_kept(row: ReadPointRow, now: datetime) -> str:
    """Why a read point has ended that the engine does not know any more."""
    if row.expires_at <= now:
        return "its time was over"
    return "the engine that kept it was restarted, or another engine runs the subscription now"


def ended_or_unknown(session: ReadSession, subscription: str, name: str, now: datetime) -> ReadPointEnded | NotFound:
    """The problem of a query at a read point that the engine does not know."""
    row = find_read_point(session, subscription, name)
    if row is None:
        return unknown_read_point(name)
    return ReadPointEnded(f"The read point '{name}' has ended: {why_not_kept(row, now)}.")
