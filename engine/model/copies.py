"""Copies that are made stretch by stretch along a table's key, so that what is in needs not be read again after a crash."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.model.identity import TableId
from engine.model.schema import Column, TableSchema
from engine.model.values import Kind, ValueType, value_type

_ORDERED = frozenset(
    {
        Kind.INT16,
        Kind.INT32,
        Kind.INT64,
        Kind.UINT32,
        Kind.DATE,
        Kind.TIMESTAMP,
        Kind.TIMESTAMPTZ,
        Kind.UUID,
        Kind.DECIMAL,
    }
)
_TEXTS = frozenset({"text", "varchar"})


def ordered_type(column: Column) -> ValueType | None:
    """How values of a column are held to be put in the source's order; None where that order is the source's own business.

    Texts only where the source puts them in the order of their bytes, which their column does not tell.
    """
    if column.type.category != "b" or column.map_as not in {None, "source"}:
        return None
    plain = value_type(replace(column, map_as=None))
    return plain if plain.kind in _ORDERED or column.type.name in _TEXTS else None


def compared_type(column: Column, *, ordered: bool) -> ValueType | None:
    """How values of a column are held to be compared as the source compares them: in its order, or for equality alone.

    None where that is the source's own business. Whether equality of texts goes by more than their bytes, the column does not tell.
    """
    held = ordered_type(column)
    if held is not None:
        return None if ordered and held.kind not in _ORDERED else held
    is_bool = column.type.name == "bool" and column.map_as in {None, "source"}
    return ValueType(Kind.BOOL) if is_bool and not ordered else None


@dataclass(frozen=True, slots=True)
class KeyBound:
    """A place in the order of a table's key: the values of its first columns, as the source prints them."""

    values: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class StandingCopy:
    """A hidden table that holds the source's rows up to `upto` as of the progress record's position, and none behind it that count.

    `rows` and `bytes` (estimated, of the source) were read for it, in so many `stretches`.
    """

    table: TableId
    schema: TableSchema
    upto: KeyBound
    rows: int
    bytes: int
    stretches: int


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """One table's progress. `percent` (0 to 100) is what share `bytes` are of `total_bytes`; 100 only when every row is in the target.

    Bytes are those of the source's storage, estimated; rows are counted, and their total is estimated until the end.
    """

    table: TableId
    rows: int
    bytes: int
    percent: float
    eta_seconds: float | None
    """By the pace of late; None while nothing is known yet."""
    total_rows: int | None = None
    total_bytes: int | None = None
    rows_per_second: float | None = None
    bytes_per_second: float | None = None
    begun: bool = True
    """Rows of it are being read; else it is only known how large it is."""
    goes_on: bool = False
    """Of a copy that goes on behind what is there already."""
    read_bytes: int = 0
    """COPY text read so far, of this reading alone."""
