"""Reads tables of subscriptions."""

from __future__ import annotations

from collections.abc import Iterable

from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from engine.model.table_state import TableStateKind
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.session import ReadSession, WriteSession
from server.tables.schemas import TargetTable

_REMOVED = TableStateKind.REMOVED.value


def list_present(session: ReadSession, subscription_id: int) -> list[TableRow]:
    """All tables but removed ones, by schema and name."""
    query = select(TableRow).where(TableRow.subscription_id == subscription_id, TableRow.state != _REMOVED)
    return list(session.exec(query.order_by(col(TableRow.schema_name), col(TableRow.name))))


def list_others_on_target(session: ReadSession, subscription: SubscriptionRow) -> list[tuple[TableRow, str]]:
    """Tables of other subscriptions with the same target, each with the name of its subscription; not of those that are being deleted."""
    query = select(TableRow, SubscriptionRow.name).join(
        SubscriptionRow, col(SubscriptionRow.id) == col(TableRow.subscription_id)
    )
    query = query.where(
        SubscriptionRow.target_id == subscription.target_id,
        SubscriptionRow.id != subscription.id,
        col(SubscriptionRow.deleting).is_(False),
        TableRow.state != _REMOVED,
    )
    return [(row, name) for row, name in session.exec(query)]


def list_ever_on_target(session: ReadSession, target_id: int) -> list[tuple[TableRow, SubscriptionRow]]:
    """Tables of all subscriptions with this target, including removed ones, oldest first."""
    query = select(TableRow, SubscriptionRow).join(
        SubscriptionRow, col(SubscriptionRow.id) == col(TableRow.subscription_id)
    )
    query = query.where(SubscriptionRow.target_id == target_id)
    return list(session.exec(query.order_by(col(TableRow.created_at), col(TableRow.id))))


def list_present_of_many(session: ReadSession, subscription_ids: Iterable[int]) -> dict[int, list[TableRow]]:
    """The same for several subscriptions at once."""
    ids = set(subscription_ids)
    query = select(TableRow).where(col(TableRow.subscription_id).in_(ids), TableRow.state != _REMOVED)
    found: dict[int, list[TableRow]] = {subscription_id: [] for subscription_id in ids}
    for row in session.exec(query.order_by(col(TableRow.schema_name), col(TableRow.name))):
        found[row.subscription_id].append(row)
    return found


def list_to_be_dropped(session: ReadSession, subscription_id: int) -> list[str]:
    """Ids of removed tables whose target tables are still to be dropped."""
    query = select(TableRow.id).where(
        TableRow.subscription_id == subscription_id, TableRow.target_table == TargetTable.TO_BE_DROPPED.value
    )
    return list(session.exec(query.order_by(col(TableRow.id))))


def list_kept_out(session: ReadSession, subscription_id: int) -> set[tuple[str, str]]:
    """Schemas and names of tables that a user removed and that no pattern adds again."""
    query = select(TableRow.schema_name, TableRow.name)
    return set(session.exec(query.where(TableRow.subscription_id == subscription_id, col(TableRow.kept_out))))


def let_in(session: WriteSession, subscription_id: int, schema: str, name: str) -> None:
    """Allow patterns to add tables of this name again, because a user declared it by name."""
    rows = select(TableRow).where(
        TableRow.subscription_id == subscription_id,
        TableRow.schema_name == schema,
        TableRow.name == name,
        col(TableRow.kept_out),
    )
    for row in session.exec(rows):
        row.kept_out = False
        session.add(row)


def select_tables(
    subscription_id: int, *, schema: str | None, name: str | None, state: TableStateKind | None
) -> SelectOfScalar[TableRow]:
    """The query for tables; removed ones only where asked for by `state`."""
    query = select(TableRow).where(TableRow.subscription_id == subscription_id)
    query = query.where(TableRow.state != _REMOVED if state is None else TableRow.state == state.value)
    if schema is not None:
        query = query.where(TableRow.schema_name == schema)
    return query if name is None else query.where(TableRow.name == name)
