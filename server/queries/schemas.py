"""Bodies of queries."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from server.freshness.schemas import DEFAULT_TIMEOUT_MS, MOST_TIMEOUT_MS, LeftOutTable, Receipt, Staleness
from server.naming import Name

DEFAULT_ROWS = 10_000
MOST_ROWS = 1_000_000
MOST_PARAMETERS = 1000
MOST_JSON_BYTES = 256 * 1024 * 1024
"""Maximum size, in Arrow format, of the rows of a JSON answer."""


class QueryFreshness(BaseModel):
    """Required freshness of the rows."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["latest", "position", "any"] = Field(
        default="any",
        description="`any`: do not wait. `position`: wait until `position` is visible. `latest`: wait until everything committed on the"
        " source before the request is visible. Both apply to the tables of the statement.",
    )
    position: str | None = Field(default=None, max_length=1000, examples=["0/16B3748"])
    timeout_ms: int = Field(default=DEFAULT_TIMEOUT_MS, ge=0, le=MOST_TIMEOUT_MS, description="Maximum wait.")
    on_timeout: Literal["error", "stale", "source"] = Field(
        default="error",
        description="What happens at the deadline. `error`: the query fails with `freshness_timeout`. `stale`: it returns the rows that the"
        " target has, and `stale` says how far they are behind. `source`: it runs on the source, translated to its SQL, in one read-only"
        " transaction with the same limits; `query_not_translatable`, `query_not_of_source` or `source_query_unsupported` if it cannot."
        " With `stale` and `source` it waits until the deadline also while engine or source are unavailable.",
    )
    refuse_early: bool = Field(
        default=False,
        description="If true and the wait would, at the recent rate, be satisfied after its deadline only, it ends at once: with"
        " `freshness_refused_early` and the estimate in `estimate_ms`, or as `on_timeout` says.",
    )
    on_unavailable: Literal["error", "include", "source"] = Field(
        default="error",
        description="What happens if a table of the statement is paused, parked, or otherwise does not follow its source, in every mode."
        " `error`: the query is refused with `freshness_unreachable`; if the table will follow without user action, the query waits in"
        " the modes `latest` and `position`, and has its existing rows in the mode `any`. `include`: the existing rows are returned."
        " `source`: the query runs on the source, also if the table will follow soon, and if the subscription does not run or its target"
        " is unavailable."
        " Tables whose existing rows were returned are listed in `left_out`. This includes tables whose rows a shared table shows.",
    )


class QueryRequest(BaseModel):
    """One query."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"sql": "SELECT count(*) FROM public.orders", "freshness": {"mode": "latest", "timeout_ms": 10000}}
            ]
        },
    )

    sql: str = Field(min_length=1, max_length=1_000_000, description="Exactly one SELECT in the target's dialect.")
    parameters: list[StrictStr | StrictBool | StrictInt | None] = Field(
        default_factory=list,
        max_length=MOST_PARAMETERS,
        description="One value for each of $1, $2, … in the statement. A value has the meaning of an untyped literal: its place in the"
        " statement decides its type. Numbers with a fraction, times and bytes are strings.",
        examples=[["42", 7, None]],
    )
    freshness: QueryFreshness = Field(default_factory=QueryFreshness)
    read_point: Name | None = Field(
        default=None,
        description="Name of a read point: the rows are those of its position, whatever was committed since. `freshness` must then have"
        " the mode `any`, without `source` in `on_unavailable`.",
    )
    max_rows: int | None = Field(
        default=None,
        ge=1,
        le=MOST_ROWS,
        description=f"Maximum number of rows. JSON: default {DEFAULT_ROWS}; `truncated` says whether there are more. CSV, Arrow and"
        " Parquet: by default all rows; if there are more than the limit, the query fails with `answer_cut`, or the body breaks"
        " off if it has begun.",
    )
    timeout_ms: int = Field(
        default=DEFAULT_TIMEOUT_MS,
        ge=1,
        le=MOST_TIMEOUT_MS,
        description="Maximum run time of the query itself, without the wait.",
    )


def parameter_text(value: str | bool | int | None) -> str | None:
    """A parameter's value as the text of an untyped literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


class QueryColumn(BaseModel):
    name: str
    type: str = Field(description="Arrow's name of the type.", examples=["int64"])
    target_type: str | None = Field(default=None, description="The target's name of the type.", examples=["BIGINT"])


class QueryAnswer(BaseModel):
    """Rows as JSON."""

    columns: list[QueryColumn]
    rows: list[list[Any]] = Field(
        description="Integers up to 64 bits and finite floats are numbers; decimals, wider integers, NaN and infinities, "
        "times and bytes (hexadecimal) are strings."
    )
    position: str = Field(
        description="Position that the rows show; it can be used in waits and in later queries. On the source: they contain everything that"
        " was committed up to it, and perhaps later commits."
    )
    ran_on: Literal["target", "source"]
    truncated: bool = Field(description="Whether more than `max_rows` rows were found.")
    left_out: list[LeftOutTable] = Field(
        default=[],
        description="Tables of the statement that did not follow their source: their rows are older than `position`. With CSV, Arrow and"
        " Parquet the header `Penstock-Left-Out` has their names, percent-encoded and separated by commas.",
    )
    stale: Staleness | None = Field(
        default=None,
        description="How old the rows are, if they are older than requested. With CSV, Arrow and Parquet the headers"
        " `Penstock-Stale: true` and `Penstock-Seconds-Behind` (seconds, or `unknown`) say so.",
    )
    receipt: Receipt | None = Field(
        default=None, description="Result of the wait, if there was one; at a read point, its position."
    )
