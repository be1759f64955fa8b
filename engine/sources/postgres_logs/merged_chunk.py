"""Writes released transactions as records of the merged log: plain transactions, one after another, with the merged log's own positions."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.merged_logs import NODE_BIT, LogsMessage, commit_mark
from engine.model.position import Lsn
from engine.model.schema import ReplicaIdentity
from engine.model.ticket import TicketMarker
from engine.platform.compiled import Array, kernel
from engine.records.encode import CLOCK_ZERO_US
from engine.records.messages import logs_record, marker_record, parse_truncate
from engine.records.relation import Announced, AnnouncedColumn, apart, relation_record
from engine.sort.merge_records import LocalRun
from engine.sources.postgres import frames
from engine.sources.postgres_logs import late_rows, own_rows
from engine.sources.postgres_logs.late_rows import DOUBTFUL, KEPT, LateRows
from engine.sources.postgres_logs.moved_rows import RowKeys, keys_of, may_remove, put_first
from engine.sources.postgres_logs.node_log import NodeLog, Part, Rows, Transactions
from engine.sources.postgres_logs.relations import Relations, View, Why

_BEGIN = struct.Struct(">cQqI")
_COMMIT = struct.Struct(">cBQQq")
_XID_AT = _BEGIN.size - 4
_T_BEGIN, _T_COMMIT, _T_TRUNCATE, _T_INSERT, _T_UPDATE, _T_DELETE = (ord(letter) for letter in "BCTIUD")
_TRUNCATED = Why(FaultKind.TABLE_STRUCTURE_CHANGED, "it was truncated on one of its nodes")
_ON_TWO_NODES = Why(FaultKind.TABLE_STRUCTURE_CHANGED, "two nodes had a row with the same key")
_NO_TYPE = b"Y" + bytes(6)
"""A type record that describes no type."""
_LEFT_OUT = np.isin(np.arange(256), np.frombuffer(b"BCbPRYO", np.uint8))
"""By type: records that are not copied. The merged log has its own ones that begin, end and announce; origins are the nodes'."""
_ALL = np.empty(0, np.bool_)
"""In place of which records are written: all."""
_UNKNOWN = -1
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


