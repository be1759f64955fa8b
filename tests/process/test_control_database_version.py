"""A control database that this version cannot work with: a message says so, with an exit code, and nothing is started."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from server.cli.exit_codes import ExitCode
from server.db import migrate
from server.processes.ports import free_port
from server.settings import SettingsError


def _penstock(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = [sys.executable, "-m", "server.cli.main", *arguments, "--home", str(home)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def _of_the_future(home: Path) -> None:
    home.mkdir()
    with closing(sqlite3.connect(home / "penstock.db")) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999_future')")
        connection.commit()


@pytest.mark.parametrize("command", ["serve", "up", "db upgrade"])
def test_a_newer_one_is_refused_in_words(tmp_path: Path, command: str) -> None:
    home = tmp_path / "home"
    _of_the_future(home)
    port = [] if command == "db upgrade" else ["--port", str(free_port())]
    ended = _penstock(home, *command.split(), *port)
    assert ended.returncode == ExitCode.USAGE
    assert "'9999_future' of a newer version" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "server_away" not in ended.stderr


def test_what_is_no_database_is_refused_in_words(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "penstock.db").write_text("a letter to a friend " * 100)
    ended = _penstock(home, "serve", "--port", str(free_port()))
    assert ended.returncode == ExitCode.USAGE
    assert "cannot be opened" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_missing_and_an_older_own_file_are_fine(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/penstock.db"
    migrate.require_usable(url)
    assert list(tmp_path.iterdir()) == []
    sqlite3.connect(tmp_path / "penstock.db").close()
    migrate.require_usable(url)
    migrate.upgrade(url)
    migrate.require_usable(url)


def test_an_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(SettingsError, match="cannot be opened") as refused:
        migrate.require_usable(f"postgresql+psycopg://u:hunter2@127.0.0.1:{free_port()}/x")
    assert "hunter2" not in str(refused.value)
