"""Read points: what is stored of them, and how they are shown with what the engine keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from sqlmodel import col, delete, or_, select

from engine.link.read_points import ReadPointPart, ReadPointsBody
from engine.model.positions import single_mark
from server.db.models.read_point import ReadPointRow
from server.db.models.schema_version import SchemaVersionRow
from server.db.models.table import TableRow
from server.db.session import ReadSession, WriteSession
from server.lookup.read_points import find_read_point, unknown_read_point, why_not_kept
from server.lookup.subscriptions import position_form, require_subscription
from server.read_points.schemas import ReadPointTable, ReadPointView
from server.tables.schemas import TableTarget

_KEPT_DAYS = 7
"""Days after its end during which a read point is still listed."""


def store_read_point(session: WriteSession, subscription: str, part: ReadPointPart) -> ReadPointRow:
    """Store a read point that the engine has created, in place of an ended one of the same name."""
    owner = require_subscription(session, subscription)
    old = col(ReadPointRow.expires_at) < session.now() - timedelta(days=_KEPT_DAYS)
    same = col(ReadPointRow.name) == part.name
    session.exec(delete(ReadPointRow).where(col(ReadPointRow.subscription_id) == owner.id, or_(old, same)))
    row = _row(owner.id or 0, part)
    session.add(row)
    session.flush()
    return row


def delete_read_point(session: WriteSession, subscription: str, name: str) -> bool:
    """Delete what is stored of a read point. False if nothing is."""
    row = find_read_point(session, subscription, name)
    if row is not None:
        session.delete(row)
    return row is not None


def read_point_views(
    session: ReadSession, subscription: str, kept: ReadPointsBody | None, now: datetime
) -> list[ReadPointView]:
    """All read points, by name. `kept`: the engine's answer; None: there was none."""
    owner = require_subscription(session, subscription)
    query = select(ReadPointRow).where(ReadPointRow.subscription_id == owner.id).order_by(col(ReadPointRow.name))
    rows = {row.id: row for row in session.exec(query).all()}
    for part in kept.points if kept is not None else ():
        rows.setdefault(part.id, _row(owner.id or 0, part))
    return [
        read_point_view(session, subscription, row, kept, now)
        for row in sorted(rows.values(), key=lambda row: row.name)
    ]


def require_view(
    session: ReadSession, subscription: str, name: str, kept: ReadPointsBody | None, now: datetime
) -> ReadPointView:
    """Raises NotFound if there is no read point of this name."""
    found = [view for view in read_point_views(session, subscription, kept, now) if view.name == name]
    if not found:
        raise unknown_read_point(name)
    # One whose creation was not stored may have the name of an ended one that is.
    return next((view for view in found if view.state == "held"), found[0])


def read_point_view(
    session: ReadSession, subscription: str, row: ReadPointRow, kept: ReadPointsBody | None, now: datetime
) -> ReadPointView:
    """A read point, with the state that follows from the engine's answer."""
    state: Literal["held", "ended", "unknown"] = "unknown"
    reason = None
    if kept is not None and any(part.id == row.id for part in kept.points):
        state = "held"
    elif kept is not None or row.expires_at <= now:
        state = "ended"
        known = {part.id: part.reason for part in kept.ended} if kept is not None else {}
        reason = known.get(row.id) or why_not_kept(row, now)
    form = position_form(require_subscription(session, subscription))
    return ReadPointView(
        name=row.name,
        state=state,
        reason=reason,
        position=form.text(single_mark(row.position)),
        committed_at=row.committed_at,
        created_at=row.created_at,
        expires_at=row.expires_at,
        tables=_tables(session, row),
    )


def _row(subscription_id: int, part: ReadPointPart) -> ReadPointRow:
    return ReadPointRow(
        id=part.id,
        subscription_id=subscription_id,
        name=part.name,
        position=part.position,
        committed_at=None if part.committed_us is None else _moment(part.committed_us),
        created_at=_moment(part.created_us),
        expires_at=_moment(part.expires_us),
        tables=[one.model_dump(mode="json") for one in part.tables],
    )


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


def _tables(session: ReadSession, row: ReadPointRow) -> list[ReadPointTable]:
    ids = [one["table"] for one in row.tables]
    names = {found.id: found for found in session.exec(select(TableRow).where(col(TableRow.id).in_(ids))).all()}
    versions = _versions(session, row, ids)
    tables = [_table(names[one["table"]], one, versions) for one in row.tables if one["table"] in names]
    return sorted(tables, key=lambda one: (one.schema_name, one.name))


def _versions(session: ReadSession, row: ReadPointRow, ids: Collection[str]) -> Mapping[str, int]:
    """How many structures of each table are valid from a position that the read point has reached."""
    query = select(SchemaVersionRow).where(
        col(SchemaVersionRow.table_id).in_(ids), SchemaVersionRow.change == "structure"
    )
    found = session.exec(query).all()
    reached = (one.table_id for one in found if one.position is None or one.position <= row.position)
    return Counter(reached)


def _table(row: TableRow, part: Mapping[str, Any], versions: Mapping[str, int]) -> ReadPointTable:
    return ReadPointTable(
        id=row.id,
        schema_name=row.schema_name,
        name=row.name,
        target=TableTarget(schema_name=part["schema"], name=part["name"]),
        schema_version=versions.get(row.id),
        complete=part["complete"],
    )
