"""A small shop database under a light load, for users who want to try a subscription and have no source."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psycopg

from server.demo import schema
from server.demo.binaries import PostgresMissingError, why_not_bundled
from server.demo.embedded import EmbeddedPostgres, PostgresFailedError
from server.demo.persistent_cluster import persistent_cluster
from server.demo.workload import Workload

DATABASE = "shop"
RATE = 5.0
"""Transactions a second."""

_CLIENTS = 2
_ORDERS_KEPT = 50_000
_LOOK_EVERY_S = 1.0
_TRIM_EVERY = 60
_PATIENCE_S = 1.0
_SETTINGS = {
    "max_wal_size": "256MB",
    "max_slot_wal_keep_size": "2GB",  # a forgotten subscription must not fill the disk
    "log_min_messages": "warning",
}


class SampleState(StrEnum):
    """The state of a sample database."""

    UNAVAILABLE = "unavailable"
    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Standing:
    """The status. `reason`: why it failed or is unavailable; `transactions`: by the load since its start."""

    state: SampleState
    reason: str | None = None
    transactions: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """Its address, reachable from this machine only."""

    host: str
    port: int
    user: str
    password: str


class Sample:
    """The sample database of the data folder `home`: `start`ed and `remove`d by users, `close`d and resumed with the server.

    Folder and address are stored in `sample.json`, so that it is the same database after a restart. Thread-safe;
    `start` and `standing` do not block. A new database has `orders` orders.
    """

    def __init__(self, home: Path, orders: int = schema.ORDERS) -> None:
        self._home = home
        self._orders = orders
        self._file = home / "sample.json"
        self._lock = threading.Lock()
        self._run: _Run | None = None

    @property
    def is_kept(self) -> bool:
        """Whether a user has started it, and not removed it since."""
        return self._file.is_file()

    def standing(self) -> Standing:
        run = self._run
        if run is not None:
            return run.standing()
        missing = why_not_bundled(18)
        return Standing(SampleState.ABSENT) if missing is None else Standing(SampleState.UNAVAILABLE, missing)

    def prepare(self) -> Address:
        """Choose folder and address before the first start.

        Raises:
            PostgresMissingError: no PostgreSQL is installed to run it with.
        """
        with self._lock:
            postgres = self._postgres()
        return Address(postgres.host, postgres.port, postgres.user, postgres.password or "")

    def start(self) -> None:
        """Begin to start it, unless it runs; also after a failure. `standing` returns the progress.

        Raises:
            PostgresMissingError: no PostgreSQL is installed to run it with.
        """
        with self._lock:
            if self._run is not None:
                if self._run.standing().state is not SampleState.FAILED:
                    return
                self._run.stop()
            self._run = _Run(self._postgres(), self._orders)
            self._run.start()

    def wait_settled(self, timeout_s: float) -> Standing:
        """Wait until a start in progress has succeeded or failed, or the timeout has passed."""
        run = self._run
        if run is not None:
            run.settled.wait(timeout_s)
        return self.standing()

    def close(self) -> None:
        """Stop load and server; the next `start` continues with the same database."""
        with self._lock:
            run, self._run = self._run, None
            if run is not None:
                run.stop()

    def remove(self) -> None:
        """Stop load and server, and delete the database."""
        self.close()
        with self._lock:
            if not self.is_kept:
                return
            folder = self._postgres().folder
            self._file.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)

    def _postgres(self) -> EmbeddedPostgres:
        return persistent_cluster(self._file, self._home / "sample", prefix="penstock-sample-pg-", settings=_SETTINGS)


class _Run:
    """One start of the server with its load, in a thread of its own until `stop`."""

    def __init__(self, postgres: EmbeddedPostgres, orders: int) -> None:
        self.settled = threading.Event()
        self._postgres = postgres
        self._orders = orders
        self._load = Workload(postgres, DATABASE, RATE, clients=_CLIENTS)
        self._state = SampleState.STARTING
        self._reason: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live, name="sample", daemon=True)

    def standing(self) -> Standing:
        return Standing(self._state, self._reason, self._load.transactions)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop it, also during its start."""
        self._stopping.set()
        self._postgres.give_up()
        self._thread.join()

    def _live(self) -> None:
        try:
            self._set_up()
            self._watch()
        except (PostgresFailedError, PostgresMissingError, psycopg.Error, OSError) as error:
            self._reason, self._state = str(error), SampleState.FAILED
        finally:
            self.settled.set()
            self._load.stop(_PATIENCE_S)
            self._postgres.stop("fast", _PATIENCE_S)

    def _set_up(self) -> None:
        self._postgres.start()
        if not self._postgres.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]):
            self._postgres.execute(f"CREATE DATABASE {DATABASE}")
        with self._postgres.connect(DATABASE) as connection:
            schema.create(connection, self._orders)
        self._load.start()
        self._state = SampleState.RUNNING
        self.settled.set()

    def _watch(self) -> None:
        """Return when it is to stop.

        Raises:
            PostgresFailedError: the server or its load ended.
        """
        looks = 0
        while not self._stopping.wait(_LOOK_EVERY_S):
            if not self._postgres.running:
                raise PostgresFailedError(f"PostgreSQL ended:\n{self._postgres.log_tail()}")
            if self._load.failure is not None:
                raise PostgresFailedError(f"the load ended: {self._load.failure}")
            looks += 1
            if looks % _TRIM_EVERY == 0:
                self._trim()

    def _trim(self) -> None:
        """Delete all but the newest orders, so that a sample that keeps running does not fill the disk."""
        oldest = "(SELECT max(id) FROM orders) - %s"
        self._postgres.execute(f"DELETE FROM orders WHERE id < {oldest}", [_ORDERS_KEPT], database=DATABASE)
