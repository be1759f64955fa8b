"""PostgreSQL's types for the columns of an answer, by their Arrow type and the target's name of the type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from engine.sql_endpoint.postgres.messages import ColumnDescription

# Fixed in PostgreSQL's pg_type.dat.
BOOL, BYTEA, INT8, INT2, INT4, TEXT, JSON = 16, 17, 20, 21, 23, 25, 114
FLOAT4, FLOAT8, VARCHAR, BPCHAR, DATE, TIME, TIMESTAMP = 700, 701, 1043, 1042, 1082, 1083, 1114
TIMESTAMPTZ, INTERVAL, NUMERIC, UUID, JSONB, UNKNOWN, OID, NAME = 1184, 1186, 1700, 2950, 3802, 705, 26, 19

ARRAY_OF = {
    BOOL: 1000, BYTEA: 1001, INT2: 1005, INT4: 1007, TEXT: 1009, VARCHAR: 1015, INT8: 1016, FLOAT4: 1021, FLOAT8: 1022,
    TIMESTAMP: 1115, DATE: 1182, TIME: 1183, TIMESTAMPTZ: 1185, INTERVAL: 1187, NUMERIC: 1231, UUID: 2951, JSON: 199,
}  # fmt: skip
SIZES = {
    BOOL: 1, INT8: 8, INT2: 2, INT4: 4, FLOAT4: 4, FLOAT8: 8, DATE: 4, TIME: 8, TIMESTAMP: 8, TIMESTAMPTZ: 8, INTERVAL: 16,
    UUID: 16, OID: 4,
}  # fmt: skip
_NAMED = {
    "uuid": UUID, "json": JSON, "jsonb": JSONB, "numeric": NUMERIC, "varchar": VARCHAR, "bpchar": BPCHAR, "oid": OID, "name": NAME,
    "interval": INTERVAL, "timestamptz": TIMESTAMPTZ, "timestamp": TIMESTAMP, "date": DATE, "time": TIME, "bytea": BYTEA,
}  # fmt: skip
"""Types whose values may be texts in Arrow."""
OID_KEY = b"oid"
"""Metadata of a field: its PostgreSQL type, where the target knows it."""


@dataclass(frozen=True, slots=True)
class ParameterType:
    """How a parameter of this type is written in a statement for DuckDB."""

    cast: str


PARAMETER_CASTS = {
    BOOL: "BOOLEAN", INT2: "SMALLINT", INT4: "INTEGER", INT8: "BIGINT", FLOAT4: "REAL", FLOAT8: "DOUBLE", DATE: "DATE", TIME: "TIME",
    TIMESTAMP: "TIMESTAMP", TIMESTAMPTZ: "TIMESTAMPTZ", INTERVAL: "INTERVAL", UUID: "UUID", OID: "BIGINT",
}  # fmt: skip
"""Types of parameters by OID; others are like literals without a type, which the target adapts."""


def describe(schema: Any) -> list[ColumnDescription]:
    """The columns of an answer. `schema`: pyarrow.Schema."""
    return [_column(field) for field in schema]


def _column(field: Any) -> ColumnDescription:
    oid = _oid(field)
    modifier = -1
    if pa.types.is_decimal(field.type):
        modifier = (field.type.precision << 16 | field.type.scale) + 4
    return ColumnDescription(field.name, oid, SIZES.get(oid, -1), modifier)


def _oid(field: Any) -> int:
    metadata = field.metadata or {}
    if OID_KEY in metadata:
        return int(metadata[OID_KEY])
    named = re.sub(r"\(.*", "", metadata.get(b"type", b"").decode().lower())
    if named in _NAMED and pa.types.is_string(field.type):
        return _NAMED[named]
    return oid_of(field.type)


def oid_of(kind: Any) -> int:
    """The PostgreSQL type that holds every value of the Arrow type."""
    if isinstance(kind, pa.BaseExtensionType):
        return UUID if kind.extension_name == "arrow.uuid" else oid_of(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return oid_of(kind.value_type)
    if pa.types.is_boolean(kind):
        return BOOL
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_floating(kind):
        return FLOAT8 if kind.bit_width == 64 else FLOAT4
    if pa.types.is_decimal(kind):
        return NUMERIC
    if pa.types.is_date(kind):
        return DATE
    if pa.types.is_time(kind):
        return TIME
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz is None else TIMESTAMPTZ
    if pa.types.is_interval(kind) or pa.types.is_duration(kind):
        return INTERVAL
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return BYTEA
    if is_list(kind):
        element = oid_of(kind.value_type)
        return ARRAY_OF.get(element, JSON)
    if pa.types.is_nested(kind):
        return JSON
    return TEXT


def is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _integer(kind: Any) -> int:
    if pa.types.is_unsigned_integer(kind):
        return {8: INT2, 16: INT4, 32: INT8}.get(kind.bit_width, NUMERIC)
    return {8: INT2, 16: INT2, 32: INT4}.get(kind.bit_width, INT8)
