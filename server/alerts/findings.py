"""What of the state of a subscription is a cause of an alert, what is over, and what is not known. Read from the control database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from sqlmodel import col, or_, select

from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from server.alerts.schemas import AlertCause
from server.assessment.assess import Assessment
from server.assessment.health import Aspect, AspectName, HealthStatus
from server.db.models.freshness_goal import FreshnessGoalRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.models.verification import VerificationRow
from server.db.session import ReadSession
from server.declarations.captures import read_capture
from server.gateway.long_running import WorkState
from server.goals.alarms import REMEDY
from server.goals.budget import BudgetAlarm

SETTLE_S = 60.0
"""Reports from before a restart of the server, or from before a connection of the engine, are not judged for so long."""
_OVER = frozenset({SubscriptionState.RUNNING, SubscriptionState.PAUSED, SubscriptionState.STOPPED})
_TABLE_OVER = frozenset({TableStateKind.LIVE, TableStateKind.PAUSED, TableStateKind.REMOVED})
_RISK_REMEDY = "Let the subscription run and catch up, or raise its slot budget."
_DIFFERS_REMEDY = (
    "Look at the verification's differing keys; a verification with repair, or a reload of these tables, brings them"
    " back in step."
)
_LEVELS = ("warn_share", "persist_share", "stop_copies_share", "name_transaction_share", "drop_slot_share")


class Verdict(Enum):
    """Whether a cause lasts. UNKNOWN: what was known before still counts."""

    LASTS = "lasts"
    OVER = "over"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one cause. `subject`: the id of a table, empty for the subscription. A higher `level` is worse."""

    cause: AlertCause
    subscription: str
    verdict: Verdict
    detail: str
    remedy: str | None = None
    subject: str = ""
    table_name: str | None = None
    level: int = 1

    @property
    def key(self) -> tuple[str, str, str]:
        return self.cause.value, self.subscription, self.subject


def find_causes(
    session: ReadSession, row: SubscriptionRow, assessment: Assessment, parked: Sequence[TableRow], *, settled: bool
) -> Iterator[Finding]:
    """All findings on one subscription.

    `parked`: tables whose fault is to be judged. `settled`: the reported figures are current, or are missing for long.
    """
    yield _freshness(row, assessment, settled=settled)
    yield _slot_risk(row, assessment)
    yield _fault(row)
    for table in parked:
        yield _table_fault(row, table)
    yield _verification(session, row)
    yield from _budgets(session, row)


def _freshness(row: SubscriptionRow, assessment: Assessment, *, settled: bool) -> Finding:
    cause, inputs = AlertCause.FRESHNESS_GOAL_MISSED, assessment.inputs
    aspect = _aspect(assessment, AspectName.FRESHNESS)
    if inputs.state in {SubscriptionState.PAUSED, SubscriptionState.STOPPED} or inputs.deleting:
        return Finding(cause, row.name, Verdict.OVER, aspect.reason)
    if inputs.state is not SubscriptionState.RUNNING or inputs.lag_seconds is None or not settled:
        return Finding(cause, row.name, Verdict.UNKNOWN, aspect.reason)
    if inputs.lag_seconds <= inputs.goal_seconds:
        verdict = Verdict.OVER if inputs.engine else Verdict.UNKNOWN
        return Finding(cause, row.name, verdict, aspect.reason)
    absent = f"No engine has been connected for longer than the goal of {inputs.goal_seconds:g} s."
    return Finding(cause, row.name, Verdict.LASTS, aspect.reason if inputs.engine else absent, REMEDY)


def _slot_risk(row: SubscriptionRow, assessment: Assessment) -> Finding:
    aspect = _aspect(assessment, AspectName.SOURCE_LOG)
    verdict = {HealthStatus.ATTENTION: Verdict.LASTS, HealthStatus.RUNNING: Verdict.OVER}.get(
        aspect.status, Verdict.UNKNOWN
    )
    return Finding(AlertCause.SLOT_RISK, row.name, verdict, aspect.reason, _RISK_REMEDY, level=_level(row, assessment))


def _level(row: SubscriptionRow, assessment: Assessment) -> int:
    """How many escalation levels of the guard the retained log has reached; at least 1."""
    inputs = assessment.inputs
    if not inputs.budget_bytes or inputs.retained_bytes is None:
        return 1
    guard: dict[str, float] = read_capture(row.capture).assigned().get("guard", {})
    share = inputs.retained_bytes / inputs.budget_bytes
    return max(1, sum(share >= guard[name] for name in _LEVELS if name in guard))


