"""A small shop database under a light load, for those who want to see a subscription run and have no source at hand."""

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

_CONNECTIONS = 2
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
    """How a sample database is."""

    UNAVAILABLE = "unavailable"
    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Standing:
    """How it is. `reason` says why, where it failed or cannot be; `transactions` of the load since the start."""

    state: SampleState
    reason: str | None = None
    transactions: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """How it is reached, from this machine only."""

    host: str
    port: int
    user: str
    password: str


class Sample:
    """The sample database of the data folder `home`: `start`ed and `remove`d by users, `close`d and resumed with the server.

    Its folder and address are remembered in `sample.json`, so it is the same database after a restart. All methods may be called from
    any thread; `start` and `standing` wait for nothing. A new one begins with so many `orders`.
    """

    def __init__(self, home: Path, orders: int = schema.ORDERS) -> None:
        self._home = home
        self._orders = orders
        self._file = home / "sample.json"
        self._lock = threading.Lock()
        self._run: _Run | None = None

    @property
    def is_kept(self) -> bool:
        """Whether somebody had it started, and nobody removed."""
        return self._file.is_file()

    def standing(self) -> Standing:
        run = self._run
        if run is not None:
            return run.standing()
        missing = why_not_bundled(18)
        return Standing(SampleState.ABSENT) if missing is None else Standing(SampleState.UNAVAILABLE, missing)

    def prepare(self) -> Address:
        """Settle where it will be, before it is started.

        Raises:
            PostgresMissingError: there is no PostgreSQL to run it with.
        """
        with self._lock:
            postgres = self._postgres()
        return Address(postgres.host, postgres.port, postgres.user, postgres.password or "")

    def start(self) -> None:
        """Begin to start it, where it does not run or has failed; `standing` tells how that goes.

        Raises:
            PostgresMissingError: there is no PostgreSQL to run it with.
        """
        with self._lock:
            if self._run is not None:
                if self._run.standing().state is not SampleState.FAILED:
                    return
                self._run.stop()
            self._run = _Run(self._postgres(), self._orders)
            self._run.start()

    def wait_settled(self, timeout_s: float) -> Standing:
        """Wait until a start that is under way has succeeded or failed, so long at most."""
        run = self._run
        if run is not None:
            run.settled.wait(timeout_s)
        return self.standing()

    def close(self) -> None:
        """End load and server; the next `start` goes on with the same database."""
        with self._lock:
            run, self._run = self._run, None
            if run is not None:
                run.stop()

    def remove(self) -> None:
        """End load and server, and delete the database."""
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
        self._load = Workload(lambda: postgres.connect(DATABASE), RATE, connections=_CONNECTIONS)
        self._state = SampleState.STARTING
        self._reason: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live, name="sample", daemon=True)

    def standing(self) -> Standing:
        return Standing(self._state, self._reason, self._load.transactions)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends also a start that is under way."""
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
        """Returns when it is to stop.

        Raises:
            PostgresFailedError: the server or its load ended.
        """
        looks = 0
        while not self._stopping.wait(_LOOK_EVERY_S):
            if not self._postgres.running:
                raise PostgresFailedError(f"PostgreSQL ended:\n{self._postgres.log_tail()}")
            if self._load.failure is not None:
                raise PostgresFailedError(f"the load ended with {type(self._load.failure).__name__}")
            looks += 1
            if looks % _TRIM_EVERY == 0:
                self._trim()

    def _trim(self) -> None:
        """Keep the newest orders only, so that a sample that is left running does not fill the disk."""
        oldest = "(SELECT max(id) FROM orders) - %s"
        self._postgres.execute(f"DELETE FROM orders WHERE id < {oldest}", [_ORDERS_KEPT], database=DATABASE)
