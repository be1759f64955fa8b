"""Bodies of freshness goals."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from server.goals.budget import BudgetAlarm
from server.naming import QualifiedName


class GoalTable(QualifiedName):
    """A table with a goal of its own."""

    id: str


class Goal(BaseModel):
    """For `percent` of the time in a window, the copy lags at most `lag_seconds`."""

    lag_seconds: float
    percent: float
    window_hours: int
    count_pauses: bool = Field(
        description="Whether time in which a user has paused it counts as late; else it does not count."
    )


class TimeShares(BaseModel):
    """The window in seconds, by how the copy was. They add up to the window."""

    fresh: float = Field(description="The lag was at most `lag_seconds`.")
    late: float = Field(
        description="It was larger, or a fault, a parked table, a counted pause, or an engine that did not report prevented it from being"
        " known to be smaller."
    )
    unknown: float = Field(description="The server did not run. It uses the budget like late time.")
    excluded: float = Field(description="The goal did not apply: first copies, and pauses that do not count.")
    unmeasured: float = Field(description="Before the measurement began.")


class ErrorBudget(BaseModel):
    """The time in the window in which the copy may be late."""

    total_seconds: float
    used_seconds: float = Field(description="Late and unknown time.")
    left_seconds: float = Field(description="Negative: more was used.")


class BurnRates(BaseModel):
    """The budget used, in multiples of what uses it up exactly in one window."""

    last_hour: float
    last_6_hours: float


class LateInterval(BaseModel):
    """A time in which the copy was late without interruption."""

    begin: datetime
    end: datetime
    seconds: float


class FreshnessGoalView(BaseModel):
    """A freshness goal, how far it is met, and its error budget."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "table": None,
                    "goal": {"lag_seconds": 10, "percent": 99.5, "window_hours": 168, "count_pauses": True},
                    "measured_since": "2026-05-04T10:00:00Z",
                    "measured_to": "2026-05-11T10:00:00Z",
                    "met": True,
                    "compliance_percent": 99.871,
                    "shares_seconds": {
                        "fresh": 604020.0,
                        "late": 720.0,
                        "unknown": 60.0,
                        "excluded": 0.0,
                        "unmeasured": 0.0,
                    },
                    "budget": {"total_seconds": 3024.0, "used_seconds": 780.0, "left_seconds": 2244.0},
                    "burn_rate": {"last_hour": 0.0, "last_6_hours": 2.2},
                    "alarms": [],
                    "late_since": None,
                    "worst": {"begin": "2026-05-09T02:10:00Z", "end": "2026-05-09T02:18:00Z", "seconds": 480.0},
                }
            ]
        }
    )

    table: GoalTable | None = Field(
        description="The table whose goal it is; null: the goal of the subscription, for all tables without one."
    )
    goal: Goal
    measured_since: datetime = Field(description="Begin of the window, or of the measurement if that is later.")
    measured_to: datetime = Field(description="Up to the last report that was judged.")
    met: bool = Field(description="The budget is not spent.")
    compliance_percent: float | None = Field(
        description="Fresh time as a share of fresh, late and unknown time; null if the goal has not applied yet."
    )
    shares_seconds: TimeShares
    budget: ErrorBudget
    burn_rate: BurnRates
    alarms: list[BudgetAlarm]
    late_since: datetime | None = Field(description="Since when the copy has been late; null: it is not.")
    worst: LateInterval | None = Field(description="The longest late time in the window without interruption.")


class FreshnessGoals(BaseModel):
    """The freshness goals of a subscription and its tables."""

    items: list[FreshnessGoalView]
