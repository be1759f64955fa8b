"""Bodies of batches."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Position = Annotated[str, BeforeValidator(str)]


class BatchView(BaseModel):
    """Source transactions that were applied together. `mode` says in how many target transactions."""

    model_config = ConfigDict(from_attributes=True)

    batch: int = Field(validation_alias="number")
    epoch: int = Field(description="Increases each time another engine process takes over the subscription.")
    after: Position
    end: Position
    transactions: int
    rows: dict[str, int] = Field(description="Row changes by operation.", examples=[{"insert": 120, "update": 40}])
    net_rows: int = Field(description="Rows written, after changes of the same row were merged.")
    bytes: int
    path: str = Field(
        description="Where it was prepared: by `spark`, or in the engine process (`driver`) if it was small."
    )
    mode: str = Field(
        description="How it was written to the target. `batch`: its net changes, in one transaction; `grouped`: its changes one by one,"
        " with several consecutive source transactions in one transaction (all of them if the declared mode is `auto`);"
        " `transactional`: its changes one by one, each source transaction in a separate transaction, in commit order.",
        examples=["batch"],
    )
    demanded: bool = Field(description="Whether a wait for freshness sealed it early.")
    seconds: dict[str, float] = Field(
        description="Time by stage.", examples=[{"capture_age": 0.1, "job": 0.2, "commit": 0.05}]
    )
    tables: int
    tuning: dict[str, float] = Field(
        description="Choices made for the batch, and the measurements that decided them: `tasks`; `driver_setup_ms` and"
        " `spark_setup_ms`, the fixed cost of preparing a batch on each path. Declared mode `grouped` or `transactional`: `lanes`,"
        " the connections that wrote concurrently. `grouped`: `group_size`, the source transactions in one target transaction, and,"
        " if it is not declared, the measured commits per second of the target's disk, `commit_rate_low` for large commits and"
        " `commit_rate_high` for small ones. `auto`, if both modes were possible: `net_ms` and `single_ms`, the estimated time as"
        " net changes and change by change, and `net_share`, the recent ratio of net rows to changes. PostgreSQL target:"
        " `copy_above_rows`, the number of rows of a table above which a temporary table is used, and `copy_setup_ms`, the fixed"
        " cost of that; with relaxed visibility `parts`, the number of target transactions.",
        examples=[{"tasks": 1, "driver_setup_ms": 0.8, "spark_setup_ms": 27.5}],
    )
    committed_at: datetime
