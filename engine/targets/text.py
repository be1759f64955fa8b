"""Converts Arrow columns to PostgreSQL's text forms: texts, lines of COPY, and array parameters. Pure, vectorized."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from engine.model.values import Kind, ValueType

ROWS_AT_ONCE = 16_384
"""Rows whose text is held at once for COPY: large enough for a small fixed cost per column. Not measured."""
_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="all_valid")
"""COPY's CSV options: every value quoted, NULL empty."""
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
_DAY_US = 86_400_000_000
"""Microseconds of a day."""
_NEVER_QUOTED = frozenset({Kind.BOOL, Kind.INT16, Kind.INT32, Kind.INT64, Kind.UINT32, Kind.DECIMAL})
_INFINITY = {Kind.DATE: 2**31 - 1, Kind.TIMESTAMP: 2**63 - 1, Kind.TIMESTAMPTZ: 2**63 - 1}


def csv_blocks(rows: Any, names: Sequence[str], values: Sequence[ValueType]) -> Iterator[memoryview]:
    """The named columns of a pyarrow.Table as lines for COPY … (FORMAT csv), some thousand rows at a time."""
    chosen = rows.select(list(names))
    for batch in chosen.to_batches(max_chunksize=ROWS_AT_ONCE):
        texts = [as_text(batch.column(i), value) for i, value in enumerate(values)]
        sink = pa.BufferOutputStream()
        csv.write_csv(pa.RecordBatch.from_arrays(texts, names=list(names)), sink, _OPTIONS)
        yield memoryview(sink.getvalue())


def array_literal(column: Any, value: ValueType) -> str:
    """A pyarrow.ChunkedArray as the text of a one-dimensional array of its values."""
    return "{" + ",".join(_elements(chunk, value) for chunk in column.chunks if len(chunk)) + "}"


def _elements(array: Any, value: ValueType) -> str:
    """The elements of an array literal, built without a Python object for each. Each piece has less than 2 GB of text."""
    texts = as_text(array, value)
    shown = pc.fill_null(texts, "NULL") if value.kind in _NEVER_QUOTED else _quoted(texts)
    whole = pa.ListArray.from_arrays(pa.array([0, len(shown)], pa.int32()), shown)
    return str(pc.binary_join(whole, ",")[0].as_py())


def as_text(array: Any, value: ValueType) -> Any:
    """An array of texts from which PostgreSQL reads exactly the values of `array`, NULL staying NULL."""
    if value.element is not None:
        return _lists(array, value.element)
    convert = _CONVERSIONS.get(value.kind)
    return array.cast(pa.string()) if convert is None else convert(array)


def _quoted(texts: Any) -> Any:
    """Elements of an array literal, each quoted; NULL as the word."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return pc.fill_null(_join('"', escaped, '"'), "NULL")


def _lists(array: Any, element: ValueType) -> Any:
    flat = _quoted(as_text(array.flatten(), element))
    # Elements of a NULL list are not in `flat`, so only the other lists have lengths.
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    inner = pc.binary_join(pa.ListArray.from_arrays(offsets, flat), ",")
    return pc.if_else(pc.is_valid(array), _join("{", inner, "}"), pa.scalar(None, pa.string()))


def _bytes(array: Any) -> Any:
    plain = pc.fill_null(array.cast(pa.large_binary()), b"")
    _, borders, data = plain.buffers()
    starts = np.frombuffer(borders, np.int64)[plain.offset : plain.offset + len(plain) + 1]
    found = np.frombuffer(data, np.uint8)[starts[0] : starts[-1]] if data is not None else np.empty(0, np.uint8)
    buffers = [None, pa.py_buffer((starts - starts[0]) * 2), pa.py_buffer(_HEX[found].tobytes())]
    digits = pa.Array.from_buffers(pa.large_string(), len(plain), buffers).cast(pa.string())
    return _where(np.asarray(pc.is_valid(array)), _join("\\x", digits))


def _dates(array: Any) -> Any:
    present, days = _numbers(array, pa.int32())
    return _where(present, _with_infinity(Kind.DATE, days, _join(_calendar(days), _era(days))))


def _timestamps(array: Any, kind: Kind, zone: str) -> Any:
    present, micros = _numbers(array, pa.int64())
    days, rest = np.divmod(micros, _DAY_US)
    texts = _join(_calendar(days), " ", _clock(rest), zone, _era(days))
    return _where(present, _with_infinity(kind, micros, texts))


def _times(array: Any) -> Any:
    present, micros = _numbers(array, pa.int64())
    return _where(present, _clock(micros))


def _numbers(array: Any, storage: Any) -> tuple[Any, Any]:
    present = np.asarray(pc.is_valid(array))
    return present, np.asarray(pc.fill_null(array.cast(storage), 0), dtype=np.int64)


def _with_infinity(kind: Kind, numbers: Any, texts: Any) -> Any:
    last = _INFINITY[kind]
    if not np.any(np.abs(numbers) == last):
        return texts
    texts = pc.if_else(pa.array(numbers == last), "infinity", texts)
    return pc.if_else(pa.array(numbers == -last), "-infinity", texts)


def _calendar(days: Any) -> Any:
    """`YYYY-MM-DD` of days since 1970, with years from 1 on before and after Christ."""
    year, month, day = _civil(days)
    shown = np.where(year > 0, year, 1 - year)
    return _join(_padded(shown, 4), "-", _padded(month, 2), "-", _padded(day, 2))


def _era(days: Any) -> Any:
    year, _, _ = _civil(days)
    return pc.if_else(pa.array(year > 0), "", " BC")


def _civil(days: Any) -> tuple[Any, Any, Any]:
    """Year (0 = 1 BC), month and day in the proleptic Gregorian calendar, computed in eras of 400 years that begin on 1 March."""
    era, of_era = np.divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = np.where(month < 10, month + 3, month - 9)
    return year + era * 400 + (month <= 2), month, day


def _clock(micros: Any) -> Any:
    seconds, fraction = np.divmod(micros, 1_000_000)
    minutes, second = np.divmod(seconds, 60)
    hour, minute = np.divmod(minutes, 60)
    return _join(_padded(hour, 2), ":", _padded(minute, 2), ":", _padded(second, 2), ".", _padded(fraction, 6))


def _padded(numbers: Any, width: int) -> Any:
    return pc.utf8_lpad(pa.array(numbers, pa.int64()).cast(pa.string()), width, "0")


def _join(*parts: Any) -> Any:
    texts = [pa.scalar(part, pa.string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, "")


def _where(present: Any, texts: Any) -> Any:
    return texts if present.all() else pc.if_else(pa.array(present), texts, pa.scalar(None, pa.string()))


_CONVERSIONS: dict[Kind, Callable[[Any], Any]] = {
    Kind.BOOL: lambda array: pc.if_else(array, "t", "f"),
    Kind.BYTES: _bytes,
    Kind.DATE: _dates,
    Kind.TIMESTAMP: lambda array: _timestamps(array, Kind.TIMESTAMP, ""),
    Kind.TIMESTAMPTZ: lambda array: _timestamps(array, Kind.TIMESTAMPTZ, "+00"),
    Kind.TIME: _times,
}
