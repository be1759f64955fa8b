"""Values of an answer in the text and binary formats of PostgreSQL, by column: no Python for a value of the common types. Pure.

A *cell* is a value as DataRow has it: its length in 4 bytes, then its bytes; NULL is the length -1.
"""

from __future__ import annotations

import decimal
import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.postgres.array_literals import array_literal
from engine.postgres.wire_types import TypeOid
from engine.sql_endpoint.postgres.messages import ColumnDescription
from engine.sql_endpoint.postgres.types import ELEMENT_OF, JSONB, SIZES, VECTORS

_NULL = struct.pack(">i", -1)
_EPOCH_DAYS = 10_957
"""Days from 1970-01-01 to 2000-01-01, PostgreSQL's epoch."""
_DAY_US = 86_400_000_000
"""Microseconds of a day."""
_PER_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
_INFINITE_DAYS = 2**31 - 1
"""Infinite dates, as the target has them; negative: -infinity."""
_INFINITE_US = 2**63 - 1
"""Infinite timestamps, likewise."""
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 as days since 1970: within them Arrow's text form of dates is PostgreSQL's."""

Cells = Callable[[Any], Any]
"""From a pyarrow.Array to a pyarrow.BinaryArray of cells."""


def data_rows(table: Any, described: Sequence[ColumnDescription], formats: Sequence[int]) -> bytes:
    """The rows of a pyarrow.Table as DataRow messages. `described`: its columns; `formats`: 0 text, 1 binary, by column."""
    if table.num_rows == 0:
        return b""
    columns = [
        cells(table.column(i).combine_chunks(), column.oid, binary=form == 1)
        for i, (column, form) in enumerate(zip(described, formats, strict=True))
    ]
    sizes = np.full(table.num_rows, 6, dtype=np.int64)
    for column in columns:
        sizes += pc.binary_length(column).to_numpy()
    heads = np.empty(table.num_rows, dtype=[("kind", "S1"), ("size", ">i4"), ("count", ">i2")])
    heads["kind"], heads["size"], heads["count"] = b"D", sizes, len(columns)
    joined = pc.binary_join_element_wise(_fixed(heads), *columns, b"") if columns else _fixed(heads)
    return _bytes_of(joined)


def cells(array: Any, oid: int, *, binary: bool) -> Any:
    """The values of one column, of this PostgreSQL type, as cells."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    values = binary_values(array, oid) if binary else text_values(array, oid).cast(pa.binary())
    lengths = _fixed(pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False).astype(">i4"))
    return pc.binary_join_element_wise(lengths, values, b"").fill_null(_NULL)


