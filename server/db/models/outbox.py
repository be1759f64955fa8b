"""Commands for the engine, written with the change that causes them and sent after its commit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel

from server.db.base import document, moment


class OutboxRow(SQLModel, table=True):
    """One command. Its payload contains names and ids only: secrets are added when it is sent."""

    __tablename__ = "outbox"
    __table_args__ = {"sqlite_autoincrement": True}

    id: int | None = Field(default=None, primary_key=True)
    subscription: str | None = Field(default=None, max_length=63, index=True)
    kind: str = Field(max_length=32)
    payload: dict[str, Any] = document(default_factory=dict)
    created_at: datetime = moment()
    delivered_at: datetime | None = moment(default=None, nullable=True, index=True)
