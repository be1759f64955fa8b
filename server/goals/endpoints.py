"""Freshness goals of a subscription and its tables, with their error budgets."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Query, Request

from server.errors import NotFound, responses
from server.freshness.subscription_status import SubscriptionStatus
from server.freshness.tracker import FreshnessTracker
from server.goals.budget import Standing
from server.goals.recorder import GoalRecorder, Measurement
from server.goals.repository import moment_of
from server.goals.schemas import (
    BurnRates,
    ErrorBudget,
    FreshnessGoals,
    FreshnessGoalView,
    Goal,
    GoalTable,
    LateInterval,
    TimeShares,
)
from server.goals.timeline import Interval
from server.naming import NamePath
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/subscriptions/{name}", tags=["freshness"], dependencies=[needs(Role.VIEWER)])


@router.get(
    "/freshness-goals",
    operation_id="freshness_goals_list",
    summary="List freshness goals and error budgets",
    responses=responses(NotFound),
)
async def list_goals(
    request: Request,
    name: NamePath,
    table_id: Annotated[
        str | None,
        Query(max_length=64, description="Only the goal that applies to this table: its own, or the subscription's."),
    ] = None,
) -> FreshnessGoals:
    """The goal of the subscription first, then those of tables by schema and name; none if `goal_percent` is not set.

    Set them with `freshness` of the subscription and of tables.
    """
    recorder = cast("GoalRecorder", request.app.state.goals)
    tracker = cast("FreshnessTracker", request.app.state.freshness)
    found = await recorder.read(name)
    status = (await tracker.current_registry(name)).status
    if table_id is not None:
        if table_id not in status.tables:
            raise NotFound(f"There is no table '{table_id}'.", f"GET /api/v1/subscriptions/{name}/tables lists them.")
        key = (name, table_id) if (name, table_id) in found else (name, "")
        found = {key: found[key]} if key in found else {}
    shown = [_view(each, status) for each in found.values()]
    return FreshnessGoals(items=sorted(shown, key=_order))


def _order(view: FreshnessGoalView) -> tuple[str, ...]:
    return () if view.table is None else (view.table.schema_name, view.table.name, view.table.id)


def _view(found: Measurement, status: SubscriptionStatus) -> FreshnessGoalView:
    standing, goal = found.standing, found.standing.goal
    table = status.tables.get(found.key[1])
    compliance = standing.compliance
    return FreshnessGoalView(
        table=None if table is None else GoalTable(id=table.id, schema_name=table.schema, name=table.name),
        goal=Goal(
            lag_seconds=goal.lag_seconds,
            percent=goal.percent,
            window_hours=goal.window_hours,
            count_pauses=goal.count_pauses,
        ),
        measured_since=moment_of(standing.measured.begin_ms),
        measured_to=moment_of(standing.measured.end_ms),
        met=standing.left_ms > 0,
        compliance_percent=None if compliance is None else round(100 * compliance, 5),
        shares_seconds=_shares(standing),
        budget=ErrorBudget(
            total_seconds=_seconds(standing.budget_ms),
            used_seconds=_seconds(standing.used_ms),
            left_seconds=_seconds(standing.left_ms),
        ),
        burn_rate=BurnRates(last_hour=round(standing.burn_short, 3), last_6_hours=round(standing.burn_long, 3)),
        alarms=list(standing.alarms),
        late_since=None if found.late_since_ms is None else moment_of(found.late_since_ms),
        worst=_late(standing.worst),
    )


def _shares(standing: Standing) -> TimeShares:
    shares = standing.shares
    return TimeShares(
        fresh=_seconds(shares.fresh_ms),
        late=_seconds(shares.late_ms),
        unknown=_seconds(standing.unknown_ms),
        excluded=_seconds(shares.excluded_ms),
        unmeasured=_seconds(standing.unmeasured_ms),
    )


def _late(found: Interval | None) -> LateInterval | None:
    if found is None:
        return None
    return LateInterval(begin=moment_of(found.begin_ms), end=moment_of(found.end_ms), seconds=_seconds(found.length_ms))


def _seconds(ms: float) -> float:
    return round(ms / 1000, 3)
