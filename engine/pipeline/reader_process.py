"""The engine's handle on a log reader process: start, listen, command, stop."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

from engine import connectors
from engine.model.fault import EngineFault, FaultKind
from engine.pipeline import log_reader
from engine.pipeline.log_reader import Failed, ReaderCommand, ReaderConfig, ReaderEvent, Stop
from engine.platform import forks

STOP_TIMEOUT_S = 3.0
"""Seconds for a log reader to end after a Stop command, before it is killed: for a write and an fsync that it has begun. Not measured."""

KERNELS = "engine.pipeline.loaded_kernels"
"""Loads compiled code when it is imported, which only the process that log readers are forked from does."""

forks.preload([log_reader.__name__, connectors.__name__, *connectors.PRELOADED, KERNELS])
"""Log readers and query processes are forked from a process that has imported these modules and does nothing else. With an interpreter of
its own, each would cost a second of CPU and 100 MB of memory."""


def prepare() -> None:
    """Start the process from which readers are forked, so that the first reader does not wait for it. Returns at once."""
    forks.prepare()


class ReaderProcess:
    """One log reader child process.

    `listener` is called in a thread of this object, in the order of the events. The last event is Failed, unless `stop` was called.
    """

    def __init__(self, config: ReaderConfig, listener: Callable[[ReaderProcess, ReaderEvent], None]) -> None:
        """Start the process. Raises EngineFault(LOG_READER_DIED) if it cannot be started."""
        try:
            self._child = forks.start("log reader", log_reader.main, [dict(os.environ)])
        except forks.NotStartedError as error:
            raise EngineFault(FaultKind.LOG_READER_DIED, config.reader, f"not started: {error}") from error
        self._connection = self._child.connection
        self._sending = threading.Lock()
        self._stopping = False
        self._listener = listener
        with contextlib.suppress(OSError):  # The listening thread reports the loss.
            self._connection.send(config)
        self._thread = threading.Thread(target=self._listen, name=f"reader-{config.reader}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, command: ReaderCommand) -> None:
        """Send a command. Any thread may call it. The loss of the reader is reported to the listener, not here."""
        with self._sending, contextlib.suppress(OSError):
            self._connection.send(command)

    def stop(self) -> None:
        """End the process: by a Stop command, after STOP_TIMEOUT_S seconds by SIGKILL. Blocks. Idempotent."""
        self._stopping = True
        self.send(Stop())
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            self._child.kill()
            self._thread.join(STOP_TIMEOUT_S)

    def _listen(self) -> None:
        failed: Failed | None = None
        try:
            while True:
                event = self._connection.recv()
                if isinstance(event, Failed):
                    failed = event
                else:
                    self._listener(self, event)
        except (EOFError, OSError):
            pass
        finally:
            # A send on a connection that is closed meanwhile fails with a TypeError, not with an OSError.
            with self._sending:
                self._connection.close()
        self._child.wait()
        if not self._stopping:
            died = Failed(FaultKind.LOG_READER_DIED, self._child.name, self._child.death)
            self._listener(self, failed or died)
