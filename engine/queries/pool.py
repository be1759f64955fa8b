"""The engine's side of query processes: started on demand, kept for the next statement, killed at a limit."""

from __future__ import annotations

import json
import os
import queue
import select
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

from engine.model.target import QueryLimits, QueryRefused
from engine.platform import forks

CLOSED = "closed"
_LATE = "late"
_CANCELLED = "cancelled"
_KEPT = 2
"""Idle processes that are kept."""
_END_SECONDS = 5.0
"""Seconds for a killed process to end and for its thread to notice; the kernel needs milliseconds, unless it waits for a disk. Not
measured."""
_WITH_HANDLE = frozenset({"scan", "answer"})

Message = dict[str, Any]
Begin = tuple[Callable[..., None], tuple[Any, ...]]
"""The process's command; the engine's end of the connection precedes these arguments."""


class QueryProcess:
    """One process. `said` returns its messages, except requests for scans, which `on_scan` receives in a separate thread."""

    def __init__(self, begin: Begin, folder: Path | None) -> None:
        """Raises QueryRefused(query_unavailable) if it cannot be started."""
        self.folder = folder
        self.on_scan: Callable[[Message, int], None] = _refuse_scan
        self.killed: str | None = None
        """Why it was killed."""
        self.fit = False
        """Whether it may run another statement: the last one was reported as ended, and left its memory as before."""
        main, arguments = begin
        try:
            self._child = forks.start("query process", main, arguments)
        except forks.NotStartedError as error:
            _remove(folder)
            raise QueryRefused("query_unavailable", f"not started: {error}; retry") from error
        self._control = self._child.connection
        self._said: queue.SimpleQueue[tuple[Message, int] | None] = queue.SimpleQueue()
        self._killing = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name="query-process", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; no effect if the process has ended, which `said` shows."""
        with suppress(OSError):
            self._control.send_bytes(json.dumps(message).encode())

    def said(self) -> tuple[Message, int] | None:
        """The next message, with its file descriptor, or -1. None: the process has ended."""
        return self._said.get()

    def kill(self, why: str) -> None:
        """Kill it. Callable from any thread; the first reason is kept."""
        with self._killing:
            if self.killed is None:
                self.killed = why
                self._child.kill()

    def end(self) -> None:
        """Kill it, and release all its resources."""
        self.kill("over")
        self._thread.join(_END_SECONDS)
        _remove(self.folder)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended. The connection shows it before what it was forked from reports it."""
        try:
            poll = select.poll()
            poll.register(self._control.fileno(), 0)
            return bool(poll.poll(0)) or self._child.wait(0.0)
        except OSError:  # closed after its end
            return True

    @property
    def exit_code(self) -> int | None:
        """As in subprocess, once it has ended; None if unknown."""
        self._child.wait(_END_SECONDS)
        return self._child.exit_code

    @property
    def death(self) -> str:
        """The process's id and how it ended."""
        self._child.wait(_END_SECONDS)
        return f"the {self._child.name} {self._child.death}"

    def _listen(self) -> None:
        try:
            while True:
                message = json.loads(self._control.recv_bytes())
                handle = recv_handle(self._control) if message["kind"] in _WITH_HANDLE else -1
                if message["kind"] == "scan":
                    self.on_scan(message, handle)
                else:
                    self._said.put((message, handle))
        except (EOFError, OSError, RuntimeError):
            pass
        finally:
            self._control.close()
            self._child.wait()
            self._said.put(None)


