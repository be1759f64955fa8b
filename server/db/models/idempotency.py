"""Answers to requests that carried an Idempotency-Key."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel, UniqueConstraint

from server.db.base import document, moment


class IdempotencyRow(SQLModel, table=True):
    """One answered request, by principal, endpoint and key. `fingerprint` is a hash of the request's body."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (UniqueConstraint("principal", "route", "key"),)

    id: int | None = Field(default=None, primary_key=True)
    principal: str = Field(max_length=64)
    route: str = Field(max_length=512)
    key: str = Field(max_length=255)
    fingerprint: str = Field(max_length=64)
    status: int
    headers: dict[str, str] = document(default_factory=dict)
    body: Any = document(default=None, nullable=True)
    created_at: datetime = moment(index=True)
