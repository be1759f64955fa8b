"""What a query process has of the engine: a connection for messages, and a bound on its memory."""

from __future__ import annotations

import json
import os
import resource
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any

NICE = 10
"""How much a query process stands back where processors are short: with a difference of 10 replication has nine tenths of one."""


class EngineChannel:
    """This end of the way to the engine: messages in JSON both ways, and ends of pipes that go with them."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._sending = threading.Lock()

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._control.recv_bytes())
        return message

    def send(self, message: Mapping[str, Any], handle: int | None = None) -> None:
        """`handle`: a file descriptor; the engine gets it, and it is closed here."""
        with self._sending:
            self._control.send_bytes(json.dumps(message).encode())
            if handle is not None:
                send_handle(self._control, handle, 0)
                os.close(handle)

    def asked(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self.send(message)
        return self.receive()


def data_bytes() -> int:
    """What is mapped privately and may be written, whether or not it is used."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:"))


def bound_memory(most: int) -> None:
    """Let allocations fail with which `data_bytes` would be more."""
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
