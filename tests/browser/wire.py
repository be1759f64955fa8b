"""A network that can be cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK = 64 * 1024


class Wire:
    """Hands connections to a port of its own on to `port`, both of 127.0.0.1. While it is cut there are none."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._lock = threading.Lock()
        self._cut = False
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, name="wire-accept", daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        # A blocked accept ends by a shutdown, not by a close.
        _end(self._listener)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """End all connections, and those that come as soon as they do."""
        with self._lock:
            self._cut = True
            for one in self._open:
                _end(one)

    def mend(self) -> None:
        """Hand on again what comes from now on."""
        with self._lock:
            self._cut = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._carry, args=(near,), name="wire-carry", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection(self._to) as far:
            with self._lock:
                if self._cut:
                    return
                self._open |= {near, far}
            back = threading.Thread(target=_one_way, args=(far, near), name="wire-back", daemon=True)
            back.start()
            _one_way(near, far)
            back.join()
            with self._lock:
                self._open -= {near, far}


def _one_way(source: socket.socket, sink: socket.socket) -> None:
    """Until one of them has ended; then both do."""
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            sink.sendall(chunk)
    _end(source)
    _end(sink)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
