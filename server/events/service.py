"""Records events; they are written, and told to those who watch, with the commit of the session."""

from __future__ import annotations

from server.db.models.event import EventRow
from server.db.session import WriteSession
from server.events.schemas import EventView, Severity


def record_event(
    session: WriteSession,
    *,
    kind: str,
    detail: str,
    severity: str = "info",
    subscription: str | None = None,
    subject: str | None = None,
    remedy: str | None = None,
) -> None:
    """Note that something happened. No row values, no secrets.

    `kind` is a stable name; `severity` one of info, warning, error; `subject` the table, slot or file it is about.
    """
    session.add_event(
        EventRow(
            at=session.now(),
            severity=Severity(severity).value,
            kind=kind,
            subscription=subscription,
            subject=subject,
            detail=detail,
            remedy=remedy,
        )
    )


def view(row: EventRow) -> EventView:
    return EventView(
        id=str(row.id),
        at=row.at,
        severity=Severity(row.severity),
        kind=row.kind,
        subscription=row.subscription,
        subject=row.subject,
        detail=row.detail,
        remedy=row.remedy,
    )
