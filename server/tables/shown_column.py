"""The table of a subscription that its capture needs, after changes of tables or capture."""

from __future__ import annotations

from engine.model.identity import TableName
from server.db.models.subscription import SubscriptionRow
from server.db.session import WriteSession
from server.declarations.captures import read_capture
from server.declarations.shown_column import refuse_hidden
from server.declarations.table_options import options_of
from server.tables import repository


def check_shown_column(session: WriteSession, subscription: SubscriptionRow, pointer: str | None = None) -> None:
    """Check the subscription as it is now. Raises as `refuse_hidden`; `pointer` as there."""
    named = read_capture(subscription.capture).shown_column()
    if named is None:
        return
    session.flush()
    rows = repository.list_present(session, subscription.id or 0)
    present = {TableName(row.schema_name, row.name): row for row in rows}
    row = present.get(named[0])
    refuse_hidden(named, None if row is None else options_of(row), pointer)
