"""The log reader process: writes raw records of one source's log to segments of the queue.

It receives commands from the engine over a connection and reports there what it wrote. It never outlives the engine.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from engine.model.column_selection import TableSelection
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.last_commit import LastCommit
from engine.model.masks import MASK_KEY
from engine.model.position import ZERO, Lsn
from engine.model.source import Landed, RecordChunk, Source
from engine.model.subscription import ConnectionSpec, OriginFilter
from engine.platform.child_processes import die_with_parent, die_with_peer, name_process
from engine.platform.failpoints import Failpoint, arm_from_environment, hit
from engine.queue import Backlog, SegmentWriter, SessionHead, mark_durable, unmark_durable
from engine.queue.durability_switch import KeepDurable
from engine.records.selection import RecordSelector

if TYPE_CHECKING:
    from engine.model.source import LogStream

READ_TIMEOUT_S = 5.0
"""Seconds that a read waits for records; a command ends the wait."""
HELD_TIMEOUT_S = 1.0
"""Interval in seconds at which a reader on hold processes keepalive requests; well below the source's `wal_sender_timeout`."""
NOTE_POSITION_S = 1.0
"""Interval in seconds at which a position that moved without records is made durable in the queue."""


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """What the reader needs to start one session."""

    open_source: Callable[[ConnectionSpec], Source]
    """Importable by name."""
    source: ConnectionSpec
    reader: str
    application: str
    start: Lsn
    queue: Path
    first_ordinal: Ordinal
    order: KeepDurable
    relations: tuple[bytes, ...] = ()
    origin: OriginFilter = OriginFilter.ANY
    last: LastCommit | None = None
    """The last transaction up to `start`; the session verifies with it that it reads the same log (see `history`)."""
    selections: tuple[TableSelection, ...] = ()
    """Of all tables, if one of them has a selection of columns."""


@dataclass(frozen=True, slots=True)
class Started:
    """The session is open; later landings belong to it. Its transactions that end at or before `start` are ignored."""

    start: Lsn


@dataclass(frozen=True, slots=True)
class Verified:
    """The session was verified: it continues the log that was read before."""


@dataclass(frozen=True, slots=True)
class Moved:
    """No records, but everything committed up to `wal_end` has been read."""

    wal_end: Lsn


@dataclass(frozen=True, slots=True)
class Durable:
    """Everything up to `wal_end` is durable in the queue."""

    wal_end: Lsn


@dataclass(frozen=True, slots=True)
class Holds:
    """The order is in force. On: the queue up to `wal_end` is durable, and so is what follows. Off: nothing is made durable any more."""

    order: KeepDurable
    wal_end: Lsn


@dataclass(frozen=True, slots=True)
class Failed:
    """The reader ends with this fault."""

    kind: FaultKind
    subject: str
    detail: str


ReaderEvent = Started | Verified | Landed | Moved | Durable | Holds | Failed


@dataclass(frozen=True, slots=True)
class Confirm:
    """Confirm to the source that it may release its log up to this position."""

    position: Lsn


@dataclass(frozen=True, slots=True)
class AskPosition:
    """Ask the source for a keepalive at once."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Stop or resume writing records; keepalives are still answered."""

    on: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """End the session and the process."""


ReaderCommand = Confirm | AskPosition | Hold | KeepDurable | Stop


