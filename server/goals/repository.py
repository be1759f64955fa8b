"""Reads and writes goals and what was measured of them in the control database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from sqlmodel import col, delete, or_, select

from engine.model.table_state import TableStateKind
from server.db.models.freshness_goal import FreshnessGoalRow, FreshnessHourRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.session import ReadSession, WriteSession
from server.declarations.freshness_goals import FreshnessGoal, subscription_goal, table_goal
from server.goals.budget import first_hour, needed_hours
from server.goals.timeline import HOUR_MS, Hour, Interval, Shares, Timeline, hour_from_document, totals_only

GoalKey = tuple[str, str]
"""The name of a subscription, and the id of a table; empty: the goal of the subscription."""


def moment_of(ms: int) -> datetime:
    """A time in milliseconds since 1970."""
    return datetime.fromtimestamp(ms // 1000, UTC) + timedelta(milliseconds=ms % 1000)


def ms_of(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def declared_goals(session: ReadSession, subscription: str | None = None) -> dict[GoalKey, FreshnessGoal]:
    """The declared goals of a subscription and its tables (None: of all)."""
    query = select(SubscriptionRow)
    if subscription is not None:
        query = query.where(SubscriptionRow.name == subscription)
    rows = {row.id: row for row in session.exec(query)}
    tables = select(TableRow).where(col(TableRow.freshness).is_not(None), TableRow.state != TableStateKind.REMOVED)
    if subscription is not None:
        tables = tables.where(col(TableRow.subscription_id).in_(list(rows)))
    found = {(row.name, ""): subscription_goal(row) for row in rows.values()}
    for table in session.exec(tables):
        row = rows[table.subscription_id]
        found[row.name, table.id] = table_goal(row, table.freshness)
    return {key: goal for key, goal in found.items() if goal is not None}


def find_rows(session: ReadSession, subscription: str | None = None) -> dict[GoalKey, FreshnessGoalRow]:
    """The measured goals of a subscription and its tables (None: of all)."""
    query = select(SubscriptionRow.name, FreshnessGoalRow).join(
        SubscriptionRow, col(SubscriptionRow.id) == FreshnessGoalRow.subscription_id
    )
    if subscription is not None:
        query = query.where(SubscriptionRow.name == subscription)
    return {(name, row.table_id): row for name, row in session.exec(query)}


def is_of(row: FreshnessGoalRow, goal: FreshnessGoal) -> bool:
    """Whether what the row has was measured by the goal's values."""
    return (row.lag_seconds, row.count_pauses) == (goal.lag_seconds, goal.count_pauses)


def read_timeline(
    session: ReadSession, row: FreshnessGoalRow, goal: FreshnessGoal, end_ms: int, whole: Iterable[int] = ()
) -> Timeline:
    """What is stored of the window that ends at `end_ms`, as `judge` needs it; and `whole`, hours in all detail.

    Also what was measured later, up to a window: the clock was set back since.
    """
    first, beyond = first_hour(goal, end_ms), end_ms // HOUR_MS + goal.window_hours
    totals = select(FreshnessHourRow.at, FreshnessHourRow.totals, FreshnessHourRow.worst).where(
        FreshnessHourRow.goal_id == row.id,
        FreshnessHourRow.at >= moment_of(first * HOUR_MS),
        FreshnessHourRow.at <= moment_of(beyond * HOUR_MS),
    )
    found = totals_only(
        {ms_of(at) // HOUR_MS: (Shares(*total), _interval(worst)) for at, total, worst in session.exec(totals)}
    )
    latest = max(found.hours, default=first)
    hours = needed_hours(goal, ms_of(row.since), end_ms).union(whole, [latest])
    if latest > end_ms // HOUR_MS:
        hours |= needed_hours(goal, ms_of(row.since), latest * HOUR_MS)
        hours |= {hour + 1 for hour in hours}
    found.hours.update(_read_hours(session, row, hours))
    return found


def _read_hours(session: ReadSession, row: FreshnessGoalRow, hours: Collection[int]) -> dict[int, Hour]:
    query = select(FreshnessHourRow).where(
        FreshnessHourRow.goal_id == row.id, col(FreshnessHourRow.at).in_([moment_of(hour * HOUR_MS) for hour in hours])
    )
    return {
        ms_of(each.at) // HOUR_MS: hour_from_document(each.minutes, _interval(each.worst))
        for each in session.exec(query)
    }


def _interval(stored: Sequence[int] | None) -> Interval | None:
    return None if stored is None else Interval(*stored)


def store_hours(session: WriteSession, row: FreshnessGoalRow, timeline: Timeline, hours: Iterable[int]) -> None:
    """Store these hours of a timeline, each in one row."""
    for number in sorted(hours & timeline.hours.keys()):
        hour = timeline.hours[number]
        at = moment_of(number * HOUR_MS)
        found = session.get(FreshnessHourRow, (row.id, at)) or FreshnessHourRow(goal_id=row.id or 0, at=at)
        total, worst = hour.total, hour.worst
        found.totals, found.minutes = [total.fresh_ms, total.late_ms, total.excluded_ms], hour.to_document()
        found.worst = None if worst is None else [worst.begin_ms, worst.end_ms]
        session.add(found)


def delete_hours(session: WriteSession, row: FreshnessGoalRow) -> None:
    """Forget what was measured of a goal."""
    session.exec(delete(FreshnessHourRow).where(col(FreshnessHourRow.goal_id) == row.id))


def delete_expired(session: WriteSession) -> None:
    """Delete goals that are no longer declared, and hours before their goal's window, or later than now by more than a window."""
    goals, now_ms = declared_goals(session), ms_of(session.now())
    for key, row in find_rows(session).items():
        goal = goals.get(key)
        if goal is None:
            session.delete(row)
        else:
            at, first = col(FreshnessHourRow.at), first_hour(goal, now_ms)
            wrong_clock = moment_of((now_ms // HOUR_MS + goal.window_hours) * HOUR_MS)
            old = or_(at < moment_of(first * HOUR_MS), at > wrong_clock)
            session.exec(delete(FreshnessHourRow).where(col(FreshnessHourRow.goal_id) == row.id, old))
