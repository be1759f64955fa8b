"""Reads a query's single column as lines of COPY text, without Python code for each row."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pymysql.err
from pymysql.constants import COMMAND

from engine.model.fault import EngineFault, FaultKind
from engine.platform.compiled import Array, copy_bytes, kernel
from engine.sources.mariadb.connect import MariaDbConnection

PIECE_BYTES = 256 * 1024
"""Least bytes of whole lines that are handed on at once. Not measured."""
_HEAD = 4
"""Bytes of a packet's head: length, and number."""
_SPLIT = 0xFFFFFF
"""Length of a packet that another one continues."""
_MORE, _END, _ERROR, _NULL, _LONG = range(5)
"""Why the kernel stopped: it needs more bytes, the rows are over, an error, a row that is NULL, a row of several packets."""


def read_lines(connection: MariaDbConnection, query: str) -> Iterator[bytes]:
    """The rows of a query with one column of text, each as a line, in pieces of whole lines. If the caller stops early, the session must be
    closed.

    Raises EngineFault(VALUE_OUT_OF_DOMAIN) at the end if a row was too large for the server to print.
    """
    connection._execute_command(COMMAND.COM_QUERY, query.encode())
    head = connection._read_packet()
    for _ in range(head.read_length_encoded_integer()):
        connection._read_packet()
    connection._read_packet()  # the end of the columns
    source, buffer, filled = connection._rfile, np.empty(2 * PIECE_BYTES, np.uint8), 0
    held: list[bytes] = []
    size, too_large = 0, False
    while True:
        out = np.empty(filled, np.uint8)
        consumed, written, state = _take(buffer[:filled], out)
        if written:
            held.append(out[:written].tobytes())
            size += written
        buffer, filled = _moved(buffer, filled, consumed)
        if state == _LONG:
            line, buffer, filled = _long_line(source, buffer, filled)
            held.append(line)
            size += len(line)
        elif state == _ERROR:
            raise _refusal(buffer[:filled].tobytes()[_HEAD:])
        elif state == _NULL:
            too_large = True
            buffer, filled = _moved(buffer, filled, _HEAD + 1)
        if too_large:
            held, size = [], 0
        if size >= PIECE_BYTES or (state == _END and held):
            yield b"".join(held)
            held, size = [], 0
        if state == _END and too_large:
            raise EngineFault(
                FaultKind.VALUE_OUT_OF_DOMAIN, "a row", "it is larger than max_allowed_packet of the server as text"
            )
        if state == _END:
            return
        if state == _MORE:
            buffer, filled = _filled(source, buffer, filled)


def _moved(buffer: Array, filled: int, consumed: int) -> tuple[Array, int]:
    if consumed:
        buffer[: filled - consumed] = buffer[consumed:filled].copy()
    return buffer, filled - consumed


def _filled(source: Any, buffer: Array, filled: int) -> tuple[Array, int]:
    """The buffer with more bytes, enlarged if it is full."""
    if filled == len(buffer):
        buffer = np.concatenate([buffer, np.empty(len(buffer), np.uint8)])
    read = source.read1(len(buffer) - filled)  # readinto1 would wait for more, even with bytes at hand.
    if not read:
        raise EOFError("the connection was lost")
    buffer[filled : filled + len(read)] = np.frombuffer(read, np.uint8)
    return buffer, filled + len(read)


def _long_line(source: Any, buffer: Array, filled: int) -> tuple[bytes, Array, int]:
    """A row of several packets, which the buffer begins with."""
    parts: list[bytes] = []
    while True:
        while filled < _HEAD or filled < _HEAD + _length(buffer):
            buffer, filled = _filled(source, buffer, filled)
        length = _length(buffer)
        parts.append(buffer[_HEAD : _HEAD + length].tobytes())
        buffer, filled = _moved(buffer, filled, _HEAD + length)
        if length < _SPLIT:
            break
    row = b"".join(parts)
    start = {0xFC: 3, 0xFD: 4, 0xFE: 9}.get(row[0], 1)
    return row[start:] + b"\n", buffer, filled


def _length(buffer: Array) -> int:
    return int(buffer[0]) | int(buffer[1]) << 8 | int(buffer[2]) << 16


def _refusal(packet: bytes) -> Exception:
    """The driver's exception for an error packet."""
    (number,) = struct.unpack_from("<H", packet, 1)
    text = packet[3:].decode("utf-8", "replace")
    found: Exception = pymysql.err.OperationalError(number, text[6:] if text.startswith("#") else text)
    return found


@kernel
def _take(data: Array, out: Array) -> tuple[int, int, int]:
    """Copy the values of whole packets with a newline each; returns bytes consumed, bytes written, and why it stopped."""
    at, written = 0, 0
    while data.size - at >= 4:
        length = int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16
        if length == 0xFFFFFF:
            return at, written, 4
        if data.size - at - 4 < length:
            break
        first = int(data[at + 4])
        if first == 0xFF:
            return at, written, 2
        if first == 0xFE and length < 9:
            return at + 4 + length, written, 1
        if first == 0xFB:
            return at, written, 3
        skip = 1
        if first == 0xFC:
            skip = 3
        elif first == 0xFD:
            skip = 4
        elif first == 0xFE:
            skip = 9
        start = at + 4 + skip
        size = length - skip
        copy_bytes(data, start, size, out, written)
        out[written + size] = 10
        written += size + 1
        at += 4 + length
    return at, written, 0


def warm() -> None:
    """Compile or load every kernel of this module."""
    _take(np.zeros(0, np.uint8), np.zeros(0, np.uint8))
