"""Records events. They are written, and sent to open event streams, when the session commits."""

from __future__ import annotations

from engine.model.table_state import TableStateKind
from server.db.models.event import SUBJECT_LONGEST, EventRow
from server.db.session import WriteSession
from server.events.schemas import Severity


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
    """Record an event, without row values or secrets.

    `kind` is a stable name; `severity` one of info, warning, error; `subject` the table, slot or file concerned;
    `table_state` the new state of the table, if the event is a change of state.
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
