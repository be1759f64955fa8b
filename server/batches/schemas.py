"""Bodies of batches."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class BatchView(BaseModel):
    """Source transactions that were applied together, as one transaction of the target."""

    batch: int
    epoch: int = Field(description="Rises each time another engine process takes the subscription over.")
    after: str
    end: str
    transactions: int
    rows: dict[str, int] = Field(description="Row changes by operation.", examples=[{"insert": 120, "update": 40}])
    net_rows: int = Field(description="Rows written after changes of the same row were brought together.")
    bytes: int
    path: str = Field(description="Where it was prepared: `spark`, or `driver` for a small one.")
    demanded: bool = Field(description="Whether a waiting query closed it early.")
    seconds: dict[str, float] = Field(
        description="Time by stage.", examples=[{"capture_age": 0.1, "job": 0.2, "commit": 0.05}]
    )
    tables: int
    tuning: dict[str, float] = Field(
        description="What was chosen for it, and what decided: `tasks`, and `driver_setup_ms` and `spark_setup_ms`, what preparing a"
        " batch costs on each path before its first record.",
        examples=[{"tasks": 1, "driver_setup_ms": 0.8, "spark_setup_ms": 27.5}],
    )
    committed_at: datetime
