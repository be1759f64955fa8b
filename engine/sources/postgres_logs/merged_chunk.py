"""Writes released transactions as records of the merged log: plain transactions, one after another, with the merged log's own positions."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from engine.model.fault import EngineFault, FaultKind
from engine.model.merged_logs import NODE_BIT, LogsMessage, commit_mark
from engine.model.position import Lsn
from engine.platform.compiled import Array, kernel
from engine.records.encode import CLOCK_ZERO_US
from engine.records.messages import logs_record
from engine.sort.merge_records import LocalRun
from engine.sources.postgres_logs.moved_rows import RowKeys, keys_of, put_first
from engine.sources.postgres_logs.node_log import NodeLog, Part, Run
from engine.sources.postgres_logs.relations import Relations, View

_BEGIN = struct.Struct(">cQqI")
_COMMIT = struct.Struct(">cBQQq")
_T_BEGIN, _T_COMMIT, _T_TRUNCATE, _T_INSERT, _T_UPDATE, _T_DELETE = (ord(letter) for letter in "BCTIUD")
_LEFT_OUT = np.isin(np.arange(256), np.frombuffer(b"BCbPRYO", np.uint8))
"""By type: records that are not copied. The merged log has its own ones that begin, end and announce; origins are the nodes'."""
_UNKNOWN = -1
"""Result of a kernel: a record names a table that was not announced."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A transaction's place in the merged log. `node`, `end`: of the record at which it was released, in that node's log."""

    number: int
    node: int
    end: int
    time_us: int


