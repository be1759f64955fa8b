"""Retries: a parked table is followed again after its cause was removed.

No log is kept for a parked table, so its changes since then are only in the source's rows. Whatever the cause, the
table is therefore reloaded; its old rows stay readable until then. Causes that a copy would meet again are checked
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.model.fault import FaultKind
from engine.model.table_state import TableStateKind
from server.approvals.service import awaits_approval
from server.connections import repository as connections
from server.connections.schemas import FindingView
from server.connections.service import connection_with_secrets
from server.db.models.reload import ReloadRow
from server.db.models.table import TableRow
from server.db.session import ReadSession, WriteSession
from server.declarations.captures import read_capture
from server.errors import Conflict
from server.events.service import record_event
from server.lookup.subscriptions import lock_changeable_subscription, require_subscription
from server.lookup.tables import lock_present_table, refuse_removed_table, require_table
from server.reloads import service as reloads
from server.security.secret_box import SecretBox
from server.subscriptions.assignment import build_table
from server.verifications.service import require_running

IN_THE_WAY: frozenset[str] = frozenset(
    {
        FaultKind.TABLE_MISSING.value,
        FaultKind.TABLE_NO_IDENTITY.value,
        FaultKind.TABLE_NOT_LOGGED.value,
        FaultKind.TABLE_NOT_SENT.value,
        FaultKind.TABLE_COLUMNS_UNFIT.value,
        FaultKind.TABLE_NODES_DIFFER.value,
        FaultKind.TABLE_NAME_COLLISION.value,
        FaultKind.TABLE_UNFIT.value,
        FaultKind.SHARED_TABLE_CONFLICT.value,
    }
)
"""Findings that fail any copy of a table. Others count if the table was parked for them: a missing privilege, for instance."""


class NothingToRetry(Conflict):
    code = "nothing_to_retry"
    title = "The table is not parked"
    default_remedy = "Only a parked table is tried again; a reload copies any other."


class CauseRemains(Conflict):
    code = "cause_remains"
    title = "The cause of the parking remains"
    default_remedy = "Correct what the findings name, then try again."


def preflight_payloads(session: ReadSession, box: SecretBox, name: str, table_id: str) -> list[dict[str, Any]]:
    """The requests to engines before the retry: `preflight` of source and target, for this table.

    Raises:
        NotFound, TableRemoved, NothingToRetry, SubscriptionNotRunning, SecretsUnreadable.
    """
    subscription = require_subscription(session, name)
    row = require_table(session, name, table_id)
    refuse_removed_table(subscription, row)
    _require_parked(row, name)
    require_running(subscription)
    ends = connections.connections_by_id(session, [subscription.source_id, subscription.target_id])
    captured = {"capture": read_capture(subscription.capture).assigned()["capture"]}
    return [
        {
            "connection": connection_with_secrets(session, ends[end], box),
            "role": role,
            "tables": [build_table(session, table_id)],
            **more,
        }
        for role, end, more in (
            ("source", subscription.source_id, captured),
            ("target", subscription.target_id, dict[str, Any]()),
        )
    ]


def begin_retry(session: WriteSession, name: str, table_id: str, findings: Sequence[FindingView]) -> ReloadRow:
    """Reload the table, unless the findings show that the copy would fail.

    Raises:
        NothingToRetry: the table is no longer parked.
        CauseRemains: a finding remains that would fail the copy.
        NotFound, SubscriptionDeleting, TableRemoved, SubscriptionNotRunning, ReloadRunning.
    """
    subscription = lock_changeable_subscription(session, name)
    row = lock_present_table(session, subscription, table_id)
    _require_parked(row, name)
    still = [f for f in findings if f.severity == "error" and f.code in IN_THE_WAY | {row.code}]
    if still:
        raise CauseRemains(
            f"'{row.full_name}' would be parked again: {'; '.join(finding.what for finding in still)}.",
            " ".join(dict.fromkeys(finding.remedy for finding in still)),
            extra={"findings": [finding.model_dump() for finding in still]},
        )
    reload = reloads.begin_reload(session, name, table_id)
    record_event(
        session,
        kind="table_retried",
        subscription=name,
        subject=row.full_name,
        detail=f"The table '{row.full_name}' is tried again; it was parked with '{row.code}': {row.reason}",
    )
    return reload


def _require_parked(row: TableRow, subscription: str) -> None:
    if awaits_approval(row):
        detail = f"'{row.full_name}' waits for the approval of a change: {row.reason}"
        raise NothingToRetry(detail, row.remedy or f"POST /subscriptions/{subscription}/tables/{row.id}/approvals.")
    if row.state != TableStateKind.PARKED:
        raise NothingToRetry(f"'{row.full_name}' is {row.state}.")
