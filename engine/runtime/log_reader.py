"""The log reader process: lands raw records of one source log in segments. `python -m engine.runtime.reader_main FD`.

It is told what to do over the inherited socket, and reports there what it landed; it never outlives the engine.
"""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from engine.capture.postgres_log.source import PostgresSource
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.position import ZERO, Lsn
from engine.model.source import Landed, RecordChunk
from engine.model.subscription import ConnectionSpec, QueueMode
from engine.queue import SegmentWriter
from engine.runtime.children import die_with_parent
from engine.runtime.failpoints import Failpoint, arm_from_environment, hit

if TYPE_CHECKING:
    from engine.model.source import LogStream

READ_TIMEOUT_S = 0.02
"""How long a read waits for the log before it looks for commands; bounds how late a command is seen."""


NOTE_POSITION_S = 1.0
"""How often a position that moved without records is made durable in the queue."""


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """What the reader needs to start one session."""

    source: ConnectionSpec
    slot: str
    application: str
    start: Lsn
    queue: Path
    first_ordinal: Ordinal
    mode: QueueMode
    relations: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """The session is open; what lands from here on belongs to it."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Nothing landed, but everything committed up to `wal_end` has been read."""

    wal_end: Lsn


@dataclass(frozen=True, slots=True)
class Durable:
    """Everything up to `wal_end` is durable in the queue."""

    wal_end: Lsn


@dataclass(frozen=True, slots=True)
class Failed:
    """The reader ends with this fault."""

    kind: FaultKind
    subject: str
    detail: str


ReaderEvent = Started | Landed | Moved | Durable | Failed


@dataclass(frozen=True, slots=True)
class Confirm:
    """Tell the source that everything up to here may go."""

    position: Lsn


@dataclass(frozen=True, slots=True)
class AskPosition:
    """Ask the source for a keepalive at once."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Stop or resume landing records; keepalives go on being answered."""

    on: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """End the session and the process."""


ReaderCommand = Confirm | AskPosition | Hold | Stop


class _Reader:
    def __init__(self, config: ReaderConfig, engine: Connection) -> None:
        self._config = config
        self._engine = engine
        self._held = False
        self._confirmed = ZERO
        self._stopped = False
        self._noted = 0.0

    def run(self) -> None:
        config = self._config
        source = PostgresSource(config.source)
        stream = source.open_stream(config.slot, config.start, config.application)
        writer = SegmentWriter(
            config.queue,
            config.first_ordinal,
            fsync=config.mode is QueueMode.PERSIST,
            known_relations=config.relations,
            begin=config.start,
        )
        try:
            self._engine.send(Started())
            while not self._stopped:
                self._take_commands(stream)
                self._turn(stream, writer)
        finally:
            writer.close()
            stream.close()
            source.close()

    def _turn(self, stream: LogStream, writer: SegmentWriter) -> None:
        if self._held:
            self._engine.poll(READ_TIMEOUT_S)
            stream.confirm(self._confirmed)
            return
        chunk = stream.read(READ_TIMEOUT_S)
        if chunk is None:
            return
        if chunk.count == 0:
            self._engine.send(Moved(chunk.wal_end))
            self._note_position(chunk, writer)
            return
        hit(Failpoint.READER_BEFORE_APPEND)
        landed = writer.append(chunk)
        if self._config.mode is QueueMode.PERSIST:
            writer.sync()
        hit(Failpoint.READER_AFTER_APPEND)
        self._engine.send(landed)
        if self._config.mode is QueueMode.PERSIST:
            self._engine.send(Durable(chunk.wal_end))

    def _note_position(self, chunk: RecordChunk, writer: SegmentWriter) -> None:
        """Make a position without records durable, now and then, before the source may be told of it."""
        if self._config.mode is not QueueMode.PERSIST:
            return
        writer.append(chunk)
        now = time.monotonic()
        if now - self._noted >= NOTE_POSITION_S:
            self._noted = now
            writer.sync()
            self._engine.send(Durable(chunk.wal_end))

    def _take_commands(self, stream: LogStream) -> None:
        while not self._stopped and self._engine.poll(0):
            command = self._engine.recv()
            if isinstance(command, Confirm):
                self._confirmed = max(self._confirmed, command.position)
                stream.confirm(self._confirmed)
                hit(Failpoint.READER_AFTER_CONFIRM)
            elif isinstance(command, AskPosition):
                stream.ask_position()
            elif isinstance(command, Hold):
                self._held = command.on
            else:
                self._stopped = True


def main(fd: int) -> None:
    """Run until told to stop, the engine is gone, or a fault that is reported first."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arm_from_environment()
    engine = Connection(fd)
    config: ReaderConfig = engine.recv()
    try:
        _Reader(config, engine).run()
    except (BrokenPipeError, ConnectionResetError, EOFError):
        sys.exit(1)
    except EngineFault as fault:
        engine.send(Failed(fault.kind, fault.subject, fault.detail))
        sys.exit(1)
    finally:
        engine.close()
