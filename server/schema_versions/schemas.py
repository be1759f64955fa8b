"""Bodies of the history endpoint."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.model.table_state import TableState


class VersionColumn(BaseModel):
    """A column: `type` as the source prints it, `mapped` the type on the target."""

    name: str
    type: str
    attnum: int | None = None
    nullable: bool = True
    mapped: str | None = None


class VersionView(BaseModel):
    """One change of a table's structure or state."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "change": "structure",
                    "position": "0/16B3748",
                    "at": "2026-05-04T10:00:00Z",
                    "columns": [
                        {"name": "id", "type": "bigint", "attnum": 1, "nullable": False, "mapped": "BIGINT"},
                    ],
                    "key": ["id"],
                    "state": None,
                    "code": None,
                    "reason": None,
                }
            ]
        }
    )

    change: Literal["structure", "state"]
    position: str | None = Field(
        default=None, description="From here on it holds; null where no position belongs to it."
    )
    at: datetime
    columns: list[VersionColumn] | None = Field(default=None, description="For a change of structure.")
    key: list[str] | None = None
    state: TableState | None = Field(default=None, description="For a change of state.")
    code: str | None = None
    reason: str | None = None
