"""Bodies of read points."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from server.freshness.schemas import DEFAULT_TIMEOUT_MS, MOST_TIMEOUT_MS
from server.naming import Name, QualifiedName
from server.tables.schemas import TableTarget

MOST_TTL_SECONDS = 7 * 86_400


class ReadPointFreshness(BaseModel):
    """Which state the read point has at least."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["latest", "position", "any"] = Field(
        default="any",
        description="`any`: the present state of the target. `position`: everything up to `position`. `latest`: everything committed on"
        " the source before the request. Both wait for all tables that are neither paused nor parked.",
    )
    position: str | None = Field(default=None, max_length=1000, examples=["0/16B3748"])
    timeout_ms: int = Field(default=DEFAULT_TIMEOUT_MS, ge=0, le=MOST_TIMEOUT_MS, description="Maximum wait.")


class ReadPointRequest(BaseModel):
    """A read point to create."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"name": "month-end", "ttl_seconds": 1800, "freshness": {"mode": "latest", "timeout_ms": 10000}}
            ]
        },
    )

    name: Name = Field(
        description="Name by which queries refer to it. That of a read point that has ended may be used again."
    )
    ttl_seconds: int = Field(
        default=600,
        ge=1,
        le=MOST_TTL_SECONDS,
        description="Time for which it is kept; at most the engine's setting PENSTOCK_READ_POINT_TTL_S.",
    )
    freshness: ReadPointFreshness = Field(default_factory=ReadPointFreshness)


class ReadPointTable(QualifiedName):
    """A table as the read point has it, by its name on the source."""

    id: str
    target: TableTarget
    schema_version: int | None = Field(
        description="Which schema of its history it has: 1 is the first one. Null if unknown."
    )
    complete: bool = Field(
        description="Whether its rows include every change up to the position. False for a table that was being copied, paused or parked."
    )


class ReadPointView(BaseModel):
    """A read point."""

    name: str
    state: Literal["held", "ended", "unknown"] = Field(
        description="`held`: queries can use it. `ended`: they cannot; `reason` says why. `unknown`: no engine is connected that could say."
    )
    reason: str | None = Field(default=None, description="Why it has ended.")
    position: str = Field(description="Everything committed up to here, and nothing later, is in its tables.")
    committed_at: datetime | None = Field(
        description="Commit time of the last transaction in it, by the source's clock; null if unknown."
    )
    created_at: datetime
    expires_at: datetime
    tables: list[ReadPointTable] = Field(description="Ordered by name.")
