"""Offset-only reading of PostgreSQL's pgoutput: control records of a chunk, and row changes of committed ranges.

Text format, protocol versions 2 to 4 with streaming 'on'. Inside a streamed transaction the messages R, Y, I, U, D, T
and M carry the id of the (sub)transaction that wrote them after the type byte. Values are not parsed; results are
offsets in the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from engine.model.batch import LogRange, TablePart
from engine.model.control import CONTROL_FIELDS, ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.ledger import LogTally, PartTally
from engine.model.source import ScannedChanges
from engine.platform.compiled import Array, inlined_kernel, kernel

_CONTROL_DTYPE = np.dtype(CONTROL_FIELDS)
_UNIX_SHIFT_US = 946_684_800_000_000
"""Microseconds from 1970-01-01 to 2000-01-01, PostgreSQL's epoch."""

_BEGIN, _COMMIT = int(ControlKind.BEGIN), int(ControlKind.COMMIT)
_STREAM_START, _STREAM_STOP = int(ControlKind.STREAM_START), int(ControlKind.STREAM_STOP)
_STREAM_COMMIT, _STREAM_ABORT = int(ControlKind.STREAM_COMMIT), int(ControlKind.STREAM_ABORT)
_RELATION, _TRUNCATE, _MESSAGE = int(ControlKind.RELATION), int(ControlKind.TRUNCATE), int(ControlKind.MESSAGE)
_BEGIN_PREPARE, _ROLLBACK_PREPARED = int(ControlKind.BEGIN_PREPARE), int(ControlKind.ROLLBACK_PREPARED)

_T_BEGIN, _T_COMMIT, _T_START, _T_STOP, _T_STREAM_COMMIT, _T_ABORT = (ord(c) for c in "BCSEcA")
_T_RELATION, _T_INSERT, _T_UPDATE, _T_DELETE, _T_TRUNCATE, _T_MESSAGE = (ord(c) for c in "RIUDTM")
_T_KEY, _T_OLD, _T_NEW = (ord(c) for c in "KON")
_V_NULL, _V_UNCHANGED, _V_TEXT = (ord(c) for c in "nut")

# pgoutput's BEGIN: type (1), final LSN (8), commit time (8), transaction id (4).
_SHORTEST_BEGIN = 21
_KIND_OF = np.zeros(256, np.uint8)
_SHORTEST = np.ones(256, np.int64)
for _type, _kind, _length in (
    (_T_BEGIN, _BEGIN, _SHORTEST_BEGIN),
    (_T_COMMIT, _COMMIT, 26),
    (_T_START, _STREAM_START, 6),
    (_T_STOP, _STREAM_STOP, 1),
    (_T_STREAM_COMMIT, _STREAM_COMMIT, 30),
    (_T_ABORT, _STREAM_ABORT, 9),
    (_T_RELATION, _RELATION, 9),
    (_T_TRUNCATE, _TRUNCATE, 6),
    (_T_MESSAGE, _MESSAGE, 15),
):
    _KIND_OF[_type] = _kind
    _SHORTEST[_type] = _length
# Types of two-phase streams. Each ends with the gid and a zero byte.
_TWO_PHASE_KIND_OF = _KIND_OF.copy()
for _letter, _kind, _length in (
    ("b", _BEGIN_PREPARE, 30),
    ("P", int(ControlKind.PREPARE), 31),
    ("K", int(ControlKind.COMMIT_PREPARED), 31),
    ("r", _ROLLBACK_PREPARED, 39),
):
    _TWO_PHASE_KIND_OF[ord(_letter)] = _kind
    _SHORTEST[ord(_letter)] = _length


@kernel
def _byte(data: Array, at: int) -> int:
    """One byte as a signed integer: numba turns sums of signed and unsigned 64-bit integers into floats."""
    return int(np.int64(data[at]))


@kernel
def _be16(data: Array, at: int) -> int:
    return _byte(data, at) << 8 | _byte(data, at + 1)


@kernel
def _be32(data: Array, at: int) -> int:
    return _be16(data, at) << 16 | _be16(data, at + 2)


@kernel
def _be64(data: Array, at: int) -> int:
    return _be32(data, at) << 32 | _be32(data, at + 4)


