"""Bodies that show a table's partitions."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from engine.model.partitions import LoadReason

_REASONS = (
    "`copied`: the first copy of the whole table; `asked`: a request named it or the whole table; `changed`: its rows differed from the"
    " source's; `unknown`: it could not be determined whether they differed."
)


class PartitionView(BaseModel):
    """A partition of a table on the source, and its last load."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "public.sales_2024_06",
                    "parent": "public.sales",
                    "has_rows": True,
                    "bound": "FOR VALUES FROM ('2024-06-01') TO ('2024-07-01')",
                    "reloadable": True,
                    "obstacle": None,
                    "generation": 3,
                    "reason": "changed",
                    "position": "0/16B3748",
                    "loaded_at": "2024-07-02T08:15:00Z",
                }
            ]
        }
    )

    name: str = Field(description="schema.name on the source.")
    parent: str = Field(description="schema.name of its parent table.")
    has_rows: bool = Field(description="False: it is itself partitioned; its partitions are listed too.")
    bound: str = Field(description="As the source prints it.")
    reloadable: bool = Field(description="Whether it can be reloaded separately.")
    obstacle: str | None = Field(description="Why it cannot be reloaded separately.")
    generation: int = Field(description="Increases with each load of its rows.")
    reason: LoadReason | None = Field(
        description=f"Of the last load. {_REASONS} Null where loads were not counted yet."
    )
    position: str | None = Field(description="End of the batch that made the last load visible.")
    loaded_at: datetime | None = Field(description="Time of the last load, by the target's clock.")


class PartitionsView(BaseModel):
    """The partitions of one table."""

    table_id: str
    partitions: list[PartitionView] = Field(description="All levels, by name; empty if the table is not partitioned.")


class LoadedPartitionView(BaseModel):
    """A partition that a reload loads."""

    name: str = Field(description="schema.name on the source.")
    reason: LoadReason = Field(description=f"Why it is loaded. {_REASONS}")
    generation: int | None = Field(
        description="Number of its load on the target: the new one once the reload has succeeded."
    )
