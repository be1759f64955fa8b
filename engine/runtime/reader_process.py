"""The engine's handle on a log reader process: start, listen, command, stop."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing import forkserver

from engine.apply.duckdb import query_process as duckdb_queries
from engine.apply.postgres import query_process as postgres_queries
from engine.model.fault import FaultKind
from engine.runtime import log_reader
from engine.runtime.log_reader import Failed, ReaderCommand, ReaderConfig, ReaderEvent, Stop

STOP_TIMEOUT_S = 3.0

_PROCESSES = multiprocessing.get_context("forkserver")
"""Readers, and query processes, are forked from a process that has imported what they need and does nothing else. An interpreter of its
own costs each of them a second of CPU and 100 MB of memory."""
_PROCESSES.set_forkserver_preload([log_reader.__name__, duckdb_queries.__name__, postgres_queries.__name__])


def prepare() -> None:
    """Start what readers are forked from, so that the first of them need not wait for it. Returns at once."""
    forkserver.ensure_running()


class ReaderProcess:
    """One log reader child. `listener` is called from a thread of its own, in order, and last of all with Failed."""

    def __init__(self, config: ReaderConfig, listener: Callable[[ReaderProcess, ReaderEvent], None]) -> None:
        self._connection, theirs = _PROCESSES.Pipe()
        with theirs:
            self._process = _PROCESSES.Process(
                target=log_reader.main, args=(theirs, dict(os.environ)), name=f"reader-{config.slot}", daemon=True
            )
            self._process.start()
        self._sending = threading.Lock()
        self._stopping = False
        self._listener = listener
        self._connection.send(config)
        self._thread = threading.Thread(target=self._listen, name=f"reader-{config.slot}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def send(self, command: ReaderCommand) -> None:
        """Send a command; a reader that is gone is noticed by the listener, not here."""
        with self._sending, contextlib.suppress(OSError):
            self._connection.send(command)

    def stop(self) -> None:
        """End the child: politely, then by SIGKILL. Safe to repeat."""
        self._stopping = True
        self.send(Stop())
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
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
            self._connection.close()
        self._process.join()
        if not self._stopping:
            died = Failed(
                FaultKind.LOG_READER_DIED, f"pid {self.pid}", f"ended with {_exit_text(self._process.exitcode)}"
            )
            self._listener(self, failed or died)


def _exit_text(code: int | None) -> str:
    if code is None:
        return "an exit code that nobody knows"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