@kernel
def _count_controls(data: Array, offsets: Array, kind_of: Array) -> int:
    """Number of control records, or -1 - record where one is empty."""
    found = 0
    for i in range(offsets.size - 1):
        if offsets[i] >= offsets[i + 1]:
            return -1 - i
        if kind_of[data[offsets[i]]] != 0:
            found += 1
    return found


class _Controls(NamedTuple):
    kind: Array
    ordinal: Array
    xid: Array
    subxid: Array
    end_lsn: Array
    time_us: Array
    commit_lsn: Array


@kernel
def _fill_two_phase(data: Array, p: int, kind: int, at: int, out: _Controls) -> None:
    """Write the control record of a b, P, K or r record at `p`: its own position is the last one in it, its own time the last time."""
    end = p + (9 if kind == _BEGIN_PREPARE else 10)
    time = end + (16 if kind == _ROLLBACK_PREPARED else 8)
    out.xid[at] = _be32(data, time + 8)
    out.end_lsn[at] = _be64(data, end)
    out.time_us[at] = _be64(data, time) + _UNIX_SHIFT_US


@kernel
def _fill_controls(data: Array, offsets: Array, kind_of: Array, shortest: Array, stream: int, out: _Controls) -> int:
    """Write the control records; returns the transaction whose stream is open at the end, or -1 - record."""
    at, own = 0, 0
    for i in range(offsets.size - 1):
        p = offsets[i]
        kind = kind_of[data[p]]
        if stream != 0 and own == 0 and data[p] in (_T_INSERT, _T_UPDATE, _T_DELETE, _T_TRUNCATE):
            own = int(offsets[i + 1] - p >= 5 and _be32(data, p + 1) == stream)
        if kind == 0:
            continue
        if offsets[i + 1] - p < shortest[data[p]]:
            return -1 - i
        out.kind[at] = kind
        out.ordinal[at] = i
        if kind == _BEGIN:
            out.xid[at] = _be32(data, p + 17)
        elif kind == _COMMIT:
            out.commit_lsn[at] = _be64(data, p + 2)
            out.end_lsn[at] = _be64(data, p + 10)
            out.time_us[at] = _be64(data, p + 18) + _UNIX_SHIFT_US
        elif kind == _STREAM_START:
            stream, own = _be32(data, p + 1), 0
            out.xid[at] = stream
        elif kind == _STREAM_STOP:
            stream = 0
            out.subxid[at] = own
        elif kind == _STREAM_COMMIT:
            out.xid[at] = _be32(data, p + 1)
            out.end_lsn[at] = _be64(data, p + 14)
            out.time_us[at] = _be64(data, p + 22) + _UNIX_SHIFT_US
        elif kind == _STREAM_ABORT:
            out.xid[at] = _be32(data, p + 1)
            out.subxid[at] = _be32(data, p + 5)
        elif kind >= _BEGIN_PREPARE:
            _fill_two_phase(data, p, kind, at, out)
        else:
            out.xid[at] = stream
        at += 1
    return stream


def find_controls(data: Array, offsets: Array, in_stream_xid: int, *, two_phase: bool = False) -> tuple[Array, int]:
    """Pick the control records out of a chunk of raw records.

    Args:
        data: uint8, the concatenated records. offsets: int32 or int64 borders (count + 1).
        in_stream_xid: result of the previous call for the same session; 0 at its start.
        two_phase: records of prepared transactions are control records. Queues have no such records.

    Returns: a structured array of CONTROL_FIELDS, `ordinal` from 0 within the chunk, and the streamed transaction
        that is open after the last record (0 = none).

    Raises:
        EngineFault(LOG_UNREADABLE): a record is shorter than its kind allows.
    """
    kind_of = _TWO_PHASE_KIND_OF if two_phase else _KIND_OF
    count = _count_controls(data, offsets, kind_of)
    out = np.zeros(max(count, 0), _CONTROL_DTYPE)
    if count > 0:
        fields = _Controls(*(np.zeros(count, out.dtype[name]) for name, _ in CONTROL_FIELDS))
        in_stream_xid = _fill_controls(data, offsets, kind_of, _SHORTEST, in_stream_xid, fields)
        for (name, _), values in zip(CONTROL_FIELDS, fields, strict=True):
            out[name] = values
    if count < 0 or in_stream_xid < 0:
        raise _unreadable(-1 - min(count, in_stream_xid))
    return out, int(in_stream_xid)


