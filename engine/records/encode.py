"""Writes records from rows: what a source without pgoutput lands, so that all stages after it work on one form.

Values are canonical text: what PostgreSQL prints of them in UTC, with ISO dates, shortest floats and hexadecimal bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.model.identity import RelationId
from engine.platform.compiled import Array, copy_bytes, inlined_kernel, kernel

CLOCK_ZERO_US = 946_684_800_000_000
"""2000-01-01 UTC, the zero of the form's clock, in microseconds since 1970."""
_BEGIN = np.dtype([("type", "S1"), ("before", ">u8"), ("time", ">i8"), ("number", ">u4")])
_COMMIT = np.dtype([("type", "S1"), ("flags", "u1"), ("commit", ">u8"), ("end", ">u8"), ("time", ">i8")])
INSERT, UPDATE, DELETE, TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")
_TRUNCATE_BYTES = 10
"""A truncate record of one table: type, number of tables, flags, table."""
_KEY, _OLD, _NEW, _TEXT, _NULL, _UNCHANGED = (ord(c) for c in "KONtnu")
UNCHANGED = -2
"""In place of the size of a value that an update did not change and that is not known."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Rows of canonical texts, by column.

    `data` (uint8) holds the bytes of one column's values one after another, `offsets` (int64, rows + 1) their borders, `present` (bool,
    rows) is False for NULL, which has no bytes.
    """

    data: tuple[Array, ...]
    offsets: tuple[Array, ...]
    present: tuple[Array, ...]

    @staticmethod
    def from_values(rows: Sequence[Sequence[str | None]], columns: int) -> Texts:
        """From Python values, `columns` in each row; for few rows."""
        data, offsets, present = [], [], []
        for column in range(columns):
            values = [row[column] for row in rows]
            raw = [b"" if value is None else value.encode("utf-8") for value in values]
            data.append(np.frombuffer(b"".join(raw), np.uint8))
            offsets.append(
                np.concatenate([[0], np.cumsum([len(each) for each in raw], dtype=np.int64)]).astype(np.int64)
            )
            present.append(np.array([value is not None for value in values], np.bool_))
        return Texts(tuple(data), tuple(offsets), tuple(present))


class Places(NamedTuple):
    """Where values lie in one buffer, so that a kernel needs no list of arrays: value (row, column) is at row * columns + column.

    `data` (uint8); `starts` and `sizes` (int64), size -1 for NULL, UNCHANGED for one that is not known.
    """

    data: Array
    starts: Array
    sizes: Array


def begin_records(ends: Array, numbers: Array, times_us: Array) -> Array:
    """The records that begin transactions: uint8, transactions by bytes.

    The record carries a position before the end: readers drop the transaction as a whole if that is before the position of a copy.

    Args:
        ends: uint64 positions.
        numbers: the transactions' own, of which 32 bits are sent.
        times_us: of the commits, int64 microseconds since 1970 UTC.
    """
    found = np.zeros(len(ends), _BEGIN)
    found["type"] = b"B"
    found["before"] = ends - np.uint64(1)
    found["time"] = times_us - CLOCK_ZERO_US
    found["number"] = numbers & 0xFFFFFFFF
    return found.view(np.uint8).reshape(len(ends), _BEGIN.itemsize)


def commit_records(ends: Array, times_us: Array) -> Array:
    """The records of these commits, like `begin_records`."""
    found = np.zeros(len(ends), _COMMIT)
    found["type"] = b"C"
    found["commit"] = found["end"] = ends
    found["time"] = times_us - CLOCK_ZERO_US
    return found.view(np.uint8).reshape(len(ends), _COMMIT.itemsize)


def truncate_record(relations: Sequence[RelationId]) -> bytes:
    """Tables that were truncated together."""
    return struct.pack(f">cIB{len(relations)}I", b"T", len(relations), 0, *relations)


