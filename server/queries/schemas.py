"""Bodies of queries."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from server.freshness.schemas import DEFAULT_TIMEOUT_MS, MOST_TIMEOUT_MS, Receipt

DEFAULT_ROWS = 10_000
MOST_ROWS = 1_000_000
MOST_JSON_BYTES = 256 * 1024 * 1024
"""Maximum size, in Arrow format, of the rows of a JSON answer."""


class QueryFreshness(BaseModel):
    """How fresh the answer has to be."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["latest", "position", "any"] = Field(
        default="any",
        description="`any`: as it is. `position`: not before `position` is visible. `latest`: not before everything "
        "committed on the source until now is visible. Both hold for the tables of the statement.",
    )
    position: str | None = Field(default=None, max_length=1000, examples=["0/16B3748"])
    timeout_ms: int = Field(
        default=DEFAULT_TIMEOUT_MS, ge=0, le=MOST_TIMEOUT_MS, description="How long to wait for it."
    )
    on_timeout: str = Field(
        default="error", max_length=64, description="What to do at the deadline; only `error` so far."
    )
    on_unavailable: Literal["error", "include"] = Field(
        default="error",
        description="What to do where a table of the statement is paused, parked, or does not follow its source in another way: `error`"
        " refuses the query with `freshness_unreachable`, or waits where the table will follow by itself; `include` answers with the rows"
        " that are there, and the receipt lists the table in `left_out`. Tables whose rows a shared table shows count too.",
    )


class QueryRequest(BaseModel):
    """One read."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"sql": "SELECT count(*) FROM public.orders", "freshness": {"mode": "latest", "timeout_ms": 10000}}
            ]
        },
    )

    sql: str = Field(min_length=1, max_length=1_000_000, description="Exactly one SELECT in the target's dialect.")
    freshness: QueryFreshness = Field(default_factory=QueryFreshness)
    max_rows: int | None = Field(
        default=None,
        ge=1,
        le=MOST_ROWS,
        description=f"Of JSON: {DEFAULT_ROWS} where nothing is given; `truncated` says whether there are more. CSV and Arrow cannot say so:"
        " they have all rows where nothing is given. Where there are more than given, the query ends with `answer_cut`, or the body breaks"
        " off where it has begun.",
    )
    timeout_ms: int = Field(
        default=DEFAULT_TIMEOUT_MS, ge=1, le=MOST_TIMEOUT_MS, description="How long the query itself may run."
    )


class QueryColumn(BaseModel):
    name: str
    type: str


class QueryAnswer(BaseModel):
    """Rows as JSON."""

    columns: list[QueryColumn]
    rows: list[list[Any]] = Field(
        description="Integers up to 64 bits and finite floats are numbers; decimals, wider integers, NaN and infinities, "
        "times and bytes (hexadecimal) are strings."
    )
    position: str = Field(description="The position that the answer shows; it can be waited for, and asked for again.")
    ran_on: Literal["target", "source"]
    truncated: bool = Field(description="Whether more than `max_rows` rows were found.")
    receipt: Receipt | None = Field(default=None, description="What was waited for, where something was.")
