"""Digests of row texts: by the hash function that PostgreSQL has, `hashtextextended(text, seed)` with the seeds 0 and 1, or by MD5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.platform.compiled import Array, kernel


@kernel
def _rotated(value: Any, by: Any) -> Any:
    return np.uint32((value << np.uint32(by)) | (value >> np.uint32(32 - by)))


@kernel
def _mixed(a: Any, b: Any, c: Any) -> Any:
    """`mix` of PostgreSQL's hashfn.c (Jenkins' lookup3)."""
    a = np.uint32(a - c) ^ _rotated(c, 4)
    c = np.uint32(c + b)
    b = np.uint32(b - a) ^ _rotated(a, 6)
    a = np.uint32(a + c)
    c = np.uint32(c - b) ^ _rotated(b, 8)
    b = np.uint32(b + a)
    a = np.uint32(a - c) ^ _rotated(c, 16)
    c = np.uint32(c + b)
    b = np.uint32(b - a) ^ _rotated(a, 19)
    a = np.uint32(a + c)
    c = np.uint32(c - b) ^ _rotated(b, 4)
    b = np.uint32(b + a)
    return a, b, c


@kernel
def _word(data: Array, at: Any, count: Any) -> Any:
    """Up to four bytes as a little-endian number."""
    found = np.uint32(0)
    for i in range(min(count, 4)):
        found |= np.uint32(data[at + i]) << np.uint32(8 * i)
    return found


@kernel
def _hashed(data: Array, begin: Any, end: Any, seed: Any) -> Any:
    """`hash_bytes_extended` of PostgreSQL on a little-endian server, as int64."""
    length = end - begin
    a = np.uint32(0x9E3779B9 + 3923095 + length)
    b = a
    c = a
    if seed != 0:
        b = np.uint32(b + np.uint32(seed))
        a, b, c = _mixed(a, b, c)
    at = begin
    while end - at >= 12:
        a = np.uint32(a + _word(data, at, 4))
        b = np.uint32(b + _word(data, at + 4, 4))
        c = np.uint32(c + _word(data, at + 8, 4))
        a, b, c = _mixed(a, b, c)
        at += 12
    left = end - at
    # The lowest byte of c is reserved for the length.
    if left > 8:
        c = np.uint32(c + (_word(data, at + 8, left - 8) << np.uint32(8)))
    if left > 4:
        b = np.uint32(b + _word(data, at + 4, left - 4))
    if left > 0:
        a = np.uint32(a + _word(data, at, left))
    c = np.uint32((c ^ b) - _rotated(b, 14))
    a = np.uint32((a ^ c) - _rotated(c, 11))
    b = np.uint32((b ^ a) - _rotated(a, 25))
    c = np.uint32((c ^ b) - _rotated(b, 16))
    a = np.uint32((a ^ c) - _rotated(c, 4))
    b = np.uint32((b ^ a) - _rotated(a, 14))
    c = np.uint32((c ^ b) - _rotated(b, 24))
    return np.int64((np.uint64(b) << np.uint64(32)) | np.uint64(c))


@kernel
def _add_rows(data: Array, offsets: Array, ranges: Array, rows: Array, low: Array, high: Array) -> None:
    for i in range(ranges.size):
        begin, end, at = np.int64(offsets[i]), np.int64(offsets[i + 1]), ranges[i]
        rows[at] += 1
        low[at] ^= _hashed(data, begin, end, 0)
        high[at] ^= _hashed(data, begin, end, 1)


@kernel
def _half(data: Array, begin: Any) -> Any:
    """A number of 64 bits that is written as 16 hexadecimal digits, those above 9 in lower case."""
    value = np.int64(0)
    for i in range(begin, begin + 16):
        digit = np.int64(data[i])
        value = (value << 4) | (digit - 48 if digit < 97 else digit - 87)
    return value


@kernel
def _add_md5(data: Array, offsets: Array, ranges: Array, rows: Array, low: Array, high: Array) -> None:
    for i in range(ranges.size):
        begin, at = np.int64(offsets[i]), ranges[i]
        rows[at] += 1
        low[at] ^= _half(data, begin)
        high[at] ^= _half(data, begin + 16)


@kernel
def _before(data: Array, begin: Any, end: Any, other: Array, first: Any, last: Any) -> Any:
    """Whether the bytes `other` sort before `data`."""
    for i in range(min(end - begin, last - first)):
        if other[first + i] != data[begin + i]:
            return other[first + i] < data[begin + i]
    return last - first < end - begin


@kernel
def _find_ranges(data: Array, offsets: Array, bounds: Array, borders: Array, found: Array) -> None:
    for i in range(found.size):
        begin, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        low, high = 0, borders.size - 1
        while low < high:
            middle = (low + high) // 2
            if _before(data, begin, end, bounds, np.int64(borders[middle]), np.int64(borders[middle + 1])):
                low = middle + 1
            else:
                high = middle
        found[i] = low


class RangeSums:
    """Adds up digests of rows by range."""

    def __init__(self, ranges: int) -> None:
        self.rows, self.low, self.high = (np.zeros(ranges, np.int64) for _ in range(3))

    def add(self, texts: Any, ranges: Array) -> None:
        """Add rows. `texts`: pyarrow string array without NULL; `ranges`: int64, the number of each row's range."""
        data, offsets = _bytes_of(texts)
        _add_rows(data, offsets, ranges, self.rows, self.low, self.high)

    def add_md5(self, digits: Any, ranges: Array) -> None:
        """Add rows, given the hexadecimal digits of the MD5 of their texts. Otherwise as `add`."""
        data, offsets = _bytes_of(digits)
        _add_md5(data, offsets, ranges, self.rows, self.low, self.high)


