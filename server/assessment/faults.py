"""The newest fault of a subscription, stored in its row."""

from __future__ import annotations

from server.db.models.subscription import SubscriptionRow
from server.db.session import WriteSession


def record_fault(
    session: WriteSession,
    row: SubscriptionRow,
    *,
    code: str,
    detail: str,
    remedy: str | None,
    table: str | None = None,
) -> None:
    """Store the newest fault. `table`: the id of the table that it parked; None if it affects the whole subscription."""
    at = session.now().isoformat()
    row.last_fault = {"at": at, "code": code, "detail": detail, "remedy": remedy, "table": table}
    session.add(row)
