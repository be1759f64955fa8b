"""PostgreSQL's types for the columns of an answer, by their Arrow type and what the target says of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from engine.model.target import TARGET_TYPE, WIRE_MODIFIER, WIRE_TYPE
from engine.postgres.array_literals import array_elements
from engine.postgres.wire_types import ARRAY_OF, NO_MODIFIER, TypeOid, numeric_modifier, pg_type_of
from engine.sql_endpoint.postgres.messages import ColumnDescription

SIZES: dict[int, int] = {
    TypeOid.BOOL: 1, TypeOid.CHAR: 1, TypeOid.INT2: 2, TypeOid.INT4: 4, TypeOid.INT8: 8, TypeOid.OID: 4, TypeOid.XID: 4,
    TypeOid.FLOAT4: 4, TypeOid.FLOAT8: 8, TypeOid.DATE: 4, TypeOid.TIME: 8, TypeOid.TIMESTAMP: 8, TypeOid.TIMESTAMPTZ: 8,
    TypeOid.INTERVAL: 16, TypeOid.UUID: 16, TypeOid.REGPROC: 4, TypeOid.REGCLASS: 4, TypeOid.REGTYPE: 4,
}  # fmt: skip
"""Bytes of a value (pg_type.typlen), by type; other types vary."""
ELEMENT_OF = {array: element for element, array in ARRAY_OF.items()}
"""Types of the elements of array types."""
VECTORS = frozenset({TypeOid.INT2VECTOR, TypeOid.OIDVECTOR})
PARAMETER_CASTS: dict[int, str] = {
    TypeOid.BOOL: "BOOLEAN", TypeOid.INT2: "SMALLINT", TypeOid.INT4: "INTEGER", TypeOid.INT8: "BIGINT", TypeOid.FLOAT4: "REAL",
    TypeOid.FLOAT8: "DOUBLE PRECISION", TypeOid.DATE: "DATE", TypeOid.TIME: "TIME", TypeOid.TIMESTAMP: "TIMESTAMP",
    TypeOid.TIMESTAMPTZ: "TIMESTAMPTZ", TypeOid.INTERVAL: "INTERVAL", TypeOid.UUID: "UUID",
    TypeOid.BYTEA: "BYTEA",
}  # fmt: skip
_MOST_DIGITS = 38
"""Most digits of DuckDB's type DECIMAL."""
_ARRAY_CASTS: dict[int, str] = {
    ARRAY_OF[element]: f"{name}[]"
    for element, name in {**PARAMETER_CASTS, TypeOid.TEXT: "TEXT", TypeOid.VARCHAR: "VARCHAR"}.items()
}
PARAMETER_NAMES: dict[str, int] = {
    "bool": TypeOid.BOOL, "boolean": TypeOid.BOOL, "smallint": TypeOid.INT2, "int2": TypeOid.INT2, "int": TypeOid.INT4,
    "integer": TypeOid.INT4, "int4": TypeOid.INT4, "bigint": TypeOid.INT8, "int8": TypeOid.INT8, "real": TypeOid.FLOAT4,
    "float4": TypeOid.FLOAT4, "double": TypeOid.FLOAT8, "float8": TypeOid.FLOAT8, "float": TypeOid.FLOAT8,
    "numeric": TypeOid.NUMERIC, "decimal": TypeOid.NUMERIC, "date": TypeOid.DATE, "time": TypeOid.TIME,
    "timestamptz": TypeOid.TIMESTAMPTZ, "uuid": TypeOid.UUID, "varchar": TypeOid.VARCHAR, "bytea": TypeOid.BYTEA,
    "text": TypeOid.TEXT, "oid": TypeOid.OID, "double precision": TypeOid.FLOAT8, "character varying": TypeOid.VARCHAR,
    "timestamp with time zone": TypeOid.TIMESTAMPTZ,
}  # fmt: skip
"""Types of parameters, by their names in a cast; others are texts."""
_CAST_PARAMETER = re.compile(r"\bCAST\(\$[0-9]+ AS ")
_FUNCTION_CALL = re.compile(r"([a-z_][a-z0-9_]*)\(")
_NAMED_TYPES = frozenset(TypeOid)
JSONB, _BPCHAR, _XML = 3802, 1042, 142
"""OIDs of types that PostgreSQL targets have and DuckDB has not."""
_NUMBERS = frozenset(
    {
        TypeOid.INT2,
        TypeOid.INT4,
        TypeOid.INT8,
        TypeOid.OID,
        TypeOid.XID,
        TypeOid.REGCLASS,
        TypeOid.REGPROC,
        TypeOid.REGTYPE,
    }
)
_FROM_TEXT = frozenset(
    {
        TypeOid.TEXT, TypeOid.VARCHAR, TypeOid.NAME, TypeOid.CHAR, TypeOid.JSON, TypeOid.UUID, TypeOid.NUMERIC, JSONB, _BPCHAR, _XML,
    }
)  # fmt: skip
"""Types whose binary format is made from their text."""


def parameter_type(name: str) -> int:
    """The type of a parameter that a statement casts to this one; 0: none that clients have to know."""
    element = PARAMETER_NAMES.get(name.removesuffix("[]"), 0)
    return ARRAY_OF.get(element, 0) if name.endswith("[]") else element


