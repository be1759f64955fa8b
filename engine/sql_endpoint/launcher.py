"""The engine's end of the SQL endpoint: it starts the process, keeps it running, and passes rows to it."""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.reduction import send_handle

import structlog

from engine.link.answer_frames import is_end
from engine.model.target import Cancellation, QueryLimits
from engine.platform import forks
from engine.sql_endpoint import process
from engine.sql_endpoint.settings import EndpointSettings

log = structlog.get_logger(__name__)

_BUFFER_BYTES = 1 << 20
"""Bytes of an answer that are on their way to the endpoint."""
_PAUSE_S = 1.0
"""Seconds before the process is started again."""


class EndpointGoneError(Exception):
    """The endpoint's process has ended."""


class SqlEndpoint:
    """The endpoint of this engine. `start` and `close` once; `deliver` from any thread."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.id = uuid.uuid4().hex
        self._settings = replace(settings, endpoint=self.id)
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._child: forks.Child | None = None
        self._listens = threading.Condition()
        self._ports: dict[str, int] = {}
        self._thread = threading.Thread(target=self._keep, name="sql-endpoint", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_for_port(self, timeout_s: float, protocol: str = "postgres") -> int | None:
        """The port on which it listens for `postgres` or `flight`; None if it does not within the timeout."""
        with self._listens:
            self._listens.wait_for(lambda: protocol in self._ports, timeout_s)
            return self._ports.get(protocol)

    def deliver(self, request_id: str, pipe: int | None = None) -> socket.socket:
        """Announce the rows of a request to the endpoint; returns the socket for their frames. `pipe`: as in QueryAnswer.

        Raises:
            EndpointGoneError: its process does not run.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                with self._sending:
                    child = self._child
                    if child is None:
                        raise EndpointGoneError
                    message = {"request_id": request_id, "pipe": pipe is not None}
                    child.connection.send_bytes(json.dumps(message).encode())
                    send_handle(child.connection, theirs.fileno(), child.pid)
                    if pipe is not None:
                        send_handle(child.connection, pipe, child.pid)
            except (OSError, EndpointGoneError) as error:
                ours.close()
                raise EndpointGoneError from error
        return ours

    def close(self) -> None:
        """End the process and its sessions."""
        self._stopping.set()
        with self._sending:
            child = self._child
        if child is not None:
            child.kill()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _keep(self) -> None:
        """In a thread: run the process until `close`, or until it cannot listen."""
        while not self._stopping.is_set():
            try:
                child = forks.start("SQL endpoint", process.main, [self._settings])
            except forks.NotStartedError as error:
                log.error("sql_endpoint_not_started", error=str(error))
                self._stopping.wait(_PAUSE_S)
                continue
            with self._sending:
                self._child = child
            if self._stopping.is_set():
                child.kill()
            self._receive(child)
            child.wait()
            with self._listens:
                self._ports.clear()
            with self._sending:
                self._child = None
                with suppress(OSError):
                    child.connection.close()
            if child.exit_code == process.CANNOT_LISTEN:
                return
            if not self._stopping.is_set():
                log.warning("sql_endpoint_ended", how=child.death)
                self._stopping.wait(_PAUSE_S)

    def _receive(self, child: forks.Child) -> None:
        """Take the process's messages until it ends."""
        with suppress(EOFError, OSError):
            while True:
                message = json.loads(child.connection.recv_bytes())
                with self._listens:
                    self._ports[message["protocol"]] = int(message["port"])
                    self._listens.notify_all()


def send_frames(sink: socket.socket, frames: Iterator[bytes], limits: QueryLimits) -> None:
    """Write the frames of an answer. If the endpoint closes its end before the last one, the query is cancelled."""
    over = threading.Event()
    with sink:
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        gone = threading.Thread(
            target=_cancel_when_closed, args=(sink, limits.cancellation, over), name="sql-answer", daemon=True
        )
        gone.start()
        try:
            for frame in frames:
                if is_end(frame):  # the query has ended, and its process can run another one
                    over.set()
                sink.sendall(frame)
        except (BrokenPipeError, ConnectionResetError):
            log.debug("sql_answer_left")
        finally:
            with suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)
            gone.join()


def _cancel_when_closed(sink: socket.socket, cancellation: Cancellation, over: threading.Event) -> None:
    """The endpoint never writes: its end of the socket becomes readable when it is closed."""
    with suppress(OSError):
        sink.recv(1)
    if not over.is_set():
        cancellation.cancel()
