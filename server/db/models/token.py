"""Bearer tokens, as hashes and verifiers only."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Field, SQLModel

from server.db.base import document, moment


class TokenRow(SQLModel, table=True):
    """A token. Tokens are long and random, so a plain SHA-256 cannot be reversed by search."""

    __tablename__ = "tokens"

    id: str = Field(primary_key=True, max_length=16)
    name: str = Field(unique=True, max_length=63)
    role: str = Field(max_length=16)
    digest: str = Field(unique=True, max_length=64)
    scram: str | None = Field(default=None, max_length=255)
    """SCRAM-SHA-256 verifier in the text form of PostgreSQL's `pg_authid`; None for tokens that older versions made."""
    settings: dict[str, str] = document(default_factory=dict)
    """Run-time parameters with which its sessions at SQL endpoints begin, by names as SHOW spells them."""
    created_at: datetime = moment()
