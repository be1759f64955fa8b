"""Writes pgoutput messages as PostgreSQL sends them, for tests. Text format; `xid` other than 0 means inside a stream."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from enum import Enum

import numpy as np

PG_EPOCH_US = 946_684_800_000_000


class Mark(Enum):
    UNCHANGED = "~"


UNCHANGED = Mark.UNCHANGED
Value = str | None | Mark


def _xid(xid: int) -> bytes:
    return struct.pack(">I", xid) if xid else b""


def tuple_data(values: Sequence[Value]) -> bytes:
    parts = [struct.pack(">h", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif value is UNCHANGED:
            parts.append(b"u")
        else:
            raw = value.encode()
            parts.append(b"t" + struct.pack(">i", len(raw)) + raw)
    return b"".join(parts)


def begin(final_lsn: int, xid: int, time_us: int = PG_EPOCH_US) -> bytes:
    return b"B" + struct.pack(">QqI", final_lsn, time_us - PG_EPOCH_US, xid)


def commit(lsn: int, end: int, time_us: int = PG_EPOCH_US) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, end, time_us - PG_EPOCH_US)


def stream_start(xid: int, first: bool = True) -> bytes:
    return b"S" + struct.pack(">IB", xid, first)


def stream_stop() -> bytes:
    return b"E"


def stream_commit(xid: int, lsn: int, end: int, time_us: int = PG_EPOCH_US) -> bytes:
    return b"c" + struct.pack(">IBQQq", xid, 0, lsn, end, time_us - PG_EPOCH_US)


def stream_abort(xid: int, subxid: int) -> bytes:
    return b"A" + struct.pack(">II", xid, subxid)


def begin_prepare(lsn: int, end: int, xid: int, gid: bytes, time_us: int = PG_EPOCH_US) -> bytes:
    return b"b" + struct.pack(">QQqI", lsn, end, time_us - PG_EPOCH_US, xid) + gid + b"\0"


def prepare(lsn: int, end: int, xid: int, gid: bytes, time_us: int = PG_EPOCH_US) -> bytes:
    return b"P" + struct.pack(">BQQqI", 0, lsn, end, time_us - PG_EPOCH_US, xid) + gid + b"\0"


def commit_prepared(lsn: int, end: int, xid: int, gid: bytes, time_us: int = PG_EPOCH_US) -> bytes:
    return b"K" + struct.pack(">BQQqI", 0, lsn, end, time_us - PG_EPOCH_US, xid) + gid + b"\0"


def rollback_prepared(prepare_end: int, end: int, xid: int, gid: bytes, time_us: int = PG_EPOCH_US) -> bytes:
    """Prepared one second before it was rolled back."""
    times = time_us - PG_EPOCH_US - 1_000_000, time_us - PG_EPOCH_US
    return b"r" + struct.pack(">BQQqqI", 0, prepare_end, end, *times, xid) + gid + b"\0"


def relation(oid: int, columns: Sequence[str], xid: int = 0, key: Collection[str] = ()) -> bytes:
    body = b"".join(bytes([name in key]) + name.encode() + b"\0" + struct.pack(">Ii", 25, -1) for name in columns)
    return b"R" + _xid(xid) + struct.pack(">I", oid) + b"public\0t\0d" + struct.pack(">h", len(columns)) + body


def type_message(oid: int, xid: int = 0) -> bytes:
    return b"Y" + _xid(xid) + struct.pack(">I", oid) + b"public\0mood\0"


def insert(oid: int, values: Sequence[Value], xid: int = 0) -> bytes:
    return b"I" + _xid(xid) + struct.pack(">I", oid) + b"N" + tuple_data(values)


def update(
    oid: int, values: Sequence[Value], old: Sequence[Value] | None = None, kind: str = "O", xid: int = 0
) -> bytes:
    before = b"" if old is None else kind.encode() + tuple_data(old)
    return b"U" + _xid(xid) + struct.pack(">I", oid) + before + b"N" + tuple_data(values)


def delete(oid: int, old: Sequence[Value], kind: str = "O", xid: int = 0) -> bytes:
    return b"D" + _xid(xid) + struct.pack(">I", oid) + kind.encode() + tuple_data(old)


def truncate(oids: Sequence[int], xid: int = 0) -> bytes:
    return b"T" + _xid(xid) + struct.pack(f">IB{len(oids)}I", len(oids), 0, *oids)


def message(prefix: str, content: bytes, xid: int = 0) -> bytes:
    head = struct.pack(">BQ", 1, 0) + prefix.encode() + b"\0"
    return b"M" + _xid(xid) + head + struct.pack(">i", len(content)) + content


def pack(records: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """The records joined in order, and their borders, in the form that the queue keeps."""
    borders = np.zeros(len(records) + 1, np.int32)
    np.cumsum([len(record) for record in records], out=borders[1:])
    return np.frombuffer(b"".join(records), np.uint8), borders
