"""Turns COPY text of recorded changes into chunks of records, without Python code for each row: for sources that shadow tables record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.model.control import ControlKind
from engine.model.identity import RelationId
from engine.model.position import Lsn
from engine.model.source import RecordChunk
from engine.platform.compiled import Array, copy_bytes, kernel
from engine.records.encode import DELETE, UNCHANGED, UPDATE, Places, begin_records, commit_records, encode_places
from engine.records.scan import find_controls

LEADING = 3
"""Fields before the values: the change's number, its transaction's id, its operation."""
_TAB, _NEWLINE, _BACKSLASH = ord("\t"), ord("\n"), ord("\\")
_LETTERS = np.zeros(256, np.uint8)
"""What follows a backslash in COPY text, by its byte; 0: the byte itself."""
for _letter, _byte in (("b", 8), ("t", 9), ("n", 10), ("v", 11), ("f", 12), ("r", 13)):
    _LETTERS[ord(_letter)] = _byte
_MOST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction of a window. `end`: its position; `time_us`: of its last change, since 1970."""

    id: int
    end: Lsn
    time_us: int


@dataclass(frozen=True, slots=True)
class Transactions:
    """Transactions in their order. `ids`: int64, of which the low 32 bits are sent; `ends`: uint64 positions; `times_us`: int64."""

    ids: Array
    ends: Array
    times_us: Array

    @staticmethod
    def of(listed: Sequence[Transaction]) -> Transactions:
        return Transactions(
            np.array([one.id for one in listed], np.int64),
            np.array([one.end.value for one in listed], np.uint64),
            np.array([one.time_us for one in listed], np.int64),
        )

    def ranks(self, ids: Array) -> Array:
        """The places of these ids in the order: int64."""
        by_id = np.argsort(self.ids)
        return by_id[np.searchsorted(self.ids, ids, sorter=by_id)]


@dataclass(frozen=True, slots=True)
class TableRows:
    """Records of changes of one table. `no`, `xid`: int64, for each row. `announcement`: the relation record to be sent before them, if the
    session has not sent it. `at`: change number and transaction where it is sent; None: before the first row."""

    no: Array
    xid: Array
    data: Array
    offsets: Array
    announcement: bytes | None = None
    at: tuple[int, int] | None = None


def rows_of(
    text: bytes, relation: RelationId, columns: int, keys: Sequence[int], *, whole: bool, announcement: bytes | None
) -> TableRows:
    """The records of COPY text: number, transaction id, operation, `columns` old values and as many new ones in each line.

    `keys`: places of the columns that identify a row; an old row is part of an update's record only if they differ. `whole`: it always is,
    with all its values (replica identity FULL).
    """
    cut = CopyLines.of(text, LEADING + 2 * columns)
    numbers = cut.numbers(2)
    olds = cut.starts[:, LEADING : LEADING + columns], cut.sizes[:, LEADING : LEADING + columns]
    news = cut.starts[:, LEADING + columns :], cut.sizes[:, LEADING + columns :]
    changes = Changes(numbers[0], numbers[1], cut.letters(2), cut.data, olds, news)
    return records_of(changes, relation, keys, whole=whole, announcement=announcement)


def partial_changes(text: bytes, columns: int, keys: Sequence[int]) -> Changes | None:
    """The updates of COPY text with changed values only: number, transaction id, `columns` new values, and for each a letter: `k` for the
    key, `u` for a value that is unchanged. None if one was recorded with another key than the columns at the places `keys`."""
    cut = CopyLines.of(text, 2 + 2 * columns)
    numbers = cut.numbers(2)
    letters = cut.data[cut.starts[:, 2 + columns :]]
    wanted = np.zeros(letters.shape, np.bool_)
    wanted[:, list(keys)] = True
    if ((letters == ord("k")) != wanted).any():
        return None
    starts, sizes = cut.starts[:, 2 : 2 + columns], cut.sizes[:, 2 : 2 + columns].copy()
    sizes[letters == ord("u")] = UNCHANGED
    olds = np.zeros(sizes.shape, np.int64), np.full(sizes.shape, -1, np.int64)
    updates = np.full(len(sizes), UPDATE, np.uint8)
    return Changes(numbers[0], numbers[1], updates, cut.data, olds, (starts, sizes), np.ones(len(sizes), np.bool_))


