"""The history of tables: each change of structure or state, with the position at which it takes effect."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel

from engine.model.position import Lsn
from server.db.base import document, moment, position


class SchemaVersionRow(SQLModel, table=True):
    """One change of a table. `change` is `structure` (columns and key are set) or `state` (state and perhaps a reason).

    `changes`, `learnt` and `certain` belong to a structure; rows from before these columns existed have none.
    """

    __tablename__ = "schema_versions"

    id: int | None = Field(default=None, primary_key=True)
    table_id: str = Field(foreign_key="tables.id", ondelete="CASCADE", index=True)
    change: str = Field(max_length=16)
    position: Lsn | None = position(default=None, nullable=True)
    columns: list[dict[str, Any]] | None = document(default=None, nullable=True)
    key: list[str] | None = document(default=None, nullable=True)
    changes: list[str] | None = document(default=None, nullable=True)
    learnt: str | None = Field(default=None, max_length=16)
    certain: bool | None = None
    state: str | None = Field(default=None, max_length=16)
    code: str | None = Field(default=None, max_length=64)
    reason: str | None = None
    at: datetime = moment()
