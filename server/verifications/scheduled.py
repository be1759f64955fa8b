"""The verifications that schedules demand, in the control database: begun, ended, and deleted when they are old."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import String, cast
from sqlmodel import col, or_, select

from engine.model.operations import OPERATIONS
from engine.model.subscription_state import DesiredState, SubscriptionState
from engine.model.table_state import TableStateKind
from server.assessment.assess import ConnectedFor
from server.db.models.reload import ReloadRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.models.verification import VerificationRow
from server.db.outbox import enqueue
from server.db.session import ReadSession, WriteSession
from server.declarations.policies import VerifyBody
from server.gateway.long_running import UNENDED, WorkState
from server.lookup.subscriptions import lock_subscription
from server.tables.verified import interval_of, is_before_copy
from server.verifications.rolling import (
    FIRST_DELAY,
    LEAST_LIMIT,
    LONGEST_DELAY,
    Attempt,
    Candidate,
    choose,
    delay_after,
    limit_of,
    may_begin,
)

KEPT = 100
"""Ended verifications of a schedule that stay listed, besides the last one of each table."""
AT_ONCE = 4
"""Most verifications of schedules at once on one engine: a quarter of the threads in which it answers requests."""
_READ = 10
"""Due tables that are read to choose the next one."""
_ALL_OPERATIONS = tuple(json.dumps(each) for each in ([], sorted(OPERATIONS)))
"""The column `operations` of tables of which every operation is followed, as the database prints it."""
_ENGINE_LOST = {
    "status": 503,
    "code": "engine_lost",
    "title": "The engine ended",
    "detail": "The engine ended before the comparison did.",
    "remedy": "The table is compared again later.",
}
_NO_END = {
    "status": 504,
    "code": "verification_timeout",
    "title": "The comparison did not end",
    "detail": "The engine did not end the comparison in {hours:.0f} hours, and it was cancelled.",
    "remedy": "The table is compared again later, within twice that time. If it is that large, set verify.sample, or verify.method to"
    " 'checksum'.",
}
_SETTLED_S = 60.0
"""Seconds after which an engine that has connected again has reported the ends of its comparisons. Not measured."""
_NOT_COMPARED = {"code": "not_compared", "detail": "It was not live when it was to be compared.", "remedy": None}


@dataclass(frozen=True, slots=True)
class Step:
    """What a schedule has to do now: end the verification `end`, as failed with this `problem` or as not wanted any more, or begin with
    `table`."""

    end: VerificationRow | None = None
    problem: dict[str, Any] | None = None
    table: str | None = None


def due_subscriptions(session: ReadSession, now: datetime, connected_s: ConnectedFor) -> list[str]:
    """Names of the subscriptions whose schedule has something to do, those whose last attempt is the longest ago first."""
    unended = (
        select(VerificationRow.subscription_id)
        .where(col(VerificationRow.scheduled), col(VerificationRow.state).in_(UNENDED))
        .distinct()
    )
    busy = set(session.exec(unended))
    found = []
    for subscription in session.exec(select(SubscriptionRow)).all():
        if subscription.verify.get("every_seconds") is None and subscription.id not in busy:
            continue
        if next_step(session, subscription, now, connected_s) is not None:
            last = _last_attempt(session, subscription)
            found.append((last is not None, last.ended_at.isoformat() if last else "", subscription.name))
    return [name for _, _, name in sorted(found)]


def take_step(session: WriteSession, name: str, connected_s: ConnectedFor) -> None:
    """Do what the schedule of the subscription has to do by the session's clock."""
    subscription = lock_subscription(session, name)
    step = None if subscription is None else next_step(session, subscription, session.now(), connected_s)
    if subscription is None or step is None:
        return
    if step.end is not None and step.problem is not None:
        step.end.state, step.end.problem = WorkState.FAILED.value, step.problem
        seconds = None
        if step.problem["code"] == _NO_END["code"]:
            enqueue(session, name, "cancel", {"id": step.end.id})
            seconds = (session.now() - step.end.created_at).total_seconds()
        end_attempt(session, step.end, seconds)
    elif step.end is not None:
        cancel_attempt(session, name, step.end)
    elif step.table is not None and _engines_share(session, subscription) < AT_ONCE:
        _begin(session, subscription, step.table)
    session.touch(name)


