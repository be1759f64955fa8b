"""Bodies of the history."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class LogRates(BaseModel):
    """Rates at which positions in the source's log advanced since the previous point, in bytes per second; null if unknown, or if
    positions of this source do not count bytes."""

    source: float | None = Field(description="Written by the source.")
    captured: float | None = Field(description="Read by the engine.")
    applied: float | None = Field(description="Applied on the target.")


class WaitTimes(BaseModel):
    """Freshness waits that were satisfied or timed out. Times are accurate to 5 %."""

    ended: int
    timed_out: int = Field(description="Number of waits that timed out.")
    p50_ms: float
    p95_ms: float
    p99_ms: float


class HistoryPoint(BaseModel):
    """One step. Figures that were not reported are null."""

    at: datetime = Field(description="Start of the step.")
    seconds: float = Field(description="Length of the step; of the newest step, the elapsed part.")
    lag_seconds: float | None = Field(description="Maximum in the step.")
    lag_bytes: int | None = Field(description="Maximum in the step.")
    retained_bytes: int | None = Field(description="Log that the slot retained on the source at the end of the step.")
    unread_bytes: int | None = Field(
        description="Log that was not yet read, at the end of the step. Null, like `unapplied_bytes`, if positions of this source do not"
        " count bytes."
    )
    unapplied_bytes: int | None = Field(description="Log that was read but not applied, at the end of the step.")
    log_bytes_per_second: LogRates
    batches: int = Field(description="Batches committed on the target in the step.")
    transactions: int
    rows: dict[str, int] = Field(description="Row changes by operation.", examples=[{"insert": 120, "update": 40}])
    net_rows: int = Field(description="Rows written, after changes of the same row were merged.")
    log_bytes: int = Field(description="Bytes of log in the batches.")
    stage_seconds: dict[str, float] = Field(
        description="Average seconds of a batch in each stage: see `seconds` of a batch.",
        examples=[{"capture_age": 0.1, "job": 0.2, "commit": 0.05}],
    )
    waits: WaitTimes | None


class HistoryView(BaseModel):
    """The history of a subscription, oldest point first. Steps without a report are left out."""

    step_seconds: int
    points: list[HistoryPoint]