def ranges_of(keys: Any, bounds: Any) -> Array:
    """The number of the range in which each key is (int64): that of the first bound that is not below it.

    Both pyarrow arrays of binary or int64 without NULL, `bounds` ascending.
    """
    if not len(bounds):
        return np.zeros(len(keys), np.int64)
    if pa.types.is_integer(bounds.type):
        found: Array = np.searchsorted(bounds.to_numpy(), keys.to_numpy(), side="left").astype(np.int64)
        return found
    found = np.empty(len(keys), np.int64)
    _find_ranges(*_bytes_of(keys), *_bytes_of(bounds), found)
    return found


def _bytes_of(values: Any) -> tuple[Array, Array]:
    """The bytes of strings, and the borders of values in them."""
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        values = pc.cast(values, pa.large_binary())
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    _, borders, data = values.buffers()
    offsets = np.frombuffer(borders, np.int64 if large else np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), offsets


@kernel
def _find_lines(
    data: Array, places: Array, borders: Array, lines: Array, keys: Array, key_ends: Array, low: Array, high: Array
) -> Any:
    """Fill the arrays; the number of lines, -1 if one has another number of fields. `borders`: scratch space, two rows of a number for
    each field."""
    begins, ends, fields = borders[0], borders[1], borders.shape[1]
    found, at, field, start, out = 0, 0, 0, 0, 0
    begins[0] = 0
    while at < data.size:
        byte = data[at]
        if byte not in (9, 10):
            at += 1
            continue
        if (byte == 10) != (field == fields - 1):
            return -1
        ends[field] = at
        at += 1
        if byte == 9:
            field += 1
            begins[field] = at
            continue
        low[found], high[found] = _hashed(data, start, at, 0), _hashed(data, start, at, 1)
        for i in range(places.size):
            if i:
                keys[out] = 9
                out += 1
            for byte_at in range(begins[places[i]], ends[places[i]]):
                keys[out] = data[byte_at]
                out += 1
        found += 1
        key_ends[found] = out
        lines[found] = start = at
        field = 0
        begins[0] = at
    return found if at == start else -1


