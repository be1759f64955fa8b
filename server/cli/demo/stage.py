"""The environment of the demonstration: an embedded source with its rows, a server and an engine, and the subscription."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg

from server.cli.client import Api, Document, NoServerError, ProblemError, segment
from server.cli.running import Running, UpOptions
from server.cli.sql_access import LOOPBACK, SqlPorts
from server.demo import schema
from server.demo.embedded import EmbeddedPostgres
from server.demo.persistent_cluster import persistent_cluster
from server.processes.ports import free_ports, is_listened_on
from server.processes.supervisor import ChildDied
from server.remedies import in_commands

SUBSCRIPTION = "orders"
DATABASE = "shop"
_ENGINE_TIMEOUT_S = 90.0
_LIVE_TIMEOUT_S = 300.0
_PATIENCE_KEPT_S = 2.0
_PATIENCE_THROWN_AWAY_S = 1.0
"""Seconds for server and engine to end by themselves. Short, since their files are removed right afterwards."""


class DemoError(RuntimeError):
    """The demonstration cannot continue; the message says why."""


@dataclass(frozen=True, slots=True)
class StageOptions:
    """Options. `home` None: a temporary folder, removed at the end; a port None: a free one."""

    home: Path | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    sql_port: int | None = None
    flight_port: int | None = None


class Stage:
    """The processes of the demonstration, from `set_up` to `tear_down`. `say` receives a line for each step."""

    def __init__(self, options: StageOptions, say: Callable[[str], None]) -> None:
        self._say = say
        self._temporary = options.home is None
        self.home = options.home or Path(tempfile.mkdtemp(prefix="penstock-demo-"))
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.deaths: list[ChildDied] = []
        self._interrupted = threading.Event()
        self._ending = threading.Lock()
        self.postgres = self._postgres()
        free = free_ports(3)
        self.sql = SqlPorts(options.sql_port or free[1], options.flight_port or free[2])
        up = UpOptions(
            self.home,
            options.host,
            options.port or free[0],
            logs=self.home / "logs",
            extra={"PENSTOCK_SQL_HOST": LOOPBACK},
            sql=self.sql,
        )
        self.running = Running(up, self.deaths.append)
        self.api: Api = self.running.api()

    def connect(self) -> psycopg.Connection[Any]:
        """A new connection to the source, in autocommit mode."""
        return self.postgres.connect(DATABASE)

    def interrupt(self) -> None:
        """End server and engine, and make `set_up` and `wait_live` fail. The source continues for its users."""
        self._interrupted.set()
        self.postgres.give_up()
        self._end_ours()

    def set_up(self) -> None:
        """Start all processes and create connections and subscription.

        Raises:
            DemoError, StartError, PostgresFailedError, ProblemError, NoServerError: a step failed.
            KeyboardInterrupt: `interrupt` was called.
        """
        self._step("starting server and engine")
        self.running.start()
        self._step(f"starting PostgreSQL {18} as the source, on port {self.postgres.port}")
        self.postgres.start()
        if not self.postgres.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]):
            self.postgres.execute(f"CREATE DATABASE {DATABASE}")
        with self.connect() as connection:
            schema.create(connection)
        self._step("waiting for the engine")
        self._wait_until(self._engine_connected, _ENGINE_TIMEOUT_S, "the engine did not connect")
        self._wait_until(self._sql_listens, _ENGINE_TIMEOUT_S, "the SQL endpoint does not listen")
        self._declare()

    def wait_live(self) -> None:
        """Return when every table is live. DemoError if one is parked, or the subscription failed."""
        self._step("copying")
        self._wait_until(self._all_live, _LIVE_TIMEOUT_S, "the tables did not become live")

    def tear_down(self) -> None:
        """End every process within five seconds, and remove temporary files."""
        self.api.close()
        source = threading.Thread(target=self._end_source, name="end-source")
        source.start()
        self._end_ours()
        source.join()
        if self._temporary:
            shutil.rmtree(self.home, ignore_errors=True)

    def _end_ours(self) -> None:
        """Return when server and engine have ended, even if another thread is ending them."""
        with self._ending:
            self.running.stop(_PATIENCE_THROWN_AWAY_S if self._temporary else _PATIENCE_KEPT_S)

    def _end_source(self) -> None:
        if self._temporary:
            self.postgres.destroy()
        else:
            self.postgres.stop("fast", _PATIENCE_KEPT_S)

    def _step(self, line: str) -> None:
        if self._interrupted.is_set():
            raise KeyboardInterrupt
        self._say(line)

    def log_tail(self, name: str, lines: int = 15) -> str:
        """The last lines of a child's log."""
        file = self.home / "logs" / f"{name}.log"
        return "\n".join(file.read_text(errors="replace").splitlines()[-lines:]) if file.is_file() else ""

    def _postgres(self) -> EmbeddedPostgres:
        """A source cluster below home; as root, in a folder that the server's user can reach."""
        return persistent_cluster(
            self.home / "source.json",
            None if self._temporary else self.home / "source",
            prefix="penstock-demo-pg-",
            settings={"max_wal_size": "2GB", "log_min_messages": "warning"},
        )

    def _declare(self) -> None:
        source: Document = {
            "kind": "postgres",
            "settings": {
                "host": self.postgres.host,
                "port": self.postgres.port,
                "database": DATABASE,
                "user": self.postgres.user,
                "sslmode": "disable",
            },
            "secrets": {"password": self.postgres.password},
        }
        self.api.put("/connections/shop", source)
        self.api.put("/connections/mart", {"kind": "duckdb", "settings": {"path": str(self.home / "mart.duckdb")}})
        self._step("checking the source")
        findings = self.api.post("/connections/shop/checks").get("findings") or []
        errors = [finding for finding in findings if finding.get("severity") == "error"]
        if errors:
            raise DemoError("; ".join(_with_remedy(finding["what"], finding) for finding in errors))
        body: Document = {
            "source": "shop",
            "target": "mart",
            "tables": schema.subscription_tables(),
            "desired_state": "running",
        }
        self.api.put(f"/subscriptions/{segment(SUBSCRIPTION)}", body)

    def _engine_connected(self) -> bool:
        try:
            self.api.send("GET", "/readyz", timeout_s=2.0)
        except (ProblemError, NoServerError):
            return False
        return True

    def _sql_listens(self) -> bool:
        return all(is_listened_on(LOOPBACK, port) for port in (self.sql.postgres, self.sql.flight) if port is not None)

    def _all_live(self) -> bool:
        subscription = self.api.get(f"/subscriptions/{SUBSCRIPTION}")
        if subscription.get("state") == "failed":
            raise DemoError(_failure_reason("the subscription failed", subscription))
        tables = list(self.api.items(f"/subscriptions/{SUBSCRIPTION}/tables"))
        for table in tables:
            if table["state"] == "parked":
                raise DemoError(_failure_reason(f"table {table['name']} is parked", table))
        return len(tables) == len(schema.TABLES) and all(table["state"] == "live" for table in tables)

    def _wait_until(self, done: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        deadline = monotonic() + timeout_s
        while not done():
            if self._interrupted.is_set():
                raise KeyboardInterrupt
            if monotonic() > deadline or len(self.deaths) > 5:
                raise DemoError(otherwise)
            self._interrupted.wait(0.2)


def _failure_reason(what: str, item: Document) -> str:
    return _with_remedy(f"{what}: {item.get('reason')}", item)


def _with_remedy(what: str, item: Document) -> str:
    return f"{what} ({in_commands(str(item.get('remedy')), item.get('actions') or ())})"