def text_values(array: Any, oid: int) -> Any:
    """The values in PostgreSQL's text format, as a pyarrow.StringArray."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return _each(array.storage, _uuid_text)
        return text_values(array.storage, oid)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_boolean(kind):
        return pc.if_else(array, "t", "f")
    if pa.types.is_integer(kind):
        return array.cast(pa.string())
    if pa.types.is_floating(kind):
        return _float_texts(array)
    if pa.types.is_decimal(kind):
        return _decimal_texts(array)
    if pa.types.is_date(kind):
        return _date_texts(array.cast(pa.date32()))
    if pa.types.is_time(kind):
        return _without_zeros(array.cast(pa.string()))
    if pa.types.is_timestamp(kind):
        return _timestamp_texts(array)
    if pa.types.is_interval(kind):
        return _each(array, _interval_text)
    if pa.types.is_duration(kind):
        return _each(array.cast(pa.duration("us")).cast(pa.int64()), lambda us: _interval_text((0, 0, us * 1000)))
    if pa.types.is_null(kind):
        return array.cast(pa.string())
    if oid == TypeOid.BYTEA:
        return _each(array, lambda value: "\\x" + bytes(value).hex())
    if oid in VECTORS:
        return _each(array, lambda values: " ".join(map(str, values)))
    if oid in ELEMENT_OF:
        return _array_texts(array, ELEMENT_OF[oid])
    return _each(array, lambda value: json.dumps(_plain(value), ensure_ascii=False))


def binary_values(array: Any, oid: int) -> Any:
    """The values in the binary format of this PostgreSQL type, as a pyarrow.BinaryArray; NULL stays NULL."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid":
        return array.storage.cast(pa.binary())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _binary_of_texts(oid, array)
    if pa.types.is_boolean(kind):
        return _packed(array.cast(pa.int8()), ">i1")
    if pa.types.is_decimal(kind) or oid == TypeOid.NUMERIC:
        return _each(array, lambda value: numeric_binary(decimal.Decimal(value)), pa.binary())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _packed(array, f">{'f' if pa.types.is_floating(kind) else 'i'}{SIZES[oid]}")
    if pa.types.is_date(kind):
        return _packed(_shifted(array.cast(pa.date32()).cast(pa.int32()), _EPOCH_DAYS, _INFINITE_DAYS, 31), ">i4")
    if pa.types.is_time(kind):
        return _packed(array.cast(pa.time64("us"), safe=False).cast(pa.int64()), ">i8")
    if pa.types.is_timestamp(kind):
        return _packed(_shifted(_microseconds(array), _EPOCH_DAYS * _DAY_US, _INFINITE_US, 63), ">i8")
    if pa.types.is_interval(kind):
        return _each(array, lambda v: struct.pack(">qii", v[2] // 1000, v[1], v[0]), pa.binary())
    if oid == TypeOid.BYTEA:
        return array.cast(pa.binary())
    if oid in VECTORS:
        return _array_binaries(array, TypeOid.INT2 if oid == TypeOid.INT2VECTOR else TypeOid.OID, first=0)
    if oid in ELEMENT_OF:
        return _array_binaries(array, ELEMENT_OF[oid])
    return text_values(array, oid).cast(pa.binary())


def numeric_binary(value: decimal.Decimal) -> bytes:
    """A value as numeric_send writes it: groups of four decimal digits."""
    if not value.is_finite():
        sign = 0xC000 if value.is_nan() else 0xD000 if value > 0 else 0xF000
        return struct.pack(">hhHh", 0, 0, sign, 0)
    sign, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    whole = int("".join(map(str, digits)) or "0") * 10 ** max(0, int(exponent))
    text = str(whole).rjust(scale + 1, "0")
    integer, fraction = text[: len(text) - scale], text[len(text) - scale :]
    integer = integer.zfill(-(-len(integer) // 4) * 4)
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [int((integer + fraction)[i : i + 4]) for i in range(0, len(integer) + len(fraction), 4)]
    weight = len(integer) // 4 - 1
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    weight = weight if groups else 0
    return struct.pack(f">hhHh{len(groups)}h", len(groups), weight, 0x4000 if sign else 0, scale, *groups)


def _fixed(values: Any) -> Any:
    """A contiguous numpy array as a BinaryArray of its elements' bytes."""
    values = np.ascontiguousarray(values)
    width = values.dtype.itemsize
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(values)])
    return array.cast(pa.binary())


def _bytes_of(array: Any) -> bytes:
    """The bytes of all elements, one after another."""
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    return bytes(array.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])))


def _packed(array: Any, dtype: str) -> Any:
    """Numbers in network byte order."""
    valid = array.is_valid()
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False).astype(dtype)
    return pc.if_else(valid, _fixed(numbers), pa.scalar(None, pa.binary()))


def _each(array: Any, write: Callable[[Any], Any], kind: Any = None) -> Any:
    values = [None if value is None else write(value) for value in array.to_pylist()]
    return pa.array(values, kind or pa.string())


def _shifted(numbers: Any, epoch: int, infinite: int, bits: int) -> Any:
    """Numbers since PostgreSQL's epoch. Infinite ones are the ends of the range there."""
    least = -(2**bits)
    moved = pc.subtract(numbers, epoch)
    late, early = pc.greater_equal(numbers, infinite), pc.less_equal(numbers, -infinite)
    return pc.if_else(
        late, pa.scalar(2**bits - 1, numbers.type), pc.if_else(early, pa.scalar(least, numbers.type), moved)
    )


