"""Tickets: markers in a source's log, timed on their way to the target."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Field, SQLModel

from engine.model.position import Lsn
from server.db.base import large, moment, position


class TicketRow(SQLModel, table=True):
    """One ticket, with the content of the last `engine.link.messages.TicketReport`."""

    __tablename__ = "tickets"

    id: str = Field(primary_key=True, max_length=40)
    subscription_id: int = Field(foreign_key="subscriptions.id", ondelete="CASCADE", index=True)
    name: str | None = Field(default=None, max_length=100)
    state: str = Field(max_length=16, index=True)
    until: Lsn | None = position(default=None, nullable=True)
    position: Lsn | None = position(default=None, nullable=True)
    written_at: datetime | None = moment(default=None, nullable=True)
    captured_at: datetime | None = moment(default=None, nullable=True)
    sealed_at: datetime | None = moment(default=None, nullable=True)
    computed_at: datetime | None = moment(default=None, nullable=True)
    applied_at: datetime | None = moment(default=None, nullable=True)
    transactions: int | None = large(default=None, nullable=True)
    commands: int | None = large(default=None, nullable=True)
    counted_since: datetime | None = moment(default=None, nullable=True)
    code: str | None = Field(default=None, max_length=64)
    reason: str | None = None
    remedy: str | None = None
    created_at: datetime = moment(index=True)
