"""Rows that a target does not take: what is kept of each, and what may become of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.model.identity import BatchId
from engine.model.position import Lsn

SET_ASIDE_LIMIT = 10_000
"""Rows of one table that may stand aside; with more the table parks."""
PARKED_KEPT = 100
"""Of the rows over which a table was parked so many are kept."""

Texts = tuple[str | None, ...]
"""Values as the source prints them; None = NULL."""


class RefusedPolicy(StrEnum):
    """What becomes of a row that the target does not take.

    `park`: the table parks, and the row is kept to be looked at. `set_aside`: the row is kept beside the table, which goes on.
    """

    PARK = "park"
    SET_ASIDE = "set_aside"


class RefusedState(StrEnum):
    """What a refused row is waiting for."""

    PARKED = "parked"
    """Its table was parked over it."""
    SET_ASIDE = "set_aside"
    SKIPPED = "skipped"
    """Set aside, and somebody said that it is to stay out of the table."""


@dataclass(frozen=True, slots=True)
class RefusedCause:
    """Why the target does not take a row. `code` is a FaultKind value; `sqlstate` is given where a database refused it."""

    code: str
    detail: str
    sqlstate: str | None = None


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """One row as the source sent it. It holds row values: never to be logged."""

    row: str
    """Its id, unique within the table."""
    state: RefusedState
    operation: str
    """`copy`, `insert`, `update` or `delete`: what the change was, netted over its batch."""
    key: Texts
    """Of the key columns in key order, in one form whatever way the row came; empty for a table without a key."""
    columns: tuple[tuple[str, str, int], ...]
    """Name, source type and attribute number of each column."""
    values: Texts
    """By column; empty for a delete."""
    cause: RefusedCause
    position: Lsn
    """End of the batch in which it was refused; of a copy, 0/0."""
    batch: BatchId
    refused_at: str
    """RFC 3339, UTC, by the target's clock; empty until it is written."""
    ended_by: str | None = None
    """Who said that it is skipped."""
    ended_at: str | None = None


@dataclass(frozen=True, slots=True)
class SetAside:
    """What a commit did to the rows that stand aside of one table."""

    count: int
    """How many stand aside behind it, skipped ones included."""
    fresh: int
    """How many it set aside."""
    cause: RefusedCause | None = None
    """Of the first one."""
