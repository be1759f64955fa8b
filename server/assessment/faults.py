"""The newest fault of a subscription, kept in its row."""

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
    """The newest fault; `table`: the id of the one that it parked, None where it is of the whole subscription."""
    at = session.now().isoformat()
    row.last_fault = {"at": at, "code": code, "detail": detail, "remedy": remedy, "table": table}
    session.add(row)
