"""Bodies of the history endpoint."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.model.table_state import TableStateKind

Learnt = Literal["copied", "log", "ddl_trigger", "catalog", "target"]


class VersionColumn(BaseModel):
    """A column: `type` as the source prints it, `mapped` the type on the target."""

    name: str
    type: str
    attnum: int | None = None
    nullable: bool = True
    mapped: str | None = None


class VersionView(BaseModel):
    """One change of a table's schema or state."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "change": "structure",
                    "position": "0/16B3748",
                    "at": "2026-05-04T10:00:00Z",
                    "columns": [
                        {"name": "id", "type": "bigint", "attnum": 1, "nullable": False, "mapped": "BIGINT"},
                        {"name": "note", "type": "text", "attnum": 2, "nullable": True, "mapped": "VARCHAR"},
                    ],
                    "key": ["id"],
                    "changes": ["column note was added"],
                    "learnt": "log",
                    "certain": True,
                    "state": None,
                    "code": None,
                    "reason": None,
                }
            ]
        }
    )

    change: Literal["structure", "state"]
    position: str | None = Field(
        default=None,
        description="Position from which it is valid: for a schema, the end of the transaction or batch that announced it; for a state,"
        " null if it has no position.",
    )
    at: datetime
    columns: list[VersionColumn] | None = Field(default=None, description="Set for a schema change.")
    key: list[str] | None = None
    changes: list[str] | None = Field(
        default=None,
        description="Differences from the previous schema, in words; empty for a table's first one. `changes`, `learnt` and `certain`"
        " are null for a change of state, and for a schema recorded by an older version.",
    )
    learnt: Learnt | None = Field(
        default=None,
        description="How it was detected. `copied`: by the table's copy; `log`: announced in the source's log; `ddl_trigger`: reported"
        " by the event trigger of `ddl-capture` in the transaction that changed it; `catalog`: read from the source's catalog,"
        " before any row after the change announced it in the log; `target`: found on the target when an engine started, because"
        " the previous engine ended before reporting it.",
    )
    certain: bool | None = Field(
        default=None,
        description="False if the source's catalog had already changed again when the log announced the change, so that columns were"
        " matched by name and type.",
    )
    state: TableStateKind | None = Field(default=None, description="Set for a change of state.")
    code: str | None = None
    reason: str | None = None