def next_step(
    session: ReadSession, subscription: SubscriptionRow, now: datetime, connected_s: ConnectedFor
) -> Step | None:
    """What the schedule of a subscription has to do now; None: nothing."""
    policy = VerifyBody.model_validate(subscription.verify)
    every = interval_of(policy)
    unended = session.exec(
        select(VerificationRow).where(
            VerificationRow.subscription_id == subscription.id, col(VerificationRow.state).in_(UNENDED)
        )
    ).all()
    for row in unended:
        if row.scheduled and row.epoch != subscription.epoch:
            return Step(end=row, problem=_ENGINE_LOST)
        if row.scheduled and (every is None or not _runs(subscription)):
            return Step(end=row)
        if row.scheduled and now - row.created_at > LEAST_LIMIT:
            limit = _limit(session, row)
            settled = (connected_s(subscription.engine_id) or 0.0) >= _SETTLED_S
            if settled and now - row.created_at > limit:
                detail = str(_NO_END["detail"]).format(hours=limit.total_seconds() / 3600)
                return Step(end=row, problem={**_NO_END, "detail": detail})
    follows = _runs(subscription) and connected_s(subscription.engine_id) is not None
    if every is None or unended or not follows:
        return None
    if not may_begin(_last_attempt(session, subscription), policy.budget, now):
        return None
    chosen = choose(_candidates(session, subscription, policy, every, now), every, now)
    return None if chosen is None else Step(table=chosen.table)


def _runs(subscription: SubscriptionRow) -> bool:
    """Whether it runs without a fault, and is meant to."""
    running = (subscription.state, subscription.desired_state) == (SubscriptionState.RUNNING, DesiredState.RUNNING)
    return running and subscription.reason is None and not subscription.deleting


def _limit(session: ReadSession, row: VerificationRow) -> timedelta:
    """The time after which this attempt is given up."""
    ended = session.exec(
        select(VerificationRow.asked, VerificationRow.seconds).where(
            VerificationRow.subscription_id == row.subscription_id,
            col(VerificationRow.scheduled),
            VerificationRow.state == WorkState.SUCCEEDED.value,
        )
    )
    table = session.get(TableRow, row.asked[0]) if row.asked else None
    return limit_of(
        (seconds or 0.0 for asked, seconds in ended if asked == row.asked), table.verify_failures if table else 0
    )


def _last_attempt(session: ReadSession, subscription: SubscriptionRow) -> Attempt | None:
    query = select(VerificationRow.ended_at, VerificationRow.seconds, VerificationRow.state).where(
        VerificationRow.subscription_id == subscription.id,
        col(VerificationRow.scheduled),
        col(VerificationRow.ended_at).is_not(None),
    )
    found = session.exec(query.order_by(col(VerificationRow.ended_at).desc()).limit(1)).first()
    if found is None or found[0] is None:
        return None
    return Attempt(found[0], found[1] or 0.0, failed=found[2] == WorkState.FAILED.value)


def _candidates(
    session: ReadSession, subscription: SubscriptionRow, policy: VerifyBody, every: timedelta, now: datetime
) -> list[Candidate]:
    """The first in turn of the due tables that are live and of which no reload has begun; none while the whole subscription is reloaded.

    Tables whose updates and deletes are not followed are left out. If whole tables are to be compared, comparisons of samples do not
    count.
    """
    whole = policy.sample >= 1
    reloads = session.exec(
        select(ReloadRow.table_id).where(
            ReloadRow.subscription_id == subscription.id, col(ReloadRow.state).in_(UNENDED)
        )
    ).all()
    if None in reloads:
        return []
    # The conditions of `is_due` and the order of `choose`, so that few rows of many are read.
    compared = col(TableRow.verified_whole_at if whole else TableRow.verified_at)
    retry, tried = col(TableRow.verify_retry_at), col(TableRow.verify_tried_at)
    query = select(TableRow).where(
        TableRow.subscription_id == subscription.id,
        TableRow.state == TableStateKind.LIVE.value,
        ~col(TableRow.insert_only),
        cast(col(TableRow.operations), String).in_(_ALL_OPERATIONS),
        col(TableRow.id).not_in(reloads),
        or_(compared.is_(None), compared <= now - every, compared > now, col(TableRow.reloaded_at) >= compared),
        or_(retry.is_(None), retry <= now, retry > now + LONGEST_DELAY),
    )
    rows = session.exec(query.order_by(tried.is_not(None), tried, col(TableRow.id)).limit(_READ))
    found = []
    for row in rows:
        compared_at = row.verified_whole_at if whole else row.verified_at
        known = None if is_before_copy(row, compared_at) else compared_at
        found.append(Candidate(row.id, known, row.verify_tried_at, row.verify_retry_at))
    return found


