"""The freshness goals that a subscription and its tables declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from server.declarations.policies import FreshnessBody


@dataclass(frozen=True, slots=True)
class FreshnessGoal:
    """For `percent` of the time in a window of `window_hours`, the copy lags at most `lag_seconds`. `count_pauses`: time in which a user
    has paused it counts as late."""

    lag_seconds: float
    percent: float
    window_hours: int
    count_pauses: bool

    @property
    def allowed_share(self) -> float:
        """The share of the window in which the copy may be late, 0 to 1."""
        return round(1 - self.percent / 100, 9)


def subscription_goal(freshness: Mapping[str, Any]) -> FreshnessGoal | None:
    """The goal of a subscription with this policy; None if it has none."""
    return _goal(FreshnessBody.model_validate(dict(freshness)))


def table_goal(freshness: Mapping[str, Any], of_table: Mapping[str, Any] | None) -> FreshnessGoal | None:
    """The table's own goal; None if it has none, and that of its subscription applies."""
    return _goal(FreshnessBody.model_validate({**freshness, **of_table})) if of_table else None


def _goal(body: FreshnessBody) -> FreshnessGoal | None:
    if body.goal_percent is None:
        return None
    return FreshnessGoal(body.goal_seconds, body.goal_percent, body.window_hours, body.count_pauses)