class ChunkWriter:
    """Gathers records. Used by one thread."""

    def __init__(self, logs: Sequence[NodeLog], relations: Relations, late: LateRows, chunk_bytes: int) -> None:
        """`chunk_bytes`: size from which on a chunk is full. A larger record is one of its own."""
        self._logs = logs
        self._relations = relations
        self._late = late
        self._chunk_bytes = chunk_bytes
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
        self._record(_BEGIN.pack(b"B", at.number - 1, time, at.xid))
        if message is not None:
            self._messages.append(self._records)
            self._record(logs_record(message))

    def marker(self, marker: TicketMarker) -> None:
        """Write a ticket's marker, in the transaction that has begun."""
        self._messages.append(self._records)
        self._record(marker_record(marker))

    def commit(self, at: Numbered) -> None:
        """End a transaction."""
        mark = commit_mark(at.node, Lsn(at.end)) if at.end else 0
        self._record(_COMMIT.pack(b"C", 0, mark, at.number, at.time_us - CLOCK_ZERO_US))

    def parts(self, parts: Sequence[Part]) -> Iterator[None]:
        """Write the rows of parts, after the structures that they have, and drop them. Yields when a chunk is full: it is taken then."""
        firsts = put_first([_keys_of(part) for part in parts]) if len(parts) > 1 and _may_remove(parts) else None
        for part, first in zip(parts, firsts, strict=True) if firsts is not None else ():
            yield from self._part(part, first, last=False)
        for number, part in enumerate(parts):
            yield from self._part(part, None if firsts is None else ~firsts[number], last=True)

    def without_rows(self, parts: Sequence[Part], why: Why) -> None:
        """In place of the rows of parts, that their tables have to be copied again."""
        for part in parts:
            for _, rows in part.rows():
                for oid in _named_in(rows):
                    self._relation(self._relations.reload(*rows.view.by_oid[oid], why))
            part.drop()

    def all_again(self, why: Why) -> None:
        """Every table has to be copied again."""
        for number, structure in self._relations.present.items():
            self._relation(self._relations.reload(number, structure.record, why))

    def _part(self, part: Part, wanted: Array | None, *, last: bool) -> Iterator[None]:
        """The rows of a part. `wanted` (bool): its records that are written; None: all. `last`: they are dropped then."""
        at = 0
        for piece in part.pieces:
            chosen = None if wanted is None else wanted[at : at + piece.count]
            if chosen is None or chosen.any():
                for first, rows in part.rows_of(piece, at):
                    yield from self._in_chunks(rows, None if chosen is None else chosen[first : first + rows.count])
            at += piece.count
            if last:
                piece.kept.drop()

    def _in_chunks(self, rows: Rows, wanted: Array | None) -> Iterator[None]:
        if len(rows.data) <= self._chunk_bytes - self.bytes:
            self._rows(rows, wanted)
            return
        at = 0
        while at < rows.count:
            stop = rows.fitting(at, self._chunk_bytes - self.bytes)
            if stop == at and self.bytes:
                yield
                continue
            stop = max(stop, at + 1)
            self._rows(rows.cut(at, stop), None if wanted is None else wanted[at:stop])
            at = stop

    def run(self, run: LocalRun, numbers: Array) -> None:
        """Local transactions in their order. `numbers`: uint64, ascending."""
        taken = {
            node: list(self._logs[node].take_runs(run.places[run.nodes == node]))
            for node in np.unique(run.nodes).tolist()
        }
        slices = [one for each in taken.values() for one in each]
        of = _Records.of(run, slices)
        verdicts = self._judge_run(run, slices, of)
        announced = {
            (number, record, held.view.node)
            for held in slices
            if not all(self._relations.is_last(*pair) for pair in held.view.records)
            for number, record in _with_rows(held)
        }
        if verdicts is not None or len({number for number, _, _ in announced}) < len({pair[:2] for pair in announced}):
            self._one_by_one(run, numbers, slices, of, verdicts)
            return
        for number, record, node in sorted(announced):
            self._announce(node, number, record)
        gathered, borders = [], []
        size = 0
        for held in slices:
            start, stop = int(held.starts[0]), int(held.stops[-1])
            base = int(held.offsets[start])
            gathered.append(held.data[base : int(held.offsets[stop])])
            borders.append(held.offsets[start:stop].astype(np.int64) - base + size)
            size += len(gathered[-1])
        maps = [held.view.numbers for held in slices]
        given = _Given(
            of.first,
            of.stop,
            of.source,
            numbers,
            run.nodes.astype(np.uint64) << np.uint64(NODE_BIT) | run.ends.astype(np.uint64),
            np.cumsum([0, *(len(own) for own, _ in maps)]),
            np.concatenate([own for own, _ in maps]),
            np.concatenate([numbered for _, numbered in maps]),
        )
        out, sizes = np.empty(size, np.uint8), np.empty(of.total, np.int32)
        data, offsets = np.concatenate(gathered), np.append(np.concatenate(borders), size)
        if _write_run(data, offsets, given, out, sizes) == _UNKNOWN:
            raise _unannounced()
        self._add(out, sizes)

    def _judge_run(self, run: LocalRun, slices: Sequence[Transactions], of: _Records) -> Array | None:
        if not any(held.view.has_scattered for held in slices):
            return None
        keys = [keys_of(rows.data, rows.offsets, rows.view) for rows in map(_all_rows, slices)]
        joined = RowKeys(*map(np.concatenate, zip(*keys, strict=True)))
        return self._late.judge(joined, of.first, of.stop, run.nodes)

    def _one_by_one(
        self, run: LocalRun, numbers: Array, slices: Sequence[Transactions], of: _Records, verdicts: Array | None
    ) -> None:
        """As `run`, where a table does not have one structure: it is announced before the rows of each transaction. `verdicts`: of all
        records; None: each is KEPT."""
        all_rows = [_all_rows(held) for held in slices]
        for k, number in enumerate(numbers.tolist()):
            source, first, stop = int(of.source[k]), int(of.first[k]), int(of.stop[k])
            base = int(of.bases[source])
            rows = all_rows[source].cut(first - base, stop - base)
            xid = int.from_bytes(rows.data[_XID_AT : _BEGIN.size].tobytes())
            begun = Numbered(number, int(run.nodes[k]), int(run.ends[k]), int(run.times_us[k]), xid)
            self.begin(begun, None)
            self._judged(rows, None, None if verdicts is None else verdicts[first:stop])
            self.commit(begun)

    def _announce(self, node: int, number: int, record: bytes) -> None:
        self._relation(self._relations.due(node, number, record))

    def _relation(self, record: bytes | None) -> None:
        if record is not None:
            for _ in range(apart(record)):
                self._record(_NO_TYPE)
            self._record(record)

    def _rows(self, rows: Rows, wanted: Array | None) -> None:
        verdicts = None
        if rows.view.has_scattered:
            keys = keys_of(rows.data, rows.offsets, rows.view)
            if wanted is not None:
                keys = RowKeys(keys.before * wanted, keys.after * wanted)
            one = np.array([rows.count])
            verdicts = self._late.judge(keys, np.zeros(1, np.int64), one, np.array([rows.view.node]))
        self._judged(rows, wanted, verdicts)

    def _judged(self, rows: Rows, wanted: Array | None, verdicts: Array | None) -> None:
        """Rows with their verdicts; None: each is KEPT."""
        if verdicts is not None and verdicts.any():
            for at in np.flatnonzero(verdicts == DOUBTFUL).tolist():
                oid = int.from_bytes(rows.data[rows.offsets[at] + 1 : rows.offsets[at] + 5].tobytes(), "big")
                self._relation(self._relations.reload(*rows.view.by_oid[oid], _ON_TWO_NODES))
            wanted = (verdicts == KEPT) if wanted is None else wanted & (verdicts == KEPT)
        truncates = np.flatnonzero(rows.types == _T_TRUNCATE).tolist()
        at = 0
        for each in truncates:
            self._plain_rows(rows.cut(at, each), None if wanted is None else wanted[at:each])
            if wanted is None or wanted[each]:
                self._truncate(rows.cut(each, each + 1))
            at = each + 1
        self._plain_rows(rows.cut(at, rows.count) if at else rows, None if wanted is None else wanted[at:])

    def _truncate(self, rows: Rows) -> None:
        """A record of one node that truncates tables: those that have rows on other nodes, too, have to be copied again."""
        record = rows.data.tobytes()
        _, oids = parse_truncate(record, streamed=False)
        if not set(oids) <= rows.view.by_oid.keys():
            raise _unannounced()
        single = []
        for number, announced in (rows.view.by_oid[oid] for oid in oids):
            if self._relations.is_single(announced):
                self._announce(rows.view.node, number, announced)
                single.append(number)
            else:
                self._relation(self._relations.reload(number, announced, _TRUNCATED))
        if single:
            self._record(struct.pack(f">cIB{len(single)}I", b"T", len(single), record[5], *single))

    def _plain_rows(self, rows: Rows, wanted: Array | None) -> None:
        """Rows without records that truncate."""
        own, numbers = rows.view.numbers
        out, sizes, tables = (
            np.empty(len(rows.data), np.uint8),
            np.empty(rows.count, np.int32),
            np.zeros(len(own), np.bool_),
        )
        chosen = _ALL if wanted is None else wanted
        written, size = _write_rows(rows.data, rows.offsets, _LEFT_OUT, chosen, own, numbers, out, sizes, tables)
        if written == _UNKNOWN:
            raise _unannounced()
        for oid in own[tables].tolist():
            self._announce(rows.view.node, *rows.view.by_oid[oid])
        self._add(out[:size], sizes[:written])

    def _record(self, record: bytes) -> None:
        self._add(np.frombuffer(record, np.uint8), np.array([len(record)], np.int32))

    def _add(self, data: Array, sizes: Array) -> None:
        self._data.append(data)
        self._sizes.append(sizes)
        self._records += len(sizes)
        self.bytes += len(data)


