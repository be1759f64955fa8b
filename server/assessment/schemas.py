"""Schemas of the condition of a subscription and its tables."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from server.assessment.health import HealthStatus
from server.remedies import Remedied


class Copied(BaseModel):
    """Progress of the copy; null if unknown."""

    rows: int | None = None
    bytes: int | None = Field(
        default=None, description="Estimated bytes of the source's storage copied so far, of `total_bytes`."
    )
    percent: float | None = None
    eta_seconds: float | None = Field(default=None, description="At the rate of the last seconds.")
    total_rows: int | None = Field(default=None, description="An estimate until the copy has ended.")
    total_bytes: int | None = None
    rows_per_second: float | None = None
    bytes_per_second: float | None = None


class CopyTotals(BaseModel):
    """Progress of all current copies of a subscription, including those that have ended since the first of them began. Null: not yet
    known."""

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


class TableHealth(Remedied):
    """The condition of a table, from its own state and that of its subscription."""

    status: HealthStatus = Field(description="`running` only if it is live and its changes are being applied.")
    reason: str | None = None
    following: bool = Field(default=False, description="It is live, and its changes are being applied.")


class LastFault(Remedied):
    """The newest fault of a subscription or of one of its tables."""

    at: datetime
    code: str
    detail: str
    table: str | None = Field(
        default=None, description="Id of the table that it parked; null: it affects the whole subscription."
    )
    over: bool = Field(description="Whether it has no effect any more.")

    def known_arguments(self) -> dict[str, str | None]:
        return {"table": self.table}
