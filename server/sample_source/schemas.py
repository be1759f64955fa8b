"""Bodies of the sample source's endpoints."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from server.demo.sample import SampleState

_EXAMPLE: dict[str, Any] = {
    "state": "running",
    "reason": None,
    "remedy": None,
    "connection": "sample",
    "transactions": 140,
    "transactions_per_second": 5.0,
    "target_path": "/var/lib/penstock/sample.duckdb",
}


class SampleSourceView(BaseModel):
    """The state of the sample source, and its connection."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    state: SampleState = Field(
        description="`unavailable`: it cannot run on the server's machine; `absent`: it was not started, or was removed."
    )
    reason: str | None = Field(default=None, description="Why it failed or is unavailable.")
    remedy: str | None = None
    connection: str = Field(description="Name of its connection, which exists from the start.")
    transactions: int = Field(description="Transactions of its load since its last start.")
    transactions_per_second: float = Field(description="Transactions per second of its load while it runs.")
    target_path: str = Field(description="Path of a DuckDB file in the server's data folder, for a first target.")
