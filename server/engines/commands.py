"""What an engine is told: the whole state at the beginning of a stream, and what the outbox holds afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from sqlmodel import col, select

from engine.link.declared_parts import TablePart
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
    Verify,
)
from engine.link.ticket_parts import Ticket
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableState
from server.approvals.service import waits
from server.db.models.outbox import OutboxRow
from server.db.models.reload import ReloadRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.models.ticket import TicketRow
from server.db.models.verification import VerificationRow
from server.db.session import ReadSession, WriteSession
from server.errors import Problem
from server.gateway.long_running import UNENDED, WorkState
from server.security.secret_box import SecretBox
from server.subscriptions.assignment import build_assignment, build_table
from server.subscriptions.reports import set_state
from server.tables.schemas import TargetTable
from server.tickets import service as tickets


def greeting(session: WriteSession, box: SecretBox, mine: Mapping[str, int], stream: str) -> list[Command]:
    """Everything an engine has to know at the beginning of a stream.

    A subscription whose secrets cannot be opened fails, and is left out.
    """
    told: dict[str, list[Command]] = {}
    for name in sorted(mine):
        try:
            told[name] = subscription_commands(session, box, name)
        except Problem as problem:
            _fail(session, name, problem)
    sync = Sync(subscriptions={name: mine[name] for name in told}, stream=stream)
    return [sync, *(command for commands in told.values() for command in commands)]


def subscription_commands(session: ReadSession, box: SecretBox, name: str) -> list[Command]:
    """One subscription: its assignment, and the work on it that has not ended; a deleted one is to be forgotten."""
    row = _find(session, name)
    if row is None:
        return []
    assign = _assign(session, box, name)
    if row.deleting:
        return [Forget(subscription=name, assignment=assign)]
    reloads = session.exec(
        select(ReloadRow).where(ReloadRow.subscription_id == row.id, col(ReloadRow.state).in_(UNENDED))
    )
    verifications = session.exec(
        select(VerificationRow).where(
            VerificationRow.subscription_id == row.id, col(VerificationRow.state).in_(UNENDED)
        )
    )
    return [
        assign,
        *_cancelled(session, row),
        *(_ticket(name, t) for t in tickets.unended(session, row)),
        *(_reload(name, r) for r in reloads),
        *(_verify(name, v) for v in verifications),
    ]


def _cancelled(session: ReadSession, row: SubscriptionRow) -> list[Command]:
    """Reloads of whole tables that were cancelled, and nothing was heard of the table since: an engine may not know of it, and would go
    on with the copy."""
    found = session.exec(
        select(ReloadRow)
        .join(TableRow, col(TableRow.id) == col(ReloadRow.table_id))
        .where(
            ReloadRow.subscription_id == row.id,
            ReloadRow.state == WorkState.CANCELLED,
            col(ReloadRow.asked).is_(None),
            col(TableRow.state) != TableState.REMOVED,
            col(TableRow.state_at) <= col(ReloadRow.ended_at),
        )
        .order_by(col(ReloadRow.ended_at))
    )
    last = {reload.table_id: reload.id for reload in found}
    return [Cancel(request_id=request, subscription=row.name, table=table) for table, request in last.items()]


def outbox_commands(session: WriteSession, box: SecretBox, rows: Iterable[OutboxRow]) -> list[tuple[str, Command]]:
    """Commands of the outbox with the subscriptions they are about, in order.

    Those that have become moot are left out.
    """
    commands = []
    for row in rows:
        name = row.subscription
        if name is None:
            continue
        try:
            command = _outbox_command(session, box, name, row)
        except Problem as problem:
            _fail(session, name, problem)
            continue
        if command is not None:
            commands.append((name, command))
    return commands


def _outbox_command(session: ReadSession, box: SecretBox, name: str, row: OutboxRow) -> Command | None:
    subscription = _find(session, name)
    if subscription is None:
        return None
    if row.kind == "forget" or subscription.deleting:
        return Forget(subscription=name, assignment=_assign(session, box, name))
    if row.kind == "desire":
        return Desire.model_validate({"subscription": name, "desired": subscription.desired_state})
    if row.kind == "table":
        return _table(session, name, str(row.payload["table"]))
    if row.kind == "approve":
        return _approve(session, name, str(row.payload["table"]), row.payload.get("reason"))
    if row.kind in {"reload", "verify", "ticket"}:
        return _work(session, name, row.kind, str(row.payload["id"]))
    if row.kind == "cancel":
        return Cancel(request_id=str(row.payload["id"]))
    return _assign(session, box, name)


def _work(session: ReadSession, name: str, kind: str, work_id: str) -> Command | None:
    """Long work, unless it has ended."""
    if kind == "reload":
        reload = session.get(ReloadRow, work_id)
        return _reload(name, reload) if reload is not None and reload.state in UNENDED else None
    if kind == "verify":
        verification = session.get(VerificationRow, work_id)
        return _verify(name, verification) if verification is not None and verification.state in UNENDED else None
    ticket = session.get(TicketRow, work_id)
    return _ticket(name, ticket) if ticket is not None and ticket.state in tickets.UNENDED else None


def _find(session: ReadSession, name: str) -> SubscriptionRow | None:
    return session.exec(select(SubscriptionRow).where(SubscriptionRow.name == name)).first()


def _assign(session: ReadSession, box: SecretBox, name: str) -> Assign:
    return Assign.model_validate(build_assignment(session, box, name))


def _table(session: ReadSession, name: str, table_id: str) -> Command:
    row = session.get(TableRow, table_id)
    if row is None or row.state == "removed":
        drop = row is not None and row.target_table == TargetTable.TO_BE_DROPPED
        return Table(subscription=name, table=table_id, removed=True, drop=drop)
    return Table(subscription=name, table=table_id, spec=TablePart.model_validate(build_table(session, table_id)))


def _approve(session: ReadSession, name: str, table_id: str, reason: str | None) -> Command | None:
    row = session.get(TableRow, table_id)
    return Approve(subscription=name, table=table_id, reason=reason) if row is not None and waits(row) else None


def _reload(name: str, row: ReloadRow) -> Command:
    tables = None if row.table_id is None else (row.table_id,)
    if row.asked is None:
        return Reload(subscription=name, request_id=row.id, tables=tables)
    names: list[str] | None = row.asked["names"]
    partitions: tuple[str, ...] | Literal["changed"] = "changed" if names is None else tuple(names)
    return Reload(subscription=name, request_id=row.id, tables=tables, partitions=partitions)


def _verify(name: str, row: VerificationRow) -> Command:
    return Verify(subscription=name, verification_id=row.id, tables=None if row.asked is None else tuple(row.asked))


def _ticket(name: str, row: TicketRow) -> Command:
    return Ticket(subscription=name, ticket_id=row.id, until=row.until)


def _fail(session: WriteSession, name: str, problem: Problem) -> None:
    row = _find(session, name)
    if row is not None:
        set_state(
            session,
            row,
            SubscriptionState.FAILED,
            code=problem.problem_code,
            reason=problem.detail,
            remedy=problem.remedy,
        )
