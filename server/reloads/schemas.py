"""Bodies of reloads."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from server.engines.work import WorkState


class ReloadProgress(BaseModel):
    rows: int | None
    bytes: int | None
    percent: float | None
    eta_seconds: float | None


class ReloadView(BaseModel):
    """Tables that are copied anew; their old rows stay readable until the new ones take their place."""

    id: str
    table_id: str | None = Field(description="The table; null where the whole subscription is reloaded.")
    state: WorkState
    copied: ReloadProgress
    position: str | None = Field(description="From where on the reloaded tables follow the source.")
    problem: dict[str, Any] | None
    created_at: datetime
    ended_at: datetime | None
