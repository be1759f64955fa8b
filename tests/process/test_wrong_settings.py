"""A setting that cannot work: one line that names it and says what to do, an exit code, and no traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from server.cli.exit_codes import ExitCode
from server.processes.ports import free_port

pytestmark = pytest.mark.xdist_group("wrong_settings")


def _run(*command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = (sys.executable, "-m", "server.cli.main", *command)
    return subprocess.run(command, env=environment | settings, capture_output=True, text=True, timeout=60, check=False)


def _refused(ended: subprocess.CompletedProcess[str], said: str) -> None:
    """The heading, one line with `said`, and nothing that only a program reads."""
    assert ended.returncode == ExitCode.USAGE, ended.stderr
    heading, line = ended.stderr.splitlines()
    assert heading == "Invalid input"
    assert said in line
    assert ended.stdout == ""


@pytest.mark.parametrize("command", ["serve", pytest.param("up", marks=pytest.mark.chaos)])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        pytest.param("PENSTOCK_PORT", "99999", "port: ", marks=pytest.mark.chaos),
        pytest.param("PENSTOCK_LOG_LEVEL", "loud", "log_level: ", marks=pytest.mark.chaos),
        pytest.param("PENSTOCK_SECRET_KEYS", "abc", "32 bytes in URL-safe base64", marks=pytest.mark.chaos),
        ("PENSTOCK_HOME", "/dev/null/home", "name another with --home or PENSTOCK_HOME"),
        ("PENSTOCK_DATABASE_URL", "postgresql://u:pw@127.0.0.1:hunter2/x", "PENSTOCK_DATABASE_URL cannot be read"),
        pytest.param("PENSTOCK_DATABASE_URL", "sqlite:///", "names no file", marks=pytest.mark.chaos),
        pytest.param(
            "PENSTOCK_DATABASE_URL",
            "postgresql://u@127.0.0.1/x?sslrootcert=/missing/root.pem",
            "/missing/root.pem, sslrootcert of PENSTOCK_DATABASE_URL",
            marks=pytest.mark.chaos,
        ),
    ],
)
def test_of_the_server(tmp_path: Path, command: str, name: str, value: str, said: str) -> None:
    settings = {"PENSTOCK_HOME": str(tmp_path / "home"), "PENSTOCK_PORT": str(free_port()), name: value}
    ended = _run(command, **settings)
    _refused(ended, said)
    assert "hunter2" not in ended.stderr


def test_a_setting_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[server]\nlog_levle = "info"\n')
    _refused(_run("serve", PENSTOCK_HOME=str(tmp_path)), "log_levle: there is no such setting")


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        pytest.param("nonsense", 0o600, "32 bytes", marks=pytest.mark.chaos),
        pytest.param("", 0o600, "is empty", marks=pytest.mark.chaos),
        ("x", 0o644, "chmod 600"),
    ],
)
def test_a_bad_key_file(tmp_path: Path, content: str, mode: int, said: str) -> None:
    file = tmp_path / "secret.key"
    file.write_text(content)
    file.chmod(mode)
    _refused(_run("serve", PENSTOCK_HOME=str(tmp_path), PENSTOCK_PORT=str(free_port())), said)


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _refused(_run("serve", PENSTOCK_HOME=str(tmp_path), PENSTOCK_PORT=str(port)), "choose another --port")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PENSTOCK_DUCKDB_THREADS", "many", "PENSTOCK_DUCKDB_THREADS: "),
        ("PENSTOCK_ENGINE_TOKEN", "", "PENSTOCK_ENGINE_TOKEN is missing"),
        pytest.param("PENSTOCK_URL", "server:8470", "PENSTOCK_URL: ", marks=pytest.mark.chaos),
        ("PENSTOCK_HOME", "/dev/null/home", "name another with PENSTOCK_HOME"),
    ],
)
def test_of_the_engine(tmp_path: Path, name: str, value: str, said: str) -> None:
    settings = {"PENSTOCK_HOME": str(tmp_path), "PENSTOCK_ENGINE_TOKEN": "t" * 20, name: value}
    ended = _run("engine", **settings)
    assert ended.returncode == ExitCode.USAGE
    (line,) = ended.stderr.splitlines()
    assert said in line
