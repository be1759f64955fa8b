"""Partitions of a table on the source: which rows each holds, and what the target remembers of its loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from engine.model.identity import RelationId, TableName
from engine.model.position import Lsn


class Edge(StrEnum):
    """Beyond every value of a column."""

    LOWEST = "MINVALUE"
    HIGHEST = "MAXVALUE"


Limit = str | Edge
"""A value as the source prints it, or beyond all of them."""


@dataclass(frozen=True, slots=True)
class ListBound:
    """Rows whose column has one of these values, or with `null` none."""

    column: str
    values: tuple[str, ...] = field(repr=False)
    null: bool = False


@dataclass(frozen=True, slots=True)
class RangeBound:
    """Rows from `lower` on and before `upper`, in the order of the columns. A row with a NULL in one of them is in no range."""

    columns: tuple[str, ...]
    lower: tuple[Limit, ...] = field(repr=False)
    upper: tuple[Limit, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class DefaultBound:
    """Rows that are in none of the others."""

    others: tuple[ListBound | RangeBound, ...]


Bound = ListBound | RangeBound | DefaultBound
Region = tuple[Bound, ...]
"""Rows that lie within every one of these bounds: a partition's own, and those of the partitions that it is a part of."""


def limits_of(bound: Bound) -> Iterator[tuple[str, str]]:
    """Column and text of every value that a bound names, in a fixed order."""
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
    """The columns by which these rows are told from others."""

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

    `region` tells which rows of the root are in it; None where that means something on the source alone, and `obstacle` says why.
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
    """The rows of some partitions, as a target finds them.

    `values`: pyarrow.Table of one row, v0 … vn in the order of `limits_of` over all regions, each held as its column is, and `n`.
    `columns`: of each value, its column's position in the table's structure.
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
    """Whether they differed could not be told."""
    ASKED = "asked"
    """Somebody named it, or had the whole table copied anew."""


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """The last load of a partition: it goes up by one with each. `request`: the reload that asked for it."""

    generation: int
    reason: LoadReason
    position: Lsn
    loaded_us: int
    """On the target's clock, microseconds of Unix time."""
    request: str | None = None


WHOLE = ""
"""Stands for all partitions of a table: its loads as a whole count for each."""

Loads = Mapping[str, PartitionLoad]
"""By the partition's name, schema.name, as it was then; and `WHOLE`."""


def generation_of(loads: Loads, partition: str) -> int:
    """How often the partition's rows were loaded; at least once."""
    whole = loads.get(WHOLE)
    own = loads.get(partition)
    return max(1, whole.generation if whole is not None else 1, own.generation if own is not None else 0)


def last_load(loads: Loads, partition: str) -> PartitionLoad | None:
    """By which load its rows came last; None where that was before anybody counted."""
    found = [load for load in (loads.get(WHOLE), loads.get(partition)) if load is not None]
    return max(found, key=lambda load: (load.position, load.generation), default=None)
