"""Ties child processes to the engine's life, and describes how a process ended."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
from multiprocessing.connection import Connection

# Options of Linux' prctl(2), from <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def die_with_parent() -> None:
    """To be called first in a child: the kernel kills it when the thread that started it ends, in any way."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() == 1:
        raise SystemExit(1)


def die_with_peer(connection: Connection) -> None:
    """To be called first in a child whose parent is not the engine: it is killed when the engine's end of the connection is closed. The
    kernel closes it when the engine ends, in any way."""
    watched = select.poll()
    watched.register(connection.fileno(), 0)  # No event is requested: poll still reports that the peer closed.

    def wait() -> None:
        watched.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="engine-gone", daemon=True).start()


def name_process(name: str) -> None:
    """Set this process's name in process lists; the kernel keeps 15 bytes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def how_it_ended(code: int | None) -> str:
    """How a process ended, as the end of a sentence that begins with its name. `code`: as subprocess returns it; None = unknown."""
    if code is None:
        return "ended"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
