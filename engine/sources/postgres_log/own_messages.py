"""Finds messages that are for us in the log: those of the DDL capture, and markers of tickets."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.records.messages import XID_BYTES, read_marker, unstreamed
from engine.sources.postgres_log.ddl_capture import MOST_BYTES, PREFIX

HEAD = 10
"""Bytes before the prefix: type, flags and position; a transaction id stands behind the type where the message is streamed."""
_LENGTH = 4
_SHARED = np.frombuffer(b"penstock.", np.uint8)
_DDL = PREFIX.encode() + b"\0"
_LONGEST = len(_DDL) + _LENGTH + MOST_BYTES
_TRANSACTIONAL = 1

Array = npt.NDArray[Any]


def own_records(data: Array, offsets: Array, ordinals: Array, streamed: Array) -> dict[int, bytes]:
    """Which of these message records are for us, by ordinal, whole, and cut where they are longer than ours are.

    Args:
        data, offsets: records one behind the other and their borders. ordinals: of the message records among them, in order.
        streamed: for each of those, whether it carries a transaction id.
    """
    starts = offsets[ordinals].astype(np.int64)
    at = starts + HEAD + np.where(streamed, XID_BYTES, 0)
    long = np.flatnonzero(at + len(_SHARED) <= offsets[ordinals + 1])
    marked = (data[at[long, None] + np.arange(len(_SHARED))] == _SHARED).all(axis=1) & (
        data[at[long] - HEAD + 1] == _TRANSACTIONAL
    )
    found = {}
    for index in long[marked].tolist():
        ordinal = int(ordinals[index])
        stop = min(int(offsets[ordinal + 1]), int(at[index]) + _LONGEST)
        record = data[starts[index] : stop].tobytes()
        if _is_ours(record, XID_BYTES if streamed[index] else 0):
            found[ordinal] = record
    return found


def _is_ours(record: bytes, xid_bytes: int) -> bool:
    head = HEAD + xid_bytes
    if record.startswith(_DDL, head):
        return len(record) >= head + len(_DDL) + _LENGTH
    return read_marker(unstreamed(record) if xid_bytes else record) is not None
