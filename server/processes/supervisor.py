"""Keeps child processes running: restarts them with increasing delay when they die, and ends them in bounded time."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import IO

import psutil

from server.processes.children import spawn

_PAUSE_FIRST_S = 0.5
_PAUSE_MOST_S = 30.0
_LIVED_WELL_S = 30.0


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A program to keep running. `log` receives its output; None: it goes to our stderr."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    log: Path | None = None


@dataclass(frozen=True, slots=True)
class ChildDied:
    """A child ended by itself; it restarts after `pause_s`."""

    name: str
    exit_code: int
    pause_s: float


class _Child:
    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.process: subprocess.Popen[bytes] | None = None
        self.deaths = 0


class Supervisor:
    """Runs every child of `specs` from `start` to `stop`, each watched by a thread. `on_death` is called in those threads."""

    def __init__(self, specs: Sequence[ChildSpec], on_death: Callable[[ChildDied], None]) -> None:
        self._children = {spec.name: _Child(spec) for spec in specs}
        self._on_death = on_death
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for child in self._children.values():
            self._spawn(child)
            thread = threading.Thread(target=self._watch, args=(child,), name=f"watch-{child.spec.name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def pid(self, name: str) -> int | None:
        """The child's process id; None between its death and its restart."""
        process = self._children[name].process
        return process.pid if process is not None and process.poll() is None else None

    def replace(self, spec: ChildSpec) -> None:
        """Use `spec` for the child of its name from its next start on."""
        self._children[spec.name].spec = spec

    def spec(self, name: str) -> ChildSpec:
        """How the child is started."""
        return self._children[name].spec

    def deaths(self, name: str) -> int:
        """How often the child has ended by itself."""
        return self._children[name].deaths

    def stop(self, timeout_s: float = 3.0) -> None:
        """Ask all children to end at the same time; after the timeout, kill them and their remaining descendants."""
        with self._lock:
            self._stopping.set()
            processes = [child.process for child in self._children.values() if child.process is not None]
        families = [relative for process in processes for relative in descendants(process.pid)]
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = monotonic() + timeout_s
        for process in processes:
            try:
                process.wait(max(0.05, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # A JVM and its workers outlive a killed child.
        kill_all(wait_for_ends(families, 0.3), 0.5)
        for thread in self._threads:
            thread.join(0.2)

    def _spawn(self, child: _Child) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopping.is_set():
                return None
            spec = child.spec
            if spec.log is None:
                child.process = self._spawn_to(spec, sys.stderr.fileno())
            else:
                with spec.log.open("ab") as log:
                    child.process = self._spawn_to(spec, log)
            return child.process

    @staticmethod
    def _spawn_to(spec: ChildSpec, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        return spawn(spec.command, environment=spec.environment, output=output, on_death=signal.SIGTERM)

    def _watch(self, child: _Child) -> None:
        pause = _PAUSE_FIRST_S
        process = child.process
        while process is not None:
            started = monotonic()
            exit_code = process.wait()
            if self._stopping.is_set():
                return
            child.deaths += 1
            pause = _PAUSE_FIRST_S if monotonic() - started > _LIVED_WELL_S else pause
            self._on_death(ChildDied(child.spec.name, exit_code, pause))
            self._stopping.wait(pause)
            pause = min(pause * 2, _PAUSE_MOST_S)
            process = self._spawn(child)


def descendants(pid: int) -> list[psutil.Process]:
    """The processes below this one; none where it has ended."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill_all(processes: list[psutil.Process], timeout_s: float) -> None:
    """Kill the processes that have not ended, and wait for their ends up to the timeout."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()  # psutil compares the start time, so never another process with a reused id
    wait_for_ends(processes, timeout_s)


def wait_for_ends(processes: list[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """The processes that have not ended in time. A zombie counts as ended: not every container has an init that reaps it."""
    deadline = monotonic() + timeout_s
    while (alive := [process for process in processes if _runs(process)]) and monotonic() < deadline:
        sleep(0.02)
    return alive


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
