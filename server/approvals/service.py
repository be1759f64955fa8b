"""Approvals of schema changes for which a table is parked."""

from __future__ import annotations

from engine.model.table_state import TableStateKind
from server.db.models.table import TableRow
from server.db.outbox import enqueue
from server.db.session import WriteSession
from server.errors import Conflict
from server.events.service import record_event
from server.lookup.subscriptions import lock_changeable_subscription
from server.lookup.tables import lock_present_table
from server.verifications.service import require_running

WAITING = "schema_change_waiting"
"""Code of a table that is parked until its schema change is approved."""


class NothingToApprove(Conflict):
    code = "nothing_to_approve"
    title = "The table has no schema change to approve"
    default_remedy = (
        f"Only a table that is parked with the code `{WAITING}` takes an approval; a GET of the table shows both."
    )


class ApprovalOutdated(Conflict):
    code = "approval_outdated"
    title = "Another schema change waits for approval"
    default_remedy = "Look at the change that now waits for approval, and approve it by its reason."


def approve_change(session: WriteSession, name: str, table_id: str, reason: str | None) -> TableRow:
    """Let the engine apply the schema change for which the table is parked.

    `reason`: that of the change that the user approves; None: any.

    Raises:
        NotFound, SubscriptionDeleting, TableRemoved, NothingToApprove, ApprovalOutdated.
        SubscriptionNotRunning: no engine would apply it.
    """
    subscription = lock_changeable_subscription(session, name)
    row = lock_present_table(session, subscription, table_id)
    if not awaits_approval(row):
        parked = row.state == TableStateKind.PARKED
        detail = f"'{row.full_name}' is {row.state}" + (f" with the code '{row.code}': {row.reason}" if parked else ".")
        raise NothingToApprove(detail, row.remedy if parked else None)
    if reason is not None and reason != row.reason:
        raise ApprovalOutdated(
            f"'{row.full_name}' waits for the approval of another change now: {row.reason}",
            extra={"reason": row.reason},
        )
    require_running(subscription)
    record_event(
        session,
        kind="schema_change_approved",
        subscription=name,
        subject=row.full_name,
        detail=f"The change of the table '{row.full_name}' that waited was approved: {row.reason}",
    )
    enqueue(session, name, "approve", {"table": row.id, "reason": row.reason})
    return row


def awaits_approval(row: TableRow) -> bool:
    """Whether the table is parked until its schema change is approved."""
    return row.state == TableStateKind.PARKED and row.code == WAITING
