"""Writes released transactions as records of the merged log: plain transactions, one after another, with the merged log's own positions."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.merged_logs import NODE_BIT, LogsMessage
from engine.model.schema import ReplicaIdentity
from engine.model.ticket import TicketMarker
from engine.platform.compiled import Array
from engine.records import two_phase
from engine.records.messages import logs_record, marker_record, parse_truncate
from engine.records.relation import Announced, AnnouncedColumn, apart, relation_record
from engine.sort.merge_records import LocalRun
from engine.sources.postgres import frames
from engine.sources.postgres_logs import late_rows, merged_records, own_rows
from engine.sources.postgres_logs.late_rows import DOUBTFUL, KEPT, LateRows
from engine.sources.postgres_logs.merged_records import (
    BEGIN_BYTES,
    LEFT_OUT,
    UNKNOWN,
    XID_AT,
    Frames,
    Numbered,
    Ranges,
    Whole,
    begin_record,
    commit_record,
    joined,
    mark_tables,
    tables_of,
    write_rows,
    write_run,
    write_wholes,
)
from engine.sources.postgres_logs.moved_rows import RowKeys, keys_of, may_remove, put_first, removed
from engine.sources.postgres_logs.node_log import NodeLog
from engine.sources.postgres_logs.parts import Bundled, Part, Rows, Transactions
from engine.sources.postgres_logs.relations import Relations, ScatteredTables, View, Why

_T_TRUNCATE = ord("T")
_TRUNCATED = Why(FaultKind.TABLE_STRUCTURE_CHANGED, "it was truncated on one of its nodes")
_ON_TWO_NODES = Why(FaultKind.TABLE_STRUCTURE_CHANGED, "two nodes had a row with the same key")
_NO_TYPE = b"Y" + bytes(6)
"""A type record that describes no type."""
_ALL = np.empty(0, np.bool_)
"""In place of which records are written: all."""


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
        self._wholes: list[Whole] = []
        """Those that are written together, by `settle`."""
        self._batch: tuple[_Batch, int] | None = None
        """The batch that is being written, and its first transaction that follows what is."""
        self.bytes = 0
        """Bytes of the records that were not taken."""

    def take(self) -> tuple[Array, Array, list[int]]:
        """The records: uint8 data, their borders (int32), and which of them are messages of this writer. Messages of users may look so."""
        self.settle()
        data = np.concatenate([*self._data, np.empty(0, np.uint8)])
        sizes = np.concatenate([*self._sizes, np.empty(0, np.int32)])
        offsets = np.zeros(len(sizes) + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        messages = self._messages
        self._data, self._sizes, self._messages, self.bytes, self._records = [], [], [], 0, 0
        return data, offsets, messages

    def begin(self, at: Numbered, message: LogsMessage | None) -> None:
        """Begin a transaction; `message`: what it says of the logs."""
        self.settle()
        self._record(begin_record(at))
        if message is not None:
            self._messages.append(self._records)
            self._record(logs_record(message))

    def marker(self, marker: TicketMarker) -> None:
        """Write a ticket's marker, in the transaction that has begun."""
        self._messages.append(self._records)
        self._record(marker_record(marker))

    def commit(self, at: Numbered) -> None:
        """End a transaction."""
        self._record(commit_record(at))

    def whole(self, at: Numbered, message: LogsMessage | None, parts: Sequence[Bundled]) -> None:
        """Write a transaction of small parts, as `begin`, `parts` and `commit` do, and drop them. Many cost less one after another."""
        self._wholes.append(Whole(at, message, tuple(parts)))
        self.bytes += sum(part.size for part in parts)

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
        self.settle()
        taken = {
            node: list(self._logs[node].take_runs(run.places[run.nodes == node]))
            for node in np.unique(run.nodes).tolist()
        }
        slices = [one for each in taken.values() for one in each]
        of = _Records.of(run, slices)
        verdicts = self._judge_run(run, slices, of)
        ranges = Ranges(of.first, of.stop, of.source, *tables_of([held.view for held in slices]))
        data, offsets = joined([(held.data, held.offsets, int(held.starts[0]), int(held.stops[-1])) for held in slices])
        if verdicts is not None or not self._announce_all([held.view for held in slices], ranges, data, offsets):
            self._one_by_one(run, numbers, slices, of, verdicts)
            return
        marks = run.nodes.astype(np.uint64) << np.uint64(NODE_BIT) | run.ends.astype(np.uint64)
        out, sizes = np.empty(len(data), np.uint8), np.empty(of.total, np.int32)
        if write_run(data, offsets, ranges, numbers, marks, out, sizes) == UNKNOWN:
            raise _unannounced()
        self._add(out, sizes)

    def _announce_all(self, views: Sequence[View], ranges: Ranges, data: Array, offsets: Array) -> bool:
        """Announce the tables of which the ranges have rows. False, and nothing is announced, if one of them has several structures."""
        if all(self._relations.is_last(*pair) for view in views for pair in view.records):
            return True
        found = np.zeros(len(ranges.own), np.bool_)
        mark_tables(data, offsets, ranges, found)
        sources = np.searchsorted(ranges.lows, np.flatnonzero(found), side="right") - 1
        announced = set()
        for source, oid in zip(sources.tolist(), ranges.own[found].tolist(), strict=True):
            announced.add((*views[source].by_oid[oid], views[source].node))
        if len({number for number, _, _ in announced}) < len({pair[:2] for pair in announced}):
            return False
        for number, record, node in sorted(announced):
            self._announce(node, number, record)
        return True

    def settle(self) -> None:
        """Write what `whole` was called with. It has to be before LateRows hears that the nodes are merged so far."""
        if not self._wholes:
            return
        wholes, self._wholes = self._wholes, []
        parts = [part for whole in wholes for part in whole.parts]
        self.bytes -= sum(part.size for part in parts)
        views, ranges, data, offsets = _gathered(parts)
        keys = _keys_of_all(views, ranges, data, offsets) if any(view.has_scattered for view in views) else None
        borders = np.cumsum([0, *(len(whole.parts) for whole in wholes)])
        batch = _Batch(wholes, borders, views, ranges, data, offsets, keys)
        at = 0
        for one in [*batch.with_leaving(), len(wholes)]:
            if one > at:
                self._batch = batch, one
                self._straight(batch, at, one)
            if one < len(wholes):
                self._batch = batch, one + 1
                self._reordered(wholes[one])
            at = one + 1
        self._batch = None
        for part in parts:
            self._logs[part.bundle.view.node].drop_bundled(part)

    def _straight(self, batch: _Batch, first: int, stop: int) -> None:
        """Transactions `[first, stop)` of a batch, the parts of each one after another."""
        low, high = int(batch.borders[first]), int(batch.borders[stop])
        ranges = batch.ranges.cut(low, high)
        verdicts = None
        if batch.keys is not None:
            nodes = np.array([view.node for view in batch.views])[ranges.source]
            verdicts = self._late.judge(batch.keys, ranges.first, ranges.stop, nodes, self._following)
        if verdicts is not None or not self._announce_all(batch.views, ranges, batch.data, batch.offsets):
            for number in range(first, stop):
                self._judged_whole(batch, number, verdicts)
            return
        frames = Frames.of(batch.wholes[first:stop], batch.borders[first : stop + 1] - low)
        size = int((batch.offsets[ranges.stop] - batch.offsets[ranges.first]).sum()) + len(frames.data)
        out = np.empty(size, np.uint8)
        sizes = np.empty(int((ranges.stop - ranges.first).sum()) + len(frames.offsets), np.int32)
        begins = np.empty(stop - first, np.int64)
        written, size = write_wholes(batch.data, batch.offsets, LEFT_OUT, ranges, frames, out, sizes, begins)
        if written == UNKNOWN:
            raise _unannounced()
        messages = (at for at, whole in zip(begins.tolist(), batch.wholes[first:stop], strict=True) if whole.message)
        self._messages.extend(self._records + at + 1 for at in messages)
        self._add(out[:size], sizes[:written])

    def _judged_whole(self, batch: _Batch, number: int, verdicts: Array | None) -> None:
        whole = batch.wholes[number]
        self.begin(whole.at, whole.message)
        for at in range(int(batch.borders[number]), int(batch.borders[number + 1])):
            first, stop = int(batch.ranges.first[at]), int(batch.ranges.stop[at])
            rows = Rows(batch.views[int(batch.ranges.source[at])], batch.data, batch.offsets).cut(first, stop)
            self._judged(rows, None, None if verdicts is None else verdicts[first:stop])
        self.commit(whole.at)

    def _reordered(self, whole: Whole) -> None:
        """A transaction whose parts may move rows between nodes."""
        self.begin(whole.at, whole.message)
        rows = [part.rows() for part in whole.parts]
        firsts = put_first([keys_of(each.data, each.offsets, each.view) for each in rows])
        for each, first in zip(rows, firsts, strict=True) if firsts is not None else ():
            self._rows(each, first)
        for number, each in enumerate(rows):
            self._rows(each, None if firsts is None else ~firsts[number])
        self.commit(whole.at)

    def _judge_run(self, run: LocalRun, slices: Sequence[Transactions], of: _Records) -> Array | None:
        if not any(held.view.has_scattered for held in slices):
            return None
        keys = [keys_of(rows.data, rows.offsets, rows.view) for rows in map(_all_rows, slices)]
        joined = RowKeys(*map(np.concatenate, zip(*keys, strict=True)))
        return self._late.judge(joined, of.first, of.stop, run.nodes, self._following)

    def _following(self) -> list[Array]:
        """By node, the keys with which it removes rows by what is not written yet."""
        found = [[log.removed()] for log in self._logs]
        for node, keys in () if self._batch is None else self._batch[0].removed_from(self._batch[1]):
            found[node].append(keys)
        return [np.concatenate(each) for each in found]

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
            xid = int.from_bytes(rows.data[XID_AT:BEGIN_BYTES].tobytes())
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
            verdicts = self._late.judge(keys, np.zeros(1, np.int64), one, np.array([rows.view.node]), self._following)
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
        written, size = write_rows(rows.data, rows.offsets, LEFT_OUT, chosen, own, numbers, out, sizes, tables)
        if written == UNKNOWN:
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


