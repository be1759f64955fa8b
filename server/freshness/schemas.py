"""Bodies of freshness waits."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

DEFAULT_TIMEOUT_MS = 30_000
MOST_TIMEOUT_MS = 600_000


class TableRef(BaseModel):
    """A table by its name on the source."""

    model_config = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    schema_name: str = Field(alias="schema", examples=["public"])
    name: str = Field(examples=["orders"])


class WaitRequest(BaseModel):
    """What to wait for."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"timeout_ms": 10000},
                {"position": "0/16B3748", "tables": [{"schema": "public", "name": "orders"}], "timeout_ms": 10000},
            ]
        },
    )

    position: str | None = Field(
        default=None,
        max_length=1000,
        description='Wait until everything committed up to here is visible; without it, up to "now" on the source.',
        examples=["0/16B3748"],
    )
    tables: list[TableRef] | None = Field(
        default=None,
        max_length=10_000,
        description="Tables that have to be there; without it, every table that is not paused or parked.",
    )
    timeout_ms: int = Field(
        default=DEFAULT_TIMEOUT_MS,
        ge=0,
        le=MOST_TIMEOUT_MS,
        description=f"Deadline, at most {MOST_TIMEOUT_MS}; 0 only looks.",
    )
    on_timeout: str = Field(
        default="error", max_length=64, description="What to do at the deadline; only `error` so far."
    )
    on_unreachable: Literal["error", "wait"] = Field(
        default="error",
        description="What to do where no engine has been connected for 30 s, or where the subscription has been tried again "
        "for 30 s because of a fault (its source cannot be reached, for instance). `error`: the wait ends with "
        "`freshness_unavailable`. `wait`: it continues until its deadline. What was declared (paused, stopped) or has failed ends it "
        "at once in either case.",
    )


class ReceiptTable(BaseModel):
    """A table that the wait covered, or left out."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    schema_name: str = Field(alias="schema")
    name: str
    state: str


class LeftOutTable(ReceiptTable):
    reason: str | None = None


class ReceiptException(BaseModel):
    """A declared way in which a table does not follow its source wholly."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    schema_name: str = Field(alias="schema")
    name: str
    kind: str = Field(examples=["insert_only"], description="`insert_only`, or `rows_set_aside`.")
    rows: int | None = Field(default=None, description="How many rows are in quarantine.")


class Receipt(BaseModel):
    """What exactly is visible."""

    tables: list[ReceiptTable]
    left_out: list[LeftOutTable] = Field(description="Tables that were passed over because they are paused or parked.")
    exceptions: list[ReceiptException]
    position: str
    applied: str
    now_ms: float | None = Field(description='How long reading "now" on the source took.')
    on_arrival: bool = Field(description="Whether it was visible already when the request came.")
    sealed_at: datetime | None = Field(description="When the batch that ends at `applied` was sealed.")
    committed_at: datetime | None = Field(description="When that batch was committed on the target.")
    structure: str | None = Field(
        default=None,
        description="Up to here the structure of the tables is known: what the source's catalog showed is in force. "
        'At or after `position` where the wait was for "now"; a wait for a given position may be after it, and what was '
        "changed in between without a row (a partition truncated or detached, a column's type) may then not be followed yet.",
    )
    structure_at: datetime | None = Field(default=None, description="When the source's catalog was looked at for that.")


class WaitSatisfied(BaseModel):
    """The answer to a wait that ended well."""

    id: str
    status: str = Field(examples=["satisfied"])
    position: str
    applied: str
    waited_ms: float
    receipt: Receipt


class WaitBody(BaseModel):
    """A wait whose answer is fetched later."""

    id: str
    status: str = Field(examples=["waiting"])
    position: str | None
    applied: str | None
    waited_ms: float | None
    timeout_ms: int
    created_at: datetime
    deadline_at: datetime
    receipt: Receipt | None = None
    problem: dict[str, Any] | None = Field(
        default=None, description="Why it did not end well: status, code, detail, remedy."
    )


class Positions(BaseModel):
    source: str | None
    captured: str | None
    applied: str | None = Field(description="The last that is known; after a fault it can go down.")
    confirmed: bool = Field(
        description="Whether the current run has confirmed `applied`; only then do waits count it. False while no engine is connected, and "
        "from the end of a run to the first report of the next."
    )


class Lag(BaseModel):
    bytes: int | None
    seconds: float | None


class Freshness(BaseModel):
    """Where a subscription stands, without waiting."""

    subscription: str
    state: str
    positions: Positions
    lag: Lag
    at: datetime | None = Field(description="When the engine last reported.")
    waits: int = Field(description="How many waits are outstanding.")
