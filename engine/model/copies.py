"""Resumable copies, made in chunks along a table's key: finished chunks are not read again after a crash."""

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
    """Value type with which a column's values sort as on the source; None if only the source can sort them.

    For text columns it is valid only if the source sorts them by their bytes, which the caller must check: the column does not show it.
    """
    if column.type.category != "b" or column.map_as not in {None, "source"}:
        return None
    plain = value_type(replace(column, map_as=None))
    return plain if plain.kind in _ORDERED or column.type.name in _TEXTS else None


def ranged_type(column: Column) -> ValueType | None:
    """As `ordered_type`, and also of bytes."""
    is_plain = column.type.category == "b" and column.map_as in {None, "source"}
    return ValueType(Kind.BYTES) if is_plain and column.type.name == "bytea" else ordered_type(column)


def compared_type(column: Column, *, ordered: bool) -> ValueType | None:
    """Value type with which a column's values compare as on the source: by order (`ordered`), or for equality only.

    None if only the source can compare them. For text columns the caller must check the collation: the column does not show whether
    equality is by bytes.
    """
    held = ordered_type(column)
    if held is not None:
        return None if ordered and held.kind not in _ORDERED else held
    is_bool = column.type.name == "bool" and column.map_as in {None, "source"}
    return ValueType(Kind.BOOL) if is_bool and not ordered else None


@dataclass(frozen=True, slots=True)
class KeyBound:
    """A bound in the order of a table's key: values of the first key columns, as the source prints them."""

    values: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class StandingCopy:
    """An unfinished resumable copy: a hidden table with the source's rows up to the key `upto`, as of the progress record's position.

    Rows after `upto` are ignored. `rows`, `bytes` (of the source, estimated): read so far, in `chunks` chunks.
    """

    table: TableId
    schema: TableSchema
    upto: KeyBound
    rows: int
    bytes: int
    chunks: int


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Progress of one table's copy. `percent` (0 to 100): `bytes` of `total_bytes`; 100 only when every row is in the target.

    Bytes are estimates of the source's storage. Rows are counted; their total is an estimate until the end.
    """

    table: TableId
    rows: int
    bytes: int
    percent: float
    eta_seconds: float | None
    """Estimate by the recent rate; None while the rate is unknown."""
    total_rows: int | None = None
    total_bytes: int | None = None
    rows_per_second: float | None = None
    bytes_per_second: float | None = None
    begun: bool = True
    """Rows are being read; False: only the size is known."""
    goes_on: bool = False
    """A resumed copy, which continues after its finished chunks."""
    read_bytes: int = 0
    """Bytes of COPY text read so far, since the copy was started or resumed."""
