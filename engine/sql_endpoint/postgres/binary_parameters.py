"""Parameters that clients bind, as text. Pure."""

from __future__ import annotations

import struct
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

from engine.sql_endpoint.postgres import types
from engine.sql_endpoint.postgres.errors import SqlError

_EPOCH = datetime(2000, 1, 1)  # noqa: DTZ001 - PostgreSQL's epoch has no zone
_NUMBERS = {
    types.INT2: ">h", types.INT4: ">i", types.INT8: ">q", types.OID: ">I", types.FLOAT4: ">f", types.FLOAT8: ">d",
}  # fmt: skip
_TEXTS = frozenset({0, types.TEXT, types.VARCHAR, types.BPCHAR, types.NAME, types.JSON, types.UNKNOWN})


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
    if oid == types.BOOL:
        return "true" if value != b"\0" else "false"
    if oid == types.UUID:
        return str(UUID(bytes=value))
    if oid == types.NUMERIC:
        return numeric_text(value)
    if oid == types.BYTEA:
        return "\\x" + value.hex()
    if oid == types.JSONB:
        return value[1:].decode()
    if oid == types.DATE:
        return (date(2000, 1, 1) + timedelta(days=struct.unpack(">i", value)[0])).isoformat()
    if oid in {types.TIMESTAMP, types.TIMESTAMPTZ}:
        moment = _EPOCH + timedelta(microseconds=struct.unpack(">q", value)[0])
        return moment.isoformat(" ") + ("+00" if oid == types.TIMESTAMPTZ else "")
    if oid == types.TIME:
        seconds, us = divmod(struct.unpack(">q", value)[0], 1_000_000)
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, us).isoformat()
    raise SqlError("0A000", f"parameters of type {oid} are read in the text format only")


def numeric_text(value: bytes) -> str:
    """A number as numeric_send writes it."""
    count, weight, sign, scale = struct.unpack(">hhHh", value[:8])
    if sign in {0xC000, 0xD000, 0xF000}:
        return {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}[sign]
    groups = struct.unpack(f">{count}h", value[8:])
    digits = Decimal(0)
    for i, group in enumerate(groups):
        digits += Decimal(group).scaleb(4 * (weight - i))
    return f"{'-' if sign == 0x4000 else ''}{digits:.{scale}f}"
