"""Reloads: tables copied again from their source."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger
from sqlmodel import Field, SQLModel

from engine.model.position import Lsn
from server.db.base import document, moment, position


class ReloadRow(SQLModel, table=True):
    """One reload: of the table `table_id`, or of the whole subscription if that is None."""

    __tablename__ = "reloads"

    id: str = Field(primary_key=True, max_length=40)
    subscription_id: int = Field(foreign_key="subscriptions.id", ondelete="CASCADE", index=True)
    table_id: str | None = Field(default=None, foreign_key="tables.id", ondelete="CASCADE", index=True, max_length=16)
    state: str = Field(max_length=16, index=True)
    position: Lsn | None = position(default=None, nullable=True)
    rows: int | None = Field(default=None, sa_type=BigInteger)
    bytes: int | None = Field(default=None, sa_type=BigInteger)
    percent: float | None = None
    eta_seconds: float | None = None
    total_rows: int | None = Field(default=None, sa_type=BigInteger)
    total_bytes: int | None = Field(default=None, sa_type=BigInteger)
    rows_per_second: float | None = None
    asked: dict[str, Any] | None = document(default=None, nullable=True)
    """`names` of the requested partitions, null for those that differ; None: the whole table."""
    partitions: list[dict[str, Any]] | None = document(default=None, nullable=True)
    """The partitions that it loads, as reported."""
    problem: dict[str, Any] | None = document(default=None, nullable=True)
    created_at: datetime = moment(index=True)
    ended_at: datetime | None = moment(default=None, nullable=True)
