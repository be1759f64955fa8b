"""DuckDB's type for every kind of value, and the conversion of staged Arrow columns. Pure."""

from __future__ import annotations

from engine.model.values import Kind, ValueType

_NAMES = {
    Kind.BOOL: "BOOLEAN",
    Kind.INT16: "SMALLINT",
    Kind.INT32: "INTEGER",
    Kind.INT64: "BIGINT",
    Kind.UINT32: "UINTEGER",
    Kind.FLOAT32: "FLOAT",
    Kind.FLOAT64: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.BYTES: "BLOB",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.TIMESTAMPTZ: "TIMESTAMP WITH TIME ZONE",
    Kind.TIME: "TIME",
    Kind.UUID: "UUID",
}


def duckdb_type(value: ValueType) -> str:
    """Type text as DDL takes it."""
    if value.element is not None:
        return duckdb_type(value.element) + "[]"
    if value.kind is Kind.DECIMAL:
        return f"DECIMAL({value.precision},{value.scale})"
    return _NAMES[value.kind]


def staged_as(expression: str, value: ValueType) -> str:
    """SQL that converts a staged value to the column's type; only uuid is staged in another form, as text."""
    if _leaf(value).kind is Kind.UUID:
        return f"CAST({expression} AS {duckdb_type(value)})"
    return expression


def equal_means_identical(value: ValueType) -> bool:
    """False if `=` holds for two values that print differently: 0 and -0 of a floating point type."""
    return _leaf(value).kind not in (Kind.FLOAT32, Kind.FLOAT64)


def _leaf(value: ValueType) -> ValueType:
    while value.element is not None:
        value = value.element
    return value