class ChunkWriter:
    """Gathers records. Used by one thread."""

    def __init__(self, logs: Sequence[NodeLog], relations: Relations) -> None:
        self._logs = logs
        self._relations = relations
        self._data: list[Array] = []
        self._sizes: list[Array] = []
        self._messages: list[int] = []
        self._records = 0
        self.bytes = 0
        """Bytes of the records that were not taken."""

    def take(self) -> tuple[Array, Array, list[int]]:
        """The records: uint8 data, their borders (int32), and which of them are messages of this writer. Messages of users may look so."""
        data = np.concatenate([*self._data, np.empty(0, np.uint8)])
        sizes = np.concatenate([*self._sizes, np.empty(0, np.int32)])
        offsets = np.zeros(len(sizes) + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        messages = self._messages
        self._data, self._sizes, self._messages, self.bytes, self._records = [], [], [], 0, 0
        return data, offsets, messages

    def begin(self, at: Numbered, message: LogsMessage | None) -> None:
        """Begin a transaction; `message`: what it says of the logs."""
        time = at.time_us - CLOCK_ZERO_US
        self._record(_BEGIN.pack(b"B", at.number - 1, time, at.number & 0xFFFFFFFF))
        if message is not None:
            self._messages.append(self._records)
            self._record(logs_record(message))

    def commit(self, at: Numbered) -> None:
        """End a transaction."""
        mark = commit_mark(at.node, Lsn(at.end)) if at.end else 0
        self._record(_COMMIT.pack(b"C", 0, mark, at.number, at.time_us - CLOCK_ZERO_US))

    def parts(self, parts: Sequence[Part]) -> None:
        """The rows of parts, after the structures that they have."""
        keys = [RowKeys.joined([each.keys for each in _rows_of(part)]) for part in parts] if len(parts) > 1 else []
        firsts = put_first(keys) if keys else None
        for part, first in zip(parts, firsts, strict=True) if firsts is not None else ():
            self._part(part, first)
        for number, part in enumerate(parts):
            self._part(part, None if firsts is None else ~firsts[number])

    def _part(self, part: Part, wanted: Array | None) -> None:
        """The rows of a part. `wanted` (bool): its records that are written; None: all."""
        at = 0
        for rows in _rows_of(part):
            self._rows(rows, None if wanted is None else wanted[at : at + rows.count])
            at += rows.count

    def run(self, run: LocalRun, numbers: Array) -> None:
        """Local transactions in their order. `numbers`: uint64, ascending."""
        taken = {
            node: list(self._logs[node].take_runs(run.places[run.nodes == node]))
            for node in np.unique(run.nodes).tolist()
        }
        slices = [one for each in taken.values() for one in each]
        announced = {pair for held, _, _ in slices for pair in held.view.records}
        if len({number for number, _ in announced}) < len(announced):
            self._one_by_one(run, numbers, taken)
            return
        for number, record in sorted(announced):
            self._announce(number, record)
        index = np.empty(len(run.nodes), np.int64)
        index[np.argsort(run.nodes, kind="stable")] = np.arange(len(run.nodes))
        gathered, borders, firsts, stops, sources = [], [], [], [], []
        records = size = 0
        for source, (held, low, high) in enumerate(slices):
            start, stop = int(held.starts[low]), int(held.stops[high - 1])
            base = int(held.offsets[start])
            gathered.append(held.data[base : int(held.offsets[stop])])
            borders.append(held.offsets[start:stop].astype(np.int64) - base + size)
            firsts.append(held.starts[low:high] - start + records)
            stops.append(held.stops[low:high] - start + records)
            sources.append(np.full(high - low, source, np.int64))
            records += stop - start
            size += len(gathered[-1])
        maps = [held.view.numbers for held, _, _ in slices]
        given = _Given(
            np.concatenate(firsts)[index],
            np.concatenate(stops)[index],
            np.concatenate(sources)[index],
            numbers,
            run.nodes.astype(np.uint64) << np.uint64(NODE_BIT) | run.ends.astype(np.uint64),
            np.cumsum([0, *(len(own) for own, _ in maps)]),
            np.concatenate([own for own, _ in maps]),
            np.concatenate([numbered for _, numbered in maps]),
        )
        out, sizes = np.empty(size, np.uint8), np.empty(records, np.int32)
        data, offsets = np.concatenate(gathered), np.append(np.concatenate(borders), size)
        if _write_run(data, offsets, given, out, sizes) == _UNKNOWN:
            raise _unannounced()
        self._add(out, sizes)

    def _one_by_one(self, run: LocalRun, numbers: Array, taken: Mapping[int, Sequence[tuple[Run, int, int]]]) -> None:
        """As `run`, where a table does not have one structure: it is announced before the rows of each transaction."""
        each = {
            node: iter([(held, at) for held, low, high in slices for at in range(low, high)])
            for node, slices in taken.items()
        }
        for node, end, time_us, number in zip(run.nodes, run.ends, run.times_us, numbers, strict=True):
            held, at = next(each[int(node)])
            begun = Numbered(int(number), int(node), int(end), int(time_us))
            self.begin(begun, None)
            start, stop = int(held.starts[at]), int(held.stops[at])
            self._rows(_Rows.of(held.view, held.data, held.offsets, start, stop), None)
            self.commit(begun)

    def _announce(self, number: int, record: bytes) -> None:
        if self._relations.due(number, record):
            self._record(record)

    def _rows(self, rows: _Rows, wanted: Array | None) -> None:
        own, numbers = rows.view.numbers
        for oid in _tables_in(rows.data, rows.offsets, own):
            self._announce(*rows.view.by_oid[int(oid)])
        out, sizes = np.empty(len(rows.data), np.uint8), np.empty(rows.count, np.int32)
        left_out = _LEFT_OUT[rows.data[rows.offsets[:-1]]]
        if wanted is not None:
            left_out = left_out | ~wanted
        written = _write_rows(rows.data, rows.offsets, left_out, own, numbers, out, sizes)
        if written == _UNKNOWN:
            raise _unannounced()
        sizes = sizes[:written]
        self._add(out[: int(sizes.sum())], sizes)

    def _record(self, record: bytes) -> None:
        self._add(np.frombuffer(record, np.uint8), np.array([len(record)], np.int32))

    def _add(self, data: Array, sizes: Array) -> None:
        self._data.append(data)
        self._sizes.append(sizes)
        self._records += len(sizes)
        self.bytes += len(data)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Consecutive records with one view: `data`, and `offsets` from 0 on (int64, count + 1)."""

    view: View
    data: Array
    offsets: Array

    @classmethod
    def of(cls, view: View, data: Array, offsets: Array, first: int, stop: int) -> _Rows:
        """The records `[first, stop)` of a chunk."""
        borders = offsets[first : stop + 1].astype(np.int64)
        return cls(view, data[borders[0] : borders[-1]], borders - borders[0])

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    @property
    def keys(self) -> RowKeys:
        return keys_of(self.data, self.offsets, self.view.by_oid)


def _rows_of(part: Part) -> Iterator[_Rows]:
    """The records of a part, cut where another view begins."""
    borders = [*part.views[1:], (len(part.pieces), 0, part.views[0][2])]
    for (at, record, view), (until, stop, _) in zip(part.views, borders, strict=True):
        for number, piece in enumerate(part.pieces[at : until + 1], at):
            first = max(record if number == at else piece.first, piece.first)
            end = stop if number == until else piece.stop
            if end > first:
                yield _Rows.of(view, piece.data, piece.offsets, first, end)


class _Given(NamedTuple):
    """Transactions in their order: records `[first, stop)`, source, number and mark (uint64); and by source, the node's own numbers of
    tables in ascending order with those in the merged log, from `lows[source]` on."""

    first: Array
    stop: Array
    source: Array
    number: Array
    mark: Array
    lows: Array
    own: Array
    numbered: Array


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


@kernel
def _copy(data: Array, p: int, q: int, own: Array, numbered: Array, low: int, high: int, out: Array, at: int) -> bool:
    """Copy one record, with the tables that it names renumbered; False if one is not known."""
    out[at : at + q - p] = data[p:q]
    kind = data[p]
    if kind in (_T_INSERT, _T_UPDATE, _T_DELETE):
        return _renumber(out, at + 1, own, numbered, low, high)
    if kind == _T_TRUNCATE:
        for table in range(_be32(data, p + 1)):
            if not _renumber(out, at + 6 + 4 * table, own, numbered, low, high):
                return False
    return True


@kernel
def _write_run(data: Array, offsets: Array, given: _Given, out: Array, sizes: Array) -> int:
    """Write whole transactions; returns the number of records."""
    at = record = 0
    for k in range(given.first.size):
        low, high = given.lows[given.source[k]], given.lows[given.source[k] + 1]
        for i in range(given.first[k], given.stop[k]):
            p, q = offsets[i], offsets[i + 1]
            if not _copy(data, p, q, given.own, given.numbered, low, high, out, at):
                return _UNKNOWN
            if data[p] == _T_BEGIN:
                _put(out, at + 1, given.number[k] - np.uint64(1), 8)
            elif data[p] == _T_COMMIT:
                _put(out, at + 2, given.mark[k], 8)
                _put(out, at + 10, given.number[k], 8)
            sizes[record] = q - p
            record += 1
            at += q - p
    return record


@kernel
def _write_rows(
    data: Array, offsets: Array, left_out: Array, own: Array, numbered: Array, out: Array, sizes: Array
) -> int:
    """Write records, but those that are left out (bool, by record); returns their number."""
    at = record = 0
    for i in range(offsets.size - 1):
        p, q = offsets[i], offsets[i + 1]
        if left_out[i]:
            continue
        if not _copy(data, p, q, own, numbered, 0, own.size, out, at):
            return _UNKNOWN
        sizes[record] = q - p
        record += 1
        at += q - p
    return record


@kernel
def _mark_tables(data: Array, offsets: Array, own: Array, found: Array) -> None:
    """Mark the tables of which there are rows."""
    for i in range(offsets.size - 1):
        p = offsets[i]
        if data[p] not in (_T_INSERT, _T_UPDATE, _T_DELETE, _T_TRUNCATE):
            continue
        truncates = data[p] == _T_TRUNCATE
        for table in range(_be32(data, p + 1) if truncates else 1):
            oid = _be32(data, p + 6 + 4 * table if truncates else p + 1)
            place = np.searchsorted(own, oid)
            if place < own.size and own[place] == oid:
                found[place] = True


def _tables_in(data: Array, offsets: Array, own: Array) -> Array:
    """The own numbers of tables of which there are rows."""
    found = np.zeros(len(own), np.bool_)
    _mark_tables(data, offsets, own, found)
    return own[found]


def _unannounced() -> EngineFault:
    return EngineFault(FaultKind.LOG_UNREADABLE, "merge", "a node sent rows of a table that it had not announced")
