"""Freshness goals: what is measured, and the hours of which something was measured."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import UniqueConstraint
from sqlmodel import Field, SQLModel

from server.db.base import document, moment


class FreshnessGoalRow(SQLModel, table=True):
    """A goal that is measured. `table_id`: empty for the goal of the subscription, which is that of all tables without one.

    Time before `since` was not measured, or by other values of `lag_seconds` and `count_pauses`. `alarms`: those that last, each with its
    detail (`server.goals.budget.BudgetAlarm`).
    """

    __tablename__ = "freshness_goals"
    __table_args__ = (UniqueConstraint("subscription_id", "table_id"),)

    id: int | None = Field(default=None, primary_key=True)
    subscription_id: int = Field(foreign_key="subscriptions.id", ondelete="CASCADE", index=True)
    table_id: str = Field(default="", max_length=16)
    lag_seconds: float
    count_pauses: bool
    since: datetime = moment()
    late_since: datetime | None = moment(default=None, nullable=True)
    alarms: dict[str, str] = document(default_factory=dict)


class FreshnessHourRow(SQLModel, table=True):
    """What was measured of a goal in the hour that begins at `at`: see `server.goals.timeline.Hour`."""

    __tablename__ = "freshness_hours"

    goal_id: int = Field(primary_key=True, foreign_key="freshness_goals.id", ondelete="CASCADE")
    at: datetime = moment(primary_key=True)
    totals: list[int] = document(default_factory=list)
    minutes: list[Any] = document(default_factory=list)
    worst: list[int] | None = document(default=None, nullable=True)