class _Reader:
    def __init__(self, config: ReaderConfig, engine: Connection) -> None:
        self._config = config
        self._engine = engine
        self._held = False
        self._confirmed = ZERO
        self._noted = 0.0
        self._durable = config.order.on
        self._verified = False
        self._making_durable: tuple[KeepDurable, Backlog] | None = None
        self._selector = (
            RecordSelector(config.selections, config.source.secrets.get(MASK_KEY)) if config.selections else None
        )

    def run(self) -> None:
        config = self._config
        self._prepare_queue()
        source = config.open_source(config.source)
        hit(Failpoint.READER_BEFORE_OPEN)
        stream = source.log.open_stream(
            config.reader, config.start, config.application, self._engine.fileno(), config.origin, config.last
        )
        hit(Failpoint.READER_OPENED)
        writer = SegmentWriter(
            config.queue,
            config.first_ordinal,
            fsync=self._durable,
            session=SessionHead(config.start, config.relations, config.origin),
        )
        try:
            if self._durable:
                mark_durable(config.queue)
            self._engine.send(Started(config.start))
            self._engine.send(Holds(config.order, config.start))
            while self._process_commands(stream, writer):
                self._turn(stream, writer)
        finally:
            writer.close()
            stream.close()
            source.close()

    def _prepare_queue(self) -> None:
        """Make the existing segments durable, or remove the durability mark, before new records are written."""
        if not self._durable:
            unmark_durable(self._config.queue)
            return
        backlog = Backlog(self._config.queue)
        while backlog.sync_next():
            pass

    def _turn(self, stream: LogStream, writer: SegmentWriter) -> None:
        self._make_durable(writer)
        self._tell_verified(stream)
        if self._held:
            self._engine.poll(0.0 if self._making_durable else HELD_TIMEOUT_S)
            stream.confirm(self._confirmed)
            return
        chunk = stream.read(0.0 if self._making_durable else READ_TIMEOUT_S)
        self._tell_verified(stream)
        if chunk is None:
            return
        if chunk.count == 0:
            self._engine.send(Moved(chunk.wal_end))
            self._note_position(chunk, writer)
            return
        if self._selector is not None:
            chunk = self._selector.apply(chunk)
        hit(Failpoint.READER_BEFORE_APPEND)
        landed = writer.append(chunk)
        if self._durable:
            writer.sync()
        hit(Failpoint.READER_AFTER_APPEND)
        self._engine.send(landed)
        if self._durable:
            self._engine.send(Durable(chunk.wal_end))

    def _tell_verified(self, stream: LogStream) -> None:
        if stream.verified and not self._verified:
            self._verified = True
            self._engine.send(Verified())

    def _note_position(self, chunk: RecordChunk, writer: SegmentWriter) -> None:
        """Make a position without records durable, every NOTE_POSITION_S, so that it may be confirmed to the source."""
        writer.append(chunk)
        if not self._durable:
            return
        now = time.monotonic()
        if now - self._noted >= NOTE_POSITION_S:
            self._noted = now
            writer.sync()
            self._engine.send(Durable(chunk.wal_end))

    def _make_durable(self, writer: SegmentWriter) -> None:
        """Make one more segment durable; the reader reads and answers keepalives between these steps."""
        if self._making_durable is None:
            return
        order, backlog = self._making_durable
        if backlog.sync_next(writer.path):
            return
        writer.keep_durable(on=True)
        hit(Failpoint.READER_BEFORE_MARK)
        mark_durable(self._config.queue)
        hit(Failpoint.READER_AFTER_MARK)
        self._durable, self._making_durable = True, None
        self._engine.send(Holds(order, writer.wal_end))

    def _keep(self, order: KeepDurable, writer: SegmentWriter) -> None:
        if order.on:
            self._making_durable = order, Backlog(self._config.queue)
            return
        unmark_durable(self._config.queue)
        hit(Failpoint.READER_AFTER_UNMARK)
        writer.keep_durable(on=False)
        self._durable, self._making_durable = False, None
        self._engine.send(Holds(order, writer.wal_end))

    def _process_commands(self, stream: LogStream, writer: SegmentWriter) -> bool:
        """Process the pending commands; False after Stop."""
        while self._engine.poll(0):
            command = self._engine.recv()
            if isinstance(command, Confirm):
                self._confirmed = max(self._confirmed, command.position)
                stream.confirm(self._confirmed)
                hit(Failpoint.READER_AFTER_CONFIRM)
            elif isinstance(command, AskPosition):
                stream.ask_position()
            elif isinstance(command, Hold):
                self._held = command.on
            elif isinstance(command, KeepDurable):
                self._keep(command, writer)
            else:
                return False
        return True


def main(engine: Connection, environment: Mapping[str, str]) -> None:
    """Entry point of the process: run until Stop, the end of the engine, or a fault, which is sent as Failed.

    `engine`: the connection, whose first message is the ReaderConfig. `environment`: the engine's current environment.
    """
    die_with_parent()
    die_with_peer(engine)
    name_process("penstock-reader")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(environment)
    arm_from_environment()
    config: ReaderConfig = engine.recv()
    gc.freeze()  # A collection over the objects of the libraries holds the log up for some 100 ms.
    try:
        _Reader(config, engine).run()
    except (BrokenPipeError, ConnectionResetError, EOFError):
        sys.exit(1)
    except EngineFault as fault:
        engine.send(Failed(fault.kind, fault.subject, fault.detail))
        sys.exit(1)
    finally:
        engine.close()
