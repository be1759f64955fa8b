"""Batches that were committed on a target."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger
from sqlmodel import Field, SQLModel, UniqueConstraint

from engine.model.position import Lsn
from server.db.base import document, moment, position


class BatchRow(SQLModel, table=True):
    """One batch. `rows`: raw changes by operation; `seconds`: durations by stage; `mode`: how it was written to the target."""

    __tablename__ = "batches"
    __table_args__ = (
        UniqueConstraint("subscription_id", "epoch", "number"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    subscription_id: int = Field(foreign_key="subscriptions.id", ondelete="CASCADE", index=True)
    epoch: int
    number: int = Field(sa_type=BigInteger)
    after: Lsn = position()
    end: Lsn = position()
    transactions: int
    rows: dict[str, int] = document(default_factory=dict)
    net_rows: int = Field(sa_type=BigInteger)
    bytes: int = Field(sa_type=BigInteger)
    path: str = Field(max_length=16)
    mode: str = Field(default="batch", max_length=16)
    demanded: bool
    seconds: dict[str, float] = document(default_factory=dict)
    tables: int
    tuning: dict[str, float] = document(default_factory=dict)
    ledger: dict[str, Any] | None = document(default=None, nullable=True)
    """As `engine.link.messages.LedgerPart`; None for batches before it existed."""
    committed_at: datetime = moment()
