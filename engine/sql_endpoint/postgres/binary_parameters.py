"""Parameters that clients bind, as text. Pure."""

from __future__ import annotations

import struct
from datetime import date, datetime, time, timedelta
from uuid import UUID

from engine.postgres.array_literals import array_literal
from engine.postgres.wire_types import TypeOid
from engine.sql_endpoint.postgres.errors import SqlError
from engine.sql_endpoint.postgres.types import ELEMENT_OF

# OIDs of types that are not those of a DuckDB column.
_BPCHAR, _UNKNOWN, _JSONB = 1042, 705, 3802
_MOST_IN_GROUP = 9999
"""PostgreSQL sends numbers in groups of four decimal digits."""
_EPOCH = datetime(2000, 1, 1)  # noqa: DTZ001 - PostgreSQL's epoch has no zone
_NUMBERS: dict[int, str] = {
    TypeOid.INT2: ">h", TypeOid.INT4: ">i", TypeOid.INT8: ">q", TypeOid.OID: ">I", TypeOid.FLOAT4: ">f", TypeOid.FLOAT8: ">d",
}  # fmt: skip
_TEXTS = frozenset({0, TypeOid.TEXT, TypeOid.VARCHAR, _BPCHAR, TypeOid.NAME, TypeOid.JSON, _UNKNOWN})


def text_of(oid: int, value: bytes | None, *, binary: bool) -> str | None:
    """The value of a parameter of this type as text; None for NULL.

    Raises:
        SqlError: it is malformed, or of a type whose binary format is not read.
    """
    if value is None:
        return None
    try:
        return _from_binary(oid, value) if binary else value.decode()
    except (struct.error, ValueError, OverflowError):
        raise SqlError("22P03", f"a parameter of type {oid} is malformed") from None


def _from_binary(oid: int, value: bytes) -> str:
    if oid in _TEXTS:
        return value.decode()
    if oid in _NUMBERS:
        return repr(struct.unpack(_NUMBERS[oid], value)[0])
    if oid == TypeOid.BOOL:
        return "true" if value != b"\0" else "false"
    if oid == TypeOid.UUID:
        return str(UUID(bytes=value))
    if oid == TypeOid.NUMERIC:
        return numeric_text(value)
    if oid == TypeOid.BYTEA:
        return "\\x" + value.hex()
    if oid == _JSONB:
        return value[1:].decode()
    if oid == TypeOid.DATE:
        return (date(2000, 1, 1) + timedelta(days=struct.unpack(">i", value)[0])).isoformat()
    if oid in {TypeOid.TIMESTAMP, TypeOid.TIMESTAMPTZ}:
        moment = _EPOCH + timedelta(microseconds=struct.unpack(">q", value)[0])
        return moment.isoformat(" ") + ("+00" if oid == TypeOid.TIMESTAMPTZ else "")
    if oid == TypeOid.TIME:
        seconds, us = divmod(struct.unpack(">q", value)[0], 1_000_000)
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, us).isoformat()
    if oid in ELEMENT_OF:
        return _array_text(ELEMENT_OF[oid], value)
    raise SqlError("0A000", f"parameters of type {oid} are read in the text format only")


def _array_text(oid: int, value: bytes) -> str:
    """An array of one dimension, of elements of this type, as an array literal."""
    dimensions, _, _ = struct.unpack_from(">iii", value)
    if dimensions == 0:
        return "{}"
    if dimensions > 1:
        raise SqlError("0A000", "parameters that are arrays have one dimension")
    texts, at = [], 20
    for _ in range(struct.unpack_from(">i", value, 12)[0]):
        size = struct.unpack_from(">i", value, at)[0]
        at += 4
        texts.append(None if size < 0 else _from_binary(oid, value[at : at + size]))
        at += max(0, size)
    return array_literal(texts)


def numeric_text(value: bytes) -> str:
    """A number as numeric_send writes it."""
    count, weight, sign, scale = struct.unpack(">hhHh", value[:8])
    if sign in {0xC000, 0xD000, 0xF000}:
        return {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}[sign]
    given = struct.unpack(f">{count}H", value[8:])
    if max(given, default=0) > _MOST_IN_GROUP:
        raise ValueError("a group of digits is too large")
    groups = "".join(f"{group:04}" for group in given)
    before = 4 * (weight + 1)  # digits before the point
    digits = "0" * -before + groups if before < 0 else groups.ljust(before, "0")
    whole, part = digits[: max(before, 0)].lstrip("0") or "0", digits[max(before, 0) :]
    return f"{'-' if sign == 0x4000 else ''}{whole}{'.' if scale else ''}{part[:scale].ljust(scale, '0')}"
