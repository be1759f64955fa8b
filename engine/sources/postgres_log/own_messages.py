"""Finds the engine's own messages in the log: DDL messages and ticket markers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.records.messages import XID_BYTES, read_marker, unstreamed
from engine.sources.postgres_log.ddl_capture import MOST_BYTES, PREFIX

HEAD = 10
"""Bytes before the prefix: type (1), flags (1), LSN (8). In a streamed transaction a 4-byte transaction id follows the type."""
_LENGTH = 4
"""pgoutput's MESSAGE: bytes of the content's length, which follows the prefix."""
_SHARED = np.frombuffer(b"penstock.", np.uint8)
_DDL = PREFIX.encode() + b"\0"
_LONGEST = len(_DDL) + _LENGTH + MOST_BYTES
_TRANSACTIONAL = 1
"""pgoutput's MESSAGE: flag of a transactional message."""

Array = npt.NDArray[Any]


def own_records(data: Array, offsets: Array, ordinals: Array, streamed: Array) -> dict[int, bytes]:
    """The message records with one of our prefixes, by ordinal; truncated if longer than our messages can be.

    Args:
        data, offsets: concatenated records and their borders (count + 1). ordinals: indexes of the message records, ascending.
        streamed: for each message record, whether it carries a transaction id.
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
