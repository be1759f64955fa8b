"""A TCP proxy that simulates a long network: it forwards connections to a local port and delays every byte equally."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Queue
from time import perf_counter
from types import TracebackType
from typing import Self

_CHUNK = 256 * 1024
_CHUNKS_ON_THE_WAY = 1024
"""Buffer per direction, far more than a delay of some milliseconds fills: only a stopped receiver slows the sender."""
_END = b""
_RESET = struct.pack("ii", 1, 0)
"""Value of SO_LINGER: on, zero seconds. Closing then resets the connection."""


class DelayLine:
    """One direction of a connection: chunks come out in order, each no earlier than `delay_s` after it went in.

    Chunks are delayed concurrently, so the delay does not reduce throughput. One thread puts, another takes.
    """

    def __init__(
        self,
        delay_s: float,
        *,
        now: Callable[[], float] = perf_counter,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._delay_s = delay_s
        self._now = now
        self._pause = pause
        self._chunks: Queue[tuple[float, bytes]] = Queue(_CHUNKS_ON_THE_WAY)

    def put(self, chunk: bytes) -> None:
        """Add a chunk. Blocks only while the buffer is full."""
        self._chunks.put((self._now() + self._delay_s, chunk))

    def take_chunk(self) -> bytes:
        """The next chunk, when it is due; waits for one if there is none."""
        due, chunk = self._chunks.get()
        while (left := due - self._now()) > 0:
            self._pause(left)
        return chunk


class DelayProxy:
    """Listens on a free port of 127.0.0.1, from construction to `close`.

    The end of a stream is forwarded with the same delay as its data.
    """

    def __init__(self, host: str, port: int, delay_s: float) -> None:
        """`delay_s`: per direction, so that a round trip takes twice as much longer."""
        self._address = (host, port)
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, name="delay-accept", daemon=True)
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and the listening socket. May be called in any state."""
        with self._lock:
            self._closed = True
            left = list(self._open)
        # A blocked accept is ended by a shutdown, not by a close.
        _shut(self._listener, socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for one in left:
            _shut(one, socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), name="delay-carry", daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        """Forward both directions of one connection until both have ended."""
        with near:
            try:
                far = socket.create_connection(self._address)
            except OSError:
                return
            with far:
                with self._lock:
                    if self._closed:
                        return
                    self._open |= {near, far}
                for one in (near, far):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=self._one_way, args=(far, near), name="delay-back", daemon=True)
                back.start()
                self._one_way(near, far)
                back.join()
                with self._lock:
                    self._open -= {near, far}

    def _one_way(self, source: socket.socket, sink: socket.socket) -> None:
        line = DelayLine(self._delay_s)
        reader = threading.Thread(target=_read, args=(source, line), name="delay-read", daemon=True)
        reader.start()
        try:
            while chunk := line.take_chunk():
                sink.sendall(chunk)
        except OSError:
            # The receiver is gone. End the reader, which may be waiting for space; the other direction ends by itself.
            # A sender that is still sending needs a reset: it would not notice an orderly close while it waits for
            # space.
            source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            _shut(source, socket.SHUT_RD)
            while line.take_chunk():
                continue
        _shut(sink, socket.SHUT_WR)
        reader.join()


def _read(source: socket.socket, line: DelayLine) -> None:
    try:
        while chunk := source.recv(_CHUNK):
            line.put(chunk)
    except OSError:
        pass
    finally:
        line.put(_END)


def _shut(one: socket.socket, how: int) -> None:
    with suppress(OSError):
        one.shutdown(how)
