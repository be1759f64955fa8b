"""`up`: the server and an engine as child processes on this machine."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from types import FrameType

from server.cli.client import Api
from server.cli.home import Home
from server.cli.sql_access import SqlPorts
from server.private_file import write_private_file
from server.processes.ports import why_not_listen
from server.processes.supervisor import ChildDied, ChildSpec, Supervisor

_START_TIMEOUT_S = 60.0


class StartError(RuntimeError):
    """The server could not be started; the message gives the reason if it is known."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Options of a run. `logs`: a folder for the children's output; None: it goes to our stderr."""

    home: Path
    host: str = "127.0.0.1"
    port: int = 8470
    insecure_no_auth: bool = False
    logs: Path | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    """Additional environment variables of both children."""
    sql: SqlPorts = field(default_factory=SqlPorts)

    @property
    def url(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{self.port}"


class Running:
    """A server and an engine that run until `stop`."""

    def __init__(self, options: UpOptions, on_death: Callable[[ChildDied], None]) -> None:
        self.options = options
        self.home = Home(options.home.expanduser().absolute())
        self.home.make()
        engine_token, _ = self.home.token(self.home.engine_token_file)
        self.admin_token, self.admin_token_is_new = self._admin_token()
        environment = {**os.environ, **options.extra, **options.sql.environment, **self._environment(engine_token)}
        self._sql_trouble = functools.partial(options.sql.trouble, environment)
        self._first_death = threading.Event()
        self._stopped = threading.Event()
        self._on_death = on_death
        self.supervisor = Supervisor([self._server(environment), self._engine(environment)], self._died)

    def start(self) -> None:
        """Start both and return when the server answers.

        Raises:
            StartError: the address is in use, the server ended or did not answer, or `stop` was called meanwhile.
        """
        self._check_address()
        self.supervisor.start()
        deadline = monotonic() + _START_TIMEOUT_S
        with Api(self.options.url, None) as api:
            while not api.alive():
                if self._stopped.is_set():
                    raise StartError("it was stopped before the server answered")
                if self.supervisor.deaths("server"):
                    self.stop()
                    raise StartError("the server ended right after its start; see its log")
                if monotonic() > deadline:
                    self.stop()
                    raise StartError("the server did not answer in time; see its log")
                self._first_death.wait(0.1)
        write_private_file(self.home.url_file, self.options.url + "\n")

    def stop(self, timeout_s: float = 3.0) -> None:
        """End both; processes that remain after `timeout_s` are killed. Takes at most five seconds by default. Thread-safe."""
        self._stopped.set()
        self.supervisor.stop(timeout_s)

    def sql_lines(self, subscription: str) -> list[str]:
        """What people need to read copies by SQL: a line for each protocol that is spoken."""
        token_file = None if self.options.insecure_no_auth else self.home.admin_token_file
        return self.options.sql.lines(subscription, token_file)

    def api(self, *, timeout_s: float = 30.0) -> Api:
        """A client with the administrator's token."""
        return Api(self.options.url, self.admin_token, timeout_s=timeout_s)

    def _died(self, death: ChildDied) -> None:
        if death.name == "server":
            self._first_death.set()
        self._on_death(death)

    def _admin_token(self) -> tuple[str, bool]:
        preset = os.environ.get("PENSTOCK_ADMIN_TOKEN")
        if preset:
            write_private_file(self.home.admin_token_file, preset + "\n")
            return preset, False
        return self.home.token(self.home.admin_token_file)

    def _environment(self, engine_token: str) -> dict[str, str]:
        options = self.options
        environment = {
            "PENSTOCK_HOME": str(self.home.folder),
            "PENSTOCK_HOST": options.host,
            "PENSTOCK_PORT": str(options.port),
            "PENSTOCK_URL": options.url,
            "PENSTOCK_ENGINE_TOKEN": engine_token,
        }
        if options.insecure_no_auth:
            environment["PENSTOCK_INSECURE_NO_AUTH"] = "true"
        return environment

    def _server(self, environment: Mapping[str, str]) -> ChildSpec:
        command = (sys.executable, "-m", "server.cli.main", "serve")
        return ChildSpec(
            "server", command, {**environment, "PENSTOCK_ADMIN_TOKEN": self.admin_token}, self._log("server")
        )

    def _engine(self, environment: Mapping[str, str]) -> ChildSpec:
        command = (sys.executable, "-m", "engine.control")
        own = {key: value for key, value in environment.items() if key != "PENSTOCK_ADMIN_TOKEN"}
        return ChildSpec("engine", command, own, self._log("engine"))

    def _log(self, name: str) -> Path | None:
        if self.options.logs is None:
            return None
        self.options.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.options.logs / f"{name}.log"

    def _check_address(self) -> None:
        trouble = why_not_listen(self.options.host, self.options.port) or self._sql_trouble()
        if trouble is not None:
            raise StartError(trouble)


class Interrupt:
    """Turns SIGINT, SIGTERM and SIGHUP into an event and calls the `on_interrupt` functions. A second one kills.

    The handler only writes to a pipe: it interrupts the main thread anywhere, also while that holds the event's lock.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self._calls: list[Callable[[], None]] = []
        self._read, self._write = os.pipe()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._arrived)
        threading.Thread(target=self._pass_on, name="interrupt", daemon=True).start()

    def on_interrupt(self, call: Callable[[], None]) -> None:
        """Call the function in another thread when a signal arrives; at once in this one if one has arrived."""
        self._calls.append(call)
        if self.event.is_set():
            call()

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        os.write(self._write, b"!")
        signal.signal(number, signal.SIG_DFL)

    def _pass_on(self) -> None:
        os.read(self._read, 1)
        self.event.set()
        for call in list(self._calls):
            call()
