"""Transport of the replication protocol: reads the socket itself without TLS, and uses libpq with TLS.

libpq returns one message per call and wakes up for each; one read of the socket returns everything that has arrived.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import pq

from engine.model.fault import EngineFault, FaultKind
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.frames import MESSAGE_HEADER

RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024
"""Receive buffer for a server elsewhere, and most bytes taken from libpq at once. A backlog of 61 MB took 2.7 s with it and pauses of 10
ms, and 7.8 s if read eagerly (measured on one machine, before _LOCAL_BUFFER_BYTES)."""
_LOCAL_BUFFER_BYTES = 128 * 1024
"""Receive buffer for a server on this machine. The source sends once per change. While the buffer is full, the kernel joins what is sent
into large pieces; otherwise each change is transferred alone, which costs the source three times as much (measured)."""
_SMALLEST_USEFUL = 4 * 1024 * 1024
"""Least `rmem_max` in bytes with which the buffer is set: a fixed size turns off the kernel's autotuning, which may give as much. Not
measured."""
_RMEM_MAX = Path("/proc/sys/net/core/rmem_max")
_SEND_TIMEOUT_S = 10.0
"""Seconds for the socket to accept a message, or to answer a command: status messages have some bytes, and a live server reads them. Not
measured."""
_LENGTH = struct.Struct(">I")


class Receiver(Protocol):
    """The receiving side of a transport."""

    def receive(self, into: memoryview) -> int:
        """As Transport.receive."""
        ...


class Transport(Protocol):
    """Bytes of protocol messages of one replication session."""

    def start(self, command: str) -> None:
        """Send the command that starts streaming. The first message received is its answer."""
        ...

    def wait(self, timeout_s: float, wake: int | None = None) -> bool:
        """Wait until something can be received (True), or until the timeout or until the descriptor `wake` is readable (False)."""
        ...

    def fileno(self) -> int:
        """The descriptor that becomes readable when something arrives, to wait for several sessions at once. Bytes that were taken from
        it before may still be waiting for `receive`."""
        ...

    def receive(self, into: memoryview) -> int:
        """Receive available bytes into `into` without blocking; returns their number. Raises EngineFault(SOURCE_UNREACHABLE)."""
        ...

    def send(self, body: bytes) -> None:
        """Send one CopyData message with this body. One thread at a time; another one may receive meanwhile.

        Raises EngineFault(SOURCE_UNREACHABLE).
        """
        ...

    def close(self) -> None:
        """End the session and close the connection."""
        ...


def open_transport(connection: PostgresConnection) -> Transport:
    """The transport for this connection, which it owns from now on."""
    return _LibpqTransport(connection) if connection.pgconn.ssl_in_use else _SocketTransport(connection)


def _lost(detail: str) -> EngineFault:
    return EngineFault(FaultKind.SOURCE_UNREACHABLE, "replication stream", detail)


def _readable(fd: int, timeout_s: float, wake: int | None = None) -> bool:
    poll = select.poll()
    for each in (fd, wake):
        if each is not None:
            poll.register(each, select.POLLIN)
    return any(ready == fd for ready, _ in poll.poll(max(0.0, timeout_s) * 1000))


class RawSocket:
    """The socket of an idle libpq connection without TLS, used directly. libpq may use the connection again once the server is idle."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._socket.setblocking(False)

    def query(self, command: str) -> None:
        """Send a simple query; the caller must read the whole answer."""
        text = command.encode() + b"\0"
        self.send_all(b"Q" + _LENGTH.pack(len(text) + 4) + text)

    def fileno(self) -> int:
        return self._socket.fileno()

    def wait(self, timeout_s: float, wake: int | None = None) -> bool:
        return _readable(self._socket.fileno(), timeout_s, wake)

    def receive(self, into: memoryview) -> int:
        total = 0
        while total < len(into):
            try:
                count = self._socket.recv_into(into[total:])
            except BlockingIOError:
                break
            except OSError as error:
                raise _lost(error.strerror or "connection lost") from error
            if count == 0:
                if total:
                    break
                raise _lost("the source closed the connection")
            total += count
        return total

    def send_all(self, message: bytes) -> None:
        deadline = time.monotonic() + _SEND_TIMEOUT_S
        view = memoryview(message)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                _, ready, _ = select.select([], [self._socket], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise _lost("it takes nothing from us") from None
            except OSError as error:
                raise _lost(error.strerror or "connection lost") from error

    def size_buffer(self) -> None:
        """Set the receive buffer. A fixed size turns off the kernel's autotuning, so a large one is set only above autotuning's limit."""
        if self._socket.family == socket.AF_UNIX:
            return
        with contextlib.suppress(OSError, ValueError):
            if self._socket.getpeername()[0] == self._socket.getsockname()[0]:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LOCAL_BUFFER_BYTES)
            elif int(_RMEM_MAX.read_text()) >= _SMALLEST_USEFUL:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)

    def release(self) -> None:
        """Return the connection to libpq."""
        self._socket.close()

    def end(self) -> None:
        """Send CopyDone and Terminate as far as possible without blocking."""
        with contextlib.suppress(OSError):
            self._socket.send(b"c" + _LENGTH.pack(4) + b"X" + _LENGTH.pack(4))
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class _SocketTransport:
    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._raw = RawSocket(connection)
        self._raw.size_buffer()
        self.fileno = self._raw.fileno
        self.wait = self._raw.wait
        self.receive = self._raw.receive

    def start(self, command: str) -> None:
        self._raw.query(command)

    def send(self, body: bytes) -> None:
        self._raw.send_all(b"d" + _LENGTH.pack(len(body) + 4) + body)

    def close(self) -> None:
        self._raw.end()
        self._connection.close()


