"""Quarantine: rejected rows, what is stored of each, and their states."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.model.identity import BatchId
from engine.model.position import Lsn

SET_ASIDE_LIMIT = 10_000
"""Most quarantined rows of one table; with more the table parks."""
PARKED_KEPT = 100
"""Most rejected rows that are kept of a parked table."""

Texts = tuple[str | None, ...]
"""Values as the source prints them; None = NULL."""


class RefusedPolicy(StrEnum):
    """What happens to a row that the target rejects.

    `park`: the table parks, and the row is kept for inspection. `set_aside`: the row is quarantined, and the table is replicated without
    it.
    """

    PARK = "park"
    SET_ASIDE = "set_aside"


class RefusedState(StrEnum):
    """The state of a refused row."""

    PARKED = "parked"
    """Its table was parked over it."""
    SET_ASIDE = "set_aside"
    SKIPPED = "skipped"
    """Quarantined, and marked by a user to stay out of the table."""


@dataclass(frozen=True, slots=True)
class RefusedCause:
    """Why a row was rejected. `code` is a FaultKind value; `sqlstate` is set if a database rejected the row."""

    code: str
    detail: str
    sqlstate: str | None = None


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A rejected row as the source sent it. It contains row values and must not be logged."""

    row: str
    """The rejected row's id, unique within the table."""
    state: RefusedState
    operation: str
    """`copy`, `insert`, `update` or `delete`: the net change of its batch."""
    key: Texts
    """Values of the key columns in key order, in the same form for copies and changes; empty for a table without a key."""
    columns: tuple[tuple[str, str, int], ...]
    """Name, source type and attribute number of each column."""
    values: Texts
    """Values by column; empty for a delete."""
    cause: RefusedCause
    position: Lsn
    """End of the batch in which it was rejected; 0/0 for a copy."""
    batch: BatchId
    refused_at: str
    """RFC 3339, UTC, by the target's clock; empty before it is written."""
    ended_by: str | None = None
    """The user who skipped it."""
    ended_at: str | None = None


@dataclass(frozen=True, slots=True)
class SetAside:
    """Effect of a commit on the quarantined rows of one table."""

    count: int
    """Number of quarantined rows after the commit, skipped ones included."""
    fresh: int
    """Number of rows that the commit quarantined."""
    cause: RefusedCause | None = None
    """Cause for the first of the `fresh` rows."""
