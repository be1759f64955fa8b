"""The wire format of protocol buffers, as far as Flight SQL's messages need it: varints and length-delimited fields. Pure."""

from __future__ import annotations

from collections.abc import Iterator

# Wire types and the longest varint, from the encoding of protocol buffers.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_TYPE_PREFIX = "type.googleapis.com/"

Value = int | bytes


class MalformedMessageError(Exception):
    """The bytes are not a message of this kind."""


class Fields:
    """A decoded message: the values of its fields by number."""

    def __init__(self, message: bytes) -> None:
        """Raises MalformedMessageError."""
        self._values: dict[int, list[Value]] = {}
        for number, value in _decoded(message):
            self._values.setdefault(number, []).append(value)

    def has(self, number: int) -> bool:
        return number in self._values

    def raw(self, number: int) -> bytes:
        """A field of bytes; empty if absent. Raises MalformedMessageError."""
        value = self._values.get(number, [b""])[-1]
        if not isinstance(value, bytes):
            raise MalformedMessageError(f"field {number} is not of bytes")
        return value

    def text(self, number: int) -> str:
        """A field of text; empty if absent. Raises MalformedMessageError."""
        try:
            return self.raw(number).decode()
        except UnicodeDecodeError:
            raise MalformedMessageError(f"field {number} is not UTF-8") from None

    def optional_text(self, number: int) -> str | None:
        """Raises MalformedMessageError."""
        return self.text(number) if self.has(number) else None

    def raws(self, number: int) -> list[bytes]:
        """A repeated field of bytes."""
        return [value for value in self._values.get(number, ()) if isinstance(value, bytes)]

    def texts(self, number: int) -> list[str]:
        """A repeated field of texts. Raises MalformedMessageError."""
        try:
            return [value.decode() for value in self.raws(number)]
        except UnicodeDecodeError:
            raise MalformedMessageError(f"field {number} is not UTF-8") from None

    def flag(self, number: int) -> bool:
        """A boolean field; false if absent."""
        return bool(self._values.get(number, [0])[-1])

    def integers(self, number: int) -> list[int]:
        """A repeated field of integers, packed or not. Raises MalformedMessageError."""
        found: list[int] = []
        for value in self._values.get(number, ()):
            if isinstance(value, int):
                found.append(value)
                continue
            at = 0
            while at < len(value):
                each, at = _varint(value, at)
                found.append(each)
        return found


def encoded(fields: dict[int, Value]) -> bytes:
    """A message with these fields: texts as bytes, numbers as varints."""
    parts = []
    for number, value in fields.items():
        if isinstance(value, int):
            parts += [_varint_bytes(number << 3 | _VARINT), _varint_bytes(value)]
        else:
            parts += [_varint_bytes(number << 3 | _BYTES), _varint_bytes(len(value)), value]
    return b"".join(parts)


def packed_any(name: str, message: bytes) -> bytes:
    """The message in a google.protobuf.Any. `name`: its full name."""
    return encoded({1: (_TYPE_PREFIX + name).encode(), 2: message})


def unpacked_any(message: bytes) -> tuple[str, bytes]:
    """Full name and bytes of the message in a google.protobuf.Any. Raises MalformedMessageError."""
    fields = Fields(message)
    url = fields.text(1)
    if not url.startswith(_TYPE_PREFIX):
        raise MalformedMessageError("the message is not a google.protobuf.Any")
    return url.removeprefix(_TYPE_PREFIX), fields.raw(2)


def _decoded(message: bytes) -> Iterator[tuple[int, Value]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise MalformedMessageError("a field with the number 0")
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
        else:
            raise MalformedMessageError(f"a field of wire type {kind}")
        if size > len(message) - at:
            raise MalformedMessageError("the message ends within a field")
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at this offset, and the offset after it."""
    value = 0
    for i, byte in enumerate(message[at : at + _MOST_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            if value >> 64:
                break
            return value, at + i + 1
    raise MalformedMessageError("a number that is cut, or longer than 64 bits")


def _varint_bytes(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
