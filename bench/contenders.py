"""The replication systems that are measured: Penstock, and PostgreSQL's logical replication into a second cluster."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, ClassVar, Protocol

from bench.arrivals import Arrivals
from bench.delay import DelayProxy
from bench.errors import BenchError
from bench.processes import Member, family, native_role, our_role, target_role
from bench.workload import DATABASE, Connection, Table
from engine.model.verification import VerificationMethod
from server.cli.client import Api, Document, NoServerError, ProblemError
from server.cli.running import Running, UpOptions
from server.cli.verify_command import run_verification, verified_equal
from server.demo.embedded import EmbeddedPostgres, server_folder
from server.processes.ports import free_port
from server.processes.supervisor import ChildDied

PENSTOCK, NATIVE = "penstock", "native"
SLOT = "native"
"""Slot name of PostgreSQL's subscription. The source's only other slot is Penstock's."""
DRAIN_TIMEOUT_S = 1800.0

_WAIT_TIMEOUT_MS = 10_000
_ASK_TIMEOUT_MS = 600_000
_LIVE_TIMEOUT_S = 600.0
PATIENTLY_S = 0.25
"""Polling interval of `until`, similar to the CLI's (0.2 s). Each poll costs the server some milliseconds."""
_FOLLOWED_EVERY_S = 1.0
"""Polling interval of `follow`: a copy competes with the server's answers for the processor."""
_PATH = "/subscriptions/bench"
_DUMPED = ("--no-publications", "--no-subscriptions")

SUBSCRIBER_SETTINGS = {
    "max_worker_processes": "16",
    "max_logical_replication_workers": "8",
    "wal_receiver_timeout": "0",
}


class Side(Protocol):
    """A replication system that follows the source from `start` to `stop`."""

    name: str
    slot: str
    """SQL condition on pg_replication_slots that is true for this side's slot only."""
    sender: str
    """SQL of the process id of the source's process that sends to this side; no row while there is none."""

    def start(self, tables: Sequence[Table]) -> None:
        """Start following `tables`; returns when all of them are followed."""

    def arm(self, number: int, position: str) -> Future[float]:
        """Start waiting for the row `number` of `marks`.

        `position`: the end of its commit in the source's log. The result is the time at which the row was seen, by
        perf_counter.
        """

    def visible(self, connection: Connection, number: int) -> None:
        """Return when row `number`, just committed on `connection`, is visible.

        Raises TimeoutError or ProblemError if it does not become visible.
        """

    def lag_ms(self) -> float | None:
        """The lag that the system itself reports; None if it reports none."""

    def members(self) -> list[Member]:
        """The processes of this side, without those of the source."""

    def stop(self) -> None:
        """Stop the side and remove everything that it created. May be called in any state."""


def wait_until(done: Callable[[], bool], timeout_s: float, what: str, every_s: float = 0.1) -> None:
    """Poll `done` until it returns true; BenchError after `timeout_s`. A poll that gets no answer is repeated."""
    deadline, pause = monotonic() + timeout_s, threading.Event()
    while not _tried(done):
        if monotonic() > deadline:
            raise BenchError(f"not within {timeout_s:g} s: {what}")
        pause.wait(every_s)


def _tried(done: Callable[[], bool]) -> bool:
    try:
        return done()
    except NoServerError:
        return False
    except ProblemError as problem:
        if problem.status < 500:
            raise
        return False


def sender_of(slot: str) -> str:
    """`Side.sender` of a side with a slot."""
    return f"SELECT active_pid FROM pg_replication_slots WHERE active AND NOT temporary AND {slot}"


