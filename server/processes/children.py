"""Child processes that cannot outlive us."""

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
# The kernel watches the thread that forked, not its process: one thread that lives as long as we do forks every child.
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
    """Start a program in a session of its own, so that the terminal's Ctrl-C reaches us alone.

    `command[0]` is a path. `output` takes stdout and stderr; None leaves them ours. `on_death` is sent to the child
    when this process dies, however it dies (Linux).
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
    """Ask a child to end and kill it if it has not done so in time. Returns its exit code."""
    if process.poll() is None:
        process.send_signal(asks)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()