class _LibpqTransport:
    """Transport over libpq. It adds the protocol headers to the messages again, so that `frames` can read both transports."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._pgconn.notice_handler = self._notice
        self._pending = bytearray()
        self._ended = False
        self._using = threading.Lock()
        """Serializes use of libpq, which allows one thread at a time. Never held during a wait."""

    def start(self, command: str) -> None:
        self._pgconn.send_query(command.encode())
        while self._pgconn.is_busy():
            select.select([self._pgconn.socket], [], [], _SEND_TIMEOUT_S)
            self._consume()
        result = self._pgconn.get_result()
        if result is not None and result.status == pq.ExecStatus.COPY_BOTH:
            self._add(b"W", b"\0\0\0")
        else:
            # libpq is not in COPY mode any more; the rest of the connection's data is not needed.
            self._ended = True
            self._add_error(b"E", result)

    def fileno(self) -> int:
        return self._pgconn.socket

    def wait(self, timeout_s: float, wake: int | None = None) -> bool:
        return bool(self._pending) or self._take_messages() or _readable(self._pgconn.socket, timeout_s, wake)

    def receive(self, into: memoryview) -> int:
        # One call of libpq reads a few kilobytes; repeat it while more has arrived.
        while len(self._pending) < len(into) and not self._ended and _readable(self._pgconn.socket, 0.0):
            self._consume()
            self._take_messages()
        if self._ended and not self._pending:
            raise _lost("the source closed the connection")
        count = min(len(into), len(self._pending))
        into[:count] = self._pending[:count]
        del self._pending[:count]
        return count

    def send(self, body: bytes) -> None:
        try:
            with self._using:
                self._pgconn.put_copy_data(body)
                self._pgconn.flush()
        except psycopg.Error as error:
            raise _lost("connection lost") from error

    def close(self) -> None:
        self._connection.close()

    def _consume(self) -> None:
        try:
            with self._using:
                self._pgconn.consume_input()
        except psycopg.Error as error:
            raise _lost("connection lost") from error

    def _take_messages(self) -> bool:
        """Take all whole messages from libpq, up to a bound."""
        while not self._ended and len(self._pending) < RECEIVE_BUFFER_BYTES:
            try:
                with self._using:
                    count, body = self._pgconn.get_copy_data(1)
            except psycopg.Error as error:
                raise _lost("connection lost") from error
            if count == 0:
                break
            if count > 0:
                self._add(b"d", bytes(body))
                continue
            self._ended = True
            self._add_error(b"E", self._pgconn.get_result())
        return bool(self._pending)

    def _notice(self, result: Any) -> None:
        self._add_error(b"N", result)

    def _add_error(self, kind: bytes, result: Any) -> None:
        if result is None or (kind == b"E" and result.status != pq.ExecStatus.FATAL_ERROR):
            self._add(b"c", b"")
            return
        fields = b""
        for letter, field in (
            (b"V", pq.DiagnosticField.SEVERITY_NONLOCALIZED),
            (b"C", pq.DiagnosticField.SQLSTATE),
            (b"M", pq.DiagnosticField.MESSAGE_PRIMARY),
        ):
            fields += letter + (result.error_field(field) or b"") + b"\0"
        self._add(kind, fields + b"\0")

    def _add(self, kind: bytes, body: bytes) -> None:
        self._pending += kind + _LENGTH.pack(len(body) + 4) + body


class Inbox:
    """Buffer between transport and `frames`. An incomplete message is kept at the front."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.buffer: npt.NDArray[np.uint8] = np.empty(size, np.uint8)
        self.filled = 0

    def fill(self, transport: Receiver) -> int:
        """Receive available bytes as far as there is room. Returns their number."""
        room: Any = self.buffer[self.filled :]
        count = transport.receive(memoryview(room))
        self.filled += count
        return count

    @property
    def full(self) -> bool:
        return self.filled == len(self.buffer)

    def drop(self, count: int) -> None:
        """Remove the first `count` bytes; enlarge the buffer if a single message is larger than it."""
        rest = self.filled - count
        needed = _message_bytes(self.buffer[count : self.filled]) if rest >= MESSAGE_HEADER else 0
        size = max(self._size, needed, rest)
        if count == 0 and size == len(self.buffer):
            return
        target = self.buffer if size == len(self.buffer) else np.empty(size, np.uint8)
        target[:rest] = (
            self.buffer[count : self.filled].copy() if target is self.buffer else self.buffer[count : self.filled]
        )
        self.buffer, self.filled = target, rest

    def take_message(self) -> tuple[bytes, bytes]:
        """Remove and return the first message, which must be complete: type and body."""
        end = _message_bytes(self.buffer[: self.filled])
        message = self.buffer[:end].tobytes()
        self.drop(end)
        return message[:1], message[MESSAGE_HEADER:]


def _message_bytes(start: Any) -> int:
    return 1 + int.from_bytes(start[1:5].tobytes(), "big")
