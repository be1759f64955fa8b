"""Verifications: requested here, executed by the engine, shown here."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from engine.link.verifications import VerifiedTable
from engine.model.position import Lsn
from engine.model.positions import PositionForm, text_of
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from engine.model.verification import RepairMode, VerificationMethod
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.models.verification import VerificationRow
from server.db.outbox import enqueue
from server.db.session import ReadSession, WriteSession
from server.errors import Conflict, FieldError, InvalidRequest, NotFound
from server.freshness.subscription_status import HALTED_STATES
from server.gateway.long_running import UNENDED, WorkState
from server.lookup.subscriptions import lock_subscription, position_form, position_text, require_subscription
from server.tables import repository, verified
from server.verifications import scheduled
from server.verifications.schemas import (
    UncomparedTableView,
    VerificationRequest,
    VerificationView,
    VerifiedTableView,
)
from server.verifications.trigger import Trigger


class SubscriptionNotRunning(Conflict):
    code = "subscription_not_running"
    title = "The subscription is not running"
    default_remedy = "Set its desired_state to 'running' first."


class VerificationRunning(Conflict):
    code = "verification_running"
    title = "A verification is running"
    default_remedy = "Wait until it has ended, or DELETE it."


class VerificationHasEnded(Conflict):
    code = "verification_has_ended"
    title = "The verification has ended"
    default_remedy = "Begin a new one."


def require_running(subscription: SubscriptionRow) -> None:
    """Raises SubscriptionNotRunning if no engine would act on a table now."""
    if SubscriptionState(subscription.state) in HALTED_STATES:
        detail = f"Subscription '{subscription.name}' is {subscription.state}."
        raise SubscriptionNotRunning(detail, subscription.remedy)


def begin_verification(session: WriteSession, name: str, request: VerificationRequest) -> VerificationRow:
    """Ask the engine for a verification. One that the schedule began is cancelled for it.

    Raises:
        NotFound, SubscriptionNotRunning, VerificationRunning; InvalidRequest for an unknown table.
    """
    subscription = lock_subscription(session, name) or require_subscription(session, name)
    require_running(subscription)
    running = session.exec(_unended(subscription)).first()
    if running is not None and running.scheduled:
        scheduled.cancel_attempt(session, name, running)
    elif running is not None:
        raise VerificationRunning(
            f"Verification '{running.id}' of '{name}' is {running.state}.", extra={"running": running.id}
        )
    row = VerificationRow(
        id=f"v{uuid.uuid4().hex}",
        subscription_id=subscription.id or 0,
        state=WorkState.QUEUED.value,
        asked=_asked(session, subscription, request),
        method=request.method.value,
        repair=request.repair.value,
        sample=request.sample,
        budget=request.budget,
        created_at=session.now(),
    )
    session.add(row)
    session.flush()
    enqueue(session, name, "verify", {"id": row.id})
    return row


def _unended(subscription: SubscriptionRow) -> SelectOfScalar[VerificationRow]:
    return select(VerificationRow).where(
        VerificationRow.subscription_id == subscription.id, col(VerificationRow.state).in_(UNENDED)
    )


def _asked(session: ReadSession, subscription: SubscriptionRow, request: VerificationRequest) -> list[str] | None:
    if not request.tables:
        return None
    rows = session.exec(select(TableRow).where(TableRow.subscription_id == subscription.id))
    known = {(row.schema_name, row.name): row for row in rows if row.state != TableStateKind.REMOVED.value}
    wrong = []
    for i, ref in enumerate(request.tables):
        row = known.get((ref.schema_name, ref.name))
        if row is None or row.state != TableStateKind.LIVE.value:
            what = "has no table" if row is None else f"is not ready to compare, being {row.state}, table"
            detail = f"Subscription '{subscription.name}' {what} {ref.schema_name}.{ref.name}."
            wrong.append(FieldError(pointer=f"/tables/{i}", detail=detail))
    if wrong:
        raise InvalidRequest(wrong[0].detail, "Name tables that are live.", errors=wrong)
    return sorted({known[ref.schema_name, ref.name].id for ref in request.tables})


def require_verification(session: ReadSession, name: str, verification_id: str) -> VerificationRow:
    """A verification of a subscription; NotFound if there is none with this id."""
    subscription = require_subscription(session, name)
    row = session.get(VerificationRow, verification_id)
    if row is None or row.subscription_id != subscription.id:
        raise NotFound(f"Subscription '{name}' has no verification '{verification_id}'.")
    return row


def cancel_verification(session: WriteSession, name: str, verification_id: str) -> None:
    """Cancel a verification; VerificationHasEnded if it has ended."""
    row = require_verification(session, name, verification_id)
    if row.state not in UNENDED:
        raise VerificationHasEnded(f"Verification '{verification_id}' has {row.state}.")
    if row.scheduled:
        scheduled.cancel_attempt(session, name, row, put_off=True)
        return
    row.state = WorkState.CANCELLED.value
    row.ended_at = session.now()
    session.add(row)
    enqueue(session, name, "cancel", {"id": row.id})


def store_results(session: WriteSession, row: VerificationRow, found: Sequence[VerifiedTable]) -> None:
    """Store the results of the tables compared so far, and those that are new in the rows of their tables."""
    known = {result["table"]: result for result in row.results}
    row.results = [table.model_dump(mode="json") for table in found]
    for table, result in zip(found, row.results, strict=True):
        if known.get(table.table) != result:
            verified.store_result(session, row.id, row.created_at, result, table.position or row.position)


def uncompared_tables(session: ReadSession, row: VerificationRow) -> list[dict[str, Any]]:
    """The present state of the tables that it was to compare (all, if the request named none) and did not."""
    compared = {result["table"] for result in row.results}
    present = repository.list_present(session, row.subscription_id)
    meant = [table for table in present if row.asked is None or table.id in row.asked]
    return [
        {"table": table.id, "state": table.state, "reason": table.reason} for table in meant if table.id not in compared
    ]


def verification_view(session: ReadSession, row: VerificationRow) -> VerificationView:
    """The verification as the REST interface shows it."""
    passed_over = row.left_out or []
    ids = [result["table"] for result in [*row.results, *passed_over]]
    found = session.exec(select(TableRow).where(col(TableRow.id).in_(ids))) if ids else ()
    tables = {table.id: table for table in found}
    form = position_form(session.get_one(SubscriptionRow, row.subscription_id))
    results = [_result(result, tables.get(result["table"]), form) for result in row.results]
    done = row.state == WorkState.SUCCEEDED.value
    return VerificationView(
        id=row.id,
        state=WorkState(row.state),
        trigger=Trigger.SCHEDULE if row.scheduled else Trigger.USER,
        method=VerificationMethod(row.method),
        repair=RepairMode(row.repair),
        sample=row.sample,
        budget=row.budget,
        position=position_text(session, row.subscription_id, row.position),
        equal=all(result.equal for result in results) if done and results else None,
        tables_done=len(results),
        tables_total=row.total if row.total is not None else (len(row.asked) if row.asked else None),
        tables=results,
        left_out=[_left_out(entry, tables.get(entry["table"])) for entry in passed_over],
        problem=row.problem,
        created_at=row.created_at,
        ended_at=row.ended_at,
    )


def _left_out(entry: dict[str, Any], table: TableRow | None) -> UncomparedTableView:
    name = {"schema": table.schema_name if table else None, "name": table.name if table else None}
    return UncomparedTableView.model_validate({**name, "id": entry["table"], **entry})


def _result(result: dict[str, Any], table: TableRow | None, form: PositionForm) -> VerifiedTableView:
    """`result` as the engine has reported it."""
    position = result.get("position")
    return VerifiedTableView.model_validate(
        {
            **result,
            "position": None if position is None else text_of(form, Lsn.parse(position)),
            "id": result["table"],
            "schema": table.schema_name if table else None,
            "name": table.name if table else None,
        }
    )
