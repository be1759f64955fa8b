"""Names of sessions that end with their process, for what is kept in files that several processes of one machine use."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

_OPEN: set[str] = set()
"""The open sessions of this process."""


def open_session() -> str:
    """A new session of this process: its pid, its start and a random number."""
    session = f"{os.getpid()} {started(os.getpid())} {uuid.uuid4().hex}"
    _OPEN.add(session)
    return session


def close_session(session: str) -> None:
    _OPEN.discard(session)


def is_alive(session: str) -> bool:
    """Whether the process of a session exists, and has not closed it."""
    pid, start, _ = session.split(" ")
    if int(pid) == os.getpid():
        return session in _OPEN
    return bool(start) and started(int(pid)) == start


def family(application: str) -> str:
    """The name of a session's application without the number of its engine's epoch at the end."""
    return application.rstrip("0123456789")


def started(pid: int) -> str:
    """When the process was started, in the system's ticks; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""
