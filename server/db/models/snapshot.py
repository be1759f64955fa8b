"""Snapshots of a copy as files, and their schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel

from engine.model.position import Lsn
from server.db.base import document, large, moment, position


class SnapshotRow(SQLModel, table=True):
    """One snapshot. `asked`: table ids, None for all; `tables`, `left_out`: as the engine reported them.

    `deleting`: its files are to be deleted; the row goes when they are gone. `receipt`: of the wait before it.
    """

    __tablename__ = "snapshots"

    id: str = Field(primary_key=True, max_length=40)
    subscription_id: int = Field(foreign_key="subscriptions.id", ondelete="CASCADE", index=True)
    state: str = Field(max_length=16, index=True)
    deleting: bool = False
    format: str = Field(max_length=16)
    scheduled: bool = False
    asked: list[str] | None = document(default=None, nullable=True)
    leave_out: bool = False
    latest: bool = True
    limit_s: int
    at_least: Lsn | None = position(default=None, nullable=True)
    name: str | None = None
    folder: str | None = None
    position: Lsn | None = position(default=None, nullable=True)
    commit_time: datetime | None = moment(default=None, nullable=True)
    bytes: int | None = large(default=None)
    tables: list[dict[str, Any]] = document(default_factory=list)
    left_out: list[dict[str, Any]] = document(default_factory=list)
    receipt: dict[str, Any] | None = document(default=None, nullable=True)
    problem: dict[str, Any] | None = document(default=None, nullable=True)
    created_at: datetime = moment(index=True)
    ended_at: datetime | None = moment(default=None, nullable=True)


class SnapshotScheduleRow(SQLModel, table=True):
    """When snapshots of a subscription are taken. `asked`: table ids, None for all; `next_at`: when the next one is due."""

    __tablename__ = "snapshot_schedules"

    subscription_id: int = Field(primary_key=True, foreign_key="subscriptions.id", ondelete="CASCADE")
    interval_s: int
    keep: int
    format: str = Field(max_length=16)
    asked: list[str] | None = document(default=None, nullable=True)
    leave_out: bool = False
    limit_s: int
    next_at: datetime = moment(index=True)
    created_at: datetime = moment()