@dataclass(frozen=True, slots=True)
class CopyLines:
    """Lines of COPY text, unescaped. `starts`, `sizes`: int64, lines by fields: places in `data` (uint8); size -1 for NULL."""

    data: Array
    starts: Array
    sizes: Array

    @staticmethod
    def of(text: bytes, fields: int) -> CopyLines:
        """Raises ValueError if a line has another number of fields."""
        data = np.frombuffer(bytearray(text), np.uint8)
        count = int(np.count_nonzero(data == _NEWLINE))
        starts, sizes = np.empty(count * fields, np.int64), np.empty(count * fields, np.int64)
        if _cut(data, fields, _LETTERS, starts, sizes) != count * fields:
            raise ValueError("COPY text with an unexpected number of fields")
        return CopyLines(data, starts.reshape(count, fields), sizes.reshape(count, fields))

    def numbers(self, fields: int) -> Array:
        """The first fields of all lines, which are numbers: int64, fields by lines."""
        out = np.empty((fields, len(self.starts)), np.int64)
        _numbers(self.data, self.starts, self.sizes, out)
        return out

    def letters(self, field: int) -> Array:
        """A field of one byte: uint8, by line."""
        return self.data[self.starts[:, field]]


@dataclass(frozen=True, slots=True)
class Changes:
    """Recorded changes of one table, one for each row.

    `no`, `xid`: int64. `operations`: letters. `olds`, `news`: starts and sizes (int64, rows by columns) of the values in `data`, before and
    after the change. `partial` (bool): updates that did not change the key and have no old row; values of theirs may be UNCHANGED. None: no
    change is.
    """

    no: Array
    xid: Array
    operations: Array
    data: Array
    olds: tuple[Array, Array]
    news: tuple[Array, Array]
    partial: Array | None = None


def records_of(
    changes: Changes, relation: RelationId, keys: Sequence[int], *, whole: bool, announcement: bytes | None
) -> TableRows:
    """The records of these changes; the other arguments are those of `rows_of`."""
    columns = changes.news[0].shape[1]
    operations = changes.operations
    old_sizes = changes.olds[1].copy()
    news = Places(changes.data, *(np.ascontiguousarray(each).reshape(-1) for each in changes.news))
    olds = Places(changes.data, np.ascontiguousarray(changes.olds[0]).reshape(-1), old_sizes.reshape(-1))
    with_old = (operations == DELETE) | (operations == UPDATE)
    if changes.partial is not None:
        with_old &= ~changes.partial
    if not whole:
        _only_changed_keys(operations, columns, np.asarray(keys, np.int64), news, olds, with_old)
        others = np.ones(columns, np.bool_)
        others[list(keys)] = False
        old_sizes[:, others] = -1
    records, offsets = encode_places(relation, operations, columns, news, olds, with_old, whole=whole)
    return TableRows(changes.no, changes.xid, records, offsets, announcement)


@kernel
def _cut(data: Array, fields: int, letters: Array, starts: Array, sizes: Array) -> int:
    """Find the fields of all lines and unescape them in place. Returns how many there are, -1 if a line has another number of them."""
    found, at, out, start = 0, 0, 0, 0
    null = False
    while at < data.size:
        byte = data[at]
        if byte == _BACKSLASH:
            following = data[at + 1]
            at += 2
            if following == 78 and out == start:  # N
                null = True
                continue
            letter = letters[following]
            data[out] = letter if letter != 0 else following
            out += 1
            continue
        if byte in (_TAB, _NEWLINE):
            if found >= starts.size or (byte == _NEWLINE) != (found % fields == fields - 1):
                return -1
            starts[found] = start
            sizes[found] = -1 if null else out - start
            found += 1
            at += 1
            start, out, null = at, at, False
            continue
        data[out] = byte
        out += 1
        at += 1
    return found


@kernel
def _numbers(data: Array, starts: Array, sizes: Array, out: Array) -> None:
    for row in range(out.shape[1]):
        for field in range(out.shape[0]):
            value = 0
            for at in range(starts[row, field], starts[row, field] + sizes[row, field]):
                value = value * 10 + int(np.int64(data[at]) - 48)
            out[field, row] = value


