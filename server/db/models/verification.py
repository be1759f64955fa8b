"""Verifications: comparisons of tables with their source at one position."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel

from engine.model.position import Lsn
from server.db.base import document, moment, position


class VerificationRow(SQLModel, table=True):
    """One verification. `asked`: table ids, None for all live ones; `method`: `rows` or `checksum`; `repair`: `none`, `preview`
    or `apply`; `sample`: the share of each table to compare; `budget`: the largest share of the time in which to compare; `results`: the
    tables compared so far.

    `scheduled`: the schedule began it, for one table; `epoch`: that of the subscription then, so that it ends with the engine that had it.
    `left_out`: set at its end, the ids of the tables that it did not compare, each with its state and reason at that
    time.
    """

    __tablename__ = "verifications"

    id: str = Field(primary_key=True, max_length=40)
    subscription_id: int = Field(foreign_key="subscriptions.id", ondelete="CASCADE", index=True)
    state: str = Field(max_length=16, index=True)
    scheduled: bool = False
    epoch: int = 0
    asked: list[str] | None = document(default=None, nullable=True)
    method: str = Field(default="rows", max_length=16)
    repair: str = Field(default="none", max_length=16, sa_column_kwargs={"server_default": "none"})
    sample: float = Field(default=1.0, sa_column_kwargs={"server_default": "1"})
    budget: float = Field(default=1.0, sa_column_kwargs={"server_default": "1"})
    position: Lsn | None = position(default=None, nullable=True)
    total: int | None = None
    results: list[dict[str, Any]] = document(default_factory=list)
    left_out: list[dict[str, Any]] | None = document(default=None, nullable=True)
    problem: dict[str, Any] | None = document(default=None, nullable=True)
    seconds: float | None = None
    """Time for which it compared, as its engine measured; of one that was cancelled, since it was requested."""
    created_at: datetime = moment(index=True)
    ended_at: datetime | None = moment(default=None, nullable=True)
