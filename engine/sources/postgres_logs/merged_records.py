"""Records of the merged log: kernels that write those of nodes with the merged log's own numbers of tables and positions."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from engine.model.merged_logs import LogsMessage, commit_mark
from engine.model.position import Lsn
from engine.platform.compiled import Array, copy_bytes, inlined_kernel, kernel
from engine.records.encode import CLOCK_ZERO_US
from engine.records.messages import logs_record
from engine.sources.postgres_logs.parts import Bundled
from engine.sources.postgres_logs.relations import View

_BEGIN = struct.Struct(">cQqI")
_COMMIT = struct.Struct(">cBQQq")
XID_AT = _BEGIN.size - 4
"""Where a BEGIN record has its transaction's id, 4 bytes."""
BEGIN_BYTES = _BEGIN.size
_T_BEGIN, _T_COMMIT, _T_INSERT, _T_UPDATE, _T_DELETE = (ord(letter) for letter in "BCIUD")
LEFT_OUT = np.isin(np.arange(256), np.frombuffer(b"BCbPRYO", np.uint8))
"""By type: records that are not copied. The merged log has its own ones that begin, end and announce; origins are the nodes'."""
UNKNOWN = -1
"""Result of a kernel: a record names a table that was not announced."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A transaction's place in the merged log. `node`, `end`: of the record at which it was released, in that node's log. `xid`: its id
    there; 0: it has several."""

    number: int
    node: int
    end: int
    time_us: int
    xid: int = 0


class Whole(NamedTuple):
    """A transaction of small parts."""

    at: Numbered
    message: LogsMessage | None
    parts: tuple[Bundled, ...]


class Ranges(NamedTuple):
    """Ranges of joined records: by range, its records `[first, stop)` and its source, which is a view; and by source, the node's own
    numbers of tables in ascending order with those in the merged log, from `lows[source]` on."""

    first: Array
    stop: Array
    source: Array
    lows: Array
    own: Array
    numbered: Array

    def cut(self, low: int, high: int) -> Ranges:
        """The ranges `[low, high)`."""
        return self._replace(first=self.first[low:high], stop=self.stop[low:high], source=self.source[low:high])


class Frames(NamedTuple):
    """Records that begin and end transactions: borders (count + 1), and by transaction its first one, of which the last is its COMMIT
    (count + 1), and its first range (count + 1)."""

    data: Array
    offsets: Array
    firsts: Array
    ranges: Array

    @classmethod
    def of(cls, wholes: Sequence[Whole], ranges: Array) -> Frames:
        records, firsts = [], [0]
        for at, message, _ in wholes:
            records.append(begin_record(at))
            if message is not None:
                records.append(logs_record(message))
            records.append(commit_record(at))
            firsts.append(len(records))
        offsets = np.cumsum([0, *map(len, records)])
        return cls(np.frombuffer(b"".join(records), np.uint8), offsets, np.array(firsts), ranges)


def begin_record(at: Numbered) -> bytes:
    return _BEGIN.pack(b"B", at.number - 1, at.time_us - CLOCK_ZERO_US, at.xid)


def commit_record(at: Numbered) -> bytes:
    mark = commit_mark(at.node, Lsn(at.end)) if at.end else 0
    return _COMMIT.pack(b"C", 0, mark, at.number, at.time_us - CLOCK_ZERO_US)


def joined(slices: Sequence[tuple[Array, Array, int, int]]) -> tuple[Array, Array]:
    """The records of some slices one after another: data, and their borders (int64). Each has data, borders, and its records
    `[first, stop)`."""
    gathered, borders, size = [], [], 0
    for data, offsets, first, stop in slices:
        base = int(offsets[first])
        gathered.append(data[base : int(offsets[stop])])
        borders.append(offsets[first:stop].astype(np.int64) - base + size)
        size += len(gathered[-1])
    return np.concatenate(gathered), np.append(np.concatenate(borders), size)


def tables_of(views: Sequence[View]) -> tuple[Array, Array, Array]:
    """`lows`, `own` and `numbered` of ranges whose sources have these views."""
    maps = [view.numbers for view in views]
    lows = np.cumsum([0, *(len(own) for own, _ in maps)])
    return lows, np.concatenate([own for own, _ in maps]), np.concatenate([numbers for _, numbers in maps])


@kernel
def _put(out: Array, at: int, value: Any, width: int) -> None:
    for place in range(width):
        out[at + place] = (value >> np.uint64(8 * (width - 1 - place))) & np.uint64(255)


@kernel
def _be32(data: Array, at: int) -> int:
    value = 0
    for place in range(4):
        value = value << 8 | int(np.int64(data[at + place]))
    return value


@kernel
def _renumber(out: Array, at: int, own: Array, numbered: Array, low: int, high: int) -> bool:
    """Replace a table's own number; False if it is not known."""
    oid = _be32(out, at)
    stop = high
    while low < high:
        middle = (low + high) >> 1
        if own[middle] < oid:
            low = middle + 1
        else:
            high = middle
    if low >= stop or own[low] != oid:
        return False
    _put(out, at, np.uint64(numbered[low]), 4)
    return True


