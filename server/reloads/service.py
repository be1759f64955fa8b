"""Reloads: requested here, executed by the engine, shown here."""

from __future__ import annotations

import uuid
from typing import Literal

from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from engine.model.partitions import LoadReason
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import Refused, TableEventKind, TableStateKind, next_state
from server.db.models.reload import ReloadRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.outbox import enqueue
from server.db.session import ReadSession, WriteSession
from server.errors import Conflict, NotFound
from server.events.service import record_event
from server.gateway.long_running import UNENDED, WorkState
from server.lookup.subscriptions import position_text, require_subscription
from server.lookup.tables import require_table
from server.partitions.schemas import LoadedPartitionView
from server.reloads.schemas import ReloadProgress, ReloadView
from server.tables import requests
from server.verifications.service import require_running


class ReloadRunning(Conflict):
    code = "reload_running"
    title = "A reload is running"
    default_remedy = "Wait until it has ended, or DELETE it."


class TableNotReloadable(Conflict):
    code = "table_not_reloadable"
    title = "The table cannot be reloaded now"
    default_remedy = "Wait until its copy has ended."


class ReloadHasEnded(Conflict):
    code = "reload_has_ended"
    title = "The reload has ended"
    default_remedy = "Begin a new one."


class ReloadNotCancellable(Conflict):
    code = "reload_not_cancellable"
    title = "A reload of all tables cannot be cancelled"
    default_remedy = "Pause the subscription to stop its copies; they continue when it runs again."


def request_reload(
    session: WriteSession, name: str, table_id: str | None, partitions: list[str] | Literal["changed"] | None = None
) -> ReloadRow:
    """Begin a reload like `begin_reload`, and record an event for the request."""
    row = begin_reload(session, name, table_id, partitions)
    if table_id is not None:
        requests.record_reload_request(session, name, require_table(session, name, table_id), partitions)
    else:
        state = require_subscription(session, name).state
        detail = f"All tables of '{name}' shall be reloaded; it is {state}."
        record_event(session, kind="reload_asked", subscription=name, detail=detail)
    return row


def begin_reload(
    session: WriteSession, name: str, table_id: str | None, partitions: list[str] | Literal["changed"] | None = None
) -> ReloadRow:
    """Ask the engine to reload a table, or all tables (`table_id` None). This is also the remedy of a failed subscription.

    `partitions`: only these of the table, which stays live meanwhile; `changed`: those that differ.

    Raises:
        NotFound, SubscriptionNotRunning, ReloadRunning, TableNotReloadable.
    """
    subscription = require_subscription(session, name)
    remedy = table_id is None and subscription.state == SubscriptionState.FAILED
    if not remedy:
        require_running(subscription)
    for running in session.exec(_unended(subscription)):
        if remedy and running.created_at < subscription.state_at:
            continue  # in progress when the subscription failed; it does not continue, and ends with the new copies
        if table_id is None or running.table_id in {None, table_id}:
            what = "all tables" if running.table_id is None else f"table '{running.table_id}'"
            detail = f"Reload '{running.id}' of {what} is {running.state}."
            raise ReloadRunning(detail, extra={"running": running.id})
    if table_id is not None:
        table = require_table(session, name, table_id)
        after = next_state(TableStateKind(table.state), TableEventKind.RELOAD)
        if isinstance(after, Refused):
            raise TableNotReloadable(f"Table {table.full_name}: {after.reason}.")
        if partitions is not None and table.state != TableStateKind.LIVE:
            detail = f"Table {table.full_name} is {table.state}: only a live one is reloaded by partition."
            raise TableNotReloadable(detail, "Reload the whole table: leave 'partitions' out.")
    row = ReloadRow(
        id=f"l{uuid.uuid4().hex}",
        subscription_id=subscription.id or 0,
        table_id=table_id,
        state=WorkState.QUEUED.value,
        asked=None if partitions is None else {"names": None if partitions == "changed" else partitions},
        created_at=session.now(),
    )
    session.add(row)
    session.flush()
    enqueue(session, name, "reload", {"id": row.id})
    return row


def _unended(subscription: SubscriptionRow) -> SelectOfScalar[ReloadRow]:
    return select(ReloadRow).where(ReloadRow.subscription_id == subscription.id, col(ReloadRow.state).in_(UNENDED))


def require_reload(session: ReadSession, name: str, reload_id: str, table_id: str | None = None) -> ReloadRow:
    """A reload of a subscription, or of one of its tables; NotFound if there is none with this id."""
    subscription = require_subscription(session, name)
    row = session.get(ReloadRow, reload_id)
    if row is None or row.subscription_id != subscription.id or (table_id is not None and row.table_id != table_id):
        raise NotFound(f"Subscription '{name}' has no such reload '{reload_id}'.")
    return row


def cancel_reload(session: WriteSession, name: str, reload_id: str, table_id: str | None = None) -> None:
    """Cancel a reload. A table that is being copied as a whole parks: its old rows no longer follow the source.

    Raises:
        ReloadHasEnded: it has ended.
        ReloadNotCancellable: it is one of all tables, which began with a new slot.
    """
    row = require_reload(session, name, reload_id, table_id)
    if row.state not in UNENDED:
        raise ReloadHasEnded(f"Reload '{reload_id}' has {row.state}.")
    if row.table_id is None:
        raise ReloadNotCancellable(
            f"Reload '{reload_id}' replaces the slot of '{name}', and every table needs its new copy."
        )
    row.state = WorkState.CANCELLED.value
    row.ended_at = session.now()
    row.eta_seconds = None
    session.add(row)
    enqueue(session, name, "cancel", {"id": row.id})
    table = session.get(TableRow, row.table_id)
    if table is not None:
        what = f"shall not be reloaded after all; it is {table.state}"
        requests.record_table_event(session, name, table, "table_reload_cancelled", what)


def requested_partitions(row: ReloadRow) -> list[str] | Literal["changed"] | None:
    """The requested partitions; None: the whole table."""
    if row.asked is None:
        return None
    names: list[str] | None = row.asked["names"]
    return "changed" if names is None else names


def _partition_views(row: ReloadRow) -> list[LoadedPartitionView] | None:
    if row.partitions is not None:
        return [LoadedPartitionView.model_validate(part) for part in row.partitions]
    names = requested_partitions(row)
    if names is None:
        return None
    named = [] if names == "changed" else names
    return [LoadedPartitionView(name=name, reason=LoadReason.ASKED, generation=None) for name in named]


def reload_view(session: ReadSession, row: ReloadRow) -> ReloadView:
    """The reload as the REST interface shows it."""
    return ReloadView(
        id=row.id,
        table_id=row.table_id,
        asked=requested_partitions(row),
        partitions=_partition_views(row),
        state=WorkState(row.state),
        copied=ReloadProgress.model_validate(row, from_attributes=True),
        position=position_text(session, row.subscription_id, row.position),
        problem=row.problem,
        created_at=row.created_at,
        ended_at=row.ended_at,
    )
