"""Snapshots and their schedules: requested here, written by the engine, shown here."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import col, select

from engine.link.snapshots import SnapshotDeleted, SnapshotReport
from engine.model.position import Lsn
from engine.model.positions import text_of
from engine.model.snapshots import SnapshotFormat
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from server.db.models.snapshot import SnapshotRow, SnapshotScheduleRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.outbox import enqueue
from server.db.session import ReadSession, WriteSession
from server.errors import Conflict, FieldError, InvalidRequest, NotFound
from server.events.service import record_event
from server.freshness.schemas import Receipt, TableRef
from server.freshness.subscription_status import HALTED_STATES
from server.gateway.long_running import UNENDED, WorkState, may_follow
from server.lookup.subscriptions import (
    lock_changeable_subscription,
    lock_subscription,
    position_form,
    position_text,
    require_subscription,
)
from server.snapshots.schemas import (
    SnapshotLeftOutView,
    SnapshotRequest,
    SnapshotSchedule,
    SnapshotScheduleView,
    SnapshotTableView,
    SnapshotView,
)
from server.verifications.service import SubscriptionNotRunning

_CLOSED = HALTED_STATES - {SubscriptionState.PAUSING, SubscriptionState.PAUSED}
"""States in which the engine does not hold the target open."""
_FAILURES_KEPT = 100
"""Failed and cancelled snapshots of a schedule that stay listed."""


class SnapshotRunning(Conflict):
    code = "snapshot_running"
    title = "A snapshot is being written"
    default_remedy = "Wait until it has ended, or DELETE it."


def begin_snapshot(
    session: WriteSession, name: str, request: SnapshotRequest, receipt: Receipt | None, at_least: Lsn | None
) -> SnapshotRow:
    """Ask the engine for a snapshot. `receipt`: of the wait before; `at_least`: the position that was waited for.

    Raises:
        NotFound, SubscriptionDeleting, SubscriptionNotRunning, SnapshotRunning; InvalidRequest for an unknown table.
    """
    subscription = lock_changeable_subscription(session, name)
    refuse_closed(subscription)
    running = unended(session, subscription)
    if running is not None:
        raise SnapshotRunning(f"Snapshot '{running.id}' of '{name}' is {running.state}.", extra={"running": running.id})
    row = SnapshotRow(
        id=f"n{uuid.uuid4().hex}",
        subscription_id=subscription.id or 0,
        state=WorkState.QUEUED.value,
        format=request.format.value,
        asked=table_ids(session, subscription, request.tables),
        leave_out=request.on_unavailable == "leave_out",
        latest=request.latest,
        limit_s=request.limit_seconds,
        at_least=at_least,
        receipt=None if receipt is None else receipt.model_dump(mode="json"),
        created_at=session.now(),
    )
    _send(session, name, row)
    return row


def refuse_closed(subscription: SubscriptionRow) -> None:
    """Raises SubscriptionNotRunning if no engine holds the target open."""
    if SubscriptionState(subscription.state) in _CLOSED:
        detail = f"Subscription '{subscription.name}' is {subscription.state}."
        raise SubscriptionNotRunning(detail, subscription.remedy)


def unended(session: ReadSession, subscription: SubscriptionRow) -> SnapshotRow | None:
    """The subscription's snapshot that has not ended."""
    query = select(SnapshotRow).where(
        SnapshotRow.subscription_id == subscription.id, col(SnapshotRow.state).in_(UNENDED)
    )
    return session.exec(query).first()


