"""The history of subscriptions in steps."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel

from server.db.base import document, moment


class HistoryRow(SQLModel, table=True):
    """One step of a subscription: `at` is its start, `figures` a document of `server.history.figures.Figures`."""

    __tablename__ = "history"

    subscription_id: int = Field(primary_key=True, foreign_key="subscriptions.id", ondelete="CASCADE")
    step_seconds: int = Field(primary_key=True)
    at: datetime = moment(primary_key=True)
    figures: dict[str, Any] = document(default_factory=dict)