def _microseconds(array: Any) -> Any:
    """A timestamp array as numbers of microseconds since 1970; nanoseconds are cut."""
    numbers = array.cast(pa.int64())
    if array.type.unit == "ns":
        values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
        endless = (values >= _INFINITE_US) | (values <= -_INFINITE_US)
        mask = numbers.is_null().to_numpy(zero_copy_only=False)
        return pa.array(np.where(endless, values, values // 1000), mask=mask)
    return pc.multiply(numbers, _PER_US[array.type.unit])


def _float_texts(array: Any) -> Any:
    texts = array.cast(pa.string())
    named = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN", "-nan": "NaN"}
    for found, wanted in named.items():
        texts = pc.if_else(pc.equal(texts, found), wanted, texts)
    return texts


def _decimal_texts(array: Any) -> Any:
    texts = array.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():  # Arrow writes small numbers with an exponent
        return _each(array, lambda value: format(value, "f"))
    return texts


def _without_zeros(texts: Any) -> Any:
    """Times without the zeros at the end of their fractions."""
    return pc.replace_substring_regex(texts, r"\.?0+$", "") if len(texts) and _has_fractions(texts) else texts


def _has_fractions(texts: Any) -> bool:
    return bool(pc.any(pc.match_substring(texts, ".")).as_py())


def _date_texts(array: Any) -> Any:
    days = array.cast(pa.int32())
    if _all_within(days, _FIRST_DAY, _LAST_DAY):
        return array.cast(pa.string())
    return _each(days, _date_text)


def _timestamp_texts(array: Any) -> Any:
    numbers = _microseconds(array)
    zone = "" if array.type.tz is None else "+00"
    if _all_within(numbers, _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1):
        texts = _without_zeros(numbers.cast(pa.timestamp("us")).cast(pa.string()))
        return pc.binary_join_element_wise(texts, zone, "") if zone else texts
    return _each(numbers, lambda us: _timestamp_text(us, zone))


def _all_within(numbers: Any, least: int, most: int) -> bool:
    ends = pc.min_max(numbers)
    return ends["min"].as_py() is None or (ends["min"].as_py() >= least and ends["max"].as_py() <= most)


def _date_text(days: int) -> str:
    if abs(days) >= _INFINITE_DAYS:
        return "infinity" if days > 0 else "-infinity"
    year, month, day = _civil(days)
    return f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}{'' if year > 0 else ' BC'}"


def _timestamp_text(us: int, zone: str) -> str:
    if abs(us) >= _INFINITE_US:
        return "infinity" if us > 0 else "-infinity"
    days, rest = divmod(us, _DAY_US)
    year, month, day = _civil(days)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    date = f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}"
    return f"{date} {clock}{tail}{zone}{'' if year > 0 else ' BC'}"


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of the proleptic Gregorian calendar; year 0 is 1 BC."""
    eras, rest = divmod(days - _FIRST_DAY, 146_097)  # days of 400 years
    moment = np.datetime64("0001-01-01") + np.timedelta64(rest, "D")
    year, month, day = str(moment).split("-")
    return int(year) + 400 * eras, int(month), int(day)


def _interval_text(value: Any) -> str:
    """In the style `postgres`."""
    months, days, nanoseconds = value
    parts = []
    years, months = int(months / 12), int(months - 12 * int(months / 12))
    for number, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if number:
            parts.append(f"{number} {unit}{'' if number == 1 else 's'}")
    if nanoseconds or not parts:
        seconds, fraction = divmod(abs(nanoseconds) // 1000, 1_000_000)
        tail = f".{fraction:06d}".rstrip("0") if fraction else ""
        sign = "-" if nanoseconds < 0 else "+" if any(number < 0 for number in (years, months, days)) else ""
        parts.append(f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{tail}")
    return " ".join(parts)


def _uuid_text(value: bytes) -> str:
    text = value.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _plain(value: Any) -> Any:
    """A value of a nested type as JSON holds it."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(part, tuple) and len(part) == 2 for part in value):  # a map
            return {str(_plain(name)): _plain(part) for name, part in value}
        return [_plain(part) for part in value]
    if isinstance(value, bool | int | float | str) or value is None:
        return value if not isinstance(value, float) or np.isfinite(value) else str(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def _array_texts(array: Any, oid: int) -> Any:
    """`oid`: type of the elements."""
    elements = text_values(array.flatten(), oid).to_pylist()
    lengths = pc.list_value_length(array).to_pylist()
    found: list[str | None] = []
    at = 0
    for length in lengths:
        found.append(None if length is None else array_literal(elements[at : at + length]))
        at += length or 0
    return pa.array(found, pa.string())


def _array_binaries(array: Any, oid: int, first: int = 1) -> Any:
    """`oid`: type of the elements; `first`: the lower bound."""
    elements = array.flatten()
    written = cells(elements, oid, binary=True).to_pylist()
    nulls = elements.is_null().to_pylist()
    found: list[bytes | None] = []
    at = 0
    for length in pc.list_value_length(array).to_pylist():
        if not length:
            found.append(None if length is None else struct.pack(">iii", 0, 0, oid))
            continue
        head = struct.pack(">iiiii", 1, any(nulls[at : at + length]), oid, length, first)
        found.append(head + b"".join(written[at : at + length]))
        at += length
    return pa.array(found, pa.binary())


def _binary_of_texts(oid: int, array: Any) -> Any:
    """Values that Arrow has as text, in the binary format of their type."""
    if oid == TypeOid.UUID:
        return _each(array, lambda text: bytes.fromhex(text.replace("-", "")), pa.binary())
    if oid == TypeOid.NUMERIC:
        return _each(array, lambda text: numeric_binary(decimal.Decimal(text)), pa.binary())
    if oid == JSONB:
        return _each(array, lambda text: b"\x01" + text.encode(), pa.binary())
    return array.cast(pa.binary())
