"""Maps source types to the value types of columns. Depends on the column's type only, never on a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.model.schema import Column, SourceType


class Kind(StrEnum):
    """Kinds of column values between decoding and the target."""

    BOOL = "bool"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    DECIMAL = "decimal"
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    TIME = "time"
    UUID = "uuid"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class ValueType:
    """A kind with its parameters: precision and scale of a DECIMAL, element of a LIST."""

    kind: Kind
    precision: int = 0
    scale: int = 0
    element: ValueType | None = None


TEXT = ValueType(Kind.TEXT)

_FIXED: dict[str, Kind] = {
    "bool": Kind.BOOL,
    "int2": Kind.INT16,
    "int4": Kind.INT32,
    "int8": Kind.INT64,
    "oid": Kind.UINT32,
    "float4": Kind.FLOAT32,
    "float8": Kind.FLOAT64,
    "text": Kind.TEXT,
    "varchar": Kind.TEXT,
    "bpchar": Kind.TEXT,
    "name": Kind.TEXT,
    "bytea": Kind.BYTES,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamptz": Kind.TIMESTAMPTZ,
    "time": Kind.TIME,
    "uuid": Kind.UUID,
}


def value_type(column: Column) -> ValueType:
    """The value type of `column`; text if it has a type override, or if no other type holds its values exactly."""
    if column.map_as is not None:
        return TEXT
    return _of_type(column.type)


def _of_type(source: SourceType) -> ValueType:
    if source.element is not None:
        return ValueType(Kind.LIST, element=_of_type(source.element))
    if source.category != "b":
        return TEXT
    if source.name == "numeric":
        return _numeric(source)
    kind = _FIXED.get(source.name)
    return ValueType(kind) if kind is not None else TEXT


def _numeric(source: SourceType) -> ValueType:
    """DECIMAL(p, s) for a declared 1 <= p <= 38 and 0 <= s <= p; else text."""
    precision, scale = source.digits or (0, 0)
    if 1 <= precision <= 38 and 0 <= scale <= precision:
        return ValueType(Kind.DECIMAL, precision=precision, scale=scale)
    return TEXT
