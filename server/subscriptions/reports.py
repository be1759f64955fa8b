"""Writes the engines' reports of subscriptions into their rows."""

from __future__ import annotations

from collections.abc import Sequence

from engine.link.messages import Progress
from engine.model.subscription_state import SubscriptionState
from server.assessment.faults import record_fault
from server.db.models.subscription import SubscriptionRow
from server.db.session import WriteSession
from server.events.service import record_event
from server.lookup.subscriptions import lock_subscription
from server.subscriptions.service import erase_subscription


def set_subscription_state(
    session: WriteSession,
    row: SubscriptionRow,
    state: SubscriptionState,
    *,
    code: str | None = None,
    reason: str | None = None,
    remedy: str | None = None,
) -> bool:
    """Set the state of the subscription. Records an event if the state is new; returns whether it was.

    The state of a subscription that is being deleted does not change.
    """
    if (row.state, row.code, row.reason) == (state.value, code, reason) or row.deleting:
        return False
    row.state, row.code, row.reason, row.remedy = state.value, code, reason, remedy
    row.state_at = session.now()
    failed = state is SubscriptionState.FAILED
    if failed or reason is not None:
        record_fault(
            session, row, code=code or "subscription_failed", detail=reason or "no reason was given", remedy=remedy
        )
    session.add(row)
    session.touch(row.name)
    record_event(
        session,
        kind=(code or "subscription_failed") if failed else f"subscription_{state.value}",
        severity="error" if failed else "info",
        subscription=row.name,
        detail=f"'{row.name}' failed: {reason}" if failed else f"'{row.name}' is {state.value}.",
        remedy=remedy,
    )
    return True


def set_progress(session: WriteSession, row: SubscriptionRow, report: Progress) -> None:
    """Store a report of progress. Fields missing in the report keep their last value, except the lag."""
    row.applied_position = report.applied
    row.source_position = report.source or row.source_position
    row.captured_position = report.captured or row.captured_position
    row.lag_bytes, row.lag_seconds = report.lag_bytes, report.lag_seconds
    row.retained_bytes = row.retained_bytes if report.retained_bytes is None else report.retained_bytes
    away = (f"{name} ({each.reason})" for name, each in sorted(report.away_logs.items()))
    row.nodes_away = ", ".join(away) or None
    row.progress_at = report.at
    session.add(row)
    session.touch(row.name)


def finish_forget(session: WriteSession, name: str, left: Sequence[str]) -> None:
    """The engine has released a deleted subscription; `left` names what it could not remove. Safe to repeat."""
    row = lock_subscription(session, name)
    if row is not None and row.deleting:
        erase_subscription(session, row, left)
