"""PostgreSQL's types for DuckDB's types: the type OIDs and modifiers with which a PostgreSQL client reads DuckDB's columns. Pure."""

from __future__ import annotations

import re
from enum import IntEnum


class TypeOid(IntEnum):
    """OIDs of built-in types (pg_type.oid)."""

    BOOL = 16
    BYTEA = 17
    CHAR = 18
    """`"char"`, one byte; the type `character(n)` is BPCHAR."""
    NAME = 19
    INT8 = 20
    INT2 = 21
    INT2VECTOR = 22
    INT4 = 23
    REGPROC = 24
    TEXT = 25
    OID = 26
    XID = 28
    OIDVECTOR = 30
    JSON = 114
    FLOAT4 = 700
    FLOAT8 = 701
    VARCHAR = 1043
    DATE = 1082
    TIME = 1083
    TIMESTAMP = 1114
    TIMESTAMPTZ = 1184
    INTERVAL = 1186
    TIMETZ = 1266
    VARBIT = 1562
    NUMERIC = 1700
    REGCLASS = 2205
    REGTYPE = 2206
    UUID = 2950
    PG_LSN = 3220


ARRAY_OF: dict[int, int] = {
    TypeOid.BOOL: 1000,
    TypeOid.BYTEA: 1001,
    TypeOid.CHAR: 1002,
    TypeOid.NAME: 1003,
    TypeOid.INT2: 1005,
    TypeOid.INT4: 1007,
    TypeOid.TEXT: 1009,
    TypeOid.XID: 1011,
    TypeOid.VARCHAR: 1015,
    TypeOid.INT8: 1016,
    TypeOid.FLOAT4: 1021,
    TypeOid.FLOAT8: 1022,
    TypeOid.OID: 1028,
    TypeOid.TIMESTAMP: 1115,
    TypeOid.DATE: 1182,
    TypeOid.TIME: 1183,
    TypeOid.TIMESTAMPTZ: 1185,
    TypeOid.INTERVAL: 1187,
    TypeOid.NUMERIC: 1231,
    TypeOid.TIMETZ: 1270,
    TypeOid.VARBIT: 1563,
    TypeOid.JSON: 199,
    TypeOid.UUID: 2951,
}
"""OIDs of the array types (pg_type.typarray)."""

NO_MODIFIER = -1
"""pg_attribute.atttypmod of a type without limits."""
_SIMPLE: dict[str, TypeOid] = {
    "BOOLEAN": TypeOid.BOOL,
    "TINYINT": TypeOid.INT2,
    "UTINYINT": TypeOid.INT2,
    "SMALLINT": TypeOid.INT2,
    "USMALLINT": TypeOid.INT4,
    "INTEGER": TypeOid.INT4,
    "UINTEGER": TypeOid.INT8,
    "BIGINT": TypeOid.INT8,
    "UBIGINT": TypeOid.NUMERIC,
    "HUGEINT": TypeOid.NUMERIC,
    "UHUGEINT": TypeOid.NUMERIC,
    "BIGNUM": TypeOid.NUMERIC,
    "FLOAT": TypeOid.FLOAT4,
    "DOUBLE": TypeOid.FLOAT8,
    "VARCHAR": TypeOid.TEXT,
    "CHAR": TypeOid.TEXT,
    "TEXT": TypeOid.TEXT,
    "BLOB": TypeOid.BYTEA,
    "BIT": TypeOid.VARBIT,
    "DATE": TypeOid.DATE,
    "TIME": TypeOid.TIME,
    "TIME_NS": TypeOid.TIME,
    "TIMESTAMP": TypeOid.TIMESTAMP,
    "TIMESTAMP_S": TypeOid.TIMESTAMP,
    "TIMESTAMP_MS": TypeOid.TIMESTAMP,
    "TIMESTAMP_NS": TypeOid.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": TypeOid.TIMESTAMPTZ,
    "TIMESTAMPTZ": TypeOid.TIMESTAMPTZ,
    "TIMESTAMPTZ_NS": TypeOid.TIMESTAMPTZ,
    "TIME WITH TIME ZONE": TypeOid.TIMETZ,
    "TIMETZ": TypeOid.TIMETZ,
    "INTERVAL": TypeOid.INTERVAL,
    "UUID": TypeOid.UUID,
    "JSON": TypeOid.JSON,
    "NULL": TypeOid.TEXT,
    '"NULL"': TypeOid.TEXT,
}
"""The type that holds every value of DuckDB's. An unsigned type is the next larger signed one, or numeric."""
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\((\d+),\s*(\d+)\)")
_LIST = re.compile(r"(.*)\[\d*\]", re.DOTALL)
_NESTED = re.compile(r"(?:STRUCT|MAP|UNION|TUPLE|VARIANT|GEOMETRY)\b")


def pg_type_of(duckdb_type: str) -> tuple[int, int]:
    """Type OID and type modifier for the name of a DuckDB type, as DuckDB prints it.

    Values of nested types are sent as json. A list is an array of its innermost element, as PostgreSQL does not distinguish dimensions;
    a list of nested values is json. An enum, and a type that PostgreSQL does not have, is text.
    """
    name = duckdb_type.strip()
    if listed := _LIST.fullmatch(name):
        element, modifier = pg_type_of(listed.group(1))
        if element in ARRAY_OF.values():
            return element, modifier
        array = ARRAY_OF[element]
        return (TypeOid.JSON, NO_MODIFIER) if element == TypeOid.JSON else (array, modifier)
    upper = name.upper()
    if decimal := _DECIMAL.fullmatch(upper):
        return TypeOid.NUMERIC, numeric_modifier(int(decimal.group(1)), int(decimal.group(2)))
    if _NESTED.match(upper):
        return TypeOid.JSON, NO_MODIFIER
    if upper in {"DECIMAL", "NUMERIC"}:
        return TypeOid.NUMERIC, numeric_modifier(18, 3)
    return _SIMPLE.get(upper, TypeOid.TEXT), NO_MODIFIER


def numeric_modifier(precision: int, scale: int) -> int:
    """pg_attribute.atttypmod of `numeric(precision, scale)`."""
    return (precision << 16 | scale & 0x7FF) + 4
