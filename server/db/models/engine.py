"""Engines: the processes that replicate, as they registered."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Field, SQLModel

from server.db.base import moment


class EngineRow(SQLModel, table=True):
    """An engine process. `instance` is new for each process, `name` persists over restarts.

    `report_sequence` counts the accepted bundles of reports. `lost_at` is set when its lease has expired.
    """

    __tablename__ = "engines"

    id: str = Field(primary_key=True, max_length=16)
    instance: str = Field(unique=True, max_length=64)
    name: str = Field(max_length=255)
    version: str = Field(max_length=32)
    report_sequence: int = 0
    registered_at: datetime = moment()
    seen_at: datetime = moment()
    lost_at: datetime | None = moment(default=None, nullable=True)