def keyed_lines(text: bytes, fields: int, places: Sequence[int]) -> Any:
    """Lines of COPY text with their keys and digests, as a pyarrow.Table.

    `key`: the fields at `places`, as they are in the line, joined by tabs (large_binary); `low`, `high`: hashes of the line (int64);
    `line`: with its end (large_binary). Raises ValueError if a line has another number of fields.
    """
    data = np.frombuffer(text, np.uint8)
    count = int(np.count_nonzero(data == 10))
    lines, key_ends = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    low, high = np.empty(count, np.int64), np.empty(count, np.int64)
    keys = np.empty(len(data) + count * len(places), np.uint8)
    borders = np.empty((2, fields), np.int64)
    if _find_lines(data, np.asarray(places, np.int64), borders, lines, keys, key_ends, low, high) != count:
        raise ValueError("COPY text with an unexpected number of fields")
    size = int(key_ends[-1])
    columns = [_binary(key_ends, keys[:size]), pa.array(low), pa.array(high), _binary(lines, data)]
    return pa.table(columns, ["key", "low", "high", "line"])


@kernel
def _number(data: Array, begin: Any, end: Any) -> Any:
    """A decimal number. Negative numbers have one more value than others, so the digits are subtracted."""
    negative = data[begin] == 45
    value = np.int64(0)
    for i in range(begin + negative, end):
        value = value * 10 - np.int64(data[i] - 48)
    return value if negative else -value


@kernel
def _find_hashed(data: Array, interval: Array, key_ends: Array, keys: Array, low: Array, high: Array) -> Any:
    """Fill the arrays from lines that begin with a number and end with hashes; the number of lines, -1 if one does not."""
    found, at, out = 0, 0, 0
    while at < data.size:
        end, start, first, second = at, -1, -1, -1
        while end < data.size and data[end] != 10:
            if data[end] == 9:
                if start < 0:
                    start = end
                first, second = second, end
            end += 1
        whole = end - second == 33
        border = second if whole else first
        if border <= start or end == data.size:
            return -1
        interval[found] = _number(data, at, start)
        low[found] = _half(data, second + 1) if whole else _number(data, first + 1, second)
        high[found] = _half(data, second + 17) if whole else _number(data, second + 1, end)
        for i in range(start + 1, border):
            keys[out] = data[i]
            out += 1
        found += 1
        key_ends[found] = out
        at = end + 1
    return found


def hashed_lines(text: bytes) -> Any:
    """Lines of COPY text that hold a number, a key's fields and two hashes, or one of 32 hexadecimal digits, as a pyarrow.Table:
    `interval`, the number (int64), and `key`, `low`, `high` as of `keyed_lines`.

    Raises ValueError if a line has another form.
    """
    data = np.frombuffer(text, np.uint8)
    count = int(np.count_nonzero(data == 10))
    key_ends, keys = np.zeros(count + 1, np.int64), np.empty(len(data), np.uint8)
    interval, low, high = (np.empty(count, np.int64) for _ in range(3))
    if _find_hashed(data, interval, key_ends, keys, low, high) != count:
        raise ValueError("COPY text without hashes")
    columns = [pa.array(interval), _binary(key_ends, keys[: int(key_ends[-1])]), pa.array(low), pa.array(high)]
    return pa.table(columns, ["interval", "key", "low", "high"])


def _binary(borders: Array, data: Array) -> Any:
    return pa.Array.from_buffers(pa.large_binary(), len(borders) - 1, [None, pa.py_buffer(borders), pa.py_buffer(data)])


def warm() -> None:
    """Compile the kernels for the types with which they are called."""
    keyed_lines(b"1\t2\n", 2, [0])
    hashed_lines(b"0\t1\t2\t-3\n")
    for kind in (pa.string(), pa.binary()):
        values = pa.array(["a"], kind)
        RangeSums(1).add(values, ranges_of(values.cast(pa.binary()), pa.array([b"b"])))
        RangeSums(1).add_md5(pa.array(["0" * 32], kind), np.zeros(1, np.int64))
