"""Bodies of the history."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class LogRates(BaseModel):
    """How fast positions in the source's log moved since the point before, in bytes a second; null where it is not known."""

    source: float | None = Field(description="The source wrote.")
    captured: float | None = Field(description="The engine read.")
    applied: float | None = Field(description="Became readable on the target.")


class WaitTimes(BaseModel):
    """Waits for freshness that were satisfied or ended at their deadline. Their times are 5 % more or less."""

    ended: int
    timed_out: int = Field(description="How many of them ended at their deadline.")
    p50_ms: float
    p95_ms: float
    p99_ms: float


class HistoryPoint(BaseModel):
    """One step. Figures are null where nothing was reported of them."""

    at: datetime = Field(description="Its beginning.")
    seconds: float = Field(description="Its length; of the newest, how much of it is over.")
    lag_seconds: float | None = Field(description="The worst of the step.")
    lag_bytes: int | None = Field(description="The worst of the step.")
    retained_bytes: int | None = Field(description="Log that the slot held back on the source, at its end.")
    unread_bytes: int | None = Field(description="Log that the engine had not read yet, at its end.")
    unapplied_bytes: int | None = Field(
        description="Log that the engine had read and the target did not have, at its end."
    )
    log_bytes_per_second: LogRates
    batches: int = Field(description="Committed on the target in the step.")
    transactions: int
    rows: dict[str, int] = Field(description="Row changes by operation.", examples=[{"insert": 120, "update": 40}])
    net_rows: int = Field(description="Rows written, after changes of the same row were merged.")
    log_bytes: int = Field(description="Log of the batches.")
    stage_seconds: dict[str, float] = Field(
        description="What a batch spent on average in each stage: see `seconds` of a batch.",
        examples=[{"capture_age": 0.1, "job": 0.2, "commit": 0.05}],
    )
    waits: WaitTimes | None


class HistoryView(BaseModel):
    """The course of a subscription, the oldest point first. Steps of which nothing was heard are left out."""

    step_seconds: int
    points: list[HistoryPoint]