class _Ranges(NamedTuple):
    """Per range: records `[low, high)` by index, streamed transaction and its commit time, end LSN, and its slice of `aborted` (sorted)."""

    low: Array
    high: Array
    xid: Array
    time_us: Array
    end: Array
    aborted_low: Array
    aborted_high: Array
    aborted: Array


class _Parts(NamedTuple):
    """Per part, in ascending order of oid. `version` counts relation records during the scan.

    `seen` is counted before the scan, from types and relations of the records only. `aborted`, `known`: changes that the scan leaves out,
    of rolled back subtransactions and of transactions at or before `after`.
    """

    oid: Array
    after: Array
    version: Array
    seen: Array
    aborted: Array
    known: Array


class _Out(NamedTuple):
    op: Array
    relation: Array
    version: Array
    new: Array
    old: Array
    old_kind: Array
    end: Array
    time_us: Array


@inlined_kernel
def _position(sorted_values: Array, low: int, high: int, value: int) -> int:
    """Index of `value` in `sorted_values[low:high]`, -1 if absent."""
    stop = high
    while low < high:
        middle = (low + high) >> 1
        if sorted_values[middle] < value:
            low = middle + 1
        else:
            high = middle
    if low < stop and sorted_values[low] == value:
        return low
    return -1


@kernel
def _count_changes(data: Array, offsets: Array, ranges: _Ranges, parts: _Parts) -> tuple[int, int]:
    """Count the changes of each part, TRUNCATE included. Returns the number of changes of other relations, and an upper bound of entries:
    one per record, and for each TRUNCATE one per relation that fits into the record."""
    total = 0
    other = 0
    last_oid = -1
    part = -1
    for r in range(ranges.low.size):
        skip = 5 if ranges.xid[r] != 0 else 1
        for i in range(ranges.low[r], ranges.high[r]):
            p, stop = offsets[i], offsets[i + 1]
            kind = data[p]
            first = p + skip
            named = 1
            if kind == _T_TRUNCATE:
                total += (stop - p) // 4
                if first + 5 > stop:
                    continue
                named = min(_be32(data, first), (stop - first - 5) // 4)
                first += 5
            elif kind in (_T_INSERT, _T_UPDATE, _T_DELETE):
                total += 1
            else:
                continue
            if first + 4 * named > stop:
                continue  # The scan refuses the record.
            for k in range(named):
                oid = _be32(data, first + 4 * k)
                if oid != last_oid:
                    part = _position(parts.oid, 0, parts.oid.size, oid)
                    last_oid = oid
                if part >= 0:
                    parts.seen[part] += 1
                else:
                    other += 1
    return other, total


@inlined_kernel
def _behind_tuple(data: Array, at: int, stop: int) -> int:
    """Offset of the end of the tuple at `at`, -1 if it does not end at or before `stop`."""
    if at + 2 > stop:
        return -1
    columns = _be16(data, at)
    at += 2
    for _ in range(columns):
        if at >= stop:
            return -1
        kind = data[at]
        at += 1
        if kind == _V_TEXT:
            if at + 4 > stop:
                return -1
            at += 4 + _be32(data, at)
        elif kind not in (_V_NULL, _V_UNCHANGED):
            return -1
    if at > stop:
        return -1
    return at


@inlined_kernel
def _row_change(data: Array, at: int, stop: int, kind: int, n: int, out: _Out) -> bool:
    """Record the offsets of the row change's images; its relation OID ends at `at`. False if the record is unreadable."""
    out.new[n] = -1
    out.old[n] = -1
    out.old_kind[n] = 0
    if at >= stop:
        return False
    mark = data[at]
    if kind != _T_INSERT and mark in (_T_KEY, _T_OLD):
        out.old[n] = at + 1
        out.old_kind[n] = 1 if mark == _T_KEY else 2
        at = _behind_tuple(data, at + 1, stop)
        if at < 0 or kind == _T_DELETE:
            out.op[n] = 3
            return at == stop
        if at >= stop:
            return False
        mark = data[at]
    if mark != _T_NEW or kind == _T_DELETE:
        return False
    out.op[n] = 1 if kind == _T_INSERT else 2
    out.new[n] = at + 1
    return _behind_tuple(data, at + 1, stop) == stop


@inlined_kernel
def _truncates(data: Array, at: int, stop: int, end: int, aborted: bool, parts: _Parts, n: int, out: _Out) -> int:
    """Write one entry for each relation of the TRUNCATE that is a part; returns the next free entry, -1 if unreadable."""
    if at + 5 > stop or at + 5 + 4 * _be32(data, at) > stop:
        return -1
    for k in range(_be32(data, at)):
        oid = _be32(data, at + 5 + 4 * k)
        part = _position(parts.oid, 0, parts.oid.size, oid)
        if part < 0:
            continue
        if aborted:
            parts.aborted[part] += 1
            continue
        if end <= parts.after[part]:
            parts.known[part] += 1
            continue
        out.op[n] = 4
        out.relation[n] = oid
        out.version[n] = parts.version[part]
        out.new[n] = -1
        out.old[n] = -1
        out.old_kind[n] = 0
        n += 1
    return n


@inlined_kernel
def _scan_range(
    data: Array, offsets: Array, r: int, ranges: _Ranges, parts: _Parts, n: int, out: _Out
) -> tuple[int, int]:
    """Append the changes of range `r`; returns (next free entry, -1) or (0, record) for an unreadable record."""
    begun = n
    last_oid = -1
    part = -1
    low, high = ranges.aborted_low[r], ranges.aborted_high[r]
    end = ranges.end[r]
    skip = 4 if ranges.xid[r] != 0 else 0
    for i in range(ranges.low[r], ranges.high[r]):
        p, stop = offsets[i], offsets[i + 1]
        kind = data[p]
        row = kind in (_T_INSERT, _T_UPDATE, _T_DELETE)
        if not row and kind not in (_T_RELATION, _T_TRUNCATE):
            if kind == _T_BEGIN and skip == 0 and stop - p == _SHORTEST_BEGIN:
                # A range may span a part's `after`, so each transaction is compared by its own commit. BEGIN carries the start of
                # the commit record, which is before `after` exactly if the commit's end is at or before `after`.
                end = np.uint64(_be64(data, p + 1) + 1)
            elif kind == _T_COMMIT and skip == 0:
                out.end[begun:n] = np.uint64(_be64(data, p + 10))
                out.time_us[begun:n] = _be64(data, p + 18) + _UNIX_SHIFT_US
                begun = n
            continue
        if stop - p < 5 + skip:
            return 0, i
        aborted = high > low and _position(ranges.aborted, low, high, _be32(data, p + 1)) >= 0
        if kind == _T_TRUNCATE:
            n = _truncates(data, p + 1 + skip, stop, end, aborted, parts, n, out)
            if n < 0:
                return 0, i
            continue
        oid = _be32(data, p + 1 + skip)
        if oid != last_oid:
            part = _position(parts.oid, 0, parts.oid.size, oid)
            last_oid = oid
        if part < 0:
            continue
        if kind == _T_RELATION:
            parts.version[part] += 1
        elif aborted:
            parts.aborted[part] += 1
        elif end <= parts.after[part]:
            parts.known[part] += 1
        else:
            if not _row_change(data, p + 5 + skip, stop, kind, n, out):
                return 0, i
            out.relation[n] = oid
            out.version[n] = parts.version[part]
            n += 1
    out.end[begun:n] = ranges.end[r]
    out.time_us[begun:n] = ranges.time_us[r]
    return n, -1


@kernel
def _scan_all(data: Array, offsets: Array, ranges: _Ranges, parts: _Parts, out: _Out) -> tuple[int, int]:
    n = 0
    for r in range(ranges.low.size):
        n, bad = _scan_range(data, offsets, r, ranges, parts, n, out)
        if bad >= 0:
            return 0, bad
    return n, -1


class RecordScanner:
    """`model.source.Scanner` for pgoutput. Stateless; one object may serve any number of threads."""

    def scan(
        self, data: Any, offsets: Any, first: Any, ranges: Sequence[LogRange], parts: Sequence[TablePart]
    ) -> ScannedChanges:
        """Find the changes of `parts` in committed order; see `model.source.Scanner`.

        Raises:
            EngineFault(QUEUE_CORRUPT): a record of a range is missing in `data`.
            EngineFault(LOG_UNREADABLE): a record does not have the format of its type byte.
        """
        places = _locate(first, ranges)
        sorted_parts = sorted(parts, key=lambda part: part.versions[0].relation)
        targets = _Parts(
            np.array([part.versions[0].relation for part in sorted_parts], np.int64),
            np.array([part.after.value for part in sorted_parts], np.uint64),
            np.zeros(len(sorted_parts), np.int32),
            *(np.zeros(len(sorted_parts), np.int64) for _ in range(3)),
        )
        other, most = _count_changes(data, offsets, places, targets)
        kinds = (np.uint8, np.uint32, np.int32, np.int64, np.int64, np.uint8, np.uint64, np.int64)
        out = _Out(*(np.empty(most, kind) for kind in kinds))
        found, bad = _scan_all(data, offsets, places, targets, out)
        if bad >= 0:
            raise _unreadable(int(first[bad]))
        columns: list[Any] = [column[:found] for column in out]
        writers = _writers(data, offsets, places)
        return replace(ScannedChanges(data, *columns), xids=writers, tally=_tally(sorted_parts, targets, other))


def _tally(parts: Sequence[TablePart], counted: _Parts, other: int) -> LogTally:
    tables = {
        parts[n].table: PartTally(int(counted.seen[n]), int(counted.aborted[n]), int(counted.known[n]))
        for n in np.flatnonzero(counted.seen + counted.aborted + counted.known).tolist()
    }
    return LogTally(tables, other)


def _locate(first: Array, ranges: Sequence[LogRange]) -> _Ranges:
    """Translate ordinals to record indices, and concatenate the aborted transactions of all ranges in one array."""
    starts = np.array([r.start for r in ranges], np.int64)
    stops = np.array([r.stop for r in ranges], np.int64)
    low, high = np.searchsorted(first, starts), np.searchsorted(first, stops)
    lost = np.flatnonzero(high - low != stops - starts)
    if lost.size:
        raise EngineFault(FaultKind.QUEUE_CORRUPT, "queue", f"records of the range at {starts[lost[0]]} are missing")
    places: dict[frozenset[int], tuple[int, int]] = {}
    flat: list[int] = []
    for r in ranges:
        if r.aborted not in places:
            places[r.aborted] = (len(flat), len(flat) + len(r.aborted))
            flat.extend(sorted(r.aborted))
    return _Ranges(
        low,
        high,
        np.array([r.xid for r in ranges], np.int64),
        np.array([r.time_us for r in ranges], np.int64),
        np.array([r.end.value for r in ranges], np.uint64),
        np.array([places[r.aborted][0] for r in ranges], np.int64),
        np.array([places[r.aborted][1] for r in ranges], np.int64),
        np.array(flat, np.int64),
    )


@kernel
def _note_writers(data: Array, offsets: Array, low: int, high: int, found: Array) -> int:
    """Write the transaction ids of row changes to `found`, consecutive equal ones once; returns the number written."""
    count = 0
    for i in range(low, high):
        if data[offsets[i]] in (_T_INSERT, _T_UPDATE, _T_DELETE, _T_TRUNCATE):
            xid = _be32(data, offsets[i] + 1)
            if count == 0 or found[count - 1] != xid:
                found[count] = xid
                count += 1
    return count


def _writers(data: Array, offsets: Array, ranges: _Ranges) -> frozenset[int]:
    """The (sub)transactions that wrote rows in the streamed ranges. The records must have been scanned already."""
    writers: set[int] = set()
    for r in np.flatnonzero(ranges.xid != 0).tolist():
        low, high = int(ranges.low[r]), int(ranges.high[r])
        found = np.empty(high - low, np.int64)
        writers.update(np.unique(found[: _note_writers(data, offsets, low, high, found)]).tolist())
    return frozenset(writers)


def _unreadable(record: int) -> EngineFault:
    return EngineFault(FaultKind.LOG_UNREADABLE, "log", f"record {record} is not a message of the expected form")


def warm() -> None:
    """Compile or load every kernel of this module, for writable and for read-only buffers."""
    data, scanner = np.frombuffer(b"E", np.uint8), RecordScanner()
    for buffer in (data, data.copy()):
        for width in (np.int32, np.int64):
            find_controls(buffer, np.array([0, 1], width), 0)
        scanner.scan(buffer, np.array([0, 1], np.int64), np.zeros(1, np.int64), (), ())
        _note_writers(buffer, np.array([0, 1], np.int64), 0, 1, np.empty(1, np.int64))
