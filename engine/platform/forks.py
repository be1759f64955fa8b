"""Starts and ends the engine's child processes, which are forked from a fork server that has imported their modules.

multiprocessing keeps one fork server per process and restarts it after its end. But the start of a child fails, with varying exceptions,
if the fork server ends during it, or if another thread starts a child at the same time. Here one thread at a time starts a child, and
repeats the start if the fork server ended meanwhile.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from engine.platform.child_processes import how_it_ended

TRIES = 3
"""Attempts to start a child if the fork server ends during each of them."""
NOTICE_S = 1.0
"""Wait for a process's end after its descriptors were closed: the kernel closes them before it reports the end, much sooner than this."""
_UNKNOWN = 255
"""Exit code that multiprocessing returns for a child whose fork server has ended."""

_PROCESSES = multiprocessing.get_context("forkserver")
_STARTING = threading.Lock()
"""Held while multiprocessing starts a child or reads an exit code: each start also reaps earlier children, and an exit code can be read
only once."""


class NotStartedError(Exception):
    """A child process could not be started; the message says why."""


@dataclass(slots=True)
class _Server:
    """One fork server."""

    pid: int
    ended: bool = False
    exit_code: int | None = None

    def notice_end(self, timeout_s: float) -> bool:
        """Whether it has ended, or ends within the timeout. multiprocessing still has to reap it."""
        if not self.ended:
            with suppress(OSError):
                watched = os.pidfd_open(self.pid)
                try:
                    wait([watched], timeout_s)
                finally:
                    os.close(watched)
            with suppress(ChildProcessError):
                found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is not None:
                    self.ended = True
                    self.exit_code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        return self.ended

    @property
    def end(self) -> str:
        return f"the parent process (pid {self.pid}) {how_it_ended(self.exit_code)}"


class _Servers:
    """The current fork server. Used under `_STARTING`."""

    def __init__(self) -> None:
        self._last: _Server | None = None

    def run(self) -> None:
        """Start one if none is running. It may end at any time."""
        if self._last is not None:
            self._last.notice_end(0.0)
        forkserver.ensure_running()

    def last(self) -> _Server | None:
        """The fork server that multiprocessing started last; None if it could not start one."""
        pid: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]  # noqa: SLF001, RUF100
        if self._last is not None and (self._last.pid != pid or self._last.ended):
            self._last.ended = True
            self._last = None
        if self._last is None and pid is not None:
            self._last = _Server(pid)
        return self._last


_servers = _Servers()


class Child:
    """A started child process. Methods may be called from any thread."""

    def __init__(self, what: str, process: BaseProcess, connection: Connection, server: _Server | None) -> None:
        self.connection = connection
        """The engine's end of the connection to the child."""
        self.pid = process.pid or 0
        self.name = f"{what} (pid {self.pid})"
        self._process = process
        self._server = server

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end, at most `timeout_s` if given. Returns whether it has ended."""
        return bool(wait([self._process.sentinel], timeout_s))

    @property
    def exit_code(self) -> int | None:
        """Exit code as in subprocess. None: it has not ended, or its code was lost because its fork server ended too."""
        with _STARTING:
            self._process.join(0.0)
            code = self._process.exitcode
            return None if code == _UNKNOWN and self._server is not None and self._server.notice_end(NOTICE_S) else code

    @property
    def death(self) -> str:
        """How it ended, as the end of a sentence that begins with its name. To be called after its end."""
        code, server = self.exit_code, self._server
        return f"ended: {server.end}" if code is None and server is not None and server.ended else how_it_ended(code)


def preload(modules: Sequence[str]) -> None:
    """Set the modules that fork servers import; applies to those started later."""
    _PROCESSES.set_forkserver_preload(list(modules))


def prepare() -> None:
    """Start the fork server in advance, so that the first child does not wait for it. Returns at once."""
    with _STARTING, suppress(OSError):  # the start of a child reports the error
        _servers.run()


def start(what: str, main: Callable[..., None], arguments: Sequence[Any] = ()) -> Child:
    """Start a child that calls `main` with its end of a connection, followed by `arguments`. `what`: its name in messages to users.

    Blocks until the fork server has forked it. Raises NotStartedError.
    """
    with _STARTING:
        left = TRIES
        while True:
            left -= 1
            try:
                _servers.run()
                return _started(what, main, arguments)
            except (EOFError, OSError) as error:
                server = _servers.last()
                if server is None or not server.notice_end(NOTICE_S):
                    raise NotStartedError(f"{what}: {_words(error)}") from error
                if not left:
                    raise NotStartedError(f"{what}: {server.end}, as did those before it") from error


def _words(error: EOFError | OSError) -> str:
    system = error.strerror if isinstance(error, OSError) else None
    return system or "the parent process did not answer"


def _started(what: str, main: Callable[..., None], arguments: Sequence[Any]) -> Child:
    # A new connection per attempt: a child that was forked without our knowledge ends when its own connection is closed.
    ours, theirs = _PROCESSES.Pipe()
    try:
        with theirs:
            process = _PROCESSES.Process(target=main, args=(theirs, *arguments), name=what, daemon=True)
            process.start()
    except BaseException:
        ours.close()
        raise
    return Child(what, process, ours, _servers.last())
