"""Digests of row texts, equal to those that PostgreSQL computes: `bit_xor(hashtextextended(text, seed))` with the seeds 0 and 1."""

from __future__ import annotations

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


def warm() -> None:
    """Compile the kernels for the types with which they are called."""
    for kind in (pa.string(), pa.binary()):
        values = pa.array(["a"], kind)
        RangeSums(1).add(values, ranges_of(values.cast(pa.binary()), pa.array([b"b"])))
