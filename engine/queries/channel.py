"""What a query process has of the engine: a connection for messages, a bound on its memory, and one statement after another."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any

from engine.model.target import QueryRefused
from engine.platform.child_processes import die_with_parent, die_with_peer, name_process

MAX_SQL_CHARACTERS = 100_000
"""Longest statement in characters: some hundred kilobytes of nested subqueries overflow the stack of DuckDB's parser."""
_LEFT_SHARE = 0.2
"""Memory that a process may still hold after a statement; above it, the process is replaced."""
_NICE = 10
"""Niceness of query processes: with a difference of 10, replication gets nine tenths of a contended processor."""


def yield_to_replication() -> None:
    """Lower the priority of the calling thread: as that of query processes, where threads have one of their own."""
    if sys.platform == "linux":
        os.nice(_NICE)


class EngineChannel:
    """The process's end of the connection: JSON messages in both directions, with pipe ends attached."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._sending = threading.Lock()

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._control.recv_bytes())
        return message

    def send(self, message: Mapping[str, Any], handle: int | None = None) -> None:
        """`handle`: a file descriptor; it is passed to the engine, and closed here."""
        with self._sending:
            self._control.send_bytes(json.dumps(message).encode())
            if handle is not None:
                send_handle(self._control, handle, 0)
                os.close(handle)

    def asked(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self.send(message)
        return self.receive()


def match_parameters(needed: int, given: int) -> None:
    """Raises QueryRefused(query_invalid) unless each parameter of a statement has a value."""
    if needed != given:
        detail = (
            f"the statement has {needed} parameters, and {given} values were sent; send one value for each of $1, $2, …"
        )
        raise QueryRefused("query_invalid", detail)


Run = Callable[[EngineChannel, Mapping[str, Any]], dict[str, Any]]
"""Runs a statement that the engine sent, and says how it ended."""


def serve(control: Connection, memory: int, prepared: Callable[[], AbstractContextManager[Run]]) -> None:
    """Run statements until the engine is gone, or kills this process. `memory`: bytes beyond what it has at its start.

    `prepared` is called ahead of each statement, and once before memory is bounded.
    """
    die_with_parent()
    die_with_peer(control)
    name_process("penstock-query")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    engine = EngineChannel(control)
    with prepared():
        pass
    held = data_bytes()
    bound_memory(held + memory)
    while True:
        with prepared() as run:
            try:
                request = engine.receive()
            except EOFError:
                sys.exit(0)
            ended = run(engine, request)
        del run
        engine.send({**ended, "fit": data_bytes() < held + memory * _LEFT_SHARE})


def data_bytes() -> int:
    """Size of private writable mappings, whether used or not."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:"))


def bound_memory(most: int) -> None:
    """Make allocations fail that would exceed `data_bytes`."""
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