def _fault(row: SubscriptionRow) -> Finding:
    state = SubscriptionState(row.state)
    if state is SubscriptionState.FAILED and not row.deleting:
        detail = f"It failed ({row.code or 'subscription_failed'}): {row.reason or 'the engine gave no reason.'}"
        return Finding(AlertCause.FAULT, row.name, Verdict.LASTS, detail, row.remedy)
    over = row.deleting or (state in _OVER and row.reason is None)
    verdict = Verdict.OVER if over else Verdict.UNKNOWN
    return Finding(AlertCause.FAULT, row.name, verdict, f"It is {state.value}.")


def _table_fault(row: SubscriptionRow, table: TableRow) -> Finding:
    state = TableStateKind(table.state)
    verdict = Verdict.OVER if state in _TABLE_OVER else Verdict.UNKNOWN
    detail, remedy = f"The table {table.full_name} is {state.value}.", None
    if state is TableStateKind.PARKED:
        verdict, remedy = Verdict.LASTS, table.remedy
        detail = f"The table {table.full_name} is parked ({table.code or 'unknown'}): {table.reason or 'no reason.'}"
    return Finding(AlertCause.FAULT, row.name, verdict, detail, remedy, table.id, table.full_name)


def _verification(session: ReadSession, row: SubscriptionRow) -> Finding:
    cause = AlertCause.VERIFICATION_FAILED
    differing = select(TableRow).where(
        TableRow.subscription_id == row.id, col(TableRow.differs), TableRow.state != TableStateKind.REMOVED.value
    )
    different = [table.full_name for table in session.exec(differing.order_by(col(TableRow.id)))]
    if different:
        named = ", ".join(different[:5]) + (", and others" if len(different) > 5 else "")
        detail = f"Tables that differ from the source: {len(different)} ({named})."
        return Finding(cause, row.name, Verdict.LASTS, detail, _DIFFERS_REMEDY, level=len(different) + 1)
    ended = (WorkState.SUCCEEDED.value, WorkState.FAILED.value)
    query = select(VerificationRow).where(
        VerificationRow.subscription_id == row.id,
        col(VerificationRow.state).in_(ended),
        # A failed attempt of the schedule is repeated; the table shows the reason, and its age is in the metrics.
        ~col(VerificationRow.scheduled),
    )
    newest = session.exec(
        query.order_by(col(VerificationRow.ended_at).desc(), col(VerificationRow.id)).limit(1)
    ).first()
    if newest is not None and newest.state == WorkState.FAILED.value:
        problem = newest.problem or {}
        detail = f"The verification {newest.id} failed: {problem.get('detail') or 'no reason was given.'}"
        return Finding(cause, row.name, Verdict.LASTS, detail, problem.get("remedy") or "Verify again.")
    return Finding(cause, row.name, Verdict.OVER, "No verified table differs from the source.")


_BUDGET_CAUSES = {
    BudgetAlarm.FAST_BURN: AlertCause.FRESHNESS_BUDGET_FAST_BURN,
    BudgetAlarm.SLOW_BURN: AlertCause.FRESHNESS_BUDGET_SLOW_BURN,
    BudgetAlarm.SPENT: AlertCause.FRESHNESS_BUDGET_SPENT,
}


def _budgets(session: ReadSession, row: SubscriptionRow) -> Iterator[Finding]:
    """The error budgets of the subscription and of tables with a freshness goal of their own, as of the last minute."""
    for goal in session.exec(select(FreshnessGoalRow).where(FreshnessGoalRow.subscription_id == row.id)):
        table = session.get(TableRow, goal.table_id) if goal.table_id else None
        name = None if table is None else table.full_name
        for alarm, cause in _BUDGET_CAUSES.items():
            detail = goal.alarms.get(alarm.value)
            if detail is None:
                over = "The error budget of the freshness goal is used slowly enough."
                yield Finding(cause, row.name, Verdict.OVER, over, subject=goal.table_id, table_name=name)
            else:
                what = f"Freshness goal: {detail}"
                yield Finding(cause, row.name, Verdict.LASTS, what, REMEDY, goal.table_id, name)


def judged_tables(session: ReadSession, subscription_id: int, known: Sequence[str]) -> list[TableRow]:
    """The parked tables of a subscription, and those of the ids `known`."""
    query = select(TableRow).where(
        TableRow.subscription_id == subscription_id,
        or_(TableRow.state == TableStateKind.PARKED.value, col(TableRow.id).in_(known)),
    )
    return list(session.exec(query.order_by(col(TableRow.id))))


def one_live_table(session: ReadSession, subscription_id: int) -> list[TableRow]:
    """One of the live tables of a subscription, which all have its lag; empty if none is live."""
    query = select(TableRow).where(
        TableRow.subscription_id == subscription_id, TableRow.state == TableStateKind.LIVE.value
    )
    return list(session.exec(query.limit(1)))


def _aspect(assessment: Assessment, name: AspectName) -> Aspect:
    return next(aspect for aspect in assessment.health.aspects if aspect.name is name)
