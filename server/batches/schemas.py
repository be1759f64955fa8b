"""Bodies of batches."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class BatchView(BaseModel):
    """Source transactions that were taken in together. `mode` tells in how many transactions the target got them."""

    batch: int
    epoch: int = Field(description="Rises each time another engine process takes the subscription over.")
    after: str
    end: str
    transactions: int
    rows: dict[str, int] = Field(description="Row changes by operation.", examples=[{"insert": 120, "update": 40}])
    net_rows: int = Field(description="Rows written, after changes of the same row were merged.")
    bytes: int
    path: str = Field(description="Where it was prepared: `spark`, or `driver` for a small one.")
    mode: str = Field(
        description="How it was written to the target. `batch`: its net changes, in one transaction; `grouped`: its changes one by one,"
        " consecutive source transactions in one transaction (all of them where the declared mode is `auto`); `transactional`: one by"
        " one too, each source transaction in a transaction of its own, in commit order.",
        examples=["batch"],
    )
    demanded: bool = Field(description="Whether a waiting query closed it early.")
    seconds: dict[str, float] = Field(
        description="Time by stage.", examples=[{"capture_age": 0.1, "job": 0.2, "commit": 0.05}]
    )
    tables: int
    tuning: dict[str, float] = Field(
        description="What was chosen for it, and what decided: `tasks`, and `driver_setup_ms` and `spark_setup_ms`, what preparing a"
        " batch costs on each path before its first record. Where the declared mode is `grouped` or `transactional` also `lanes`,"
        " the connections that wrote concurrently. With `grouped` also `group_size`, the source transactions in one target"
        " transaction, and, where that is not set, what it follows: `commit_rate_low` and `commit_rate_high`, the commits a second that"
        " the target's disk takes, of large ones and of tiny ones. Where it is `auto` and there was a choice also `net_ms` and"
        " `single_ms`, what the batch was expected to take as net changes and change by change, and `net_share`, net rows for each"
        " change, lately. With a PostgreSQL target also `copy_above_rows`, above which rows of a table go through a temporary table, and"
        " `copy_setup_ms`, what that costs before its first row, both measured; and with relaxed visibility `parts`,"
        " the number of target transactions that it was written in.",
        examples=[{"tasks": 1, "driver_setup_ms": 0.8, "spark_setup_ms": 27.5}],
    )
    committed_at: datetime
