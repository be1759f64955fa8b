"""Sequences of columns: their values on the source, and the result of advancing the target's sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.model.identity import TableName


class SequenceOutcome(StrEnum):
    """Result of a request for one sequence. The values are those of REST and CLI."""

    ADVANCED = "advanced"
    ALREADY_AHEAD = "already_ahead"
    NO_SEQUENCE_ON_TARGET = "no_sequence_on_target"
    """The column on the target has none."""
    TABLE_NOT_LIVE = "table_not_live"
    """The table's rows on the target are not complete, or about to be replaced."""
    OUT_OF_RANGE = "out_of_range"
    """The value is beyond the limit of the target's sequence, which was not changed."""
    DIRECTION_DIFFERS = "direction_differs"
    """One of the two counts up and the other down, so that neither is ahead of the other."""

    @property
    def is_good(self) -> bool:
        """The target's sequence is at the requested value or beyond it."""
        return self in {SequenceOutcome.ADVANCED, SequenceOutcome.ALREADY_AHEAD}


@dataclass(frozen=True, slots=True)
class SequenceValue:
    """Value of a sequence, as last_value and is_called: `last` was returned, or, if not `called`, will be the next value."""

    last: int
    called: bool

    def is_behind(self, other: SequenceValue, *, ascending: bool) -> bool:
        """Whether this value is before `other`, for a sequence of this direction."""
        if self.last == other.last:
            return other.called and not self.called
        return (self.last < other.last) is ascending


@dataclass(frozen=True, slots=True)
class SourceSequence:
    """A sequence that a column of a source table owns, or uses in its default."""

    table: TableName
    column: str
    name: TableName
    value: SequenceValue
    increment: int

    def beyond(self, margin: int) -> SequenceValue:
        """The value `margin` values later."""
        return SequenceValue(self.value.last + margin * self.increment, self.value.called)


@dataclass(frozen=True, slots=True)
class SequenceGoal:
    """The minimum value for the sequences of a column of a target table."""

    table: TableName
    column: str
    value: SequenceValue
    ascending: bool


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """Result for one sequence of the target."""

    name: TableName
    before: SequenceValue
    after: SequenceValue
    outcome: SequenceOutcome


class SequencesRefused(Exception):
    """The request was rejected as a whole; no sequence was changed. `code` is stable; `remedy`: what the user can do."""

    def __init__(self, code: str, detail: str, remedy: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.remedy = remedy


class SequenceReader(Protocol):
    """Capability: sequences."""

    def read(self, tables: Sequence[TableName]) -> list[SourceSequence]:
        """The sequences of these tables' columns with their current values, by table and column. They are not locked.

        Raises SequencesRefused if the user may not read one.
        """
        ...


class SequenceTarget(Protocol):
    """Optional interface of a target whose columns can have sequences. Callable from any thread."""

    def bring_forward(self, goals: Sequence[SequenceGoal]) -> list[tuple[SequenceStep, ...]]:
        """Advance sequences. Per goal, the results for the column's sequences; () if it has none. A sequence is never moved back.

        Durable when it returns; if it raises, some may have been moved. Concurrent calls are serialized.
        Raises SequencesRefused, before any change, if the user may not read or set one of them.
        """
        ...