@inlined_kernel
def _copy(data: Array, p: int, q: int, own: Array, numbered: Array, low: int, high: int, out: Array, at: int) -> bool:
    """Copy one record, with the table of a row renumbered; False if it is not known."""
    copy_bytes(data, p, q - p, out, at)
    if data[p] in (_T_INSERT, _T_UPDATE, _T_DELETE):
        return _renumber(out, at + 1, own, numbered, low, high)
    return True


@kernel
def write_run(data: Array, offsets: Array, ranges: Ranges, number: Array, mark: Array, out: Array, sizes: Array) -> int:
    """Write whole transactions with these numbers and marks (uint64); returns the number of records."""
    at = record = 0
    for k in range(ranges.first.size):
        low, high = ranges.lows[ranges.source[k]], ranges.lows[ranges.source[k] + 1]
        for i in range(ranges.first[k], ranges.stop[k]):
            p, q = offsets[i], offsets[i + 1]
            if not _copy(data, p, q, ranges.own, ranges.numbered, low, high, out, at):
                return UNKNOWN
            if data[p] == _T_BEGIN:
                _put(out, at + 1, number[k] - np.uint64(1), 8)
            elif data[p] == _T_COMMIT:
                _put(out, at + 2, mark[k], 8)
                _put(out, at + 10, number[k], 8)
            sizes[record] = q - p
            record += 1
            at += q - p
    return record


@kernel
def write_wholes(
    data: Array,
    offsets: Array,
    left_out: Array,
    ranges: Ranges,
    frames: Frames,
    out: Array,
    sizes: Array,
    begins: Array,
) -> tuple[int, int]:
    """Write transactions of several ranges, without records of types that are left out (bool, by type). `begins`: takes the record with
    which each begins. Returns the number of records and of bytes."""
    at = record = 0
    for one in range(begins.size):
        begins[one] = record
        last = frames.firsts[one + 1] - 1
        for f in range(frames.firsts[one], last + 1):
            if f == last:
                for k in range(frames.ranges[one], frames.ranges[one + 1]):
                    low, high = ranges.lows[ranges.source[k]], ranges.lows[ranges.source[k] + 1]
                    for i in range(ranges.first[k], ranges.stop[k]):
                        p, q = offsets[i], offsets[i + 1]
                        if left_out[data[p]]:
                            continue
                        if not _copy(data, p, q, ranges.own, ranges.numbered, low, high, out, at):
                            return UNKNOWN, 0
                        sizes[record] = q - p
                        record += 1
                        at += q - p
            p, q = frames.offsets[f], frames.offsets[f + 1]
            copy_bytes(frames.data, p, q - p, out, at)
            sizes[record] = q - p
            record += 1
            at += q - p
    return record, at


@kernel
def write_rows(
    data: Array,
    offsets: Array,
    left_out: Array,
    wanted: Array,
    own: Array,
    numbered: Array,
    out: Array,
    sizes: Array,
    tables: Array,
) -> tuple[int, int]:
    """Write records, but those of types that are left out (bool, by type) and those that are not wanted (bool, by record; empty: all are),
    and mark the tables of their rows. Returns the number of records and of bytes."""
    at = record = 0
    for i in range(offsets.size - 1):
        p, q = offsets[i], offsets[i + 1]
        if left_out[data[p]] or (wanted.size > 0 and not wanted[i]):
            continue
        if not _copy(data, p, q, own, numbered, 0, own.size, out, at):
            return UNKNOWN, 0
        if data[p] in (_T_INSERT, _T_UPDATE, _T_DELETE):
            tables[np.searchsorted(own, _be32(data, p + 1))] = True
        sizes[record] = q - p
        record += 1
        at += q - p
    return record, at


@kernel
def mark_tables(data: Array, offsets: Array, ranges: Ranges, found: Array) -> None:
    """Mark the tables of which there are rows: bool, by place in `ranges.own`."""
    for k in range(ranges.first.size):
        low, high = ranges.lows[ranges.source[k]], ranges.lows[ranges.source[k] + 1]
        for i in range(ranges.first[k], ranges.stop[k]):
            p = offsets[i]
            if data[p] in (_T_INSERT, _T_UPDATE, _T_DELETE):
                oid = _be32(data, p + 1)
                place = low + np.searchsorted(ranges.own[low:high], oid)
                if place < high and ranges.own[place] == oid:
                    found[place] = True


def warm(view: View, record: Array, offsets: Array) -> None:
    """Compile the kernels, with a record of a table of the view."""
    none, number = np.zeros(1, np.int64), np.zeros(1, np.uint64)
    ranges = Ranges(none, none, none, *tables_of([view]))
    out, sizes, tables = np.empty(len(record), np.uint8), np.empty(1, np.int32), np.zeros(len(ranges.own), np.bool_)
    every = np.empty(0, np.bool_)
    write_rows(record, offsets, LEFT_OUT, every, ranges.own, ranges.numbered, out, sizes, tables)
    mark_tables(record, offsets, ranges, tables)
    write_run(record, offsets, ranges, number, number, out, sizes)
    frames = Frames.of([Whole(Numbered(1, 0, 0, 0), None, ())], np.zeros(2, np.int64))
    out, sizes = np.empty(len(frames.data), np.uint8), np.empty(len(frames.offsets), np.int32)
    write_wholes(record, offsets, LEFT_OUT, ranges, frames, out, sizes, np.empty(1, np.int64))
