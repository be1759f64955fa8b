"""Reads under a snapshot that one session has, for tasks in other processes of this machine.

Where no session can import another one's snapshot, the session that has it reads for all: it is reached through a socket whose path is the
snapshot's name, and answers one query after another with lines of COPY text.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.model.source import TableSplit

_LENGTH = struct.Struct(">I")
_MOST_REQUEST = 1 << 24
"""Bytes of the longest request (16 MiB): a statement. Not measured."""
_LINES, _END, _FAULT = b"L", b"E", b"F"
"""Kinds of answers: lines, the end, and a fault as JSON."""
_CONNECT_S = 30.0
"""Seconds to reach the process that has the snapshot; it answers one reader after another. Not measured."""


@dataclass(frozen=True, slots=True)
class Request:
    """A query for lines of COPY text. `relation`: the table's number; `columns`: those that are read, by number and name."""

    sql: str
    subject: str
    relation: int
    schema: str
    table: str
    columns: tuple[tuple[int, str], ...]

    def to_bytes(self) -> bytes:
        return json.dumps([self.sql, self.subject, self.relation, self.schema, self.table, self.columns]).encode()

    @staticmethod
    def from_bytes(text: bytes) -> Request:
        sql, subject, relation, schema, table, columns = json.loads(text)
        return Request(sql, subject, int(relation), schema, table, tuple((int(n), name) for n, name in columns))


class SnapshotServer:
    """Answers queries until it is closed. `lines`: answers one, in a thread of its own; `end`: ends an answer that runs."""

    def __init__(self, lines: Callable[[Request], Iterator[bytes]], end: Callable[[], None]) -> None:
        self._lines = lines
        self._end = end
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-"))
        self.path = self._folder / secrets.token_hex(8)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(128)
        self._stopping = False
        self._peer: socket.socket | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="snapshot", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Idempotent. A reader that is being answered loses the snapshot."""
        with self._lock:
            self._stopping = True
            peer = self._peer
        for one in (self._listener, peer):
            if one is not None:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        if peer is not None:
            self._end()  # A query may run for long.
        self._thread.join()
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._peer = peer
                if self._stopping:
                    peer.close()
                    return
            with suppress(OSError, EOFError), peer:
                self._answer(peer)
            with self._lock:
                self._peer = None

    def _answer(self, peer: socket.socket) -> None:
        request = Request.from_bytes(_received(peer))
        lines = self._lines(request)
        try:
            for piece in lines:
                _send(peer, _LINES, piece)
            _send(peer, _END, b"")
        except EngineFault as fault:
            _refuse(peer, fault)
        except OSError:
            with suppress(EngineFault):
                for _ in lines:  # The reader is gone; the session is used again.
                    if self._stopping:
                        break
        except Exception as error:
            # The thread continues: without it, readers would wait for an answer for ever.
            _refuse(peer, EngineFault(FaultKind.INTERNAL, request.subject, f"unexpected {type(error).__name__}"))


def _refuse(peer: socket.socket, fault: EngineFault) -> None:
    _send(peer, _FAULT, json.dumps([fault.kind.value, fault.subject, fault.detail]).encode())


def _send(peer: socket.socket, kind: bytes, body: bytes) -> None:
    peer.sendall(kind + _LENGTH.pack(len(body)) + body)


def _exactly(peer: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        piece = peer.recv(min(size - len(parts), 1 << 20))
        if not piece:
            raise EOFError("the other end is gone")
        parts += piece
    return bytes(parts)


def _received(peer: socket.socket) -> bytes:
    (size,) = _LENGTH.unpack(_exactly(peer, _LENGTH.size))
    if size > _MOST_REQUEST:
        raise EOFError("not a request")
    return _exactly(peer, size)


def read_served(snapshot: str, split: TableSplit, subject: str) -> Iterator[bytes]:
    """The split's lines under the snapshot of this name, in pieces of whole lines. Raises EngineFault: COPY_LOST if it is over."""
    reads = split.reads
    schema, table = ("", "") if reads is None else (reads.schema, reads.name)
    request = Request(split.sql, subject, int(split.relation), schema, table, split.columns).to_bytes()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        try:
            peer.settimeout(_CONNECT_S)
            peer.connect(snapshot)
            peer.settimeout(None)
            peer.sendall(_LENGTH.pack(len(request)) + request)
            while True:
                kind = _exactly(peer, 1)
                body = _exactly(peer, _LENGTH.unpack(_exactly(peer, _LENGTH.size))[0])
                if kind == _END:
                    return
                if kind == _FAULT:
                    code, about, detail = json.loads(body)
                    raise EngineFault(FaultKind(code), about, detail)
                yield body
        except (OSError, EOFError) as error:
            raise EngineFault(FaultKind.COPY_LOST, subject, "the session that has the snapshot has ended") from error