def table_ids(session: ReadSession, subscription: SubscriptionRow, refs: Sequence[TableRef] | None) -> list[str] | None:
    """Ids of the named tables; None: all. Raises InvalidRequest for an unknown one."""
    if refs is None:
        return None
    rows = session.exec(select(TableRow).where(TableRow.subscription_id == subscription.id))
    known = {(row.schema_name, row.name): row.id for row in rows if row.state != TableStateKind.REMOVED.value}
    wrong = [
        FieldError(
            pointer=f"/tables/{i}",
            detail=f"Subscription '{subscription.name}' has no table {ref.schema_name}.{ref.name}.",
        )
        for i, ref in enumerate(refs)
        if (ref.schema_name, ref.name) not in known
    ]
    if wrong:
        raise InvalidRequest(wrong[0].detail, "Name tables of the subscription.", errors=wrong)
    return sorted({known[ref.schema_name, ref.name] for ref in refs})


def require_snapshot(session: ReadSession, name: str, snapshot_id: str) -> SnapshotRow:
    """A snapshot of a subscription; NotFound if there is none with this id."""
    subscription = require_subscription(session, name)
    row = session.get(SnapshotRow, snapshot_id)
    if row is None or row.subscription_id != subscription.id:
        raise NotFound(f"Subscription '{name}' has no snapshot '{snapshot_id}'.")
    return row


def delete_snapshot(session: WriteSession, name: str, snapshot_id: str) -> None:
    """Cancel a snapshot that has not ended; delete one that has, with its files."""
    row = require_snapshot(session, name, snapshot_id)
    if row.state in UNENDED:
        row.state, row.ended_at = WorkState.CANCELLED.value, session.now()
        session.add(row)
        enqueue(session, name, "cancel", {"id": row.id})
    else:
        _delete(session, name, row)
    session.touch(name)


def _delete(session: WriteSession, name: str, row: SnapshotRow) -> None:
    if row.state != WorkState.SUCCEEDED.value:
        session.delete(row)
        return
    row.deleting = True
    session.add(row)
    enqueue(session, name, "delete_snapshot", {"id": row.id})


def write_report(session: WriteSession, subscription: SubscriptionRow, report: SnapshotReport) -> None:
    """Apply an engine's report."""
    row = session.get(SnapshotRow, report.snapshot_id)
    if row is None or row.subscription_id != subscription.id:
        return
    # It was published before the engine received the cancel.
    too_late = row.state == WorkState.CANCELLED.value and report.state == WorkState.SUCCEEDED.value
    if not too_late and not may_follow(row.state, report.state):
        return
    row.state = report.state
    for field in ("name", "folder", "position", "commit_time", "bytes"):
        setattr(row, field, getattr(report, field))
    row.tables = [table.model_dump(mode="json") for table in report.tables]
    row.left_out = [table.model_dump(mode="json") for table in report.left_out]
    row.problem = report.problem.model_dump() if report.problem else None
    if report.state not in UNENDED:
        row.ended_at = session.now()
        _record_end(session, subscription, row)
    session.add(row)
    session.touch(subscription.name)


def _record_end(session: WriteSession, subscription: SubscriptionRow, row: SnapshotRow) -> None:
    if row.state == WorkState.SUCCEEDED.value:
        position = text_of(position_form(subscription), row.position)
        detail = (
            f"The snapshot '{row.name}' of '{subscription.name}' is complete at {position}: {len(row.tables)} tables"
        )
        left_out = f", {len(row.left_out)} left out." if row.left_out else "."
        record_event(
            session, kind="snapshot_done", subscription=subscription.name, subject=row.id, detail=detail + left_out
        )
    elif row.state == WorkState.FAILED.value and row.problem is not None:
        record_event(
            session,
            kind="snapshot_failed",
            severity="error",
            subscription=subscription.name,
            subject=row.id,
            detail=f"The snapshot failed: {row.problem['detail']}",
            remedy=row.problem["remedy"],
        )


