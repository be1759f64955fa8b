"""Whether a subscription's tables follow the source, as a freshness goal counts it. Pure."""

from __future__ import annotations

from engine.model.subscription_state import DesiredState
from engine.model.table_state import TableStateKind
from server.declarations.freshness_goals import FreshnessGoal
from server.freshness.subscription_status import HALTED_STATES, SubscriptionStatus
from server.goals.meter import Condition

_NOT_YET = frozenset({TableStateKind.REGISTERED, TableStateKind.COPYING, TableStateKind.REMOVED})
"""States of a table that readers do not see yet, or not any more. A table that is copied again is `reloading`."""


def declared_in(status: SubscriptionStatus) -> dict[str, FreshnessGoal]:
    """The goals of a subscription and its tables by the table's id; empty: that of the subscription."""
    views = status.tables
    return {
        table: goal
        for table, goal in status.goals.items()
        if not table or (table in views and views[table].state is not TableStateKind.REMOVED)
    }


def condition_of(status: SubscriptionStatus, table_id: str, goal: FreshnessGoal) -> Condition:
    """The condition of the table, or if the id is empty, of all tables without a goal of their own.

    A fault, and a table that is parked, reloading or catching up, halt it; a pause does if the goal counts pauses. A first copy is not
    part of a goal.
    """
    chosen = (
        [status.tables[table_id]]
        if table_id
        else [each for each in status.tables.values() if each.id not in status.goals]
    )
    tables = [each for each in chosen if each.state not in _NOT_YET]
    running = status.desired is DesiredState.RUNNING
    if not goal.count_pauses:
        tables = [each for each in tables if running and not each.paused]
    if not tables or status.deleting:
        return Condition.EXCLUDED
    stopped = not running or status.state in HALTED_STATES or status.faulty_since is not None
    if stopped or any(each.state is not TableStateKind.LIVE or each.paused for each in tables):
        return Condition.HALTED
    return Condition.FOLLOWING
