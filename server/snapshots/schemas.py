"""Bodies of snapshots and of their schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.model.snapshots import SnapshotFormat
from server.freshness.schemas import DEFAULT_TIMEOUT_MS, MOST_TIMEOUT_MS, Receipt, TableRef
from server.gateway.long_running import WorkState
from server.naming import Aliased

DEFAULT_LIMIT_S = 3600
MOST_LIMIT_S = 86_400
LEAST_INTERVAL_S, MOST_INTERVAL_S = 10, 30 * 86_400
MOST_KEPT = 1000


class SnapshotFreshness(BaseModel):
    """Required freshness of the rows."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["latest", "position", "any"] = Field(
        default="any",
        description="`any`: the newest batch boundary, without a wait. `position`: wait until `position` is visible. `latest`: wait until"
        " everything committed on the source before the request is visible.",
    )
    position: str | None = Field(
        default=None,
        max_length=1000,
        description="A position; that of a ticket, a receipt or another snapshot too.",
        examples=["0/16B3748"],
    )
    timeout_ms: int = Field(default=DEFAULT_TIMEOUT_MS, ge=0, le=MOST_TIMEOUT_MS, description="Maximum wait.")
    refuse_early: bool = Field(
        default=False,
        description="If true and the wait would, at the recent rate, be satisfied after its deadline only, it ends at once with"
        " `freshness_refused_early`.",
    )


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: SnapshotFormat = Field(
        default=SnapshotFormat.PARQUET,
        description="`parquet`: one Parquet file for each table. `duckdb`: one DuckDB file, `copy.duckdb`.",
    )
    tables: list[TableRef] | None = Field(
        default=None,
        min_length=1,
        max_length=10_000,
        description="Tables to write; by default all of the subscription.",
    )
    on_unavailable: Literal["error", "leave_out"] = Field(
        default="error",
        description="What happens if a table's rows are not complete at the position, because it is paused, parked, being copied or"
        " reloading. `error`: the snapshot fails with `table_not_live`, which names it. `leave_out`: the table is not in the snapshot;"
        " `left_out` lists it.",
    )
    limit_seconds: int = Field(
        default=DEFAULT_LIMIT_S,
        ge=1,
        le=MOST_LIMIT_S,
        description="Maximum time to write it. While it is written, the target keeps old versions of changed rows.",
    )


class SnapshotRequest(_Options):
    """What to write."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {},
                {
                    "format": "duckdb",
                    "tables": [{"schema": "public", "name": "orders"}],
                    "freshness": {"mode": "latest", "timeout_ms": 10000},
                },
            ]
        },
    )

    freshness: SnapshotFreshness = Field(default_factory=SnapshotFreshness)
    latest: bool = Field(
        default=True, description="Let the link `latest-parquet` or `latest-duckdb` lead to it when it is complete."
    )


class SnapshotTableView(Aliased):
    """A table in a snapshot."""

    id: str
    schema_name: str | None = Field(alias="schema")
    name: str | None
    file: str = Field(description="File in the snapshot's folder.", examples=["public.orders.parquet"])
    rows: int
    schema_version: str = Field(description="Equal for equal columns and key; the manifest has them in full.")
    rows_set_aside: int = Field(description="Quarantined rows, which are missing in it.")


class SnapshotLeftOutView(Aliased):
    """A table that is not in the snapshot."""

    id: str
    schema_name: str | None = Field(alias="schema")
    name: str | None
    state: str
    reason: str | None


class SnapshotView(BaseModel):
    """A consistent state of a copy, as files on the engine's machine."""

    id: str
    state: WorkState
    deleting: bool = Field(description="Its files are being deleted.")
    format: SnapshotFormat
    scheduled: bool = Field(description="Taken by the schedule.")
    position: str | None = Field(
        description="Everything committed up to here is in it, and nothing after. Null until it has succeeded."
    )
    commit_time: datetime | None = Field(
        description="Commit time of the last transaction in it, by the source's clock; null if unknown."
    )
    name: str | None = Field(
        description="Name of its folder, from the position: `0-16B3748` for `0/16B3748`; a further snapshot of the same position ends with"
        " `.2`, and so on."
    )
    folder: str | None = Field(description="Path of its folder on the engine's machine.")
    bytes: int | None
    tables: list[SnapshotTableView]
    left_out: list[SnapshotLeftOutView]
    receipt: Receipt | None = Field(description="Result of the wait before it, if there was one.")
    problem: dict[str, Any] | None
    created_at: datetime
    ended_at: datetime | None


class SnapshotSchedule(_Options):
    """When snapshots are taken, and how many are kept."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"interval_seconds": 3600, "keep": 24, "format": "parquet"}]}
    )

    interval_seconds: int = Field(ge=LEAST_INTERVAL_S, le=MOST_INTERVAL_S, description="Time between two snapshots.")
    keep: int = Field(
        default=24,
        ge=1,
        le=MOST_KEPT,
        description="How many of its successful snapshots are kept; older ones are deleted. Other snapshots are not counted.",
    )


class SnapshotScheduleView(SnapshotSchedule):
    """A schedule, and when it takes the next snapshot."""

    next_at: datetime = Field(
        description="When the next one is due. It waits for the one before it, and until the subscription is running."
    )