class _Batch(NamedTuple):
    """Transactions that are written together. `borders`: by transaction, its first range (count + 1); `keys`: of all records, None if no
    table has rows of several nodes."""

    wholes: Sequence[Whole]
    borders: Array
    views: Sequence[View]
    ranges: Ranges
    data: Array
    offsets: Array
    keys: RowKeys | None

    def removed_from(self, first: int) -> Iterator[tuple[int, Array]]:
        """By range of the transactions from `first` on, its node, and the keys of rows that it removes."""
        if self.keys is not None:
            for at in range(int(self.borders[first]), int(self.borders[-1])):
                records = slice(int(self.ranges.first[at]), int(self.ranges.stop[at]))
                keys = removed(RowKeys(self.keys.before[records], self.keys.after[records]))
                yield self.views[int(self.ranges.source[at])].node, keys

    def with_leaving(self) -> list[int]:
        """The transactions of several parts that may leave no row with a key that a row had."""
        if self.keys is None:
            return []
        leaving = np.cumsum(np.append(0, (self.keys.before != 0) & (self.keys.before != self.keys.after)))
        by_range = np.append(0, np.cumsum(leaving[self.ranges.stop] > leaving[self.ranges.first]))
        found = by_range[self.borders[1:]] > by_range[self.borders[:-1]]
        return np.flatnonzero(found & (np.diff(self.borders) > 1)).tolist()


