"""Events, in the order of the commits that recorded them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index
from sqlmodel import Field, SQLModel

from server.db.base import moment

SUBJECT_LONGEST = 500
"""Characters: PostgreSQL limits the size of an index entry."""


class EventRow(SQLModel, table=True):
    """One event. `subscription` is its name, not a reference, since events outlive their subscription."""

    __tablename__ = "events"
    __table_args__ = (Index(None, "subject", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = moment(index=True)
    severity: str = Field(max_length=16)
    kind: str = Field(max_length=64, index=True)
    subscription: str | None = Field(default=None, max_length=63, index=True)
    subject: str | None = None
    """At most SUBJECT_LONGEST characters."""
    table_state: str | None = Field(default=None, max_length=16)
    """For a change of a table's state: the new state (TableStateKind)."""
    detail: str
    remedy: str | None = None
