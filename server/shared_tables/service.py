"""The shared tables of a target, derived from the declarations of subscriptions."""

from __future__ import annotations

from engine.connectors import CONNECTIONS
from engine.model.positions import text_of
from engine.model.shared import SharedInto
from engine.model.table_state import TableStateKind
from server.db.models.connection import ConnectionRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.session import ReadSession
from server.declarations.table_body import shared_from
from server.lookup.subscriptions import position_form
from server.shared_tables.schemas import MemberView, SharedTableView
from server.tables import repository
from server.tables.schemas import TableTarget, TargetTable


def shared_tables(session: ReadSession, target: ConnectionRow) -> list[SharedTableView]:
    """The shared tables of this target connection, by schema and name.

    Tables of deleted subscriptions are not among the members.
    """
    fold = CONNECTIONS[target.kind].fold
    members: dict[tuple[str, str], tuple[TableRow, SubscriptionRow]] = {}
    for row, subscription in repository.list_ever_on_target(session, target.id or 0):
        # Rows are in the order of their addition: a target table that was taken over belongs to the later one.
        members[fold(row.target_schema), fold(row.target_name)] = row, subscription
    found: dict[tuple[str, str], SharedTableView] = {}
    for row, subscription in members.values():
        into = shared_from(row.shared_into)
        if into is None or _is_gone(row):
            continue
        view = found.setdefault(
            (fold(into.relation.schema), fold(into.relation.name)),
            SharedTableView(
                schema_name=into.relation.schema,
                name=into.relation.name,
                source_column=into.source_column,
                members=[],
            ),
        )
        view.members.append(_member(row, subscription, into))
    for view in found.values():
        view.members.sort(key=lambda member: member.source_value)
    return sorted(found.values(), key=lambda view: (view.schema_name, view.name))


def _is_gone(row: TableRow) -> bool:
    never_copied = row.state == TableStateKind.REMOVED and row.copied_rows is None
    return never_copied or row.target_table == TargetTable.DROPPED.value


def _member(row: TableRow, subscription: SubscriptionRow, into: SharedInto) -> MemberView:
    return MemberView(
        subscription=subscription.name,
        id=row.id,
        schema_name=row.schema_name,
        name=row.name,
        source_value=into.source_value,
        target=TableTarget(schema_name=row.target_schema, name=row.target_name),
        state=TableStateKind(row.state),
        target_table=TargetTable(row.target_table) if row.target_table is not None else None,
        position=text_of(position_form(subscription), subscription.applied_position),
    )