@kernel
def _only_changed_keys(
    operations: Array, columns: int, keys: Array, news: Places, olds: Places, with_old: Array
) -> None:
    """Clear `with_old` for updates whose key values did not change."""
    for row in range(operations.size):
        if operations[row] != UPDATE or not with_old[row]:
            continue
        same = True
        for key in keys:
            place = row * columns + key
            size = news.sizes[place]
            if olds.sizes[place] != size:
                same = False
                break
            old, new = olds.starts[place], news.starts[place]
            for at in range(size):
                if olds.data[old + at] != news.data[new + at]:
                    same = False
                    break
            if not same:
                break
        if same:
            with_old[row] = False


def chunk_of(
    transactions: Transactions, tables: Sequence[TableRows], wal_end: Lsn, *, begins: bool, ends: bool
) -> RecordChunk:
    """Records of these transactions, each between BEGIN and COMMIT; none of those without rows.

    `begins`, `ends`: False if the only transaction has begun in an earlier chunk, or continues in a later one.
    """
    parts = [_Part(transactions.ranks(t.xid), 2 * t.no, t.data, np.diff(t.offsets)) for t in tables]
    parts += [_announcement(transactions, t, t.announcement) for t in tables if t.announcement is not None]
    has_rows = np.zeros(len(transactions.ids), np.bool_)
    for part in parts:
        has_rows[part.ranks] = True
    if not (begins and ends):
        has_rows[:] = True  # A part may have no rows of followed tables.
    used = np.flatnonzero(has_rows)
    at, times_us = transactions.ends[used], transactions.times_us[used]
    if begins:
        parts.append(_Part.of_records(used, -1, begin_records(at, transactions.ids[used], times_us)))
    if ends:
        parts.append(_Part.of_records(used, _MOST, commit_records(at, times_us)))
    return _joined(parts, wal_end)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some records of a chunk: their transactions by rank and their keys of order within these (int64), their bytes one after another, and
    sizes."""

    ranks: Array
    keys: Array
    data: Array
    sizes: Array

    @staticmethod
    def of_records(ranks: Array, key: int, records: Array) -> _Part:
        """`records`: uint8, records by bytes, each with the same key."""
        count, size = records.shape
        return _Part(ranks, np.full(count, key, np.int64), records.reshape(-1), np.full(count, size, np.int64))


def _announcement(transactions: Transactions, table: TableRows, record: bytes) -> _Part:
    if table.at is None:
        no, ranks = table.no, transactions.ranks(table.xid)
    else:
        no, ranks = np.array(table.at[:1], np.int64), transactions.ranks(np.array(table.at[1:], np.int64))
    first = np.lexsort((no, ranks))[:1]
    data = np.frombuffer(record if len(first) else b"", np.uint8)
    return _Part(ranks[first], 2 * no[first] - 1, data, np.full(len(first), len(record), np.int64))


def _joined(parts: Sequence[_Part], wal_end: Lsn) -> RecordChunk:
    none = np.empty(0, np.int64)
    sizes = np.concatenate([none, *(part.sizes for part in parts)])
    starts = np.cumsum(sizes) - sizes
    order = np.lexsort(
        (np.concatenate([none, *(part.keys for part in parts)]), np.concatenate([none, *(p.ranks for p in parts)]))
    )
    data = np.concatenate([np.empty(0, np.uint8), *(part.data for part in parts)])
    offsets = np.zeros(len(order) + 1, np.int32)
    np.cumsum(sizes[order], out=offsets[1:])
    gathered = np.empty(len(data), np.uint8)
    _gather(data, starts, sizes, order, gathered)
    controls, _ = find_controls(gathered, offsets, 0)
    at = controls["ordinal"][np.isin(controls["kind"], (ControlKind.RELATION, ControlKind.MESSAGE))].tolist()
    relations = {int(i): gathered[offsets[i] : offsets[i + 1]].tobytes() for i in at}
    return RecordChunk(gathered, offsets, controls, relations, wal_end)


@kernel
def _gather(data: Array, starts: Array, sizes: Array, order: Array, out: Array) -> None:
    at = 0
    for index in order:
        copy_bytes(data, starts[index], sizes[index], out, at)
        at += sizes[index]


def warm() -> None:
    """Compile or load every kernel of this module."""
    line = b"1\t2\tU\t1\tx\t1\ty\n"
    rows = rows_of(line, RelationId(1), 2, [0], whole=False, announcement=None)
    chunk_of(Transactions.of([Transaction(2, Lsn(1), 0)]), [rows], Lsn(1), begins=True, ends=True)
