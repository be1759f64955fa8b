"""Children are kept running while we live, and end with us."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

import psutil
import pytest

from server.processes.children import spawn
from server.processes.supervisor import ChildDied, ChildSpec, Supervisor

_SLEEP = "import signal; print('up', flush=True); signal.pause()"
_STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)


def _spec(log: Path, program: str) -> ChildSpec:
    return ChildSpec("child", (sys.executable, "-c", program), dict(os.environ), log)


def _wait_for(log: Path, text: str, count: int = 1) -> None:
    deadline = monotonic() + 20
    while not log.is_file() or log.read_text().count(text) < count:
        assert monotonic() < deadline, f"{text!r} did not come {count} times"
        os.sched_yield()


def test_died_child_is_started_again(tmp_path: Path) -> None:
    deaths: queue.Queue[ChildDied] = queue.Queue()
    log = tmp_path / "log"
    supervisor = Supervisor([_spec(log, _SLEEP)], deaths.put)
    supervisor.start()
    try:
        _wait_for(log, "up")
        first = supervisor.pid("child")
        assert first is not None
        os.kill(first, signal.SIGKILL)
        death = deaths.get(timeout=10)
        assert (death.exit_code, death.pause_s) == (-signal.SIGKILL, 0.5)
        _wait_for(log, "up", 2)
        assert supervisor.pid("child") not in (None, first)
        assert supervisor.deaths("child") == 1
    finally:
        supervisor.stop()
    assert deaths.empty()


def test_pauses_grow_for_a_child_that_cannot_run(tmp_path: Path) -> None:
    deaths: queue.Queue[ChildDied] = queue.Queue()
    supervisor = Supervisor([_spec(tmp_path / "log", "raise SystemExit(3)")], deaths.put)
    supervisor.start()
    pauses = [deaths.get(timeout=10).pause_s for _ in range(3)]
    supervisor.stop()
    assert pauses == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("program", [_SLEEP, _STUBBORN])
def test_stop_ends_children_and_grandchildren_in_time(tmp_path: Path, program: str) -> None:
    log = tmp_path / "log"
    nested = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_STUBBORN!r}])\n{program}"
    supervisor = Supervisor([_spec(log, nested)], lambda _: None)
    supervisor.start()
    _wait_for(log, "up", 2)
    pid = supervisor.pid("child")
    assert pid is not None
    family = [psutil.Process(pid), *psutil.Process(pid).children()]
    began = monotonic()
    supervisor.stop(timeout_s=0.5)
    assert monotonic() - began < 5
    assert len(family) == 2
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)


def test_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "import sys; from server.processes.children import spawn;"
        f"child = spawn([sys.executable, '-c', {_SLEEP!r}]); print(child.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    lines = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
    child = psutil.Process(int((lines - {b"up"}).pop()))
    parent.kill()
    parent.communicate()
    _, alive = psutil.wait_procs([child], timeout=10)
    assert alive == []


def test_child_runs_in_a_session_of_its_own() -> None:
    child = spawn([sys.executable, "-c", "import os; raise SystemExit(os.getsid(0) != os.getpid())"])
    assert child.wait(20) == 0
