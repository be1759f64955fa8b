"""Builds the commands for an engine: the complete state at the start of a stream, then the rows of the outbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlmodel import col, or_, select

from engine.link.messages import (
    Approve,
    Assign,
    Cancel,
    Command,
    Desire,
    Forget,
    Reload,
    Sync,
    Table,
)
from engine.link.snapshots import DeleteSnapshot, Snapshot
from engine.link.tickets import Ticket
from engine.link.verifications import Verify
from engine.model.snapshots import SnapshotFormat
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from engine.model.verification import RepairMode, VerificationMethod
from server.approvals.service import awaits_approval
from server.db.models.outbox import OutboxRow
from server.db.models.reload import ReloadRow
from server.db.models.snapshot import SnapshotRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.models.ticket import TicketRow
from server.db.models.verification import VerificationRow
from server.db.session import ReadSession, WriteSession
from server.errors import Problem
from server.gateway.long_running import UNENDED, WorkState
from server.reloads.service import requested_partitions
from server.security.secret_box import SecretBox
from server.subscriptions.assignment import build_assignment, build_table
from server.subscriptions.reports import set_subscription_state
from server.tables.schemas import TargetTable
from server.tickets import service as tickets


def initial_commands(session: WriteSession, box: SecretBox, mine: Mapping[str, int], stream: str) -> list[Command]:
    """The commands that begin the stream of this name: a `Sync`, then each subscription in the order of names.

    `mine`: epochs of the engine's subscriptions by name. A subscription whose secrets cannot be opened is left out, and its state is set
    to failed in `session`. Commands hold secrets in clear: never log or store them.
    """
    by_name: dict[str, list[Command]] = {}
    for name in sorted(mine):
        try:
            by_name[name] = subscription_commands(session, box, name)
        except Problem as problem:
            _fail_subscription(session, name, problem)
    sync = Sync(subscriptions={name: mine[name] for name in by_name}, stream=stream)
    return [sync, *(command for commands in by_name.values() for command in commands)]


def subscription_commands(session: ReadSession, box: SecretBox, name: str) -> list[Command]:
    """The commands of one subscription: its assignment and its unended long-running work; only a `Forget` if it is being deleted.

    Empty if there is no such subscription.
    """
    row = _find_subscription(session, name)
    if row is None:
        return []
    assign = _assign_command(session, box, name)
    if row.deleting:
        return [Forget(subscription=name, assignment=assign)]
    reloads = session.exec(
        select(ReloadRow).where(ReloadRow.subscription_id == row.id, col(ReloadRow.state).in_(UNENDED))
    )
    verifications = session.exec(
        select(VerificationRow).where(
            VerificationRow.subscription_id == row.id,
            col(VerificationRow.state).in_(UNENDED),
            # One that the schedule began ends with the engine that had it.
            or_(~col(VerificationRow.scheduled), VerificationRow.epoch == row.epoch),
        )
    )
    snapshots = session.exec(
        select(SnapshotRow).where(
            SnapshotRow.subscription_id == row.id,
            or_(col(SnapshotRow.state).in_(UNENDED), col(SnapshotRow.deleting)),
        )
    )
    return [
        assign,
        *_cancel_commands(session, row),
        *(_ticket_command(name, t) for t in tickets.list_unended(session, row)),
        *(_reload_command(name, r) for r in reloads),
        *(_verify_command(name, v) for v in verifications),
        *(_snapshot_command(name, s) for s in snapshots),
    ]


def _cancel_commands(session: ReadSession, row: SubscriptionRow) -> list[Command]:
    """Cancels for reloads of whole tables that were cancelled without a report of the table since: an engine that has not received the
    cancel would continue the copy."""
    found = session.exec(
        select(ReloadRow)
        .join(TableRow, col(TableRow.id) == col(ReloadRow.table_id))
        .where(
            ReloadRow.subscription_id == row.id,
            ReloadRow.state == WorkState.CANCELLED,
            col(ReloadRow.asked).is_(None),
            col(TableRow.state) != TableStateKind.REMOVED,
            col(TableRow.state_at) <= col(ReloadRow.ended_at),
        )
        .order_by(col(ReloadRow.ended_at))
    )
    last = {reload.table_id: reload.id for reload in found}
    return [Cancel(request_id=request, subscription=row.name, table=table) for table, request in last.items()]


def outbox_commands(session: WriteSession, box: SecretBox, rows: Iterable[OutboxRow]) -> list[tuple[str, Command]]:
    """The commands of these rows of the outbox, each with the name of its subscription, in the order of the rows.

    Rows about objects that no longer exist or work that has ended are left out. Otherwise like `initial_commands`.
    """
    commands = []
    for row in rows:
        name = row.subscription
        if name is None:
            continue
        try:
            command = _outbox_command(session, box, name, row)
        except Problem as problem:
            _fail_subscription(session, name, problem)
            continue
        if command is not None:
            commands.append((name, command))
    return commands


def _outbox_command(session: ReadSession, box: SecretBox, name: str, row: OutboxRow) -> Command | None:
    subscription = _find_subscription(session, name)
    if subscription is None:
        return None
    if row.kind == "forget" or subscription.deleting:
        return Forget(subscription=name, assignment=_assign_command(session, box, name))
    if row.kind == "desire":
        return Desire.model_validate({"subscription": name, "desired": subscription.desired_state})
    if row.kind == "table":
        return _table_command(session, name, str(row.payload["table"]))
    if row.kind == "approve":
        return _approve_command(session, name, str(row.payload["table"]), row.payload.get("reason"))
    if row.kind in {"reload", "verify", "ticket", "snapshot", "delete_snapshot"}:
        return _long_running_command(session, name, row.kind, str(row.payload["id"]))
    if row.kind == "cancel":
        return Cancel(request_id=str(row.payload["id"]))
    return _assign_command(session, box, name)


def _long_running_command(session: ReadSession, name: str, kind: str, work_id: str) -> Command | None:
    """The command for a reload, verification, snapshot or ticket; None if it has ended or does not exist."""
    if kind == "reload":
        reload = session.get(ReloadRow, work_id)
        return _reload_command(name, reload) if reload is not None and reload.state in UNENDED else None
    if kind == "verify":
        verification = session.get(VerificationRow, work_id)
        return (
            _verify_command(name, verification) if verification is not None and verification.state in UNENDED else None
        )
    if kind in {"snapshot", "delete_snapshot"}:
        snapshot = session.get(SnapshotRow, work_id)
        wanted = snapshot is not None and (snapshot.deleting or snapshot.state in UNENDED)
        return _snapshot_command(name, snapshot) if wanted and snapshot is not None else None
    ticket = session.get(TicketRow, work_id)
    return _ticket_command(name, ticket) if ticket is not None and ticket.state in tickets.UNENDED else None


def _find_subscription(session: ReadSession, name: str) -> SubscriptionRow | None:
    return session.exec(select(SubscriptionRow).where(SubscriptionRow.name == name)).first()


def _assign_command(session: ReadSession, box: SecretBox, name: str) -> Assign:
    return Assign.model_validate(build_assignment(session, box, name))


def _table_command(session: ReadSession, name: str, table_id: str) -> Command:
    row = session.get(TableRow, table_id)
    if row is None or row.state == "removed":
        drop = row is not None and row.target_table == TargetTable.TO_BE_DROPPED
        return Table(subscription=name, table=table_id, removed=True, drop=drop)
    return Table(subscription=name, table=table_id, spec=build_table(session, table_id))


def _approve_command(session: ReadSession, name: str, table_id: str, reason: str | None) -> Command | None:
    row = session.get(TableRow, table_id)
    return (
        Approve(subscription=name, table=table_id, reason=reason) if row is not None and awaits_approval(row) else None
    )


def _reload_command(name: str, row: ReloadRow) -> Command:
    tables = None if row.table_id is None else (row.table_id,)
    asked = requested_partitions(row)
    partitions = tuple(asked) if isinstance(asked, list) else asked
    return Reload(subscription=name, request_id=row.id, tables=tables, partitions=partitions)


def _verify_command(name: str, row: VerificationRow) -> Command:
    tables = None if row.asked is None else tuple(row.asked)
    return Verify(
        subscription=name,
        verification_id=row.id,
        tables=tables,
        method=VerificationMethod(row.method),
        repair=RepairMode(row.repair),
        sample=row.sample,
        budget=row.budget,
    )


def _snapshot_command(name: str, row: SnapshotRow) -> Command:
    if row.deleting:
        return DeleteSnapshot(subscription=name, snapshot_id=row.id)
    return Snapshot(
        subscription=name,
        snapshot_id=row.id,
        format=SnapshotFormat(row.format),
        tables=None if row.asked is None else tuple(row.asked),
        leave_out=row.leave_out,
        at_least=row.at_least,
        latest=row.latest,
        limit_s=row.limit_s,
        begun=row.state == WorkState.RUNNING.value,
    )


def _ticket_command(name: str, row: TicketRow) -> Command:
    return Ticket(subscription=name, ticket_id=row.id, until=row.until)


def _fail_subscription(session: WriteSession, name: str, problem: Problem) -> None:
    row = _find_subscription(session, name)
    if row is not None:
        set_subscription_state(
            session,
            row,
            SubscriptionState.FAILED,
            code=problem.code,
            reason=problem.detail,
            remedy=problem.remedy,
        )