def cast_of(oid: int, value: str | None) -> str | None:
    """The type to which a statement casts a parameter of a declared type, as both kinds of target name it. None: the parameter is like a
    literal without a type, which the target adapts. `value`: in PostgreSQL's text format."""
    if oid == TypeOid.NUMERIC:
        return _numeric([value])
    if oid == ARRAY_OF[TypeOid.NUMERIC]:
        try:
            kind = _numeric([] if value is None else array_elements(value))
        except ValueError:
            return None
        return kind and f"{kind}[]"
    return PARAMETER_CASTS.get(oid) or _ARRAY_CASTS.get(oid)


def _numeric(texts: Sequence[str | None]) -> str | None:
    """The type that holds these numbers exactly, as DuckDB would round them to the type of a column. None: there is none."""
    try:
        numbers = [Decimal(text).as_tuple() for text in texts if text is not None]
    except InvalidOperation:
        return None
    scale, whole = 0, 1
    for number in numbers:
        if not isinstance(number.exponent, int):  # NaN, or infinite
            return None
        scale, whole = max(scale, -number.exponent), max(whole, len(number.digits) + number.exponent)
    return f"DECIMAL({whole + scale},{scale})" if whole + scale <= _MOST_DIGITS else None


def describe(schema: Any) -> list[ColumnDescription]:
    """The columns of an answer. `schema`: pyarrow.Schema."""
    return [_column(field) for field in schema]


def _column(field: Any) -> ColumnDescription:
    metadata = field.metadata or {}
    if WIRE_TYPE in metadata:
        oid, modifier = int(metadata[WIRE_TYPE]), int(metadata[WIRE_MODIFIER])
    elif TARGET_TYPE in metadata:
        oid, modifier = pg_type_of(metadata[TARGET_TYPE].decode())
    else:
        oid, modifier = oid_of(field.type), _modifier(field.type)
    if not _is_written(field.type, oid):
        oid, modifier = oid_of(field.type), _modifier(field.type)
    return ColumnDescription(_column_name(field.name, oid), oid, SIZES.get(oid, -1), modifier)


def _column_name(name: str, oid: int) -> str:
    """The name of a column. DuckDB calls one without a name by its text. With the cast of a parameter in it, that would change with the
    parameter's value, so it is called as PostgreSQL calls it: by the function or the type, or `?column?`."""
    if _CAST_PARAMETER.search(name) is None:
        return name
    if name.startswith("CAST("):
        element = ELEMENT_OF.get(oid, oid)
        return TypeOid(element).name.lower() if element in _NAMED_TYPES else "?column?"
    function = _FUNCTION_CALL.match(name)
    return "?column?" if function is None else function[1]


def _modifier(kind: Any) -> int:
    return numeric_modifier(kind.precision, kind.scale) if pa.types.is_decimal(kind) else NO_MODIFIER


def _is_written(kind: Any, oid: int) -> bool:
    """Whether values of the Arrow type can be written in the binary format of this type: a target's name of a type may be more than Arrow
    holds of it. Texts are written as they are."""
    own = oid_of(kind)
    if own == TypeOid.TEXT:
        return oid in _FROM_TEXT
    if own == oid or {own, oid} <= _NUMBERS:
        return True
    if is_list(kind):
        return oid in VECTORS or (oid in ELEMENT_OF and _is_written(kind.value_type, ELEMENT_OF[oid]))
    return own in _NUMBERS and oid == TypeOid.NUMERIC


def oid_of(kind: Any) -> int:
    """The PostgreSQL type that holds every value of the Arrow type."""
    if isinstance(kind, pa.BaseExtensionType):
        return TypeOid.UUID if kind.extension_name == "arrow.uuid" else oid_of(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return oid_of(kind.value_type)
    if pa.types.is_boolean(kind):
        return TypeOid.BOOL
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_floating(kind):
        return TypeOid.FLOAT8 if kind.bit_width == 64 else TypeOid.FLOAT4
    if pa.types.is_decimal(kind):
        return TypeOid.NUMERIC
    if pa.types.is_date(kind):
        return TypeOid.DATE
    if pa.types.is_time(kind):
        return TypeOid.TIME
    if pa.types.is_timestamp(kind):
        return TypeOid.TIMESTAMP if kind.tz is None else TypeOid.TIMESTAMPTZ
    if pa.types.is_interval(kind) or pa.types.is_duration(kind):
        return TypeOid.INTERVAL
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return TypeOid.BYTEA
    if is_list(kind) and not pa.types.is_nested(kind.value_type):
        return ARRAY_OF.get(oid_of(kind.value_type), TypeOid.JSON)
    return TypeOid.JSON if pa.types.is_nested(kind) else TypeOid.TEXT


def is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _integer(kind: Any) -> int:
    if pa.types.is_unsigned_integer(kind):
        return {8: TypeOid.INT2, 16: TypeOid.INT4, 32: TypeOid.INT8}.get(kind.bit_width, TypeOid.NUMERIC)
    return {8: TypeOid.INT2, 16: TypeOid.INT2, 32: TypeOid.INT4}.get(kind.bit_width, TypeOid.INT8)
