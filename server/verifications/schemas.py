"""Bodies of verifications."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engine.model.verification import RepairMode, VerificationMethod
from server.freshness.schemas import TableRef
from server.gateway.long_running import WorkState
from server.naming import Aliased
from server.verifications.trigger import Trigger


class VerificationRequest(BaseModel):
    """What to compare."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{}, {"tables": [{"schema": "public", "name": "orders"}]}]}
    )

    tables: list[TableRef] | None = Field(
        default=None, max_length=10_000, description="Tables to compare; by default every live one."
    )
    method: VerificationMethod = Field(
        default=VerificationMethod.ROWS,
        description="`rows`: all rows are read from the source. `checksum`: source and target compute checksums of ranges of keys, and only"
        " rows of ranges that differ are read. Tables for which this is not possible are compared by rows.",
    )
    repair: RepairMode = Field(
        default=RepairMode.NONE,
        description="What happens to rows that differ: `none`; `preview`: nothing is written, and the result says what a repair would"
        " write; `apply`: they are replaced by the source's rows at one position, in one transaction on the target, and their tables are"
        " compared again.",
    )
    sample: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="About which share of each table is compared, in ranges of keys that are chosen at random, others for each"
        " verification; 1: everything. Tables whose keys cannot be walked are compared whole. A sample does not verify a table, and does"
        " not end the health `different`.",
    )
    budget: float = Field(
        default=1.0,
        ge=0.01,
        le=1,
        description="Largest share of the time in which source and target are read; it rests in between, so that it takes longer by as"
        " much, and keeps its snapshots of both for as long. 1: without rests. The repair itself does not rest.",
    )


class DifferenceView(BaseModel):
    key: list[str | None]
    kind: str = Field(description="`missing` on the target, `extra` on the target, or `different`.")
    columns: list[str] = Field(
        default_factory=list, description="Of a `different` row, the names on the target of the columns that differ."
    )


class RepairedRowsView(BaseModel):
    inserted: int
    updated: int
    deleted: int


class _OfTable(Aliased):
    id: str
    schema_name: str | None = Field(alias="schema")
    name: str | None


class VerifiedTableView(_OfTable):
    """The result for one table."""

    equal: bool
    position: str | None = Field(
        default=None,
        description="Position at which this table was compared; after the verification's `position` if the table was truncated"
        " meanwhile.",
    )
    sample: float = Field(
        default=1.0,
        description="The share of the table that was to be compared; 1: all of it was, also if a sample was requested.",
    )
    whole_because: str | None = Field(
        default=None, description="Why all of it was compared although a sample was requested, as a noun phrase."
    )
    source_rows: int = Field(description="Rows of the source that were compared.")
    target_rows: int = Field(description="Rows of the target that were compared.")
    set_aside: int = Field(
        default=0,
        description="Quarantined rows of the table: known differences, because of which the table is not `equal`. Rows that the target's"
        " column types cannot represent are not counted in `source_rows`.",
    )
    method: VerificationMethod = Field(default=VerificationMethod.ROWS, description="How it was compared.")
    by_rows_because: str | None = Field(
        default=None, description="Why it was compared by rows although `checksum` was requested, as a noun phrase."
    )
    ranges: int = Field(default=0, description="Number of ranges of keys whose checksums were compared.")
    ranges_different: int = Field(default=0, description="Number of these ranges that differed.")
    bytes_from_source: int = Field(
        default=0, description="Bytes of rows and checksums that the source sent for the comparison, estimated."
    )
    differing: list[DifferenceView] = Field(
        description="Up to 100 keys of rows that differ; of a table that is equal after a repair, those that differed before."
    )
    would_repair: RepairedRowsView | None = Field(
        default=None, description="With `preview`: the rows that a repair would write."
    )
    repaired: RepairedRowsView | None = Field(
        default=None,
        description="The rows that a repair wrote; fewer than differed if their changes had arrived meanwhile. `equal` and the numbers of"
        " rows are those of a comparison after it.",
    )
    repaired_at: str | None = Field(default=None, description="Position of the source's rows that the repair wrote.")
    not_repaired: str | None = Field(
        default=None, description="Why a repair leaves the table out, and what to do instead."
    )


class UncomparedTableView(_OfTable):
    """A table that was not compared."""

    state: str = Field(description="Its state when the verification ended; only live tables can be compared.")
    reason: str | None


class VerificationView(BaseModel):
    """A comparison of tables with their source, both read at one position."""

    id: str
    state: WorkState
    trigger: Trigger = Field(
        default=Trigger.USER,
        description="`user`: it was requested; `schedule`: `verify.every_seconds` began it, for one table.",
    )
    method: VerificationMethod = Field(default=VerificationMethod.ROWS, description="The requested method.")
    repair: RepairMode = RepairMode.NONE
    sample: float = Field(default=1.0, description="The requested share of each table.")
    budget: float = Field(default=1.0, description="The requested largest share of the time in which it compares.")
    position: str | None = Field(description="Position at which both sides were compared.")
    equal: bool | None = Field(
        description="Whether all compared tables were equal, with a `sample` its rows; null until it has succeeded, and if it compared"
        " none."
    )
    tables_done: int
    tables_total: int | None
    tables: list[VerifiedTableView]
    left_out: list[UncomparedTableView] = Field(
        description="Set at its end: tables that it did not compare because they were paused, parked, or not yet copied. `equal` does"
        " not include them."
    )
    problem: dict[str, Any] | None
    created_at: datetime
    ended_at: datetime | None