class _Records(NamedTuple):
    """The records of a run: those of all slices, one slice after another. By transaction in the order of the run, its records
    `[first, stop)` and its slice; `bases`: by slice, its first record; `total`: their number."""

    first: Array
    stop: Array
    source: Array
    bases: Array
    total: int

    @classmethod
    def of(cls, run: LocalRun, slices: Sequence[Transactions]) -> _Records:
        index = np.empty(len(run.nodes), np.int64)
        index[np.argsort(run.nodes, kind="stable")] = np.arange(len(run.nodes))
        bases = np.cumsum([0, *(int(held.stops[-1] - held.starts[0]) for held in slices)])
        first = np.concatenate([held.starts - held.starts[0] + base for held, base in zip(slices, bases, strict=False)])
        stop = np.concatenate([held.stops - held.starts[0] + base for held, base in zip(slices, bases, strict=False)])
        source = np.repeat(np.arange(len(slices)), [len(held.starts) for held in slices])
        return cls(first[index], stop[index], source[index], bases, int(bases[-1]))


def _all_rows(held: Transactions) -> Rows:
    """The records of a slice."""
    return Rows(held.view, held.data, held.offsets).cut(int(held.starts[0]), int(held.stops[-1]))


def _with_rows(held: Transactions) -> Iterator[tuple[int, bytes]]:
    """Number and record of each table of which there are rows."""
    own, _ = held.view.numbers
    rows = _all_rows(held)
    return (held.view.by_oid[int(oid)] for oid in _tables_in(rows.data, rows.offsets, own))


