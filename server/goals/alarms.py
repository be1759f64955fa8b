"""Alarms of error budgets: which last, recorded as events when they begin and end. Alerts are sent for those that last."""

from __future__ import annotations

from server.db.models.freshness_goal import FreshnessGoalRow
from server.db.models.table import TableRow
from server.db.session import WriteSession
from server.events.service import record_event
from server.goals.budget import LONG_H, SHORT_H, BudgetAlarm, Standing
from server.goals.repository import GoalKey
from server.wording import format_seconds

REMEDY = "Ask for the causes of the lag: 'penstock lag explain'."


def record_alarms(session: WriteSession, key: GoalKey, row: FreshnessGoalRow, standing: Standing) -> None:
    """Set the alarms of `row` to those of its standing, with an event for each change. A detail is that of the begin."""
    subscription, table_id = key
    table = session.get(TableRow, table_id) if table_id else None
    subject = None if table is None else table.full_name
    lasting = {alarm.value: row.alarms.get(alarm.value) or _detail(alarm, standing) for alarm in standing.alarms}
    for name in sorted(lasting.keys() - row.alarms.keys()):
        record_event(
            session,
            kind=f"freshness_budget_{name}",
            severity="warning",
            subscription=subscription,
            subject=subject,
            detail=f"{_whose(subscription, subject)}: {lasting[name]}",
            remedy=REMEDY,
        )
    if row.alarms and not lasting:
        record_event(
            session,
            kind="freshness_budget_recovered",
            subscription=subscription,
            subject=subject,
            detail=f"{_whose(subscription, subject)}: {describe(standing)}",
        )
    if lasting != row.alarms:
        row.alarms = lasting


def describe(standing: Standing) -> str:
    """The budget in a sentence."""
    left = f"{format_seconds(standing.left_ms / 1000)} of the error budget are left"
    if standing.left_ms <= 0:
        left = f"the error budget is spent, by {format_seconds(-standing.left_ms / 1000)} too much"
    goal = standing.goal
    return f"{left}; the goal is a lag of at most {format_seconds(goal.lag_seconds)} in {goal.percent:g} % of the time."


def _detail(alarm: BudgetAlarm, standing: Standing) -> str:
    if alarm is BudgetAlarm.SPENT:
        return describe(standing)
    rate, hours = (standing.burn_short, SHORT_H) if alarm is BudgetAlarm.FAST_BURN else (standing.burn_long, LONG_H)
    time = "hour" if hours == 1 else f"{hours} hours"
    return f"in the last {time} the error budget was used {rate:.1f} times as fast as it may be; {describe(standing)}"


def _whose(subscription: str, table: str | None) -> str:
    return f"'{subscription}'" if table is None else f"The table '{table}' of '{subscription}'"