class PenstockSide:
    """A Penstock server and engine, with all their files in a temporary folder."""

    name = PENSTOCK
    slot = f"slot_name <> '{SLOT}'"
    sender = sender_of(slot)
    capture: ClassVar[Document | None] = None
    """The subscription's `capture`; None: the usual one."""

    def __init__(
        self,
        source: EmbeddedPostgres,
        target: EmbeddedPostgres | None = None,
        *,
        apply: str = "auto",
        far_s: float = 0.0,
    ) -> None:
        """`target`: a cluster owned by this side; None for a DuckDB file. `apply`: the apply mode of the subscription.

        `far_s`: extra network delay to that cluster, in seconds per direction.
        """
        self._source = source
        self._target = target
        self._apply = apply
        self._far_s = far_s
        self._way: DelayProxy | None = None
        self.home = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        self._awaited: list[Document] = []
        self.deaths: list[ChildDied] = []
        options = UpOptions(self.home, port=free_port(), logs=self.home / "logs")
        self._running = Running(options, self.deaths.append)
        self.api: Api = self._running.api()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="await-penstock")

    def start(self, tables: Sequence[Table]) -> None:
        self.prepare()
        self.follow(tables)

    def prepare(self) -> None:
        """Start server, engine and target, and store the connections."""
        self._running.start()
        wait_until(self._ready, 120, "an engine connected")
        self.api.put("/connections/source", connection_to(self._source))
        target: Document = {"kind": "duckdb", "settings": {"path": str(self.home / "copy.duckdb")}}
        if self._target is not None:
            self._target.start()
            self._target.execute(f"CREATE DATABASE {DATABASE}")
            target = connection_to(self._target, self.target_port)
        self.api.put("/connections/target", target)

    def follow(self, tables: Sequence[Table], timeout_s: float = _LIVE_TIMEOUT_S) -> None:
        """Create the subscription; returns when all tables are copied and live."""
        self.api.put(_PATH, subscription(tables, self._apply, self.capture))
        wait_until(lambda: self._live(len(tables)), timeout_s, "the tables became live", _FOLLOWED_EVERY_S)

    def leave(self) -> None:
        """Delete the subscription with its slot and publications. The target's tables stay."""
        self.api.delete(_PATH)
        wait_until(lambda: self.api.find(_PATH) is None, 60, "the subscription was deleted")

    @property
    def target(self) -> EmbeddedPostgres:
        """The target cluster. Only for sides with a PostgreSQL target."""
        if self._target is None:
            raise AssertionError("the side fills a cluster")
        return self._target

    @property
    def target_port(self) -> int:
        """The port at which the engine reaches the target: the delaying proxy's if there is one."""
        if not self._far_s:
            return self.target.port
        if self._way is None:
            self._way = DelayProxy(self.target.host, self.target.port, self._far_s)
        return self._way.port

    def go_on_with(self, **policies: Document) -> None:
        """Restart the subscription with these policy fields changed. Returns when it runs."""
        self.api.patch(_PATH, {"desired_state": "paused"})
        wait_until(lambda: self._state() == "paused", 60, "the subscription paused")
        self.api.patch(_PATH, {**policies, "desired_state": "running"})
        wait_until(lambda: self._state() == "running", 60, "the subscription ran again")

    def arm(self, number: int, position: str) -> Future[float]:
        future = self._pool.submit(self._answered, position)
        wait_until(lambda: future.done() or self.api.get(f"{_PATH}/freshness")["waits"] > 0, 60, "the wait was open")
        return future

    def visible(self, connection: Connection, number: int) -> None:
        body: Document = {"position": self.position(connection), "timeout_ms": _WAIT_TIMEOUT_MS}
        if self._awaited:
            body["tables"] = self._awaited
        self.api.post(f"{_PATH}/freshness-waits", body, timeout_s=_WAIT_TIMEOUT_MS / 1000 + 5)

    def position(self, connection: Connection) -> str:
        """The source's position after the last commit on this connection."""
        row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        if row is None:
            raise AssertionError("the statement returns a row")
        return str(row[0])

    def await_only(self, tables: Sequence[str]) -> None:
        """Restrict the waits of `visible` to these tables; without names, they cover all tables."""
        self._awaited = [{"schema": "public", "name": name} for name in tables]

    def add_table(self, name: str) -> str:
        """Add a table to the subscription; returns its id when it is live."""
        table = str(self.api.post(f"{_PATH}/tables", declared(Table(name)))["id"])
        wait_until(lambda: self.table_state(table) == "live", _LIVE_TIMEOUT_S, f"{name} became live", PATIENTLY_S)
        return table

    def table_state(self, table: str) -> str:
        return str(self.api.get(f"{_PATH}/tables/{table}")["state"])

    def reload_table(self, table: str) -> None:
        """Reload a table; returns when the new rows are in place."""
        reload = self.api.post(f"{_PATH}/tables/{table}/reloads", {})
        path = f"{_PATH}/reloads/{reload['id']}"
        ended = {"succeeded", "failed"}
        wait_until(lambda: self.api.get(path)["state"] in ended, _LIVE_TIMEOUT_S, "the reload ended", PATIENTLY_S)
        if (found := self.api.get(path))["state"] != "succeeded":
            raise BenchError(f"the reload failed: {found.get('reason')}")

    def remove_table(self, table: str) -> None:
        """Remove a table from the subscription; its rows on the target stay."""
        self.api.delete(f"{_PATH}/tables/{table}")

    def lag_ms(self) -> float | None:
        lag = (self.api.get(_PATH).get("lag") or {}).get("seconds")
        return None if lag is None else float(lag) * 1000

    def members(self) -> list[Member]:
        pids = (self._running.supervisor.pid(name) for name in ("server", "engine"))
        ours = [member for pid in pids if pid is not None for member in family(pid, our_role)]
        return ours if self._target is None else [*ours, *family(self._target.pid, target_role)]

    def verify(self, method: VerificationMethod = VerificationMethod.ROWS) -> bool:
        """Whether source and target are equal, compared at one position: row by row, or by counts and checksums of key ranges."""
        return verified_equal(run_verification(self.api, "bench", {"method": method.value}, 1800))

    def query(self, sql: str) -> list[list[Any]]:
        """The rows that a read on the target returns."""
        rows: list[list[Any]] = self.api.post(f"{_PATH}/queries", {"sql": sql}, timeout_s=300)["rows"]
        return rows

    def last_batch(self) -> int:
        """The number of the last applied batch; 0 before the first."""
        newest = self.api.get(f"{_PATH}/batches?page_size=1")["items"]
        return int(newest[0]["batch"]) if newest else 0

    def batches(self, after: int) -> list[Document]:
        """The batches after number `after`, newest first, as the REST interface shows them; at most 500."""
        found = self.api.get(f"{_PATH}/batches?page_size=500")["items"]
        return [batch for batch in found if batch["batch"] > after]

    def log_tail(self, lines: int = 8) -> str:
        """The last lines of the engine's log."""
        file = self.home / "logs" / "engine.log"
        return "\n".join(file.read_text(errors="replace").splitlines()[-lines:]) if file.is_file() else ""

    def stop(self) -> None:
        self._running.stop()
        self.api.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._way is not None:
            self._way.close()
        if self._target is not None:
            self._target.destroy()
        shutil.rmtree(self.home, ignore_errors=True)

    def _answered(self, position: str) -> float:
        """Repeat the wait until the position is visible: one request has a maximum time, draining a backlog has not."""
        deadline = monotonic() + DRAIN_TIMEOUT_S
        while True:
            left_ms = min(_ASK_TIMEOUT_MS, max(1, round((deadline - monotonic()) * 1000)))
            try:
                body = {"position": position, "timeout_ms": left_ms}
                self.api.post(f"{_PATH}/freshness-waits", body, timeout_s=left_ms / 1000 + 30)
            except ProblemError as problem:
                if problem.code != "freshness_timeout" or monotonic() > deadline:
                    raise
            else:
                return perf_counter()

    def _ready(self) -> bool:
        self.api.send("GET", "/readyz", timeout_s=2.0)
        return True

    def _state(self) -> str:
        subscription = self.api.get(_PATH)
        if subscription["state"] == "failed":
            raise BenchError(f"the subscription failed: {subscription.get('reason')}")
        return str(subscription["state"])

    def _live(self, count: int) -> bool:
        self._state()
        states = [table["state"] for table in self.api.items(f"{_PATH}/tables", page_size=500)]
        if "parked" in states:
            raise BenchError("a table is parked")
        return len(states) == count and set(states) == {"live"}


