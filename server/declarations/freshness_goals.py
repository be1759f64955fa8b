"""The freshness goals that a subscription and its tables declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from server.declarations.captures import read_capture
from server.declarations.policies import FreshnessBody


class Declared(Protocol):
    """A subscription with the given members of its policies."""

    capture: dict[str, Any]
    freshness: dict[str, Any]


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


def freshness_policy(row: Declared) -> FreshnessBody:
    """The policy of a subscription. Its usual goal is that of its capture."""
    return FreshnessBody.model_validate({"goal_seconds": read_capture(row.capture).usual_lag_s(), **row.freshness})


def subscription_goal(row: Declared) -> FreshnessGoal | None:
    """The goal of a subscription; None if it has none."""
    return _goal(freshness_policy(row))


def table_goal(row: Declared, of_table: Mapping[str, Any] | None) -> FreshnessGoal | None:
    """The own goal of a table of the subscription; None if it has none, and that of its subscription applies."""
    return _goal(freshness_policy(row).model_copy(update=dict(of_table))) if of_table else None


def _goal(body: FreshnessBody) -> FreshnessGoal | None:
    if body.goal_percent is None:
        return None
    return FreshnessGoal(body.goal_seconds, body.goal_percent, body.window_hours, body.count_pauses)
