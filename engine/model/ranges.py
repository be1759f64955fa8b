"""Comparison of a table by digests of key ranges: what a source and a target compute, each for its own rows at one position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from engine.model.copies import KeyBound
from engine.model.schema import Column

if TYPE_CHECKING:
    from engine.model.source import TableSplit


_FLOATS = frozenset({"float4", "float8"})


class NotByRanges(Exception):
    """Digests of a table's ranges cannot be computed, or cannot be equal on both sides. Its text is a noun phrase for users: the reason."""


@dataclass(frozen=True, slots=True)
class KeyInterval:
    """The keys after `after`, up to and including `upto`; None: no bound at this end."""

    after: KeyBound | None = None
    upto: KeyBound | None = None


class RowForm(Enum):
    """What is hashed of a row, and how: a form that the source can compute. Equal texts mean equal values."""

    ROW = auto()
    """PostgreSQL's `ROW(columns)::text`; the hashes are its `hashtextextended` with the seeds 0 and 1."""
    LINE = auto()
    """The row's line of COPY text, as the source sends it, without its end; the hashes are the halves of its MD5. A column that is a float
    on both sides is the letter f and the bits of its value as a float of 64 bits, in 16 hexadecimal digits: digits of floats are not
    printed alike everywhere."""


def is_float(column: Column) -> bool:
    """Whether the column is a float on source and target."""
    return column.type.name in _FLOATS and column.map_as in {None, "source"}


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """A range of the source's rows: their number, the exclusive or of two 64-bit hashes of their row texts, as signed numbers, and the
    bytes of these texts.

    The keys of a table are unique, so equal numbers and hashes mean equal sets of row texts (collisions: 2^-128).
    """

    keys: KeyInterval
    rows: int
    low: int
    high: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SampledRange:
    """A range of keys of a sample. `rows`, `bytes`: estimates."""

    keys: KeyInterval
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SamplePart:
    """Ranges of the keys of a table, chosen at random, ascending and without common keys, and the split with their rows."""

    ranges: tuple[SampledRange, ...]
    split: TableSplit


@dataclass(frozen=True, slots=True)
class KeySample:
    """Ranges of keys in parts that follow one another; `columns`: those that the bounds have, the first ones of the key."""

    columns: tuple[Column, ...]
    parts: tuple[SamplePart, ...]

    @property
    def whole(self) -> bool:
        """Whether a range has no bound at either end."""
        return any(each.keys == KeyInterval() for part in self.parts for each in part.ranges)

    @property
    def row_bytes(self) -> int:
        """Estimated bytes of a row."""
        splits = [part.split for part in self.parts]
        return max(1, sum(each.bytes_estimate for each in splits) // max(1, sum(each.rows_estimate for each in splits)))


def in_parts(ranges: Sequence[SampledRange], most_bytes: int) -> Iterator[Sequence[SampledRange]]:
    """The ranges in parts of at most so many bytes; a larger range is a part of its own."""
    held: list[SampledRange] = []
    size = 0
    for each in ranges:
        if held and size + each.bytes > most_bytes:
            yield held
            held, size = [], 0
        held.append(each)
        size += each.bytes
    yield held


class RangeSource(Protocol):
    """Digests of one table's ranges on the source."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The key columns, whose values a KeyBound has."""
        ...

    @property
    def form(self) -> RowForm:
        """What of a row the digests are of."""
        ...

    def digests(self, intervals: Sequence[KeyInterval], rows: int, snapshot: str) -> list[RangeDigest]:
        """Cut each interval into ranges of `rows` rows (its last one may have fewer), which cover it: in key order, read under the imported
        snapshot in few round trips.

        Raises NotByRanges, and EngineFault as `SnapshotSource.read_split`.
        """
        ...

    def split(self, keys: KeyInterval, rows: int) -> TableSplit:
        """The split with the rows of an interval. `rows`: their number, for estimates."""
        ...


@dataclass(frozen=True, slots=True)
class TargetDigests:
    """Digests of the target's rows, as numpy arrays of int64 with an element for each range, computed as in RangeDigest."""

    rows: Any
    low: Any
    high: Any


ANOTHER_ORDER = "a key whose texts the source and the target sort in different ways"
"""Why a table is not compared by ranges whose bounds do not ascend on one side."""


class RangedRows(Protocol):
    """Rows of one table in a TargetReader's transaction, in ranges of its key. Each row is in exactly one range.

    A row that source and target place in different ranges makes both ranges differ, so its rows are compared. So the two may sort keys in
    different ways, as long as the bounds ascend on both sides and the ranges cover all keys.
    """

    def digests(self, bounds: Sequence[KeyBound], check: Callable[[], None], form: RowForm) -> TargetDigests:
        """Digests of the ranges between ascending bounds (first and last range are open; a bound belongs to the range before it).

        `check` is called repeatedly; what it raises ends the computation. Raises NotByRanges, also if the bounds do not ascend here.
        """
        ...

    def keep(self, bounds: Sequence[KeyBound], wanted: Sequence[bool]) -> None:
        """Restrict the rows to the wanted ranges, which have few rows. Later calls see these rows only."""
        ...

    def compare(self, source: Any, limit: int) -> tuple[int, int, list[dict[str, Any]]]:
        """As TargetReader.compare, for these rows. May be called once."""
        ...
