"""Verifications: the command to compare tables with their source, and its reports."""

from __future__ import annotations

from typing import Literal

from engine.link.message import Message, Position, Problem, SubscriptionReport
from engine.model.verification import RepairMode, VerificationMethod


class Verify(Message):
    """Compare tables at a cut; `tables` None = all live ones. May be sent twice. Answered by `verification` reports."""

    kind: Literal["verify"] = "verify"
    subscription: str
    verification_id: str
    tables: tuple[str, ...] | None = None
    method: VerificationMethod = VerificationMethod.ROWS
    repair: RepairMode = RepairMode.NONE
    sample: float = 1.0
    """The share of each table to compare, above 0; 1: everything."""
    budget: float = 1.0
    """The largest share of the time in which to compare, above 0; 1: without rests."""


class Difference(Message):
    key: tuple[str | None, ...] = ()
    kind: Literal["missing", "extra", "different"]
    columns: tuple[str, ...] = ()
    """Names of the columns that differ."""


class RowCounts(Message):
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class VerifiedTable(Message):
    table: str
    equal: bool
    position: Position | None = None
    """Position at which it was compared: after the verification's own position if it could not be read there."""
    source_rows: int
    target_rows: int
    set_aside: int = 0
    """Number of its quarantined rows, which are known differences."""
    differing: tuple[Difference, ...] = ()
    """At most 100 differences. Those that were repaired, if the table is equal after a repair."""
    method: VerificationMethod = VerificationMethod.ROWS
    """How the table was compared."""
    by_rows_because: str | None = None
    """Why it was compared by rows although checksums were requested."""
    sample: float = 1.0
    """The share of the table that was to be compared: below 1 if ranges of its keys were chosen at random. The numbers of rows are of what
    was compared."""
    whole_because: str | None = None
    """Why the whole table was compared although a sample was requested."""
    ranges: int = 0
    ranges_different: int = 0
    """Ranges whose checksums were compared, and how many of them differed."""
    bytes_from_source: int = 0
    """Bytes of rows and checksums that the source sent."""
    would_repair: RowCounts | None = None
    """What a repair would write; for `preview`."""
    repaired: RowCounts | None = None
    """What a repair wrote, when the target was at `repaired_at`. `equal` and the counts are of a comparison after it."""
    repaired_at: Position | None = None
    not_repaired: str | None = None
    """Why a repair leaves the table out, and what to do instead."""


class Verification(SubscriptionReport):
    """Progress or end of a verification. `tables`: compared so far, of `total`."""

    kind: Literal["verification"] = "verification"
    verification_id: str
    state: Literal["running", "succeeded", "failed", "cancelled"]
    position: Position | None = None
    tables: tuple[VerifiedTable, ...] = ()
    total: int | None = None
    seconds: float | None = None
    """Time since the engine began with it."""
    problem: Problem | None = None
