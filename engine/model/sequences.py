"""Sequences of columns: where they stand on the source, and what becomes of those on the target when they are brought forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.model.identity import TableName


class SequenceOutcome(StrEnum):
    """What a request did about one sequence; the value is what REST and CLI show."""

    ADVANCED = "advanced"
    ALREADY_AHEAD = "already_ahead"
    NO_SEQUENCE_ON_TARGET = "no_sequence_on_target"
    """The column on the target has none."""
    TABLE_NOT_LIVE = "table_not_live"
    """The table's rows on the target are not complete, or about to be replaced."""
    OUT_OF_RANGE = "out_of_range"
    """The value lies beyond the limit of the target's sequence, which was left as it was."""
    DIRECTION_DIFFERS = "direction_differs"
    """One of the two counts up and the other down, so that neither is ahead of the other."""

    @property
    def is_good(self) -> bool:
        """The target's sequence stands where it was asked to, or beyond."""
        return self in {SequenceOutcome.ADVANCED, SequenceOutcome.ALREADY_AHEAD}


@dataclass(frozen=True, slots=True)
class SequenceValue:
    """Where a sequence stands: `last` was handed out, or, where not `called`, is the first value to come."""

    last: int
    called: bool

    def is_behind(self, other: SequenceValue, *, ascending: bool) -> bool:
        """Whether a sequence that counts in this direction has yet to come to where the other stands."""
        if self.last == other.last:
            return other.called and not self.called
        return (self.last < other.last) is ascending


@dataclass(frozen=True, slots=True)
class SourceSequence:
    """A sequence that a column of a source table takes its values from, or that belongs to it."""

    table: TableName
    column: str
    name: TableName
    value: SequenceValue
    increment: int

    def beyond(self, margin: int) -> SequenceValue:
        """Where it would stand `margin` values later."""
        return SequenceValue(self.value.last + margin * self.increment, self.value.called)


@dataclass(frozen=True, slots=True)
class SequenceGoal:
    """Where the sequences of a column of a target table have to stand at least."""

    table: TableName
    column: str
    value: SequenceValue
    ascending: bool


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """What became of one sequence of the target."""

    name: TableName
    before: SequenceValue
    after: SequenceValue
    outcome: SequenceOutcome


class SequencesRefused(Exception):
    """The request cannot be done at all; no sequence was moved. `code` is stable, `remedy` what the user can do."""

    def __init__(self, code: str, detail: str, remedy: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.remedy = remedy


class SequenceTarget(Protocol):
    """The part of a target whose columns can have sequences. From any thread."""

    def bring_forward(self, goals: Sequence[SequenceGoal]) -> list[tuple[SequenceStep, ...]]:
        """For each goal, what became of the column's sequences; none of them: (). A sequence is never moved back.

        Durable when this returns; where it raises, some may have been moved. Calls at the same time wait for each other.
        Raises SequencesRefused where the user may not read or set one of them, before any is moved.
        """
        ...
