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
        description="Of a structure, the end of the transaction or batch that announced it, where it is valid. Of a state,"
        " from where on it is valid; null where it has no position.",
    )
    at: datetime
    columns: list[VersionColumn] | None = Field(default=None, description="For a change of structure.")
    key: list[str] | None = None
    changes: list[str] | None = Field(
        default=None,
        description="What is different from the structure before, in words; empty for a table's first one. Null for a change of state,"
        " and for a structure that an older version recorded; so are `learnt` and `certain`.",
    )
    learnt: Learnt | None = Field(
        default=None,
        description="How it became known. `copied`: the table's copy found it so; `log`: the source's log announced it; `ddl_trigger`:"
        " the event trigger of `ddl-capture` reported it in the transaction that changed it; `catalog`: the"
        " source's catalog shows it, and no row has come since the change with which the log would announce it; `target`: the target"
        " had it when an engine started, and the engine before had ended before it reported it.",
    )
    certain: bool | None = Field(
        default=None,
        description="False where the source's catalog was further on already when the log announced it, so that columns were matched by"
        " name and type.",
    )
    state: TableStateKind | None = Field(default=None, description="For a change of state.")
    code: str | None = None
    reason: str | None = None
