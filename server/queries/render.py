"""Rows of a query as JSON and as CSV. Pure.

JSON: integers up to 64 bits and finite floats are numbers, booleans and NULL are themselves; what a JSON number
cannot hold exactly (decimals, wider integers, NaN and infinities), times and bytes (hexadecimal) are strings. Lists
are arrays, structs objects. Years beyond 0001 to 9999 are written with a sign and six digits (ISO 8601); infinite
times as `infinity`, `-infinity`.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa

from engine.model.target import TARGET_TYPE

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY_S = 86_400
# The target's encoding of infinite dates (days) and timestamps (its own unit): the symmetric ends of the range.
_INFINITE_DAYS = 2**31 - 1
_INFINITE_TIME = 2**63 - 1


class Writer(Protocol):
    """Writes an answer in one format: `begin` once, `rows` for each chunk, `end` once."""

    def begin(self, schema: pa.Schema) -> bytes: ...

    def rows(self, table: pa.Table) -> bytes: ...

    def end(self, *, truncated: bool) -> bytes: ...


class JsonWriter:
    """The body of a query answer as the API documents it; `extra` members are added unchanged."""

    def __init__(self, position: str, extra: Mapping[str, Any] | None = None, *, ran_on: str = "target") -> None:
        self._position = position
        self._ran_on = ran_on
        self._extra = extra or {}
        self._separator = ""

    def begin(self, schema: pa.Schema) -> bytes:
        columns = [_column(field) for field in schema]
        return f'{{"columns":{_json(columns)},"rows":['.encode()

    def rows(self, table: pa.Table) -> bytes:
        rows = _rows(table)
        if not rows:
            return b""
        separator, self._separator = self._separator, ","
        return (separator + _json(rows)[1:-1]).encode()

    def end(self, *, truncated: bool) -> bytes:
        rest = {"position": self._position, "ran_on": self._ran_on, "truncated": truncated, **self._extra}
        return f"],{_json(rest)[1:]}".encode()


class CsvWriter:
    """RFC 4180 with a header line; values as in JSON. NULL is an empty field, an empty string a quoted one."""

    def begin(self, schema: pa.Schema) -> bytes:
        return _csv_line(schema.names)

    def rows(self, table: pa.Table) -> bytes:
        return b"".join(_csv_line(row) for row in _rows(table))

    def end(self, *, truncated: bool) -> bytes:
        return b""


class ArrowWriter:
    """An Arrow IPC stream. `extra` members are added to the schema's metadata as JSON, with the prefix `penstock.`."""

    def __init__(self, extra: Mapping[str, Any] | None = None) -> None:
        self._extra = metadata(extra)
        self._sink = io.BytesIO()
        self._writer: Any = None

    def begin(self, schema: pa.Schema) -> bytes:
        if self._extra:
            schema = schema.with_metadata({**(schema.metadata or {}), **self._extra})
        self._writer = pa.ipc.new_stream(self._sink, schema)
        return self._written()

    def rows(self, table: pa.Table) -> bytes:
        self._writer.write_table(table)
        return self._written()

    def end(self, *, truncated: bool) -> bytes:
        self._writer.close()
        return self._written()

    def _written(self) -> bytes:
        written = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return written


def metadata(extra: Mapping[str, Any] | None) -> dict[bytes, bytes]:
    """Members of an answer as metadata of an Arrow schema: JSON, under names with the prefix `penstock.`."""
    return {f"penstock.{name}".encode(): _json(value).encode() for name, value in (extra or {}).items()}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _csv_line(values: Sequence[Any]) -> bytes:
    return (",".join(_csv_field(value) for value in values) + "\r\n").encode()


def _column(field: pa.Field) -> dict[str, str]:
    """A column's name and types: Arrow's, and the target's if the engine reported it."""
    target_type = (field.metadata or {}).get(TARGET_TYPE)
    column = {"name": field.name, "type": str(field.type)}
    return column if target_type is None else {**column, "target_type": target_type.decode()}


