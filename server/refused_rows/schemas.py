"""Bodies about rows that a target refused."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from engine.model.quarantine import RefusedState


class RefusedValue(BaseModel):
    """One column of a refused row."""

    column: str
    type: str = Field(description="The type on the source, by PostgreSQL's name.")
    value: str | None = Field(description="The value as the source prints it; null is NULL.")


class RefusedCauseView(BaseModel):
    """Why the target rejected a row."""

    code: str
    detail: str
    sqlstate: str | None = Field(description="Set if a PostgreSQL target rejected it.")


class RefusedRowView(BaseModel):
    """A row that the target rejected."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "5f0c6d6ad8f14c4b9c9f7d8e1a2b3c4d",
                    "state": "set_aside",
                    "operation": "update",
                    "key": ["17"],
                    "values": [
                        {"column": "id", "type": "int4", "value": "17"},
                        {"column": "price", "type": "numeric", "value": "NaN"},
                    ],
                    "cause": {
                        "code": "value_out_of_domain",
                        "detail": "column price: a value cannot be represented exactly by a decimal column",
                        "sqlstate": None,
                    },
                    "position": "0/16B3748",
                    "batch": 412,
                    "refused_at": "2026-05-04T10:00:00Z",
                    "skipped_by": None,
                    "skipped_at": None,
                }
            ]
        }
    )

    id: str
    state: RefusedState = Field(
        description="`parked`: the table was parked because of it; `set_aside`: it is in quarantine; `skipped`: it is in quarantine, and"
        " a user decided that it stays out of the table."
    )
    operation: str = Field(description="`copy`, `insert` or `update`: the net change of its batch.")
    key: list[str | None] = Field(description="Values of the key columns, in key order.")
    values: list[RefusedValue]
    cause: RefusedCauseView
    position: str = Field(description="End of the batch in which it was refused; 0/0 for a row of a copy.")
    batch: int
    refused_at: datetime
    skipped_by: str | None
    skipped_at: datetime | None


class RefusedRowsOutcome(BaseModel):
    """The result for refused rows."""

    done: list[str] = Field(description="Ids of the rows that are now in the table, or are now skipped.")
    rows_set_aside: int = Field(
        description="Number of quarantined rows of the table after the request, including skipped ones."
    )
