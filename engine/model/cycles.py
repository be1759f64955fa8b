"""Cycles of a source that is only queried: one reading of all its tables each, and what differed from the one before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from engine.model.identity import TableName
from engine.model.position import Lsn


class CycleState(StrEnum):
    """Where a cycle is on its way to the target."""

    REQUESTED = "requested"
    """It has not begun, and begins as soon as no other cycle runs."""
    RUNNING = "running"
    """It has begun. If it fails, it has no effect, and the next cycle finds its changes."""
    CAPTURED = "captured"
    """It has ended; its changes are not all on the target."""
    APPLIED = "applied"
    """It has ended, and all its changes are on the target."""
    FAILED = "failed"
    """It had no effect; a later cycle finds what it would have found."""


@dataclass(frozen=True, slots=True)
class CycleTable:
    """One table in a cycle. `rows_read`: that crossed the network whole; `rows_hashed`: of which only key and hash did; `rows_shared`: of
    either, that another subscription's cycle read for this one too; `seconds`: time."""

    table: TableName
    method: str
    """How changed rows were found, in the words of the capture's settings."""
    filled: bool = False
    """It was read for the first time, so nothing could differ."""
    unreadable: bool = False
    """Its rows could not be compared. Its key changed: the table is copied again. Or rows have no key of their own: it is parked."""
    since_stamp: bool = False
    """Only rows with recent stamps were read: of deletes, only those that a delete flag or the row filter shows were found."""
    known_before: str | None = None
    """With stamps: rows with an older one are all known, and will be found if they change. As text of the database."""
    fault: str | None = None
    """Code of the fault because of which it was left out: a later cycle finds all of its changes."""
    detail: str = ""
    """Of the fault."""
    rows_read: int = 0
    rows_hashed: int = 0
    rows_shared: int = 0
    bytes_read: int = 0
    ranges: int = 0
    ranges_different: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    seconds: float = 0.0
    snapshots: int = 1
    """In which its ranges were read."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """A cycle that has ended. Times in microseconds since 1970 UTC, by the engine's clock."""

    number: int
    position: Lsn
    """At which everything that it found is included."""
    taken_us: int
    """When its snapshot was taken."""
    ended_us: int
    one_snapshot: bool = True
    """Every table was read in one snapshot."""
    tables: tuple[CycleTable, ...] = ()
    source_reads: Mapping[str, int] = field(default_factory=dict)
    """What the source says of its own work, such as pages read."""


@dataclass(frozen=True, slots=True)
class LastCycle:
    """The last cycle that has ended, in figures. `taken_us`: when its snapshot was taken; `seconds`: from then to its end; `position`: of
    its changes; `failures`: cycles that failed since; `unread`: tables that it could not read."""

    number: int
    position: Lsn
    taken_us: int
    seconds: float
    bytes_read: int
    failures: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True)
class FailedCycle:
    """A cycle that failed. `fault`: its code; `table`: the one that was being read, None if it failed elsewhere."""

    number: int
    began_us: int
    ended_us: int
    fault: str
    detail: str
    table: str | None = None


@dataclass(frozen=True, slots=True)
class CyclesAhead:
    """Cycles that have not ended: the one that runs, and the one that was requested. `due_us`: when the next one begins by schedule."""

    running: int | None = None
    requested: int | None = None
    due_us: int | None = None


class CycleReports(Protocol):
    """Capability: cycles. Each method raises EngineFault(NOT_WITH_THIS_CAPTURE) if the source has none."""

    def ended(self, upto: int | None, most: int) -> list[Cycle]:
        """The newest cycles with at most this number, the last one first. Older ones than some hundred are forgotten."""
        ...

    def failed(self, upto: int | None, most: int) -> list[FailedCycle]:
        """As `ended`, of cycles that failed."""
        ...

    def ahead(self) -> CyclesAhead: ...

    def position(self, number: int) -> Lsn:
        """The position of a cycle that has this number."""
        ...

    def applied(self, position: Lsn) -> int:
        """The last cycle whose changes are all included at a position, or are known to be on the target."""
        ...

    def request(self) -> int:
        """The number of the next cycle that begins, which is due at once. The same for all requests before it begins."""
        ...
