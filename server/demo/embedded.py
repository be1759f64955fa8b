"""An embedded PostgreSQL server in a folder: for the demonstration, and for every test that needs a real source."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psycopg
from psycopg.conninfo import make_conninfo

from server.demo.binaries import bundled, server_user
from server.processes.children import end, spawn
from server.processes.ports import free_port
from server.processes.supervisor import descendants, kill_all

StopMode = Literal["smart", "fast", "immediate"]

_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_BASE_SETTINGS: dict[str, str] = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "120",
    "max_prepared_transactions": "20",
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "shared_buffers": "64MB",
    "timezone": "'UTC'",
    "log_timezone": "'UTC'",
    "logging_collector": "off",
    "autovacuum_naptime": "10s",
}
_NOT_DURABLE: dict[str, str] = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
_DURABLE: dict[str, str] = {"fsync": "on", "synchronous_commit": "on"}
_KILLED_S = 5.0
"""Seconds to wait for killed processes to be gone."""


class PostgresFailedError(RuntimeError):
    """The server did not start, or one of its programs failed; the message ends with the last lines of its log."""


def server_folder(prefix: str = "penstock-pg-") -> Path:
    """A new temporary folder that the server's user can reach even if we are root."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    return folder


class EmbeddedPostgres:
    """One PostgreSQL cluster: `<folder>/data`, its log in `<folder>/server.log`, TCP on 127.0.0.1 only.

    `installation` is the folder of its programs, by default the wheel's PostgreSQL 18 (`bundled`). `settings` are written
    to postgresql.conf verbatim (quote strings). `durable` False turns fsync off: the data survives a crash of the server, not of the
    machine. With `password`, the superuser `postgres` needs it; without it, every local user is trusted. As root,
    `folder` and its parents must be reachable by the user `nobody`: use `server_folder()`. Not thread-safe, except
    `execute`, `connect` and `give_up`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        durable: bool = False,
        password: str | None = None,
        installation: Path | None = None,
    ) -> None:
        self.folder = folder
        self.host = "127.0.0.1"
        self.port = port or free_port()
        self.user = "postgres"
        self.password = password
        self.settings = dict(settings or {})
        self._durable = durable
        self._installation = installation or bundled(18)
        self._user = server_user()
        self._process: subprocess.Popen[bytes] | None = None
        self._initdb: subprocess.Popen[bytes] | None = None
        self._given_up = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop("immediate")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log_file(self) -> Path:
        return self.folder / "server.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The postmaster's process id; RuntimeError if the server is not running."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def program(self, name: str) -> str:
        """Path of one of the installation's programs, such as `pgbench`."""
        return str(self._installation / "bin" / name)

    def client_environment(self) -> dict[str, str]:
        """The environment for one of its client programs: with the password, and without settings of this process's libpq."""
        return _environment() if self.password is None else {**_environment(), "PGPASSWORD": self.password}

    def dsn(self, database: str = "postgres", **options: str | int) -> str:
        """A connection string for libpq."""
        parts: dict[str, Any] = {"host": self.host, "port": self.port, "user": self.user, "dbname": database, **options}
        if self.password is not None:
            parts.setdefault("password", self.password)
        return make_conninfo("", **parts)

    def connect(self, database: str = "postgres", **options: str | int) -> psycopg.Connection[tuple[Any, ...]]:
        """A new connection in autocommit mode."""
        return psycopg.connect(self.dsn(database, **options), autocommit=True)

    def execute(
        self, sql: str, parameters: Sequence[Any] | None = None, *, database: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run a statement in autocommit mode on a connection of its own. Returns its rows; [] for a statement without any."""
        with self.connect(database) as connection:
            cursor = connection.execute(sql.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def start(self, timeout_s: float = 60.0) -> None:
        """Create the cluster if it is missing, start the server and wait until it accepts connections."""
        if self.running:
            return
        if not (self.data / "PG_VERSION").is_file():
            self._initialise()
        self._write_settings()
        with self.log_file.open("ab") as log:
            self._process = spawn(
                [self.program("postgres"), "-D", str(self.data), "-p", str(self.port)],
                environment=_environment(),
                folder=self.data if self._user is None else Path("/"),
                output=log.fileno(),
                user=self._user,
                on_death=signal.SIGQUIT,
            )
        self._wait_ready(time.monotonic() + timeout_s)

    def give_up(self) -> None:
        """Make a `start` that is in progress in another thread, or the next one, fail immediately with PostgresFailedError."""
        self._given_up.set()
        initdb = self._initdb
        if initdb is not None:
            family = descendants(initdb.pid)
            initdb.kill()
            kill_all(family, _KILLED_S)

    def stop(self, mode: StopMode = "fast", timeout_s: float = 10.0) -> None:
        """Stop the server. It is killed after the timeout, since a replication client that does not confirm delays a shutdown."""
        self._end(_SIGNALS[mode], timeout_s)

    def restart(self, mode: StopMode = "fast", settings: Mapping[str, str] | None = None) -> None:
        """Stop and start on the same port, with `settings` added to the previous ones."""
        self.stop(mode)
        self.settings.update(settings or {})
        self.start()

    def kill9(self) -> None:
        """SIGKILL to the postmaster and all its processes: like a crash of the machine, except that the page cache survives."""
        self._end(signal.SIGKILL, _KILLED_S)

    def destroy(self) -> None:
        """Stop the server and remove its folder."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of the server's log; "" if it has none."""
        if not self.log_file.is_file():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def _end(self, asks: signal.Signals, timeout_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        backends = descendants(process.pid)
        end(process, asks, timeout_s)
        # Any of them keeps the server's shared memory, which prevents a new start.
        kill_all(backends, _KILLED_S)

    def _initialise(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data.mkdir(mode=0o700, exist_ok=True)
        if self._user is not None:
            os.chown(self.data, self._user.uid, self._user.gid)
        command = [
            self.program("initdb"),
            "-D",
            str(self.data),
            "-U",
            self.user,
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]
        secret: Path | None = None
        if self.password is None:
            command += ["-A", "trust"]
        else:
            secret = self._password_file(self.password)
            command += ["-A", "scram-sha-256", "--pwfile", str(secret)]
        try:
            with self.log_file.open("ab") as log:
                process = spawn(
                    command,
                    environment=_environment(),
                    folder=Path("/"),
                    output=log.fileno(),
                    user=self._user,
                    on_death=signal.SIGKILL,
                )
            self._initdb = process
            if self._given_up.is_set():
                process.kill()
            if process.wait(120) != 0:
                raise PostgresFailedError(f"initdb failed:\n{self.log_tail()}")
        finally:
            self._initdb = None
            if secret is not None:
                secret.unlink(missing_ok=True)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("include 'penstock.conf'\n")

    def _password_file(self, password: str) -> Path:
        path = self.folder / f".{secrets.token_hex(8)}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(password + "\n")
        if self._user is not None:
            os.chown(path, self._user.uid, self._user.gid)
        return path

    def _write_settings(self) -> None:
        durability = _DURABLE if self._durable else _NOT_DURABLE
        settings = {**_BASE_SETTINGS, **durability, **self.settings}
        path = self.data / "penstock.conf"
        path.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
        path.chmod(0o644)

    def _wait_ready(self, deadline: float) -> None:
        """Wait until the eighth line of `postmaster.pid` is `ready`: the server then accepts connections."""
        state = self.data / "postmaster.pid"
        while True:
            if not self.running:
                self._process = None
                raise PostgresFailedError(f"PostgreSQL did not start:\n{self.log_tail()}")
            lines = state.read_text().splitlines() if state.is_file() else []
            if len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready":
                return
            if self._given_up.is_set() or time.monotonic() > deadline:
                self.stop("immediate")
                raise PostgresFailedError(f"PostgreSQL was not ready in time:\n{self.log_tail()}")
            time.sleep(0.02)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LD_LIBRARY_PATH", "TMPDIR"}}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}
