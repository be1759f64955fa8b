"""Messages of a replication session as the source frames them, and a transport that brings them."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def framed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


def copy_data(body: bytes) -> bytes:
    return framed(b"d", body)


def xlog(record: bytes, position: int) -> bytes:
    return copy_data(b"w" + struct.pack(">QQQ", position, position, 7) + record)


def keepalive(position: int, ask: bool = False) -> bytes:
    return copy_data(b"k" + struct.pack(">QQB", position, 9, ask))


class Pieces:
    """A transport that hands out the bytes in pieces of the given sizes, and then as many as are asked for."""

    def __init__(self, data: bytes, sizes: Sequence[int] = ()) -> None:
        self.data = data
        self.sizes = list(sizes)

    def receive(self, into: memoryview) -> int:
        size = min(len(into), self.sizes.pop(0) if self.sizes else len(self.data))
        piece, self.data = self.data[:size], self.data[size:]
        into[: len(piece)] = piece
        return len(piece)

    def fileno(self) -> int:
        raise AssertionError("no descriptor")

    def start(self, command: str) -> None: ...
    def wait(self, timeout_s: float, wake: int | None = None) -> bool:
        return True

    def send(self, body: bytes) -> None: ...
    def close(self) -> None: ...
