"""Alerts: channels, the causes of which a channel was notified, and notices that are not delivered yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import UniqueConstraint
from sqlmodel import Field, SQLModel

from server.db.base import document, moment


class AlertChannelRow(SQLModel, table=True):
    """A receiver of alerts. `causes` and `subscriptions` are its filter; an empty list selects all."""

    __tablename__ = "alert_channels"

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True, max_length=63)
    kind: str = Field(max_length=16)
    settings: dict[str, Any] = document(default_factory=dict)
    causes: list[str] = document(default_factory=list)
    subscriptions: list[str] = document(default_factory=list)
    repeat_seconds: int
    secret_names: list[str] = document(default_factory=list)
    secrets_sealed: str | None = None
    delivered_at: datetime | None = moment(default=None, nullable=True)
    last_error: str | None = None
    """Why the newest attempt failed; None if it succeeded."""
    created_at: datetime = moment()
    updated_at: datetime = moment()

    @property
    def stamp(self) -> str:
        """As etags.Tagged."""
        return f"{_microseconds(self.created_at):x}"

    @property
    def revision(self) -> int:
        """As etags.Tagged: each change sets `updated_at`."""
        return _microseconds(self.updated_at)


def _microseconds(moment: datetime) -> int:
    """Since 1970 UTC."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class AlertRow(SQLModel, table=True):
    """A cause that lasts and of which the channel was notified. Deleted with its recovery notice."""

    __tablename__ = "alerts"
    __table_args__ = (UniqueConstraint("channel_id", "cause", "subscription", "subject"),)

    id: str = Field(primary_key=True, max_length=40)
    channel_id: int = Field(foreign_key="alert_channels.id", ondelete="CASCADE", index=True)
    cause: str = Field(max_length=32)
    subscription: str = Field(max_length=63)
    subject: str = Field(default="", max_length=16)
    """The id of the table that it is about; empty: the subscription."""
    table_name: str | None = None
    level: int
    since: datetime = moment()
    notified_at: datetime = moment()
    over_since: datetime | None = moment(default=None, nullable=True)
    """Since when the cause is not found any more; None while it lasts."""


class AlertDeliveryRow(SQLModel, table=True):
    """A notice that its channel has not accepted yet. Deliveries of a channel are made in the order of their ids."""

    __tablename__ = "alert_deliveries"
    __table_args__ = {"sqlite_autoincrement": True}

    id: int | None = Field(default=None, primary_key=True)
    channel_id: int = Field(foreign_key="alert_channels.id", ondelete="CASCADE", index=True)
    notice: dict[str, Any] = document(default_factory=dict)
    attempts: int = 0
    due_at: datetime = moment()
    created_at: datetime = moment()
