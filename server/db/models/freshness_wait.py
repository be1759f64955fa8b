"""Freshness waits whose answer is fetched later; they survive a restart of the server."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Text, false
from sqlmodel import Field, SQLModel

from server.db.base import document, moment


class FreshnessWaitRow(SQLModel, table=True):
    """One wait. `asked` is the requested position, None for the current one; `position` is set once it is known; both as text.

    `tables` are the ids of the tables it covers; `named`: the request listed them. `ending` contains the receipt, with
    how old the rows are, or the problem.
    """

    __tablename__ = "freshness_waits"

    id: str = Field(primary_key=True, max_length=40)
    subscription_id: int = Field(foreign_key="subscriptions.id", ondelete="CASCADE", index=True)
    status: str = Field(max_length=16, index=True)
    asked: str | None = Field(default=None, sa_type=Text)
    position: str | None = Field(default=None, sa_type=Text)
    tables: list[str] = document(default_factory=list)
    named: bool = False
    patient: bool = False
    """It continues to wait while engine or source are unavailable."""
    stale: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """At the deadline it says how far the target is behind."""
    refuse_early: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """It ends at once where the estimate exceeds its deadline."""
    timeout_ms: int
    created_at: datetime = moment()
    deadline_at: datetime = moment()
    ended_at: datetime | None = moment(default=None, nullable=True, index=True)
    ending: dict[str, Any] | None = document(default=None, nullable=True)
