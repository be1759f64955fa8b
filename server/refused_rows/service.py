"""Refused rows: the requests to the engine, and the views of its answers. Row values are not stored here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from engine.link.quarantine import RefusedRowPart, RefusedRowsBody
from engine.model.positions import PositionForm, single_mark
from engine.model.quarantine import RefusedState
from engine.model.table_state import TableStateKind
from server.db.session import ReadSession, WriteSession
from server.errors import Conflict, NotFound
from server.events.service import record_event
from server.lookup.subscriptions import require_subscription
from server.lookup.tables import refuse_removed_table, require_table
from server.refused_rows.schemas import RefusedCauseView, RefusedRowsOutcome, RefusedRowView, RefusedValue
from server.tables import reports as tables_reports

Action = Literal["list", "retry", "skip"]


class TableNotComplete(Conflict):
    code = "table_not_live"
    title = "The table is incomplete"
    default_remedy = (
        "A parked table holds no log: correct what its remedy names and POST …/tables/{table_id}/retries, which copies it again."
        " For any other table, wait until it is live."
    )


def refused_rows_payload(
    session: ReadSession, name: str, table_id: str, action: Action, rows: list[str] | None = None, by: str = ""
) -> dict[str, Any]:
    """The payload of the request to the engine; `rows` None: all rows of the table.

    Raises:
        NotFound: unknown subscription or table.
        TableRemoved: it was removed.
        TableNotComplete: the action changes rows, and the table is parked or its first copy is not complete.
    """
    subscription = require_subscription(session, name)
    row = require_table(session, name, table_id)
    refuse_removed_table(subscription, row)
    if action != "list" and row.state not in (TableStateKind.LIVE, TableStateKind.PAUSED):
        raise TableNotComplete(f"'{row.full_name}' is {row.state}.")
    return {"subscription": name, "table": table_id, "action": action, "rows": rows, "by": by}


def refused_row_views(answer: Mapping[str, Any], form: PositionForm) -> list[RefusedRowView]:
    """The engine's rows as the REST interface shows them."""
    return [_view(part, form) for part in RefusedRowsBody.model_validate(answer).rows]


def outcome_view(answer: Mapping[str, Any], row_id: str | None = None) -> RefusedRowsOutcome:
    """The outcome for the rows. Raises NotFound if a row named in the request no longer exists."""
    body = RefusedRowsBody.model_validate(answer)
    if row_id is not None and not body.found:
        raise NotFound(f"The table has no refused row '{row_id}' in quarantine.")
    return RefusedRowsOutcome(done=list(body.done), rows_set_aside=body.left)


def record_outcome(
    session: WriteSession, name: str, table_id: str, action: Action, by: str, answer: RefusedRowsOutcome
) -> None:
    """Record an event for the action and its user, without values."""
    row = require_table(session, name, table_id)
    tables_reports.set_rows_aside(session, require_subscription(session, name), {table_id: answer.rows_set_aside})
    what = "went into the table" if action == "retry" else "are to stay out of the table"
    count = len(answer.done)
    record_event(
        session,
        kind="refused_rows_retried" if action == "retry" else "refused_rows_skipped",
        subscription=name,
        subject=row.full_name,
        detail=f"{count} refused rows of '{row.full_name}' {what}, as '{by}' asked; {answer.rows_set_aside} are in quarantine.",
    )


def _view(part: RefusedRowPart, form: PositionForm) -> RefusedRowView:
    return RefusedRowView(
        id=part.row,
        state=RefusedState(part.state),
        operation=part.operation,
        key=list(part.key),
        values=[
            RefusedValue(column=name, type=type_, value=value)
            for (name, type_), value in zip(part.columns, part.values, strict=True)
        ],
        cause=RefusedCauseView(code=part.code, detail=part.detail, sqlstate=part.sqlstate),
        position=form.text(single_mark(part.position)),
        batch=part.batch,
        refused_at=datetime.fromisoformat(part.refused_at),
        skipped_by=part.ended_by,
        skipped_at=None if part.ended_at is None else datetime.fromisoformat(part.ended_at),
    )