def _rows(table: pa.Table) -> list[list[Any]]:
    if not table.num_columns:
        return []
    columns = [[value for chunk in column.chunks for value in _values(chunk)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _values(array: pa.Array) -> list[Any]:
    """The array's values as JSON values."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return [None if value is None else str(UUID(bytes=value)) for value in array.storage.to_pylist()]
        return _values(array.storage)
    if pa.types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind) and not pa.types.is_union(kind):
        return [None if item is None else _values(item) for item in _parts(array)]
    if pa.types.is_struct(kind):
        return _structs(array)
    raw, write = _scalar(array)
    return [None if value is None else write(value) for value in raw]


def _parts(array: pa.Array) -> list[pa.Array | None]:
    return [array[i].values if array[i].is_valid else None for i in range(len(array))]


def _structs(array: pa.Array) -> list[dict[str, Any] | None]:
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    fields = [_values(field) for field in array.flatten()]
    rows = zip(*fields, strict=True) if fields else ((),) * len(array)
    return [
        dict(zip(names, row, strict=True)) if valid else None
        for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)
    ]


def _scalar(array: pa.Array) -> tuple[list[Any], Callable[[Any], Any]]:
    """Python values of a flat array, and the function that renders one."""
    kind = array.type
    if pa.types.is_floating(kind):
        return array.to_pylist(), _float
    if pa.types.is_decimal(kind):
        return array.to_pylist(), lambda value: format(value, "f")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return array.to_pylist(), bytes.hex
    if pa.types.is_date(kind):
        return _numbers(array, pa.int32() if kind == pa.date32() else pa.int64()), _date_writer(kind)
    if pa.types.is_time(kind):
        return _numbers(array, pa.int32() if kind.bit_width == 32 else pa.int64()), _clock_writer(kind.unit)
    if pa.types.is_timestamp(kind):
        return _numbers(array, pa.int64()), _timestamp_writer(kind)
    if pa.types.is_duration(kind):
        return _numbers(array, pa.int64()), lambda value: f"PT{_decimal_seconds(value, kind.unit)}S"
    if pa.types.is_interval(kind):
        return array.to_pylist(), _interval
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return array.to_pylist(), lambda value: value
    return array.to_pylist(), str


def _numbers(array: pa.Array, storage: pa.DataType) -> list[int | None]:
    numbers: list[int | None] = array.view(storage).to_pylist()
    return numbers


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _date_writer(kind: pa.DataType) -> Callable[[int], str]:
    if kind == pa.date64():
        return lambda value: _date(value // (_DAY_S * 1000))
    return lambda value: _infinite(value, _INFINITE_DAYS) or _date(value)


def _clock_writer(unit: str) -> Callable[[int], str]:
    return lambda value: _clock(*divmod(value, _PER_SECOND[unit]), _DIGITS[unit])


def _timestamp_writer(kind: pa.TimestampType) -> Callable[[int], str]:
    zone = "Z" if kind.tz is not None else ""

    def write(value: int) -> str:
        endless = _infinite(value, _INFINITE_TIME)
        if endless:
            return endless
        seconds, fraction = divmod(value, _PER_SECOND[kind.unit])
        day, second = divmod(seconds, _DAY_S)
        return f"{_date(day)}T{_clock(second, fraction, _DIGITS[kind.unit])}{zone}"

    return write


def _infinite(value: int, limit: int) -> str | None:
    return "infinity" if value >= limit else "-infinity" if value <= -limit else None


def _date(days: int) -> str:
    """Days since 1970 as a date of the proleptic Gregorian calendar, for any year."""
    shifted = days + 719_468  # days since 0000-03-01, so that a leap day is the last of its year
    era, day_of_era = divmod(shifted, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (month <= 2)
    written = f"{year:04d}" if 1 <= year <= 9999 else f"{year:+07d}"
    return f"{written}-{month:02d}-{day:02d}"


def _clock(seconds: int, fraction: int, digits: int) -> str:
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    tail = f".{fraction:0{digits}d}" if fraction else ""
    return f"{hour:02d}:{minute:02d}:{second:02d}{tail}"


def _decimal_seconds(value: int, unit: str) -> str:
    whole, fraction = divmod(abs(value), _PER_SECOND[unit])
    tail = f".{fraction:0{_DIGITS[unit]}d}" if fraction else ""
    return f"{'-' if value < 0 else ''}{whole}{tail}"


def _interval(value: Any) -> str:
    months, days, nanoseconds = value
    return f"P{months}M{days}DT{_decimal_seconds(nanoseconds, 'ns')}S"


def _csv_field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not text or any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
