"""Subscriptions: what the user declared, and what the engine last reported."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel

from engine.model.position import Lsn
from server.db.base import document, large, moment, position


class SubscriptionRow(SQLModel, table=True):
    """A subscription.

    `patterns` are the declared table patterns; the tables themselves are rows of their own. `epoch` rises with each
    assignment (0: never assigned). `stamp` and `revision` make the ETag and follow the declaration only.
    """

    __tablename__ = "subscriptions"

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True, max_length=63)
    source_id: int = Field(foreign_key="connections.id", index=True)
    target_id: int = Field(foreign_key="connections.id", index=True)
    slot: str = Field(unique=True, max_length=63)
    desired_state: str = Field(max_length=16)
    patterns: list[dict[str, Any]] = document(default_factory=list)
    capture: dict[str, Any] = document(default_factory=dict)
    batch: dict[str, Any] = document(default_factory=dict)
    apply: dict[str, Any] = document(default_factory=dict)
    queue: dict[str, Any] = document(default_factory=dict)
    schema_changes: dict[str, Any] = document(default_factory=dict)
    copies: dict[str, Any] = document(default_factory=dict)
    freshness: dict[str, Any] = document(default_factory=dict)
    verify: dict[str, Any] = document(default_factory=dict)
    staging: bool = False
    deleting: bool = False

    state: str = Field(max_length=16)
    code: str | None = Field(default=None, max_length=64)
    reason: str | None = None
    remedy: str | None = None
    state_at: datetime = moment()
    last_fault: dict[str, Any] | None = document(default=None, nullable=True)
    """The newest fault: `at`, `code`, `detail`, `remedy`, and `table`, the id of the table that it parked (None: no single one)."""

    epoch: int = 0
    engine_id: str | None = Field(default=None, max_length=64)

    source_position: Lsn | None = position(default=None, nullable=True)
    captured_position: Lsn | None = position(default=None, nullable=True)
    applied_position: Lsn | None = position(default=None, nullable=True)
    lag_bytes: int | None = large(default=None, nullable=True)
    lag_seconds: float | None = None
    retained_bytes: int | None = large(default=None, nullable=True)
    nodes_away: str | None = None
    """Which nodes of its source cannot be read, and why, as text."""
    progress_at: datetime | None = moment(default=None, nullable=True)

    stamp: str = Field(max_length=16)
    revision: int = 1
    created_at: datetime = moment()
    updated_at: datetime = moment()
