"""Engines: the processes that replicate, as they introduced themselves."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Field, SQLModel

from server.db.base import moment


class EngineRow(SQLModel, table=True):
    """An engine process. `instance` is new with each process, `name` stays over its restarts.

    `report_sequence` counts the bundles of reports that were taken in. `lost_at` is set once its lease ran out.
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
