"""Read points: what was created, to distinguish ended ones from those that never existed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel, UniqueConstraint

from engine.model.position import Lsn
from server.db.base import document, moment, position


class ReadPointRow(SQLModel, table=True):
    """The last read point of a name. Whether it is still kept, only the engine knows. `tables`: as its answer has them."""

    __tablename__ = "read_points"
    __table_args__ = (UniqueConstraint("subscription_id", "name"),)

    id: str = Field(primary_key=True, max_length=40)
    subscription_id: int = Field(foreign_key="subscriptions.id", ondelete="CASCADE", index=True)
    name: str = Field(max_length=63)
    position: Lsn = position()
    committed_at: datetime | None = moment(default=None, nullable=True)
    created_at: datetime = moment()
    expires_at: datetime = moment(index=True)
    tables: list[dict[str, Any]] = document()
