"""Cuts the byte stream of the replication protocol into log records. Pure; works on offsets and copies the payload once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.platform.compiled import Array, copy_bytes, inlined_kernel, kernel

MESSAGE_HEADER = 5
"""Type byte and length of a protocol message; the length counts itself."""
_COPY_DATA, _XLOG_DATA, _KEEPALIVE = ord("d"), ord("w"), ord("k")
# PostgreSQL's replication protocol: XLogData header, 1 + 8 + 8 + 8 bytes; primary keepalive message, 1 + 8 + 8 + 1 bytes.
_XLOG_HEADER = 25
_KEEPALIVE_BYTES = 18

MALFORMED = -1
"""In the place of a message type, which is a byte, so never negative."""


@inlined_kernel
def _number(buffer: Array, at: int, size: int) -> Any:
    value = np.int64(0)
    for i in range(size):
        value = value << np.int64(8) | np.int64(buffer[at + i])
    return value


@kernel
def _measure(buffer: Array, filled: int, most_bytes: int) -> tuple[int, int, int, int]:
    """Count of records, their bytes, offset of the end of the last whole CopyData message, and the type of the message after them."""
    at, records, size, other = 0, 0, 0, 0
    while at + MESSAGE_HEADER <= filled:
        length = _number(buffer, at + 1, 4)
        if length < 4:
            other = MALFORMED
            break
        end = at + 1 + length
        if end > filled:
            break
        if buffer[at] != _COPY_DATA:
            other = int(buffer[at])
            break
        if length < 5:
            other = MALFORMED
            break
        kind = buffer[at + MESSAGE_HEADER]
        payload = end - at - MESSAGE_HEADER
        if kind == _XLOG_DATA and payload > _XLOG_HEADER:
            if records > 0 and size + payload - _XLOG_HEADER > most_bytes:
                break
            records += 1
            size += payload - _XLOG_HEADER
        elif kind != _KEEPALIVE or payload != _KEEPALIVE_BYTES:
            other = MALFORMED
            break
        at = end
    return records, size, at, other


@kernel
def _copy(buffer: Array, stop: int, data: Array, offsets: Array) -> tuple[int, int, int]:
    """Copy the records of `buffer[:stop]`. Returns the highest position, the last send time, and whether the server wants a reply."""
    at, out, record = 0, 0, 0
    highest: Any = np.int64(0)
    sent: Any = np.int64(0)
    asked = 0
    offsets[0] = 0
    while at < stop:
        end = at + 1 + _number(buffer, at + 1, 4)
        body = at + MESSAGE_HEADER
        if buffer[body] == _XLOG_DATA:
            first = body + _XLOG_HEADER
            size = end - first
            copy_bytes(buffer, first, size, data, out)
            out += size
            record += 1
            offsets[record] = out
            sent = _number(buffer, body + 17, 8)
            highest = max(highest, _number(buffer, body + 1, 8), _number(buffer, body + 9, 8))
        else:
            sent = _number(buffer, body + 9, 8)
            asked |= int(buffer[body + 17])
            highest = max(highest, _number(buffer, body + 1, 8))
        at = end
    return highest, sent, asked


class Frames(NamedTuple):
    """Result of `cut`. `consumed`: bytes of the input that were processed. `other`: type of the next whole message if it is not CopyData,
    0 for none, MALFORMED for bytes that are no message. `wal_end` and `sent_us` are 0 if no message carried them."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int32]
    consumed: int
    other: int
    wal_end: int
    sent_us: int
    answer_asked: bool


def cut(buffer: Array, filled: int, most_bytes: int) -> Frames:
    """Log records of the whole messages in `buffer[:filled]`: at most `most_bytes` in total, or one record that is larger."""
    records, size, consumed, other = _measure(buffer, filled, most_bytes)
    data = np.empty(size, np.uint8)
    offsets = np.empty(records + 1, np.int32)
    highest, sent, asked = _copy(buffer, consumed, data, offsets)
    return Frames(data, offsets, consumed, other, int(highest), int(sent), bool(asked))


@kernel
def _strip(buffer: Array, filled: int, out: Array) -> tuple[int, int, int]:
    at, size, other = 0, 0, 0
    while at + MESSAGE_HEADER <= filled:
        length = _number(buffer, at + 1, 4)
        if length < 4:
            other = MALFORMED
            break
        end = at + 1 + length
        if end > filled:
            break
        if buffer[at] != _COPY_DATA:
            other = int(buffer[at])
            break
        body = at + MESSAGE_HEADER
        copy_bytes(buffer, body, end - body, out, size)
        size += end - body
        at = end
    return size, at, other


def copy_lines(buffer: Array, filled: int) -> tuple[bytes, int, int]:
    """COPY output in the whole messages of `buffer[:filled]`: the bytes, `consumed` and `other` as in Frames."""
    out = np.empty(filled, np.uint8)
    size, consumed, other = _strip(buffer, filled, out)
    return out[:size].tobytes(), int(consumed), int(other)


def error_fields(body: bytes) -> dict[str, str]:
    """Fields of an ErrorResponse or NoticeResponse by their letter: `C` the SQLSTATE, `V` the severity, `M` the message."""
    fields: dict[str, str] = {}
    for part in body.split(b"\0"):
        if part:
            fields[chr(part[0])] = part[1:].decode("utf-8", "replace")
    return fields


def warm() -> None:
    """Compile the kernels that numba's cache does not hold yet."""
    cut(np.zeros(16, np.uint8), 0, 1)
    copy_lines(np.zeros(16, np.uint8), 0)