def _engines_share(session: ReadSession, subscription: SubscriptionRow) -> int:
    """How many verifications of schedules the engine of this subscription has."""
    query = (
        select(VerificationRow.id)
        .join(SubscriptionRow, col(SubscriptionRow.id) == col(VerificationRow.subscription_id))
        .where(
            SubscriptionRow.engine_id == subscription.engine_id,
            col(VerificationRow.scheduled),
            col(VerificationRow.state).in_(UNENDED),
        )
    )
    return len(session.exec(query).all())


def _begin(session: WriteSession, subscription: SubscriptionRow, table: str) -> None:
    policy = VerifyBody.model_validate(subscription.verify)
    row = VerificationRow(
        id=f"v{uuid.uuid4().hex}",
        subscription_id=subscription.id or 0,
        state=WorkState.QUEUED.value,
        scheduled=True,
        epoch=subscription.epoch,
        asked=[table],
        method=policy.method.value,
        sample=policy.sample,
        created_at=session.now(),
    )
    session.add(row)
    session.flush()
    enqueue(session, subscription.name, "verify", {"id": row.id})
    for old in _too_many(session, subscription):
        session.delete(old)


def _too_many(session: ReadSession, subscription: SubscriptionRow) -> Sequence[VerificationRow]:
    """Ended verifications of the schedule that are neither among the newest nor the last comparison of a table."""
    shown = select(TableRow.verified_by).where(
        TableRow.subscription_id == subscription.id,
        TableRow.state != TableStateKind.REMOVED.value,
        col(TableRow.verified_by).is_not(None),
    )
    query = select(VerificationRow).where(
        VerificationRow.subscription_id == subscription.id,
        col(VerificationRow.scheduled),
        col(VerificationRow.ended_at).is_not(None),
        col(VerificationRow.id).not_in(shown),
    )
    return session.exec(query.order_by(col(VerificationRow.ended_at).desc()).offset(KEPT)).all()


def cancel_attempt(session: WriteSession, name: str, row: VerificationRow, *, put_off: bool = False) -> None:
    """Cancel an unended verification of a schedule; its table is compared later, after other ones that are due.

    `put_off`: because a user does not want it now; not for another `FIRST_DELAY`.
    """
    now = session.now()
    row.state, row.ended_at = WorkState.CANCELLED.value, now
    row.seconds = max(0.0, (now - row.created_at).total_seconds())
    session.add(row)
    enqueue(session, name, "cancel", {"id": row.id})
    table = _table_of(session, row)
    if table is not None:
        table.verify_tried_at = now
        if put_off:
            table.verify_retry_at = now + FIRST_DELAY
        session.add(table)


def end_attempt(session: WriteSession, row: VerificationRow, seconds: float | None) -> None:
    """A verification of a schedule has succeeded or failed: `row` has its state, results and problem.

    `seconds`: for how long it compared; None if that is not known.
    """
    now = session.now()
    row.ended_at = row.ended_at or now
    row.seconds = seconds
    session.add(row)
    table = _table_of(session, row)
    if table is None:
        return
    table.verify_tried_at = now
    if not row.results:
        table.verify_failures += 1
        table.verify_retry_at = now + delay_after(table.verify_failures)
        table.verify_problem = {"at": now.isoformat(), **_reason(row)}
    session.add(table)


def _reason(row: VerificationRow) -> dict[str, Any]:
    found = row.problem or _NOT_COMPARED
    return {
        "code": str(found.get("code") or "internal"),
        "detail": str(found.get("detail") or "No reason was given."),
        "remedy": found.get("remedy"),
    }


def _table_of(session: WriteSession, row: VerificationRow) -> TableRow | None:
    return session.get(TableRow, row.asked[0]) if row.asked else None
