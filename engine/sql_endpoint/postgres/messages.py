"""Messages of the protocol: their bytes, and how they are read. Pure, but for `read_message`."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Codes of startup packets (PostgreSQL's manual, "Message Formats").
PROTOCOL_3 = 3
SSL_REQUEST = 80877103
GSS_REQUEST = 80877104
CANCEL_REQUEST = 80877102
MOST_STARTUP_BYTES = 10_000
"""Longest startup packet, as in PostgreSQL."""
MOST_MESSAGE_BYTES = 16 * 1024 * 1024
"""Longest message of a client: a statement has at most 100,000 characters, and parameters are few and small."""

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_HEAD = struct.Struct(">ci")


class ProtocolError(Exception):
    """The client does not follow the protocol. The connection ends after it."""


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """A column of an answer. `size`: bytes of a value, -1 if they vary."""

    name: str
    oid: int
    size: int = -1
    modifier: int = -1


class Fields:
    """Reads the fields of one message."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._body) - self._at

    def int32(self) -> int:
        return int(_INT.unpack(self.raw(4))[0])

    def int16(self) -> int:
        return int(_SHORT.unpack(self.raw(2))[0])

    def raw(self, size: int) -> bytes:
        if size < 0 or size > self.left:
            raise ProtocolError("a message is shorter than it says")
        self._at += size
        return self._body[self._at - size : self._at]

    def rest(self) -> bytes:
        return self.raw(self.left)

    def text(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a string in a message has no end")
        raw = self.raw(end - self._at)
        self._at += 1
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ProtocolError("a string in a message is not UTF-8") from None

    def int16s(self) -> list[int]:
        return [self.int16() for _ in range(self._count())]

    def int32s(self) -> list[int]:
        return [self.int32() for _ in range(self._count())]

    def values(self) -> list[bytes | None]:
        """Values with their lengths; None for NULL."""
        return [self._value(self.int32()) for _ in range(self._count())]

    def _count(self) -> int:
        count = self.int16()
        if count < 0:
            raise ProtocolError("a message has a negative count")
        return count

    def _value(self, size: int) -> bytes | None:
        return None if size < 0 else self.raw(size)


async def read_startup(reader: asyncio.StreamReader) -> tuple[int, Fields]:
    """The code and the rest of a startup packet."""
    size = _INT.unpack(await reader.readexactly(4))[0]
    if not 8 <= size <= MOST_STARTUP_BYTES:
        raise ProtocolError("a startup packet of a wrong length")
    fields = Fields(await reader.readexactly(size - 4))
    return fields.int32(), fields


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, Fields]:
    """The kind and the fields of the next message."""
    kind, size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    if not 4 <= size <= MOST_MESSAGE_BYTES:
        raise ProtocolError(f"a message of {size} bytes; at most {MOST_MESSAGE_BYTES} are read")
    return kind, Fields(await reader.readexactly(size - 4))


def parameters_of(fields: Fields) -> dict[str, str]:
    """Name and value pairs of a startup packet."""
    found: dict[str, str] = {}
    while fields.left > 1:
        name = fields.text()
        found[name] = fields.text()
    return found


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + _INT.pack(len(body) + 4) + body


def text(value: str) -> bytes:
    return value.replace("\0", "").encode(errors="replace") + b"\0"


def authentication(code: int, data: bytes = b"") -> bytes:
    """AuthenticationOk (0), AuthenticationSASL (10), …SASLContinue (11), …SASLFinal (12)."""
    return message(b"R", _INT.pack(code) + data)


def parameter_status(name: str, value: str) -> bytes:
    return message(b"S", text(name) + text(value))


def backend_key_data(number: int, secret: int) -> bytes:
    return message(b"K", struct.pack(">ii", number, secret))


def negotiate_version(unknown: Sequence[str]) -> bytes:
    """NegotiateProtocolVersion: version 3.0, without these options."""
    return message(b"v", struct.pack(">ii", PROTOCOL_3 << 16, len(unknown)) + b"".join(map(text, unknown)))


def ready_for_query(status: bytes) -> bytes:
    """`status`: I outside of a transaction, T within one, E within a failed one."""
    return message(b"Z", status)


def row_description(columns: Sequence[ColumnDescription], formats: Sequence[int]) -> bytes:
    """`formats`: 0 text, 1 binary, by column."""
    parts = [_SHORT.pack(len(columns))]
    for column, form in zip(columns, formats, strict=True):
        parts.append(text(column.name))
        parts.append(struct.pack(">ihihih", 0, 0, column.oid, column.size, column.modifier, form))
    return message(b"T", b"".join(parts))


def parameter_description(oids: Sequence[int]) -> bytes:
    return message(b"t", _SHORT.pack(len(oids)) + b"".join(_INT.pack(oid) for oid in oids))


def command_complete(tag: str) -> bytes:
    return message(b"C", text(tag))


PARSE_COMPLETE = message(b"1")
BIND_COMPLETE = message(b"2")
CLOSE_COMPLETE = message(b"3")
NO_DATA = message(b"n")
EMPTY_QUERY = message(b"I")
PORTAL_SUSPENDED = message(b"s")


def error_response(fields: Mapping[str, str]) -> bytes:
    """`fields`: by code, as in PostgreSQL: S severity, C SQLSTATE, M message, D detail, H hint."""
    return message(b"E", _report(fields))


def notice_response(fields: Mapping[str, str]) -> bytes:
    return message(b"N", _report(fields))


def _report(fields: Mapping[str, str]) -> bytes:
    return b"".join(code.encode() + text(value) for code, value in fields.items()) + b"\0"