def _named_in(rows: Rows) -> set[int]:
    """The node's own numbers of the tables that records change or truncate."""
    own, _ = rows.view.numbers
    found = set(_tables_in(rows.data, rows.offsets, own).tolist())
    for each in np.flatnonzero(rows.types == _T_TRUNCATE).tolist():
        record = rows.data[rows.offsets[each] : rows.offsets[each + 1]].tobytes()
        found.update(parse_truncate(record, streamed=False)[1])
    return found & rows.view.by_oid.keys()


def _may_remove(parts: Sequence[Part]) -> bool:
    """Whether a record of these parts may leave no row with the key that its row had."""
    pieces = (piece.kept.read() for part in parts for piece in part.pieces)
    return any(may_remove(data, offsets.astype(np.int64)) for offsets, data in pieces)


def _keys_of(part: Part) -> RowKeys:
    found = RowKeys(np.zeros(part.count, np.uint64), np.zeros(part.count, np.uint64))
    for first, rows in part.rows():
        for column, keys in zip(found, keys_of(rows.data, rows.offsets, rows.view), strict=True):
            column[first : first + rows.count] = keys
    return found


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
    """Copy one record, with the table of a row renumbered; False if it is not known."""
    out[at : at + q - p] = data[p:q]
    if data[p] in (_T_INSERT, _T_UPDATE, _T_DELETE):
        return _renumber(out, at + 1, own, numbered, low, high)
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
            return _UNKNOWN, 0
        if data[p] in (_T_INSERT, _T_UPDATE, _T_DELETE):
            tables[np.searchsorted(own, _be32(data, p + 1))] = True
        sizes[record] = q - p
        record += 1
        at += q - p
    return record, at


@kernel
def _mark_tables(data: Array, offsets: Array, own: Array, found: Array) -> None:
    """Mark the tables of which there are rows."""
    for i in range(offsets.size - 1):
        p = offsets[i]
        if data[p] in (_T_INSERT, _T_UPDATE, _T_DELETE):
            oid = _be32(data, p + 1)
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


def warm() -> None:
    """Compile the kernels with which logs are read and merged."""
    frames.warm()
    own_rows.warm()
    column = AnnouncedColumn("id", identity=True, type_oid=23, modifier=-1)
    announced = Announced(RelationId(2), TableName("public", "warm"), ReplicaIdentity.DEFAULT, (column,))
    view = View(0, {1: (2, relation_record(announced))})
    own, numbers = view.numbers
    record = np.array(list(b"I\0\0\0\1N\0\1t\0\0\0\0011"), np.uint8)
    offsets = np.array([0, len(record)])
    late_rows.warm()
    may_remove(record, offsets)
    keys_of(record, offsets, view)
    _tables_in(record, offsets, own)
    out, sizes, tables = np.empty(len(record), np.uint8), np.empty(1, np.int32), np.zeros(1, np.bool_)
    _write_rows(record, offsets, _LEFT_OUT, _ALL, own, numbers, out, sizes, tables)
    none, number = np.zeros(1, np.int64), np.zeros(1, np.uint64)
    given = _Given(none, none, none, number, number, np.array([0, len(own)]), own, numbers)
    _write_run(record, offsets, given, out, sizes)
