"""The engine's handle on a log reader process: start, listen, command, stop."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

from engine.model.fault import FaultKind
from engine.runtime.log_reader import Failed, ReaderCommand, ReaderConfig, ReaderEvent, Stop

STOP_TIMEOUT_S = 3.0


class ReaderProcess:
    """One log reader child. `listener` is called from a thread of its own, in order, and last of all with Failed."""

    def __init__(self, config: ReaderConfig, listener: Callable[[ReaderProcess, ReaderEvent], None]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "engine.runtime.reader_main", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        self._sending = threading.Lock()
        self._stopping = False
        self._listener = listener
        self._connection.send(config)
        self._thread = threading.Thread(target=self._listen, name=f"reader-{config.slot}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: ReaderCommand) -> None:
        """Send a command; a reader that is gone is noticed by the listener, not here."""
        with self._sending, contextlib.suppress(OSError):
            self._connection.send(command)

    def stop(self) -> None:
        """End the child: politely, then by SIGKILL. Safe to repeat."""
        self._stopping = True
        self.send(Stop())
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
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
        code = self._process.wait()
        if not self._stopping:
            died = Failed(FaultKind.LOG_READER_DIED, f"pid {self._process.pid}", f"ended with {_exit_text(code)}")
            self._listener(self, failed or died)


def _exit_text(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
