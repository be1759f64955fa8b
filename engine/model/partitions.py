"""Partitions of a source table: their bounds, and the target's record of their loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from engine.model.identity import RelationId, TableName
from engine.model.position import Lsn


class Edge(StrEnum):
    """MINVALUE and MAXVALUE: below and above every value of a column."""

    LOWEST = "MINVALUE"
    HIGHEST = "MAXVALUE"


Limit = str | Edge
"""A value as the source prints it, or an edge."""


@dataclass(frozen=True, slots=True)
class ListBound:
    """Rows whose column has one of these values, or NULL if `null`."""

    column: str
    values: tuple[str, ...] = field(repr=False)
    null: bool = False


@dataclass(frozen=True, slots=True)
class RangeBound:
    """Rows from `lower` (inclusive) to `upper` (exclusive), compared by columns. A row with NULL in one of them is in no range."""

    columns: tuple[str, ...]
    lower: tuple[Limit, ...] = field(repr=False)
    upper: tuple[Limit, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class DefaultBound:
    """Rows that are in no other partition of the same parent."""

    others: tuple[ListBound | RangeBound, ...]


Bound = ListBound | RangeBound | DefaultBound
Region = tuple[Bound, ...]
"""Rows within all of these bounds: a partition's own bound, and those of its parent partitions."""


def limits_of(bound: Bound) -> Iterator[tuple[str, str]]:
    """Column and text of every value in a bound, in a fixed order."""
    if isinstance(bound, ListBound):
        yield from ((bound.column, text) for text in bound.values)
    elif isinstance(bound, RangeBound):
        for limits in (bound.lower, bound.upper):
            yield from (
                (column, limit)
                for column, limit in zip(bound.columns, limits, strict=True)
                if not isinstance(limit, Edge)
            )
    else:
        for other in bound.others:
            yield from limits_of(other)


def columns_of(regions: Sequence[Region]) -> frozenset[str]:
    """The columns that the bounds of these regions refer to."""

    def columns(bound: Bound) -> Iterator[str]:
        if isinstance(bound, ListBound):
            yield bound.column
        elif isinstance(bound, RangeBound):
            yield from bound.columns
        else:
            for other in bound.others:
                yield from columns(other)

    return frozenset(name for region in regions for bound in region for name in columns(bound))


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a root, at any depth. `bound`: as the source prints it.

    `region`: which rows of the root are in it; None if only the source can evaluate that, and `obstacle` says why.
    """

    name: TableName
    relation: RelationId
    parent: RelationId
    leaf: bool
    bound: str = field(repr=False)
    region: Region | None = field(default=None, repr=False)
    obstacle: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The rows of some partitions, in a form that a target can evaluate.

    `values`: pyarrow.Table of one row, v0 … vn in the order of `limits_of` over all regions, each with the value type of its column, and
    `n`. `columns`: position of each value's column in the table's schema.
    """

    regions: tuple[Region, ...]
    values: Any = field(repr=False)
    columns: tuple[int, ...]


class LoadReason(StrEnum):
    """Why a partition was loaded."""

    COPIED = "copied"
    """With the whole table, when that was copied first."""
    CHANGED = "changed"
    """Its rows differed from the source's."""
    UNKNOWN = "unknown"
    """It could not be determined whether they differed."""
    ASKED = "asked"
    """A reload request named it, or the whole table was copied again on request."""


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """The last load of a partition. `generation` increases by one with each load. `request`: id of the reload request."""

    generation: int
    reason: LoadReason
    position: Lsn
    loaded_us: int
    """By the target's clock, microseconds since 1970 UTC."""
    request: str | None = None


WHOLE = ""
"""Key in `Loads` for loads of the whole table, which count for each partition."""

Loads = Mapping[str, PartitionLoad]
"""By the partition's name (schema.name) at the time of the load, and `WHOLE`."""


def generation_of(loads: Loads, partition: str) -> int:
    """Number of loads of the partition's rows; at least 1."""
    whole = loads.get(WHOLE)
    own = loads.get(partition)
    return max(1, whole.generation if whole is not None else 1, own.generation if own is not None else 0)


def last_load(loads: Loads, partition: str) -> PartitionLoad | None:
    """The load that wrote its rows last; None if that was before loads were recorded."""
    found = [load for load in (loads.get(WHOLE), loads.get(partition)) if load is not None]
    return max(found, key=lambda load: (load.position, load.generation), default=None)
