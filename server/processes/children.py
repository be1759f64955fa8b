"""Child processes that cannot outlive their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_GUARD = Path(__file__).with_name("exit_with_parent.py")
# The kernel's parent-death signal follows the forking thread, not its process, so one permanent thread forks all
# children.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawn")


@dataclass(frozen=True, slots=True)
class User:
    """An operating system user to run a child as."""

    uid: int
    gid: int


def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    output: IO[bytes] | int | None = None,
    user: User | None = None,
    on_death: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, so that the terminal's Ctrl-C reaches only this process.

    `command[0]` is a path. `output` receives stdout and stderr; None: they are inherited. `on_death` is the signal sent
    to the child when this process dies for any reason (Linux).
    """
    uid, gid = (user.uid, user.gid) if user else (-1, -1)
    head = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(int(on_death)), str(uid), str(gid)]
    return _SPAWNER.submit(
        subprocess.Popen,
        [*head, *command],
        env=dict(environment) if environment is not None else None,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    ).result()


def end(process: subprocess.Popen[bytes], asks: signal.Signals, timeout_s: float) -> int:
    """Ask a child to end, and kill it after the timeout. Returns its exit code."""
    if process.poll() is None:
        process.send_signal(asks)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()
