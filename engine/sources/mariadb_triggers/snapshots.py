"""Consistent reads under snapshots that are the ends of windows.

No session can import another one's snapshot. So the session that has it reads for all: it is reached by other processes of this machine
through a socket whose path is the snapshot's name, and answers one query after another with lines of COPY text.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from engine.model.absent_capabilities import NoRanges
from engine.model.copies import KeyBound
from engine.model.fault import EngineFault, FaultKind
from engine.model.masks import MASK_KEY
from engine.model.positions.windows import end_of
from engine.model.quarantine import Texts
from engine.model.schema import TableSchema
from engine.model.source import WHOLE_TABLE, ExportedSnapshot, KeyWalk, TableSplit
from engine.model.subscription import TableSpec
from engine.records.masked_lines import mask_lines
from engine.sources.mariadb_triggers import splits
from engine.sources.mariadb_triggers.catalog import exists, load_tables
from engine.sources.mariadb_triggers.connect import ERRORS, Connector, MariaDbConnection, close_quietly, fault_of
from engine.sources.mariadb_triggers.lines import read_lines
from engine.sources.mariadb_triggers.windows import snapshot_at_window

_LENGTH = struct.Struct(">I")
_MOST_REQUEST = 1 << 24
"""Bytes of the longest request (16 MiB): a statement. Not measured."""
_LINES, _END, _FAULT = b"L", b"E", b"F"
"""Kinds of answers: lines, the end, and a fault as JSON."""
_KINDS = {
    1054: FaultKind.TABLE_STRUCTURE_CHANGED,
    1412: FaultKind.TABLE_STRUCTURE_CHANGED,
    1146: FaultKind.TABLE_MISSING,
}
_CONNECT_S = 30.0
"""Seconds to reach the process that has the snapshot; it answers one reader after another. Not measured."""


class _Server:
    """Answers queries under one session's snapshot until it is closed."""

    def __init__(self, connection: MariaDbConnection) -> None:
        self._connection = connection
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
            close_quietly(self._connection)  # A query may run for long.
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
        request = json.loads(_received(peer))
        lines = self._lines(request)
        try:
            for piece in lines:
                _send(peer, _LINES, piece)
            _send(peer, _END, b"")
        except EngineFault as fault:
            _send(peer, _FAULT, json.dumps([fault.kind.value, fault.subject, fault.detail]).encode())
        except OSError:
            for _ in lines:  # The reader is gone; the session is used again.
                if self._stopping:
                    break

    def _lines(self, request: dict[str, str | int]) -> Iterator[bytes]:
        subject, relation = str(request["subject"]), int(request["relation"])
        try:
            if not exists(self._connection, relation):
                raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, subject, "the table's storage was replaced")
            yield from read_lines(self._connection, str(request["sql"]))
        except ERRORS as error:
            raise fault_of(error, subject, _KINDS) from error


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


@contextmanager
def exported(connector: Connector, reader: str | None = None) -> Iterator[ExportedSnapshot]:
    """A snapshot at the end of a new window, which `read_split` of other processes reads; see `snapshot_at_window`."""
    with snapshot_at_window(connector, reader) as (connection, number):
        server = _Server(connection)
        try:
            yield ExportedSnapshot(str(server.path), end_of(number))
        finally:
            server.close()


class WindowSnapshots(NoRanges):
    """`SnapshotSource`. A snapshot waits for no open transaction."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    @contextmanager
    def snapshot(self, timeout_s: float) -> Iterator[ExportedSnapshot]:
        del timeout_s
        with exported(self._connector) as snapshot:
            yield snapshot

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        del spec
        with self._connector.session(str(schema.name)) as connection:
            return splits.cut_table(connection, schema, split_bytes)

    def key_splits(self, schema: TableSchema, spec: TableSpec, keys: Sequence[Texts]) -> list[TableSplit]:
        """The whole table: how a key is printed need not be how the database compares it."""
        del keys
        return self.splits(schema, spec, WHOLE_TABLE)

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        split_bytes: int,
        most_splits: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        """None: a copy reads the whole table under one snapshot."""
        del schema, after, split_bytes, most_splits, above_bytes
        return None

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        subject = f"relation {split.relation}"
        try:
            mask = mask_lines(split.masks, self._connector.secret(MASK_KEY)) if split.masks else None
        except ValueError as error:
            raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, subject, str(error)) from error
        with self._connector.session(subject) as connection:
            gone = not exists(connection, split.relation)
            another = gone and split.reads is not None and bool(load_tables(connection, [split.reads]))
        if gone:
            kind = FaultKind.TABLE_STRUCTURE_CHANGED if another else FaultKind.TABLE_MISSING
            raise EngineFault(kind, subject, "the table is gone, or its storage was replaced")
        pieces = _asked(snapshot, split, subject)
        yield from pieces if mask is None else map(mask, pieces)


def _asked(snapshot: str, split: TableSplit, subject: str) -> Iterator[bytes]:
    request = json.dumps({"sql": split.sql, "subject": subject, "relation": split.relation}).encode()
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
