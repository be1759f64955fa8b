"""Connections: how to reach one database."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Field, SQLModel

from server.db.base import document, moment


class ConnectionRow(SQLModel, table=True):
    """A connection. `secrets_sealed`: ciphertext of a JSON object; `secret_names`: the names in it, readable without the key."""

    __tablename__ = "connections"

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True, max_length=63)
    kind: str = Field(max_length=32)
    settings: dict[str, str | int] = document(default_factory=dict)
    secret_names: list[str] = document(default_factory=list)
    secrets_sealed: str | None = None
    stamp: str = Field(max_length=16)
    revision: int = 1
    created_at: datetime = moment()
    updated_at: datetime = moment()
