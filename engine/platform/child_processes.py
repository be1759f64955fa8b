"""Child processes that never outlive the engine, and how an end of one is put into words."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
from multiprocessing.connection import Connection

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def die_with_parent() -> None:
    """Called first thing in a child: the kernel kills it when the thread that started it ends, however that happens."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() == 1:
        raise SystemExit(1)


def die_with_peer(connection: Connection) -> None:
    """Called first thing in a child of another process than the engine's: it is killed as soon as the engine's end of the connection is
    closed, which the kernel does when the engine ends, however that happens."""
    watched = select.poll()
    watched.register(connection.fileno(), 0)  # What is asked for makes no event, only that nobody is there any more.

    def wait() -> None:
        watched.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="engine-gone", daemon=True).start()


def name_process(name: str) -> None:
    """How this process is called where processes are listed; up to 15 letters."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def how_it_ended(code: int | None) -> str:
    """What follows a process's name in a sentence, from its exit code as subprocess gives it; None where that is not known."""
    if code is None:
        return "ended"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
