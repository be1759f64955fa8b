"""Messages and parts about the cycles of a source that is only queried."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from operator import not_
from typing import Literal

from pydantic import Field

from engine.link.message import Message, Position, Question
from engine.model.cycles import CycleState


class Cycles(Question):
    """List the newest cycles, at most `most`. `upto`: only those with at most this number. May be sent twice."""

    kind: Literal["cycles"] = "cycles"
    subscription: str
    upto: int | None = None
    most: int = 100


class BeginCycle(Question):
    """Begin a cycle as soon as no other one runs. May be sent twice: until one begins, the answer is the same."""

    kind: Literal["begin_cycle"] = "begin_cycle"
    subscription: str


class CycleTablePart(Message):
    """One table in a cycle; fields as `engine.model.cycles.CycleTable`."""

    schema_name: str = Field(alias="schema")
    name: str
    method: str
    filled: bool = False
    unreadable: bool = False
    since_stamp: bool = False
    known_before: str | None = Field(default=None, exclude_if=not_)
    fault: str | None = None
    detail: str = ""
    rows_read: int = 0
    rows_hashed: int = 0
    rows_shared: int = Field(default=0, exclude_if=not_)
    bytes_read: int = 0
    ranges: int = 0
    ranges_different: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    seconds: float = 0.0
    snapshots: int = 1


class LastCyclePart(Message):
    """The last cycle that has ended; fields as `engine.model.cycles.LastCycle`."""

    number: int
    taken_at: datetime
    seconds: float
    bytes_read: int
    failures: int = 0
    unread: int = 0


class CyclePart(Message):
    """A cycle; fields as `engine.model.cycles.Cycle`, times in microseconds since 1970 UTC. One that has not ended has neither times nor
    tables."""

    number: int
    position: Position
    state: CycleState
    taken_us: int | None = None
    ended_us: int | None = None
    one_snapshot: bool = True
    tables: tuple[CycleTablePart, ...] = ()
    source_reads: Mapping[str, int] = Field(default_factory=dict)


class FailedCyclePart(Message):
    """A cycle that failed; fields as `engine.model.cycles.FailedCycle`, times in microseconds since 1970 UTC."""

    number: int
    position: Position
    began_us: int
    ended_us: int
    fault: str
    detail: str
    table: str | None = None


class CyclesBody(Message):
    """Body of the answer to `cycles`, the highest number first.

    `as_of_us`: when the snapshot of the last cycle that is on the target was taken. `due_us`: when the next one begins by schedule; None
    while the subscription does not run.
    """

    cycles: tuple[CyclePart, ...] = ()
    failed: tuple[FailedCyclePart, ...] = ()
    """At most as many; the highest number first. Not among `cycles`, as servers of earlier releases do not know the state."""
    as_of_us: int | None = None
    due_us: int | None = None


class BegunCycleBody(Message):
    """Body of the answer to `begin_cycle`: the cycle's number, and the position that is visible when its changes are on the target."""

    number: int
    position: Position
