"""Bodies of freshness waits."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.kinds import Consistency
from server.declarations.captures import CONSISTENCY
from server.naming import Aliased, QualifiedName

DEFAULT_TIMEOUT_MS = 30_000
MOST_TIMEOUT_MS = 600_000


class TableRef(Aliased):
    """A table by its name on the source."""

    model_config = ConfigDict(extra="forbid")

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
        description="Wait until everything committed up to this position is visible; by default up to the source's current position"
        ' ("now").',
        examples=["0/16B3748"],
    )
    tables: list[TableRef] | None = Field(
        default=None,
        max_length=10_000,
        description="Tables that must have reached the position; by default every table that is not paused or parked.",
    )
    timeout_ms: int = Field(
        default=DEFAULT_TIMEOUT_MS,
        ge=0,
        le=MOST_TIMEOUT_MS,
        description=f"Deadline, at most {MOST_TIMEOUT_MS}; 0 does not wait.",
    )
    on_timeout: Literal["error", "stale"] = Field(
        default="error",
        description="What happens at the deadline. `error`: the wait ends with `freshness_timeout`. `stale`: it ends with the status"
        " `stale` and says how far the target is behind, in `stale`; with `freshness_timeout` only if that is unknown.",
    )
    refuse_early: bool = Field(
        default=False,
        description="If true and the wait would, at the recent rate, be satisfied after its deadline only, it ends at once: with"
        " `freshness_refused_early` and the estimate in `estimate_ms`, or as `on_timeout` says.",
    )
    on_unreachable: Literal["error", "wait"] = Field(
        default="error",
        description="What happens if no engine has been connected for 30 s, or the subscription has been retrying for 30 s because of a"
        " fault (for instance, its source cannot be reached). `error`: the wait ends with `freshness_unavailable`. `wait`: it"
        " continues until its deadline. A subscription that is paused, stopped or failed ends the wait at once in either case.",
    )


class ReceiptTable(QualifiedName):
    """A table that the wait covered, or left out."""

    state: str


class LeftOutTable(ReceiptTable):
    reason: str | None = None


class ReceiptException(QualifiedName):
    """A declared way in which a table does not fully follow its source."""

    kind: str = Field(
        examples=["insert_only"], description="`insert_only`, `operations` (not all are followed), or `rows_set_aside`."
    )
    rows: int | None = Field(default=None, description="Number of quarantined rows.")


class Receipt(BaseModel):
    """What is visible on the target; for a query that ran on the source, what its rows contain."""

    answered_by: Literal["target", "source"] = Field(default="target", description="Where the rows were read.")
    tables: list[ReceiptTable]
    left_out: list[LeftOutTable] = Field(description="Tables that were left out because they are paused or parked.")
    exceptions: list[ReceiptException]
    position: str
    applied: str
    now_ms: float | None = Field(description='Duration of reading "now" on the source.')
    on_arrival: bool = Field(description="Whether it was already visible when the request arrived.")
    sealed_at: datetime | None = Field(description="When the batch that ends at `applied` was sealed.")
    committed_at: datetime | None = Field(description="Time of that batch's commit on the target.")
    structure: str | None = Field(
        default=None,
        description="Up to this position, schema changes in the source's catalog are applied. At or after `position` if the wait was for"
        ' "now". A wait for a given position may end with an earlier one: a schema change in between that wrote no row (a truncated'
        " or detached partition, a column's type) may then not be applied yet.",
    )
    structure_at: datetime | None = Field(
        default=None, description="Time at which the source's catalog was read for that."
    )
    consistency: Consistency | None = Field(
        default=None, description=f"{CONSISTENCY} Null where the rows were read on the source."
    )


class Staleness(BaseModel):
    """How far the rows are behind what was requested."""

    wanted: str | None = Field(
        description="The position that was waited for; null if the source's current one was not known."
    )
    position: str = Field(description="The position that the rows show.")
    seconds_behind: float | None = Field(
        description="Age of the oldest change that is not applied, by the engine's last report, plus the age of that report. Null: unknown."
    )


class WaitSatisfied(BaseModel):
    """The answer to a wait that was satisfied, or with `on_timeout` `stale` to one that was not."""

    id: str
    status: str = Field(examples=["satisfied"], description="`satisfied`, or `stale`.")
    position: str = Field(description="Everything committed up to here is visible.")
    applied: str
    waited_ms: float
    receipt: Receipt
    stale: Staleness | None = Field(default=None, description="Only with the status `stale`.")


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
    stale: Staleness | None = Field(default=None, description="Only with the status `stale`.")
    problem: dict[str, Any] | None = Field(default=None, description="Why it failed: status, code, detail, remedy.")


class Positions(BaseModel):
    source: str | None
    captured: str | None
    applied: str | None = Field(description="The last known applied position; it can decrease after a fault.")
    confirmed: bool = Field(
        description="Whether the current run has confirmed `applied`; waits rely on it only then. False while no engine is connected,"
        " and from the end of a run to the first report of the next."
    )


class Lag(BaseModel):
    bytes: int | None
    seconds: float | None


class Freshness(BaseModel):
    """The current freshness of a subscription, without waiting."""

    subscription: str
    state: str
    positions: Positions
    lag: Lag
    at: datetime | None = Field(description="Time of the engine's last report.")
    waits: int = Field(description="Number of outstanding waits.")


class CompleteTo(BaseModel):
    """Up to where a table has everything."""

    position: str | None = None
    time: datetime | None = Field(
        default=None,
        description="Every commit that was acknowledged before this time is visible. The latest time that is proven; null if none is.",
    )


class Completeness(BaseModel):
    """Whether a table has everything that was committed up to a position or a time."""

    complete: bool
    until: str = Field(examples=["2026-01-31T06:00:00Z"])
    until_position: str | None = Field(
        description="A position that includes everything committed up to `until`; null if none is known yet."
    )
    complete_to: CompleteTo
    estimate_ms: int | None = Field(description="Time until it is complete, at the recent rate; null if unknown.")
    blocked: bool = Field(description="Whether it does not become complete until a user acts; `remedy` says how.")
    reason: str | None = Field(description="Why it is not complete.")
    remedy: str | None
    exceptions: list[ReceiptException] = Field(
        description="Declared ways in which the table does not fully follow its source. Quarantined rows make it incomplete."
    )
