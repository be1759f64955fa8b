"""Writes the engine's reports of tables into their rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from engine.link.messages import CopyProgress
from engine.model.position import Lsn
from engine.model.table_state import TableStateKind
from server.assessment.copy_progress import COPIED
from server.assessment.faults import record_fault
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.session import WriteSession
from server.events.service import record_event
from server.schema_versions import service as versions
from server.tables import repository
from server.tables.schemas import TargetTable

_NOT_KEPT = "an engine parked it and ended before reporting the reason"


def set_state(
    session: WriteSession,
    table_id: str,
    state: TableStateKind,
    *,
    code: str | None = None,
    reason: str | None = None,
    remedy: str | None = None,
    position: Lsn | None = None,
) -> bool:
    """Set the table's state. Records history and an event if the state is new; returns whether it was.

    A removed table stays removed; an unknown id is ignored. A table reported as parked without a reason was parked before the engine
    started: the known reason stays.
    """
    row = session.get(TableRow, table_id, with_for_update=True)
    if row is None or row.state == TableStateKind.REMOVED:
        return False
    if state is TableStateKind.PARKED and reason is None:
        reason = row.reason if (row.state, row.code) == (state.value, code) else _NOT_KEPT
    if (row.state, row.code, row.reason) == (state.value, code, reason):
        return False
    before = TableStateKind(row.state)
    row.state, row.code, row.reason, row.remedy = state.value, code, reason, remedy
    row.state_position = position
    row.state_at = session.now()
    if state in (TableStateKind.COPYING, TableStateKind.RELOADING):
        row.differs = False
        row.reloaded_at = session.now()
    _update_copy_figures(row, before, state, session.now())
    session.add(row)
    versions.record_state(session, table_id, state, position=position, code=code, reason=reason)
    _record_state_event(session, row, state)
    return True


def _update_copy_figures(row: TableRow, before: TableStateKind, state: TableStateKind, now: datetime) -> None:
    """Reset a copy's figures when a state requests a copy, not when an engine restarts: it continues the copy, or reports a new one."""
    if state in COPIED and (before not in COPIED or row.copy_asked_at is None):
        row.copy_asked_at = now
        row.copied_rows = row.copied_bytes = 0
        row.copied_percent = row.copied_eta_seconds = None
        row.copied_total_rows = row.copied_total_bytes = row.copied_at = None
    if state not in COPIED:
        row.copied_rows_per_second = row.copied_bytes_per_second = None
    if state in (TableStateKind.CATCHING_UP, TableStateKind.LIVE) and row.copied_rows is not None:
        row.copied_percent, row.copied_eta_seconds = 100.0, 0.0
        row.copied_total_rows = row.copied_rows
        row.copied_bytes = row.copied_total_bytes or row.copied_bytes
        row.copied_at = now if before in COPIED else row.copied_at


def set_copy_progress(session: WriteSession, report: CopyProgress) -> None:
    """Store the progress of the table's copy. An unknown id is ignored."""
    row = session.get(TableRow, report.table)
    if row is None:
        return
    known = (row.copied_rows or 0, row.copied_bytes or 0, row.copied_percent or 0.0) if report.goes_on else (0, 0, 0.0)
    row.copied_rows = max(report.rows, known[0])
    row.copied_bytes = max(report.bytes, known[1])
    row.copied_percent = None if report.percent is None else max(report.percent, known[2])
    row.copied_eta_seconds = report.eta_seconds
    row.copied_total_rows = None if report.total_rows is None else max(report.total_rows, row.copied_rows)
    row.copied_total_bytes = None if report.total_bytes is None else max(report.total_bytes, row.copied_bytes)
    row.copied_rows_per_second, row.copied_bytes_per_second = report.rows_per_second, report.bytes_per_second
    row.copied_at = session.now()
    session.add(row)
    _touch_subscription(session, row)


def set_rows_aside(
    session: WriteSession, subscription: SubscriptionRow, counts: Mapping[str, int], *, whole: bool = False
) -> None:
    """Store the number of quarantined rows by table id; `whole`: other tables of the subscription have none."""
    for row in repository.list_present(session, subscription.id or 0):
        count = counts.get(row.id, 0 if whole else row.rows_set_aside)
        if row.rows_set_aside != count:
            row.rows_set_aside = count
            session.add(row)
            session.touch(subscription.name)


def set_dropped(session: WriteSession, table_id: str, left: str | None, remedy: str | None) -> None:
    """Store whether a removed table's target table was dropped; `left`: why it was not. Repeated reports are ignored."""
    row = session.get(TableRow, table_id)
    if row is None or row.target_table != TargetTable.TO_BE_DROPPED:
        return
    row.target_table = (TargetTable.DROPPED if left is None else TargetTable.NOT_DROPPED).value
    session.add(row)
    place = f"{row.target_schema}.{row.target_name}"
    record_event(
        session,
        kind="table_dropped" if left is None else "table_not_dropped",
        severity="info" if left is None else "warning",
        subscription=_touch_subscription(session, row),
        subject=row.full_name,
        detail=f"'{place}' was dropped on the target." if left is None else f"'{place}' stays on the target: {left}.",
        remedy=remedy,
    )


def _touch_subscription(session: WriteSession, row: TableRow) -> str | None:
    subscription = session.get(SubscriptionRow, row.subscription_id)
    if subscription is None:
        return None
    session.touch(subscription.name)
    return subscription.name


def _record_state_event(session: WriteSession, row: TableRow, state: TableStateKind) -> None:
    parked = state is TableStateKind.PARKED
    subscription = session.get(SubscriptionRow, row.subscription_id)
    if parked and subscription is not None:
        detail = f"{row.full_name} is parked: {row.reason or row.code}"
        code = row.code or "table_parked"
        record_fault(session, subscription, code=code, detail=detail, remedy=row.remedy, table=row.id)
    # A reload that a user requested has no code; any other one has the reason.
    unasked = state is TableStateKind.RELOADING and row.code is not None
    record_event(
        session,
        kind=(row.code or "table_parked") if parked else f"table_{state.value}",
        severity="error" if parked else "warning" if unasked else "info",
        subscription=_touch_subscription(session, row),
        subject=row.full_name,
        detail=f"The table '{row.full_name}' is {state.value}: {row.reason or row.code}"
        if parked or unasked
        else f"The table '{row.full_name}' is {state.value}.",
        remedy=row.remedy,
        table_state=state,
    )
