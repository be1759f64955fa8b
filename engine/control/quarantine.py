"""Requests about rows that a target refused: list them, retry them, or skip them for good."""

from __future__ import annotations

from engine.control.supervisor import SubscriptionSupervisor
from engine.link.quarantine import RefusedRowPart, RefusedRows, RefusedRowsBody
from engine.model.identity import SubscriptionName, TableId
from engine.model.quarantine import RefusedRow, RefusedState
from engine.model.target import QueryRefused, Target


def answer_refused(pipeline: SubscriptionSupervisor, command: RefusedRows) -> RefusedRowsBody:
    """List, retry or skip refused rows of the table, as `command.action` says; without `command.rows`, all of them.

    The body has the rows of a list; otherwise how many of the requested rows were set aside (`found`), those that were handled (`done`),
    and how many rows of the table remain set aside (`left`).

    Raises:
        QueryRefused: query_unavailable if the target is not open; table_not_live.
        EngineFault: the target failed.
    """
    target = pipeline.target
    if target is None:
        raise QueryRefused("query_unavailable", "the subscription is stopped or has not started; its target is closed")
    name, table = pipeline.spec.name, TableId(command.table)
    if command.action == "list":
        return RefusedRowsBody(rows=tuple(map(_part, target.refused_rows(name, table))))
    asked = {row.row for row in _aside(target, name, table) if command.rows is None or row.row in command.rows}
    if command.action == "retry":
        done = target.retry_refused(name, table, command.rows)
    else:
        done = target.skip_refused(name, table, command.rows, command.by)
    return RefusedRowsBody(found=len(asked), done=tuple(done), left=len(_aside(target, name, table)))


def _aside(target: Target, subscription: SubscriptionName, table: TableId) -> list[RefusedRow]:
    return [row for row in target.refused_rows(subscription, table) if row.state is not RefusedState.PARKED]


def _part(row: RefusedRow) -> RefusedRowPart:
    return RefusedRowPart(
        row=row.row,
        state=row.state.value,
        operation=row.operation,
        key=row.key,
        columns=tuple((name, type_) for name, type_, _ in row.columns),
        values=row.values,
        code=row.cause.code,
        detail=row.cause.detail,
        sqlstate=row.cause.sqlstate,
        position=row.position,
        batch=row.batch,
        refused_at=row.refused_at,
        ended_by=row.ended_by,
        ended_at=row.ended_at,
    )
