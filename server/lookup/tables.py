"""Finds a table of a subscription by its id, for reading and for changing."""

from __future__ import annotations

from sqlmodel import select

from engine.model.table_state import TableStateKind
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.session import ReadSession, WriteSession
from server.errors import Conflict, NotFound
from server.lookup.subscriptions import require_subscription


class TableRemoved(Conflict):
    code = "table_removed"
    title = "The table was removed"
    default_remedy = "Add it again; it gets a new id and is copied again."


def require_table(session: ReadSession, name: str, table_id: str) -> TableRow:
    """The table of this id in the subscription `name`, including removed ones.

    Raises:
        NotFound: there is no such subscription, or no such table in it.
    """
    return _find_table(session, require_subscription(session, name), table_id)


def lock_present_table(session: WriteSession, subscription: SubscriptionRow, table_id: str) -> TableRow:
    """A table to be changed, locked until the end of the transaction.

    Raises:
        NotFound: the subscription has none with this id.
        TableRemoved: the table was removed.
    """
    row = _find_table(session, subscription, table_id, for_update=True)
    refuse_removed_table(subscription, row)
    return row


def refuse_removed_table(subscription: SubscriptionRow, row: TableRow) -> None:
    """Raises TableRemoved if the table is no longer part of the subscription."""
    if row.state == TableStateKind.REMOVED:
        raise TableRemoved(f"'{row.full_name}' with the id {row.id} was removed from '{subscription.name}'.")


def _find_table(
    session: ReadSession, subscription: SubscriptionRow, table_id: str, *, for_update: bool = False
) -> TableRow:
    query = select(TableRow).where(TableRow.subscription_id == subscription.id, TableRow.id == table_id)
    row = session.exec(query.with_for_update() if for_update else query).first()
    if row is None:
        raise NotFound(
            f"The subscription '{subscription.name}' has no table with the id '{table_id}'.",
            f"GET /api/v1/subscriptions/{subscription.name}/tables lists them.",
        )
    return row