def _gathered(parts: Sequence[Bundled]) -> tuple[list[View], Ranges, Array, Array]:
    """The records of parts, joined, with a range for each part in their order."""
    bundles = {id(part.bundle): part.bundle for part in parts}
    places = {each: place for place, each in enumerate(bundles)}
    source = np.array([places[id(part.bundle)] for part in parts])
    first, stop = np.array([part.first for part in parts]), np.array([part.stop for part in parts])
    slices, base = [], 0
    for place, bundle in enumerate(bundles.values()):
        mine = source == place
        low, high = int(first[mine].min()), int(stop[mine].max())
        offsets, data = bundle.kept.read()
        slices.append((data, offsets, low, high))
        first[mine] += base - low
        stop[mine] += base - low
        base += high - low
    views = [bundle.view for bundle in bundles.values()]
    return views, Ranges(first, stop, source, *tables_of(views)), *joined(slices)


def _keys_of_all(views: Sequence[View], ranges: Ranges, data: Array, offsets: Array) -> RowKeys:
    """The keys of all records."""
    found = RowKeys(np.zeros(len(offsets) - 1, np.uint64), np.zeros(len(offsets) - 1, np.uint64))
    for place, view in enumerate(views):
        mine = ranges.source == place
        low, high = int(ranges.first[mine].min()), int(ranges.stop[mine].max())
        for column, keys in zip(found, keys_of(data, offsets[low : high + 1], view), strict=True):
            column[low:high] = keys
    return found


def _all_rows(held: Transactions) -> Rows:
    """The records of a slice."""
    return Rows(held.view, held.data, held.offsets).cut(int(held.starts[0]), int(held.stops[-1]))


def _named_in(rows: Rows) -> set[int]:
    """The node's own numbers of the tables that records change or truncate."""
    found = set(_tables_in(rows).tolist())
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


def _tables_in(rows: Rows) -> Array:
    """The own numbers of tables of which there are rows."""
    lows, own, numbered = tables_of([rows.view])
    found, first = np.zeros(len(own), np.bool_), np.zeros(1, np.int64)
    ranges = Ranges(first, np.array([rows.count]), first, lows, own, numbered)
    mark_tables(rows.data, rows.offsets, ranges, found)
    return own[found]


def _unannounced() -> EngineFault:
    return EngineFault(FaultKind.LOG_UNREADABLE, "merge", "a node sent rows of a table that it had not announced")


def warm() -> None:
    """Compile the kernels with which logs are read and merged."""
    frames.warm()
    own_rows.warm()
    two_phase.warm()
    column = AnnouncedColumn("id", identity=True, type_oid=23, modifier=-1)
    announced = Announced(RelationId(2), TableName("public", "warm"), ReplicaIdentity.DEFAULT, (column,))
    view = View(0, {1: (2, relation_record(announced))}, ScatteredTables({2: (column.name,)}))
    record = np.array(list(b"I\0\0\0\1N\0\1t\0\0\0\0011"), np.uint8)
    offsets = np.array([0, len(record)])
    late_rows.warm()
    may_remove(record, offsets)
    keys_of(record, offsets, view)
    merged_records.warm(view, record, offsets)
