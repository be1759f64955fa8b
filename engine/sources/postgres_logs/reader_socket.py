"""The engine asks the log reader for positions over a Unix socket in the subscription's folder: JSON, one object a line.

`{"mark": FLUSHED}` is answered by `{"position": N}`, and so is `{"ticket": ID}`, whose marker the reader writes there. `{"cut": true}` is
answered by `{"begun": true}` once the snapshots may be taken; then `{"snapshots": [[TEXT, END], …]}`, by node, is answered by
`{"position": N}`, or by `{"torn": true}` if they are not of one moment. The end of the connection ends the request. `{"state": true}` is
answered by the parts of StreamState.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TicketId
from engine.model.merged_logs import Away
from engine.model.position import Lsn
from engine.sources.postgres_logs.consistent_cut import NodeSnapshot
from engine.sources.postgres_logs.merged_stream import StreamState
from engine.sources.postgres_logs.requests import RequestedCuts

_NAME = "reader.sock"
_ANSWER_S = 10.0
"""Seconds in which the reader gives a number, which needs no node. Not measured."""
_LINE_BYTES = 1 << 20
"""Longest line: 64 snapshots with thousands of running transactions."""
_LONGEST = 100
"""Bytes of a socket's path that every system accepts."""
_LOOK_S = 0.2
"""Seconds between two looks whether the other side of a connection is there."""


class Desk(Protocol):
    """What the reader's thread serves."""

    cuts: RequestedCuts
    state: StreamState

    def request_mark(self, *, flushed: bool) -> Lsn: ...
    def request_ticket(self, ticket: TicketId) -> Lsn: ...


class ReaderSocket:
    """Listens from its construction on; answers once `serve` is called."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._desk: Desk | None = None
        self._closed = threading.Event()
        (folder / _NAME).unlink(missing_ok=True)
        with _reachable(folder) as path:
            self._server = _Server(path, _Handler, bind_and_activate=False)
            self._server.reader = self
            self._server.server_bind()
            Path(path).chmod(0o600)
            self._server.server_activate()

    def serve(self, desk: Desk) -> None:
        self._desk = desk
        threading.Thread(target=self._server.serve_forever, args=(_LOOK_S,), name="reader-socket", daemon=True).start()

    def close(self) -> None:
        """Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._desk is not None:
            self._server.shutdown()
        self._server.server_close()
        (self._folder / _NAME).unlink(missing_ok=True)

    def answer(self, request: dict[str, Any], lines: _Lines) -> None:
        """Process one request."""
        desk = self._desk
        if desk is None:
            return
        if "mark" in request:
            lines.write({"position": desk.request_mark(flushed=bool(request["mark"])).value})
        elif "ticket" in request:
            lines.write({"position": desk.request_ticket(TicketId(request["ticket"])).value})
        elif "cut" in request:
            self._cut(desk, lines)
        elif "state" in request:
            state = desk.state
            away = {name: [one.since_us, one.code, one.reason] for name, one in state.away.items()}
            lines.write(
                {
                    "read": state.read,
                    "late": sorted(state.late),
                    "held_since_us": state.held_since_us,
                    "away": away,
                    "silent_since_us": state.silent_now(),
                }
            )

    def _cut(self, desk: Desk, lines: _Lines) -> None:
        made = desk.cuts.request()
        try:
            if not self._wait(made.begun, lines):
                return
            lines.write({"begun": True})
            given = lines.read()
            if given is None:
                return
            desk.cuts.give(made, [NodeSnapshot.parse(text, end) for text, end in given["snapshots"]])
            if self._wait(made.done, lines):
                lines.write({"torn": True} if made.position is None else {"position": made.position.value})
        finally:
            desk.cuts.give_up(made)

    def _wait(self, event: threading.Event, lines: _Lines) -> bool:
        """False if the other side has gone, or the reader ends."""
        while not event.wait(_LOOK_S):
            if self._closed.is_set() or lines.is_closed():
                return False
        return True


