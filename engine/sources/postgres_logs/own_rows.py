"""Rows by which transactions of a coordinator name the global transactions whose own parts they are."""

from __future__ import annotations

import numpy as np

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.source import RecordChunk
from engine.platform.compiled import Array, kernel
from engine.records.relation import parse_relation

_T_INSERT, _V_TEXT = ord("I"), ord("t")
_TUPLE_AT = 6
"""Bytes of an insert before its row: type, table, and a letter for the new row."""
_NO_TABLE = -1
"""In place of a table's number, which is never negative: it was not announced."""


class OwnRows:
    """Finds them in the records of one node. Used by one thread."""

    def __init__(self, table: TableName, column: str) -> None:
        self._table = table
        self._column = column
        self._oid = _NO_TABLE
        self._place = 0

    def announced(self, payload: bytes) -> None:
        """A relation record: it holds for the inserts after it.

        Raises EngineFault(OWN_TABLE_UNFIT) if it is that of the table, without the column.
        """
        found = parse_relation(payload)
        if found.name != self._table:
            if found.relation == self._oid:
                raise self._fault(f"it was renamed to {found.name}")
            return
        names = [column.name for column in found.columns]
        if self._column not in names:
            raise self._fault(f"it has no column {self._column} any more")
        self._oid, self._place = int(found.relation), names.index(self._column)

    def first(self, chunk: RecordChunk, start: int, stop: int) -> int:
        """The first of the records `[start, stop)` that inserts a row; `stop` if none does."""
        if self._oid == _NO_TABLE:
            return stop
        return int(_first(chunk.data, chunk.offsets, start, stop, self._oid))

    def id_in(self, chunk: RecordChunk, start: int, stop: int) -> bytes | None:
        """The id in the last row that the records `[start, stop)` insert; None if there is none, or NULL in each."""
        if self._oid == _NO_TABLE:
            return None
        begin, end = _last_id(chunk.data, chunk.offsets, start, stop, self._oid, self._place)
        return None if begin < 0 else chunk.data[begin:end].tobytes()

    def _fault(self, detail: str) -> EngineFault:
        return EngineFault(FaultKind.OWN_TABLE_UNFIT, str(self._table), detail)


@kernel
def _be32(data: Array, at: int) -> int:
    value = 0
    for place in range(4):
        value = value << 8 | int(np.int64(data[at + place]))
    return value


@kernel
def _first(data: Array, offsets: Array, start: int, stop: int, oid: int) -> int:
    for i in range(start, stop):
        p = offsets[i]
        if data[p] == _T_INSERT and _be32(data, p + 1) == oid:
            return i
    return stop


@kernel
def _last_id(data: Array, offsets: Array, start: int, stop: int, oid: int, place: int) -> tuple[int, int]:
    """Where the text of the column is in `data`; -1 if there is none."""
    begin, end = -1, -1
    for i in range(start, stop):
        p = offsets[i]
        if data[p] != _T_INSERT or _be32(data, p + 1) != oid:
            continue
        at = int(p) + _TUPLE_AT
        columns = int(np.int64(data[at])) << 8 | int(np.int64(data[at + 1]))
        at += 2
        for column in range(min(columns, place + 1)):
            is_text = data[at] == _V_TEXT
            at += 1
            size = 0
            if is_text:
                size = _be32(data, at)
                at += 4
            if column == place and is_text:
                begin, end = at, at + size
            at += size
    return begin, end


def warm() -> None:
    """Compile the kernels."""
    record = np.array(list(b"I\0\0\0\1N\0\1t\0\0\0\0011"), np.uint8)
    offsets = np.array([0, len(record)], np.int32)
    _first(record, offsets, 0, 1, 1)
    _last_id(record, offsets, 0, 1, 1, 0)
