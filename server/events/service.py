"""Records events; they are written, and sent to open event streams, with the commit of the session."""

from __future__ import annotations

from engine.model.table_state import TableStateKind
from server.db.models.event import SUBJECT_LONGEST, EventRow
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
    table_state: TableStateKind | None = None,
) -> None:
    """Note that something happened. No row values, no secrets.

    `kind` is a stable name; `severity` one of info, warning, error; `subject` the table, slot or file it is about;
    `table_state` the state that this table came into, where that is what happened.
    """
    session.add_event(
        EventRow(
            at=session.now(),
            severity=Severity(severity).value,
            kind=kind,
            subscription=subscription,
            subject=None if subject is None else subject[:SUBJECT_LONGEST],
            table_state=None if table_state is None else table_state.value,
            detail=detail,
            remedy=remedy,
        )
    )


def event_view(row: EventRow) -> EventView:
    return EventView(
        id=str(row.id),
        at=row.at,
        severity=Severity(row.severity),
        kind=row.kind,
        subscription=row.subscription,
        subject=row.subject,
        table_state=None if row.table_state is None else TableStateKind(row.table_state),
        detail=row.detail,
        remedy=row.remedy,
    )