class _Lines:
    """JSON objects over a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file: BinaryIO = connection.makefile("rb")

    def read(self) -> dict[str, Any] | None:
        """The next object; None at the end."""
        line = self._file.readline(_LINE_BYTES)
        if not line.endswith(b"\n"):
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def write(self, value: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps(value).encode("utf-8") + b"\n")

    def set_timeout(self, seconds: float) -> None:
        """Of each later read."""
        self._connection.settimeout(seconds)

    def is_closed(self) -> bool:
        """Whether the other side has closed the connection. Only while nothing is expected of it."""
        self._connection.setblocking(False)
        try:
            return not self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        finally:
            self._connection.setblocking(True)

    def close(self) -> None:
        self._file.close()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    reader: ReaderSocket

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that has gone or sends nonsense concerns no other."""


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server = self.server
        lines = _Lines(self.request)
        try:
            while isinstance(server, _Server) and (request := lines.read()) is not None:
                server.reader.answer(request, lines)
        finally:
            lines.close()


def request_mark(folder: Path, *, flushed: bool) -> Lsn | None:
    """A mark of the reader; None if no reader is there, or it ends meanwhile: it gives no more numbers then.

    Raises EngineFault(SOURCE_TIMEOUT) if it does not answer.
    """
    return _position(folder, {"mark": flushed})


def request_ticket(folder: Path, ticket: TicketId) -> Lsn | None:
    """Let the reader write a ticket's marker after everything that is committed now. Returns its position in the merged log, which the
    reader may not live to reach. None and raises as `request_mark`."""
    return _position(folder, {"ticket": ticket})


def _position(folder: Path, request: dict[str, Any]) -> Lsn | None:
    with _connected(folder) as lines:
        if lines is None:
            return None
        try:
            lines.write(request)
            found = lines.read()
        except TimeoutError as error:
            raise _silent() from error
        except ConnectionError:
            return None
        return None if found is None else Lsn(int(found["position"]))


def request_state(folder: Path) -> StreamState | None:
    """How far the reader is; None if no reader is there. Raises as `request_mark`."""
    with _connected(folder) as lines:
        if lines is None:
            return None
        lines.write({"state": True})
        found = _answered(lines)
        away = {name: Away(*one) for name, one in found["away"].items()}
        return StreamState(
            found["read"], frozenset(found["late"]), int(found["held_since_us"]), 0.0, away, found["silent_since_us"]
        )


def request_cut(
    folder: Path, timeout_s: float, snapshots: Callable[[], Sequence[tuple[str, Lsn]]]
) -> tuple[bool, Lsn | None]:
    """One attempt of a cut.

    Args:
        snapshots: takes them, and returns pg_current_snapshot and then the end of the log of each node.

    Returns whether a reader is there, and the position of the cut, or None if the snapshots are not of one moment.
    Raises EngineFault(SOURCE_TIMEOUT) if the reader has not read what they have in time.
    """
    with _connected(folder) as lines:
        if lines is None:
            return False, None
        lines.set_timeout(timeout_s)
        lines.write({"cut": True})
        _answered(lines)
        lines.write({"snapshots": [[text, end.value] for text, end in snapshots()]})
        position = _answered(lines).get("position")
        return True, None if position is None else Lsn(int(position))


def _answered(lines: _Lines) -> dict[str, Any]:
    try:
        found = lines.read()
    except TimeoutError as error:
        raise _silent() from error
    if found is None:
        raise EngineFault(FaultKind.SOURCE_TIMEOUT, "log reader", "it ended while it was asked for a position")
    return found


def _silent() -> EngineFault:
    return EngineFault(FaultKind.SOURCE_TIMEOUT, "log reader", "it has not answered in time")


@contextmanager
def _connected(folder: Path) -> Iterator[_Lines | None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_S)
        try:
            with _reachable(folder) as path:
                connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            yield None
            return
        except OSError as error:
            raise EngineFault(FaultKind.SOURCE_TIMEOUT, "log reader", "it does not take requests") from error
        lines = _Lines(connection)
        try:
            yield lines
        except ConnectionError as error:
            detail = "it ended while it was asked for a position"
            raise EngineFault(FaultKind.SOURCE_TIMEOUT, "log reader", detail) from error
        finally:
            with suppress(OSError):
                lines.close()


@contextmanager
def _reachable(folder: Path) -> Iterator[str]:
    """A path of the socket that is short enough for one, however long the folder's is."""
    path = os.fspath(folder / _NAME)
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_NAME}"
    finally:
        os.close(descriptor)