class Statement:
    """The exchange of engine and process while a statement runs. A target reports what it rejects, and why."""

    killed_for = "the target was being closed"
    """Why processes are killed, but at the limit of time."""

    def __init__(self, process: QueryProcess, limits: QueryLimits) -> None:
        self._process = process
        self._limits = limits

    def said(self, kind: str) -> tuple[Message, int]:
        """The next message, with its file descriptor. Raises what `failure` gives where it is of another kind."""
        said = self._process.said()
        if said is None or said[0]["kind"] != kind:
            raise self.failure(said)
        return said

    def end(self) -> None:
        """After the answer's rows. A cut stream ends like a complete one: only the closing message tells them apart.

        Raises the error that `failure` returns if the answer is incomplete.
        """
        end = self._process.said()
        if end is None or end[0]["refused"] is not None or self.lacks_rows():
            raise self.failure(end)
        self._process.fit = end[0]["fit"]

    def failure(self, end: tuple[Message, int] | None = None) -> Exception:
        """Why the statement ended; `end`: what the process said last, where it said anything."""
        if self._process.killed == _LATE:
            return QueryRefused("query_timeout", f"the query did not end within {self._limits.timeout_s:g} s")
        if self._process.killed == _CANCELLED:
            return QueryRefused("query_cancelled", "the query was cancelled")
        if self._process.killed is not None:
            return QueryRefused("query_unavailable", f"{self.killed_for}; ask again")
        if end is not None:
            self._process.fit = end[0]["fit"]
            return self.refusal(*end[0]["refused"])
        return QueryRefused("query_unavailable", f"{self._process.death}; ask again")

    def lacks_rows(self) -> bool:
        """Whether rows did not reach the process, which does not know it."""
        return False

    def refusal(self, code: str, detail: str) -> QueryRefused:
        """What the process refused, in the words that users get."""
        return QueryRefused(code, detail)


class QueryPool:
    """Processes for the statements on one target, one for each statement."""

    def __init__(self, begin: Callable[[Path | None], Begin], folder: Path | None = None) -> None:
        """`folder`: contains a folder for each process, for rows that do not fit into memory."""
        self._begin = begin
        self._folder = folder
        self._numbers = count()
        self._changed = threading.Lock()
        self._idle: deque[QueryProcess] = deque()
        self._busy: set[QueryProcess] = set()
        self._closed = False
        _remove(folder)  # of processes that were killed with their engine

    @contextmanager
    def process(self, limits: QueryLimits) -> Iterator[QueryProcess]:
        """A process for one statement, which is killed at the limit of time or on cancellation. It is kept only where it is `fit` then."""
        process = self._taken()
        process.fit = False
        limit = threading.Timer(limits.timeout_s, process.kill, [_LATE])
        limit.daemon = True
        limit.start()
        try:
            with limits.cancellation.stopping_by(lambda: process.kill(_CANCELLED)):
                yield process
        finally:
            limit.cancel()
            self._put_back(process)

    def close(self) -> None:
        """Kill all processes. Their statements end with `query_unavailable`."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, deque()
            busy = list(self._busy)
        for process in busy:
            process.kill(CLOSED)
        for process in idle:
            process.end()
        _remove(self._folder)

    def kill_busy(self, why: str) -> bool:
        """Kill the processes of running statements; False if none runs. New ones may begin."""
        with self._changed:
            busy = list(self._busy)
        for process in busy:
            process.kill(why)
        return bool(busy)

    def _taken(self) -> QueryProcess:
        with self._changed:
            if self._closed:
                raise QueryRefused("query_unavailable", "the target is being closed")
            process = self._idle.popleft() if self._idle else None
        while process is not None and process.has_ended:  # killed while it waited
            process.end()
            with self._changed:
                process = self._idle.popleft() if self._idle else None
        if process is None:
            folder = None if self._folder is None else self._folder / str(next(self._numbers))
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            process = QueryProcess(self._begin(folder), folder)
        with self._changed:
            self._busy.add(process)
        self._end_where_closed(process)
        return process

    def _end_where_closed(self, process: QueryProcess) -> None:
        with self._changed:
            if self._closed:
                process.kill(CLOSED)

    def _put_back(self, process: QueryProcess) -> None:
        process.on_scan = _refuse_scan
        with self._changed:
            self._busy.discard(process)
            kept = process.fit and process.killed is None and not self._closed and len(self._idle) < _KEPT
            if kept:
                self._idle.append(process)
        if not kept:
            process.end()


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_scan(_message: Message, handle: int) -> None:
    os.close(handle)