def write_deletion(session: WriteSession, subscription: SubscriptionRow, report: SnapshotDeleted) -> None:
    """Apply an engine's report that files are gone, or why not."""
    row = session.get(SnapshotRow, report.snapshot_id)
    if row is None or row.subscription_id != subscription.id or not row.deleting:
        return
    session.touch(subscription.name)
    if report.problem is None:
        session.delete(row)
        return
    problem = report.problem.model_dump()
    if problem != row.problem:  # Deleting is tried again with each connection of an engine.
        record_event(
            session,
            kind="snapshot_not_deleted",
            severity="warning",
            subscription=subscription.name,
            subject=row.id,
            detail=f"The files of the snapshot '{row.name}' were not deleted: {report.problem.detail}",
            remedy="Correct the reason, then DELETE the snapshot again.",
        )
    row.problem = problem
    session.add(row)


def set_schedule(session: WriteSession, name: str, body: SnapshotSchedule) -> tuple[SnapshotScheduleRow, bool]:
    """Create or replace the schedule; also whether it was created. The first snapshot is due at once; a change of the interval counts from
    now."""
    subscription = lock_changeable_subscription(session, name)
    asked = table_ids(session, subscription, body.tables)
    row, now = session.get(SnapshotScheduleRow, subscription.id), session.now()
    created = row is None
    if row is None:
        row = SnapshotScheduleRow(subscription_id=subscription.id or 0, next_at=now, created_at=now, **_fields(body))
    elif row.interval_s != body.interval_seconds:
        row.next_at = now + timedelta(seconds=body.interval_seconds)
    for field, value in _fields(body).items():
        setattr(row, field, value)
    row.asked = asked
    session.add(row)
    session.touch(name)
    return row, created


def _fields(body: SnapshotSchedule) -> dict[str, Any]:
    return {
        "interval_s": body.interval_seconds,
        "keep": body.keep,
        "format": body.format.value,
        "leave_out": body.on_unavailable == "leave_out",
        "limit_s": body.limit_seconds,
    }


def require_schedule(session: ReadSession, name: str) -> SnapshotScheduleRow:
    """The schedule of a subscription; NotFound if it has none."""
    row = session.get(SnapshotScheduleRow, require_subscription(session, name).id)
    if row is None:
        raise NotFound(f"Subscription '{name}' has no snapshot schedule.", "PUT one.")
    return row


def remove_schedule(session: WriteSession, name: str) -> None:
    """Remove the schedule. Its snapshots stay until they are deleted."""
    session.delete(require_schedule(session, name))
    session.touch(name)


def due_schedules(session: ReadSession, now: datetime) -> list[str]:
    """Names of the subscriptions whose schedule has something to do: a snapshot is due, or there are too many."""
    found = []
    for schedule in session.exec(select(SnapshotScheduleRow)).all():
        subscription = session.get_one(SubscriptionRow, schedule.subscription_id)
        begins = schedule.next_at <= now and _may_begin(session, subscription)
        if begins or any(_too_many(session, schedule)):
            found.append(subscription.name)
    return found


def take_due(session: WriteSession, name: str) -> None:
    """Take the snapshot of a subscription if it is due by the session's clock, and delete those that are too many."""
    subscription = lock_subscription(session, name)
    schedule = None if subscription is None else session.get(SnapshotScheduleRow, subscription.id)
    if subscription is None or schedule is None:
        return
    if schedule.next_at <= session.now() and _may_begin(session, subscription):
        _begin_scheduled(session, subscription, schedule)
    succeeded, others = _too_many(session, schedule)
    for row in succeeded:
        _delete(session, name, row)
    for row in others:
        session.delete(row)


def _may_begin(session: ReadSession, subscription: SubscriptionRow) -> bool:
    """A subscription that does not run has nothing new, and one that was never started has nothing."""
    halted = SubscriptionState(subscription.state) in HALTED_STATES | {SubscriptionState.CREATED}
    return not halted and not subscription.deleting and unended(session, subscription) is None


