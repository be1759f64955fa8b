"""Bodies of reloads."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from server.gateway.long_running import WorkState
from server.partitions.schemas import LoadedPartitionView

PartitionName = Annotated[str, StringConstraints(max_length=512, pattern=r"^[^\x00.][^\x00]*\.[^\x00]+$")]


class ReloadRequest(BaseModel):
    """What to reload."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{}, {"partitions": ["public.sales_2024_06"]}, {"partitions": "changed"}]},
    )

    partitions: Annotated[list[PartitionName], Field(min_length=1, max_length=1000)] | Literal["changed"] | None = (
        Field(
            default=None,
            description="Partitions of the table on the source, as schema.name, including their own partitions; `changed`: those whose"
            " rows differ from the source's, found by comparing each. By default the whole table.",
        )
    )


class ReloadProgress(BaseModel):
    rows: int | None
    bytes: int | None
    percent: float | None
    eta_seconds: float | None
    total_rows: int | None = None
    total_bytes: int | None = None
    rows_per_second: float | None = None


class ReloadView(BaseModel):
    """A reload of tables; their old rows stay readable until the new ones replace them."""

    id: str
    table_id: str | None = Field(description="The table; null if the whole subscription is reloaded.")
    asked: list[str] | Literal["changed"] | None = Field(
        description="The requested partitions; null if the whole table is reloaded."
    )
    partitions: list[LoadedPartitionView] | None = Field(
        description="The partitions that are loaded and why, once known; null if the whole table is reloaded."
    )
    state: WorkState
    copied: ReloadProgress
    position: str | None = Field(description="Position from which the reloaded tables follow the source.")
    problem: dict[str, Any] | None
    created_at: datetime
    ended_at: datetime | None
