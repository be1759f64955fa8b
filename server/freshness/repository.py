"""Reads subscription statuses, and reads and writes freshness waits, in the control database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from sqlmodel import col, delete, select

from engine.link.messages import Progress
from engine.model.subscription_state import DesiredState, SubscriptionState
from engine.model.table_state import TableStateKind
from server.db.models.freshness_wait import FreshnessWaitRow
from server.db.models.reload import ReloadRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.session import ReadSession, WriteSession
from server.declarations.freshness_goals import subscription_goal, table_goal
from server.declarations.table_options import skipped_operations
from server.freshness.subscription_status import SubscriptionStatus, TableView
from server.freshness.wait_registry import WaitStatus
from server.gateway.long_running import UNENDED
from server.lookup.subscriptions import consistency_of, position_form
from server.tables.schemas import TableDesiredState

KEPT = timedelta(days=1)
"""How long an ended wait can be fetched."""


def load_statuses(session: ReadSession, names: Sequence[str] | None = None) -> dict[str, SubscriptionStatus]:
    """The statuses of these subscriptions (None: all) from the control database; unknown names are left out."""
    query = select(SubscriptionRow)
    if names is not None:
        query = query.where(col(SubscriptionRow.name).in_(names))
    rows = {row.id: row for row in session.exec(query)}
    found = {row.id: _status_of(row) for row in rows.values()}
    tables = select(TableRow).where(col(TableRow.subscription_id).in_(list(found)))
    for table in session.exec(tables):
        found[table.subscription_id].tables[table.id] = _table_of(table)
        goal = table_goal(rows[table.subscription_id], table.freshness)
        if goal is not None:
            found[table.subscription_id].goals[table.id] = goal
    reloads = select(ReloadRow).where(
        col(ReloadRow.subscription_id).in_(list(found)), col(ReloadRow.state).in_(UNENDED)
    )
    for reload in session.exec(reloads):
        if reload.asked is None:
            _set_reload(found[reload.subscription_id], reload)
    return {status.name: status for status in found.values()}


def _set_reload(status: SubscriptionStatus, row: ReloadRow) -> None:
    if row.table_id is None:
        status.reload = row.id
    for table in status.tables.values():
        if row.table_id in {None, table.id}:
            table.reload = row.id


def list_existing(session: ReadSession, names: Collection[str]) -> set[str]:
    """The names among these that exist as subscriptions."""
    return set(session.exec(select(SubscriptionRow.name).where(col(SubscriptionRow.name).in_(list(names)))))


def _status_of(row: SubscriptionRow) -> SubscriptionStatus:
    goal = subscription_goal(row)
    return SubscriptionStatus(
        name=row.name,
        form=position_form(row),
        consistency=consistency_of(row),
        epoch=row.epoch,
        state=SubscriptionState(row.state),
        desired=DesiredState(row.desired_state),
        deleting=row.deleting,
        code=row.code,
        reason=row.reason,
        remedy=row.remedy,
        faulty_since=row.state_at if row.state == SubscriptionState.STARTING and row.reason is not None else None,
        progress=_progress_of(row),
        goals={} if goal is None else {"": goal},
    )


def _progress_of(row: SubscriptionRow) -> Progress | None:
    if row.applied_position is None or row.progress_at is None:
        return None
    return Progress(
        subscription=row.name,
        epoch=row.epoch,
        source=row.source_position,
        captured=row.captured_position,
        applied=row.applied_position,
        lag_bytes=row.lag_bytes,
        lag_seconds=row.lag_seconds,
        retained_bytes=row.retained_bytes,
        at=row.progress_at,
    )


def _table_of(row: TableRow) -> TableView:
    return TableView(
        id=row.id,
        schema=row.schema_name,
        name=row.name,
        state=TableStateKind(row.state),
        reason=row.reason,
        remedy=row.remedy,
        paused=row.desired_state == TableDesiredState.PAUSED,
        insert_only=row.insert_only,
        skips=bool(skipped_operations(row.operations, insert_only=row.insert_only)),
        set_aside=row.rows_set_aside,
    )


def add_wait(session: WriteSession, subscription: str, row: FreshnessWaitRow) -> None:
    """Store a wait whose answer is fetched later."""
    owner = session.exec(select(SubscriptionRow).where(SubscriptionRow.name == subscription)).one()
    row.subscription_id = owner.id or 0
    session.add(row)
    oldest = session.now() - KEPT
    session.exec(delete(FreshnessWaitRow).where(col(FreshnessWaitRow.ended_at) < oldest))


def find_wait(session: ReadSession, subscription: str, wait_id: str) -> FreshnessWaitRow | None:
    query = (
        select(FreshnessWaitRow)
        .join(SubscriptionRow, col(SubscriptionRow.id) == FreshnessWaitRow.subscription_id)
        .where(SubscriptionRow.name == subscription, FreshnessWaitRow.id == wait_id)
    )
    return session.exec(query).first()


def list_outstanding(session: ReadSession) -> list[tuple[str, FreshnessWaitRow]]:
    """Stored waits that have not ended, each with the name of its subscription."""
    query = (
        select(SubscriptionRow.name, FreshnessWaitRow)
        .join(SubscriptionRow, col(SubscriptionRow.id) == FreshnessWaitRow.subscription_id)
        .where(FreshnessWaitRow.status == WaitStatus.WAITING.value)
    )
    return [(name, row) for name, row in session.exec(query)]


def end_wait(session: WriteSession, wait_id: str, status: WaitStatus, fields: dict[str, Any]) -> bool:
    """Write a wait's end; returns False if it had ended before, or no longer exists."""
    row = session.get(FreshnessWaitRow, wait_id)
    if row is None or row.status != WaitStatus.WAITING.value:
        return False
    row.status = status.value
    row.ended_at = session.now()
    for name, value in fields.items():
        setattr(row, name, value)
    session.add(row)
    return True