def encode_rows(
    relation: RelationId, operations: Array, new: Texts, old: Texts | None = None, *, whole: bool = False
) -> tuple[Array, Array]:
    """The records of row changes, in order.

    Args:
        operations: uint8, one of INSERT, UPDATE and DELETE for each row.
        new: the rows after the change; of a DELETE, its values count for nothing.
        old: the rows before it, or their keys with NULL elsewhere; needed for DELETE. None: no change has one.
        whole: `old` holds whole rows (replica identity FULL), else keys.

    Returns:
        (data, offsets): uint8, and int64 of rows + 1 borders.

    Raises:
        ValueError: a DELETE has no old row.
    """
    if old is None and bool((operations == DELETE).any()):
        raise ValueError("a delete needs its old row")
    olds = (
        _flat(old) if old is not None else Places(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    )
    with_old = np.full(len(operations), old is not None) & (operations != INSERT)
    return encode_places(relation, operations, len(new.data), _flat(new), olds, with_old, whole=whole)


def encode_places(
    relation: RelationId,
    operations: Array,
    columns: int,
    news: Places,
    olds: Places,
    with_old: Array,
    *,
    whole: bool = False,
) -> tuple[Array, Array]:
    """As `encode_rows`, from places of `columns` values for each row; `with_old` (bool): the rows with an old row.

    `operations` may contain TRUNCATE, which has no values.
    """
    sizes = np.empty(len(operations) + 1, np.int64)
    sizes[0] = 0
    _measure(operations, columns, with_old, news.sizes, olds.sizes, sizes)
    offsets = np.cumsum(sizes)
    out = np.empty(int(offsets[-1]), np.uint8)
    _write(operations, columns, int(relation), _OLD if whole else _KEY, with_old, news, olds, offsets, out)
    return out, offsets


def _flat(texts: Texts) -> Places:
    rows = len(texts.present[0]) if texts.present else 0
    columns = len(texts.data)
    starts, sizes = np.empty((rows, columns), np.int64), np.empty((rows, columns), np.int64)
    before = 0
    for column, (data, offsets, present) in enumerate(zip(texts.data, texts.offsets, texts.present, strict=True)):
        starts[:, column] = offsets[:-1] + before
        sizes[:, column] = np.where(present, np.diff(offsets), -1)
        before += len(data)
    return Places(np.concatenate([*texts.data, np.empty(0, np.uint8)]), starts.reshape(-1), sizes.reshape(-1))


@kernel
def _tuple_size(sizes: Array, row: int, columns: int) -> int:
    size = 3
    for at in range(row * columns, (row + 1) * columns):
        size += 1 if sizes[at] < 0 else 5 + sizes[at]
    return size


@kernel
def _measure(operations: Array, columns: int, with_old: Array, news: Array, olds: Array, out: Array) -> None:
    for row in range(operations.size):
        if operations[row] == TRUNCATE:
            out[row + 1] = _TRUNCATE_BYTES
            continue
        size = 5
        if with_old[row]:
            size += _tuple_size(olds, row, columns)
        if operations[row] != DELETE:
            size += _tuple_size(news, row, columns)
        out[row + 1] = size


@kernel
def _put32(out: Array, at: int, value: int) -> int:
    for shift in range(4):
        out[at + shift] = (value >> (24 - 8 * shift)) & 255
    return at + 4


@inlined_kernel
def _put_tuple(out: Array, at: int, letter: int, flat: Places, row: int, columns: int) -> int:
    out[at], out[at + 1], out[at + 2] = letter, columns >> 8, columns & 255
    at += 3
    for value in range(row * columns, (row + 1) * columns):
        size = flat.sizes[value]
        if size < 0:
            out[at] = _UNCHANGED if size == UNCHANGED else _NULL
            at += 1
            continue
        out[at] = _TEXT
        at = _put32(out, at + 1, size)
        copy_bytes(flat.data, flat.starts[value], size, out, at)
        at += size
    return at


@kernel
def _write(
    operations: Array,
    columns: int,
    relation: int,
    old_letter: int,
    with_old: Array,
    news: Places,
    olds: Places,
    offsets: Array,
    out: Array,
) -> None:
    for row in range(operations.size):
        at = offsets[row]
        out[at] = operations[row]
        if operations[row] == TRUNCATE:
            at = _put32(out, at + 1, 1)
            out[at] = 0
            _put32(out, at + 1, relation)
            continue
        at = _put32(out, at + 1, relation)
        if with_old[row]:
            at = _put_tuple(out, at, old_letter, olds, row, columns)
        if operations[row] != DELETE:
            at = _put_tuple(out, at, _NEW, news, row, columns)


def warm() -> None:
    """Compile or load every kernel of this module."""
    rows = Texts.from_values([["1", None]], 2)
    encode_rows(RelationId(1), np.array([UPDATE], np.uint8), rows, rows)
