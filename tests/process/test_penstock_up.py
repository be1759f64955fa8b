"""`penstock up` as a person starts it: server and engine run, and end with it however it ends."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from server.cli.client import Api
from server.processes.ports import free_port
from tests.fixtures.waiting import wait_until


@pytest.fixture
def up(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = [
        sys.executable,
        "-m",
        "server.cli.main",
        "up",
        "--home",
        str(tmp_path / "home"),
        *(part for option in ("--port", "--sql-port", "--flight-port") for part in (option, str(free_port()))),
    ]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    yield process
    process.kill()
    process.communicate()


def _started(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if line.startswith("Ctrl-C"):
            return lines
    raise AssertionError(f"it did not start: {lines}")


def test_tells_address_and_token_and_ends_with_its_children(up: subprocess.Popen[str], tmp_path: Path) -> None:
    lines = _started(up)
    home = tmp_path / "home"
    url = (home / "server.url").read_text().strip()
    token_file = home / "admin.token"
    assert url in lines[0]
    assert any(token_file.read_text().strip() in line for line in lines)
    assert any(line.endswith(f"{url}/#token={token_file.read_text().strip()}") for line in lines)
    (by_psql,) = [line for line in lines if line.startswith("SQL clients: ")]
    (by_flight,) = [line for line in lines if line.startswith("Flight SQL: ")]
    assert f"$(cat {token_file})" in by_psql
    assert str(token_file) in by_flight
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    with Api(url, token_file.read_text().strip()) as api:
        assert api.get("/subscriptions")["items"] == []
    engine_log = home / "logs" / "engine.log"
    wait_until(lambda: engine_log.stat().st_size > 0, 30, "the engine logs something")
    family = psutil.Process(up.pid).children(recursive=True)
    up.send_signal(signal.SIGTERM)
    assert up.wait(20) == 0
    assert len(family) >= 2
    assert '"event"' in (home / "logs" / "server.log").read_text()
    assert not [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    assert any(f"{sys.executable} -m server.cli.main status" in line for line in lines)
    assert [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []


def test_children_die_with_it(up: subprocess.Popen[str]) -> None:
    _started(up)
    children = psutil.Process(up.pid).children()
    up.kill()
    assert len(children) == 2
    assert psutil.wait_procs(children, timeout=10)[1] == []