def connection_to(cluster: EmbeddedPostgres, port: int | None = None) -> Document:
    """The body of a connection to the suite's database in `cluster`. `port`: of a proxy in front of the cluster."""
    settings = {"host": cluster.host, "port": port or cluster.port, "database": DATABASE, "user": cluster.user}
    return {"kind": "postgres", "settings": {**settings, "sslmode": "disable"}}


def subscription(tables: Sequence[Table], apply: str, capture: Document | None = None) -> Document:
    """The body of the suite's subscription. The mode `auto` is left out because it is the default."""
    body: Document = {"source": "source", "target": "target", "desired_state": "running"}
    if apply == "relaxed":
        body["apply"] = {"mode": "batch", "visibility": "relaxed"}
    elif apply != "auto":
        body["apply"] = {"mode": apply}
    if capture is not None:
        body["capture"] = capture
    return {**body, "tables": [declared(table) for table in tables]}


def declared(table: Table) -> Document:
    """The entry of a table in a subscription's `tables`."""
    return {"schema": table.schema, "name": table.name, **({"insert_only": True} if table.insert_only else {})}


class NativeSide:
    """A second cluster that subscribes to the source. Its tables are restored from a dump, so it starts with equal rows."""

    name = NATIVE
    slot = f"slot_name = '{SLOT}'"
    sender = sender_of(slot)

    def __init__(self, source: EmbeddedPostgres, settings: dict[str, str]) -> None:
        self._source = source
        self._copy = EmbeddedPostgres(
            server_folder("penstock-bench-pg-"), durable=True, settings={**settings, **SUBSCRIBER_SETTINGS}
        )
        self._arrivals: Arrivals | None = None
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="await-native")

    def start(self, tables: Sequence[Table]) -> None:
        self.prepare(rows=True)
        self._arrivals = Arrivals(self._copy)
        self._subscribe(tables, copy_data="false")

    def prepare(self, *, rows: bool = False) -> None:
        """Start the cluster and create the source's tables in it. `rows`: with their rows."""
        self._copy.start()
        self._copy.execute(f"CREATE DATABASE {DATABASE}")
        restore(self._source, self._copy, rows=rows)

    def follow(self, tables: Sequence[Table], timeout_s: float) -> None:
        """Create the subscription; returns when the rows of all tables are copied, and changes are followed."""
        self._subscribe(tables, copy_data="true")
        wait_until(
            lambda: self._synchronised(len(tables)), timeout_s, "the tables were synchronised", _FOLLOWED_EVERY_S
        )

    def leave(self) -> None:
        """Drop the subscription with its slot, and the publication. The tables stay."""
        self._copy.execute("DROP SUBSCRIPTION native", database=DATABASE)
        self._source.execute("DROP PUBLICATION native", database=DATABASE)

    @property
    def cluster(self) -> EmbeddedPostgres:
        """The subscribing cluster."""
        return self._copy

    def arm(self, number: int, position: str) -> Future[float]:
        return self._pool.submit(self._wait_seen, number)

    def visible(self, connection: Connection, number: int) -> None:
        self._known().wait(number, _WAIT_TIMEOUT_MS / 1000)

    def lag_ms(self) -> float | None:
        sql = "SELECT extract(epoch FROM replay_lag)::float8 FROM pg_stat_replication WHERE application_name = 'native'"
        rows = self._source.execute(sql)
        return float(rows[0][0]) * 1000 if rows and rows[0][0] is not None else None

    def members(self) -> list[Member]:
        return family(self._copy.pid, native_role)

    def stop(self) -> None:
        if self._arrivals is not None:
            self._arrivals.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._copy.destroy()

    def _subscribe(self, tables: Sequence[Table], *, copy_data: str) -> None:
        names = ", ".join(f"{table.schema}.{table.name}" for table in tables)
        self._source.execute(f"CREATE PUBLICATION native FOR TABLE {names}", database=DATABASE)
        self._copy.execute(
            f"CREATE SUBSCRIPTION native CONNECTION '{self._source.dsn(DATABASE)}' PUBLICATION native"
            f" WITH (slot_name = '{SLOT}', copy_data = {copy_data}, streaming = on)",
            database=DATABASE,
        )

    def _synchronised(self, count: int) -> bool:
        self._check_errors()
        states = self._copy.execute("SELECT srsubstate FROM pg_subscription_rel", database=DATABASE)
        return len(states) == count and set(states) == {("r",)}

    def _check_errors(self) -> None:
        sql = "SELECT coalesce(sum(apply_error_count + sync_error_count), 0) FROM pg_stat_subscription_stats"
        if self._copy.execute(sql) != [(0,)]:
            raise BenchError(f"PostgreSQL's own replication fails:\n{self._copy.log_tail(5)}")

    def _known(self) -> Arrivals:
        if self._arrivals is None:
            raise AssertionError("the side is started")
        return self._arrivals

    def _wait_seen(self, number: int) -> float:
        deadline = monotonic() + DRAIN_TIMEOUT_S
        while True:
            try:
                return self._known().wait(number, 5.0)
            except TimeoutError:
                if monotonic() > deadline:
                    raise
            self._check_errors()


def restore(source: EmbeddedPostgres, copy: EmbeddedPostgres, *, rows: bool) -> None:
    """Copy the tables of the suite's database to another cluster. `rows`: with their rows."""

    def at(postgres: EmbeddedPostgres, program: str) -> list[str]:
        return [source.program(program), "-h", postgres.host, "-p", str(postgres.port), "-U", postgres.user]

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        file = str(Path(folder) / "tables.sql")
        for command in (
            [*at(source, "pg_dump"), *_DUMPED, *([] if rows else ["--schema-only"]), "-f", file, DATABASE],
            [*at(copy, "psql"), "-q", "-X", "-v", "ON_ERROR_STOP=1", "-f", file, "-d", DATABASE],
        ):
            answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            if answer.returncode != 0:
                raise BenchError(f"{Path(command[0]).name}: {answer.stderr.strip()[-300:]}")
