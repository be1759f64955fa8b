"""Bearer tokens, as hashes only."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Field, SQLModel

from server.db.base import moment


class TokenRow(SQLModel, table=True):
    """A token. Tokens are long and random, so a plain SHA-256 cannot be reversed by search."""

    __tablename__ = "tokens"

    id: str = Field(primary_key=True, max_length=16)
    name: str = Field(unique=True, max_length=63)
    role: str = Field(max_length=16)
    digest: str = Field(unique=True, max_length=64)
    created_at: datetime = moment()