def _begin_scheduled(session: WriteSession, subscription: SubscriptionRow, schedule: SnapshotScheduleRow) -> None:
    now = session.now()
    missed = math.floor((now - schedule.next_at).total_seconds() / schedule.interval_s)
    schedule.next_at += timedelta(seconds=(missed + 1) * schedule.interval_s)
    session.add(schedule)
    row = SnapshotRow(
        id=f"n{uuid.uuid4().hex}",
        subscription_id=schedule.subscription_id,
        state=WorkState.QUEUED.value,
        format=schedule.format,
        scheduled=True,
        asked=schedule.asked,
        leave_out=schedule.leave_out,
        limit_s=schedule.limit_s,
        created_at=now,
    )
    _send(session, subscription.name, row)


def _send(session: WriteSession, name: str, row: SnapshotRow) -> None:
    session.add(row)
    session.flush()
    session.touch(name)
    enqueue(session, name, "snapshot", {"id": row.id})


def _too_many(
    session: ReadSession, schedule: SnapshotScheduleRow
) -> tuple[Sequence[SnapshotRow], Sequence[SnapshotRow]]:
    """Snapshots of a schedule that it does not keep: successful ones, and others. The newest successful one always stays."""
    of_schedule = (
        select(SnapshotRow)
        .where(SnapshotRow.subscription_id == schedule.subscription_id, col(SnapshotRow.scheduled))
        .order_by(col(SnapshotRow.created_at).desc(), col(SnapshotRow.id).desc())
    )
    succeeded = of_schedule.where(SnapshotRow.state == WorkState.SUCCEEDED.value, ~col(SnapshotRow.deleting))
    others = of_schedule.where(col(SnapshotRow.state).in_([WorkState.FAILED.value, WorkState.CANCELLED.value]))
    return (
        session.exec(succeeded.offset(schedule.keep)).all(),
        session.exec(others.offset(_FAILURES_KEPT)).all(),
    )


def snapshot_view(session: ReadSession, row: SnapshotRow) -> SnapshotView:
    """The snapshot as the REST interface shows it."""
    names = _names(session, [entry["table"] for entry in [*row.tables, *row.left_out]])
    return SnapshotView(
        id=row.id,
        state=WorkState(row.state),
        deleting=row.deleting,
        format=SnapshotFormat(row.format),
        scheduled=row.scheduled,
        position=position_text(session, row.subscription_id, row.position),
        commit_time=row.commit_time,
        name=row.name,
        folder=row.folder,
        bytes=row.bytes,
        tables=[
            SnapshotTableView.model_validate({**entry, **names(entry["table"]), "rows_set_aside": entry["set_aside"]})
            for entry in row.tables
        ],
        left_out=[SnapshotLeftOutView.model_validate({**entry, **names(entry["table"])}) for entry in row.left_out],
        receipt=None if row.receipt is None else Receipt.model_validate(row.receipt),
        problem=row.problem,
        created_at=row.created_at,
        ended_at=row.ended_at,
    )


def schedule_view(session: ReadSession, row: SnapshotScheduleRow) -> SnapshotScheduleView:
    """The schedule as the REST interface shows it; tables that were removed since are not named."""
    names = _names(session, row.asked or ())
    known = [names(table) for table in row.asked or ()]
    refs = [TableRef(schema=entry["schema"], name=entry["name"]) for entry in known if entry["name"] is not None]
    return SnapshotScheduleView(
        interval_seconds=row.interval_s,
        keep=row.keep,
        format=SnapshotFormat(row.format),
        tables=None if row.asked is None else refs,
        on_unavailable="leave_out" if row.leave_out else "error",
        limit_seconds=row.limit_s,
        next_at=row.next_at,
    )


def _names(session: ReadSession, ids: Iterable[str]) -> Callable[[str], dict[str, Any]]:
    """Gives the id, schema and name of a table; without a name if the table is gone."""
    wanted = list(ids)
    found = session.exec(select(TableRow).where(col(TableRow.id).in_(wanted))) if wanted else ()
    tables = {table.id: table for table in found}

    def named(table_id: str) -> dict[str, Any]:
        table = tables.get(table_id)
        known = (None, None) if table is None else (table.schema_name, table.name)
        return {"id": table_id, "schema": known[0], "name": known[1]}

    return named
