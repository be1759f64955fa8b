"""Schemas of the condition of a subscription and its tables."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from server.assessment.health import HealthStatus


class Copied(BaseModel):
    """How far the copy is; null where it is not known."""

    rows: int | None = None
    bytes: int | None = Field(
        default=None, description="Of the source's storage, estimated; what part of `total_bytes`."
    )
    percent: float | None = None
    eta_seconds: float | None = Field(default=None, description="By the pace of the last seconds.")
    total_rows: int | None = Field(default=None, description="Estimated until the copy has ended.")
    total_bytes: int | None = None
    rows_per_second: float | None = None
    bytes_per_second: float | None = None


class CopyTotals(BaseModel):
    """How far all copies of a subscription are that are under way, those that ended meanwhile included. Null: not known yet."""

    tables: int
    tables_copied: int
    rows: int
    bytes: int
    total_rows: int | None
    total_bytes: int | None
    percent: float | None
    rows_per_second: float | None
    bytes_per_second: float | None
    eta_seconds: float | None


class TableHealth(BaseModel):
    """How a table is, by its own state and that of its subscription."""

    status: HealthStatus = Field(description="`running` only where it is live and followed now.")
    reason: str | None = None
    remedy: str | None = None
    following: bool = Field(default=False, description="It is live, and changes of it are applied now.")


class LastFault(BaseModel):
    """The newest fault of a subscription or of one of its tables."""

    at: datetime
    code: str
    detail: str
    remedy: str | None = None
    table: str | None = Field(
        default=None, description="Id of the table that it parked; null: it is of the whole subscription."
    )
    over: bool = Field(description="Whether it is over: nothing is stopped because of it any more.")
