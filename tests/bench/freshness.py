"""How long after its acknowledgement a commit can be read on the copy, beside PostgreSQL's own logical replication.

Open loop: pgbench commits `--rate` transactions a second; beside it, `--waits` times a second, a client commits a row of
its own, and the clock runs from the acknowledgement of that commit to the answer that it is visible. For Penstock the
client then reads the source's position and asks for a freshness wait. For PostgreSQL a second cluster subscribes to the
same tables, and a trigger there notifies the client. Source and both targets write durably. First one is measured, then the
other, never both at a time.

Exit code 1 where p50 is over 200 ms, p99 over 1 s, or a wait was not answered.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import monotonic, perf_counter
from typing import Any

import psycopg

from server.cli.children import end, spawn
from server.cli.client import NoServerError, ProblemError
from server.demo.embedded import EmbeddedPostgres, server_folder
from server.demo.measure import percentile
from tests.fixtures.rig import DATABASE, Rig

P50_MOST_MS = 200.0
P99_MOST_MS = 1000.0
TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history", "marks")
_MARKS = "CREATE TABLE marks (id bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())"
_TIMEOUT_MS = 10_000
_CLIENTS = 48

Connection = psycopg.Connection[Any]
Visible = Callable[[Connection, int], bool | None]
"""Returns when the row is visible: whether it was at once, None where that is not known. Raises TimeoutError."""


@dataclass(slots=True)
class Measured:
    """One run: times in milliseconds from acknowledgement to answer."""

    times: list[float] = field(default_factory=list)
    on_arrival: int = 0
    failed: list[str] = field(default_factory=list)
    transactions_per_s: float = 0.0

    def summary(self) -> dict[str, Any]:
        count = len(self.times)
        return {
            "waits": count + len(self.failed),
            "failed": len(self.failed),
            "p50_ms": round(percentile(self.times, 0.50), 2),
            "p95_ms": round(percentile(self.times, 0.95), 2),
            "p99_ms": round(percentile(self.times, 0.99), 2),
            "max_ms": round(max(self.times, default=0.0), 2),
            "on_arrival_share": round(self.on_arrival / count, 3) if count else 0.0,
            "source_transactions_per_s": round(self.transactions_per_s, 1),
        }


class Client:
    """Commits rows of its own at fixed times, whether or not earlier ones were answered, and times each."""

    def __init__(self, connect: Callable[[], Connection], visible: Visible, per_second: float, first: int) -> None:
        self.measured = Measured()
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        self._all = [connect() for _ in range(_CLIENTS)]
        for connection in self._all:
            connection.execute("SELECT pg_current_wal_lsn()")
            self._idle.put(connection)
        self._visible = visible
        self._per_second = per_second
        self._next = first
        self._pause = threading.Event()

    def run(self, seconds: float, *, keep: bool) -> None:
        """Go on for so long; `keep` False throws the times away (warming up)."""
        began, number = monotonic(), 0
        with ThreadPoolExecutor(_CLIENTS) as pool:
            while (due := number / self._per_second) < seconds:
                self._pause.wait(max(0.0, began + due - monotonic()))
                number += 1
                self._next += 1
                pool.submit(self._one, self._next, keep=keep)

    def close(self) -> None:
        for connection in self._all:
            connection.close()

    def _one(self, number: int, *, keep: bool) -> None:
        connection = self._idle.get()
        try:
            connection.execute("INSERT INTO marks (id) VALUES (%s)", [number])
            acknowledged = perf_counter()
            at_once = self._visible(connection, number)
            took = (perf_counter() - acknowledged) * 1000
        except (ProblemError, NoServerError, TimeoutError, psycopg.Error) as error:
            self.measured.failed.append(f"{type(error).__name__}: {error}")
            return
        finally:
            self._idle.put(connection)
        if keep:
            self.measured.times.append(took)
            self.measured.on_arrival += bool(at_once)


@contextmanager
def load(postgres: EmbeddedPostgres, rate: float) -> Iterator[None]:
    """pgbench's own transactions (five statements each), begun on a schedule that does not wait for earlier ones."""
    command = [postgres.program("pgbench"), "-h", postgres.host, "-p", str(postgres.port), "-U", postgres.user]
    command += ["-n", "-M", "prepared", "-c", "8", "-j", "1", "-R", f"{rate:g}", "-T", "86400", DATABASE]
    process = spawn(command, output=subprocess.DEVNULL)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError("pgbench ended before its time")
    finally:
        end(process, signal.SIGINT, 5)


def measure(postgres: EmbeddedPostgres, visible: Visible, options: argparse.Namespace) -> Measured:
    """Warm up, then measure for `options.seconds` under load."""
    client = Client(lambda: postgres.connect(DATABASE), visible, options.waits, 0)
    try:
        with load(postgres, options.rate):
            client.run(options.warm_up, keep=False)
            before, began = _commits(postgres), monotonic()
            client.run(options.seconds, keep=True)
            client.measured.transactions_per_s = (_commits(postgres) - before) / (monotonic() - began)
    finally:
        client.close()
    return client.measured


def penstock(options: argparse.Namespace) -> Measured:
    """Freshness waits for the position read after each commit."""
    with Rig(durable=True) as rig:
        fill(rig.postgres, options.scale)
        insert_only = {"pgbench_history"}
        tables = [
            {"schema": "public", "name": n, **({"insert_only": True} if n in insert_only else {})} for n in TABLES
        ]
        rig.declare(tables)
        rig.wait_live(len(TABLES))

        def visible(connection: Connection, _number: int) -> bool:
            row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
            assert row is not None
            body = {"position": row[0], "timeout_ms": _TIMEOUT_MS}
            answer = rig.api.post(f"{rig.path}/freshness-waits", body, timeout_s=_TIMEOUT_MS / 1000 + 5)
            return bool(answer["receipt"]["on_arrival"])

        return measure(rig.postgres, visible, options)


def native(options: argparse.Namespace) -> Measured:
    """PostgreSQL's own logical replication into a second cluster, whose trigger notifies when a row has come."""
    with (
        EmbeddedPostgres(server_folder(), durable=True) as source,
        EmbeddedPostgres(server_folder(), durable=True) as copy,
    ):
        source.execute(f"CREATE DATABASE {DATABASE}")
        fill(source, options.scale)
        copy.execute(f"CREATE DATABASE {DATABASE}")
        pgbench(copy, "-i", "-I", "dtp")
        for statement in _SUBSCRIBER:
            copy.execute(statement, database=DATABASE)
        source.execute(f"CREATE PUBLICATION copied FOR TABLE {', '.join(TABLES)}", database=DATABASE)
        copy.execute(
            f"CREATE SUBSCRIPTION copied CONNECTION '{source.dsn(DATABASE)}' PUBLICATION copied", database=DATABASE
        )
        arrivals = Arrivals(copy)
        try:
            _until_copied(copy)
            return measure(source, arrivals.visible, options)
        finally:
            arrivals.close()
            copy.execute("DROP SUBSCRIPTION copied", database=DATABASE)
            copy.stop("immediate")
            source.destroy()
            copy.destroy()


_SUBSCRIBER = (
    _MARKS,
    "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN PERFORM pg_notify('marks', NEW.id::text); RETURN NULL; END $$",
    "CREATE TRIGGER tell AFTER INSERT ON marks FOR EACH ROW EXECUTE FUNCTION tell()",
    "ALTER TABLE marks ENABLE ALWAYS TRIGGER tell",
)


class Arrivals:
    """Rows that have become visible on the subscriber, as its notifications tell."""

    def __init__(self, copy: EmbeddedPostgres) -> None:
        self._seen: set[int] = set()
        self._changed = threading.Condition()
        self._closing = False
        self._connection = copy.connect(DATABASE)
        self._connection.execute("LISTEN marks")
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def visible(self, _connection: Connection, number: int) -> bool:
        with self._changed:
            at_once = number in self._seen
            if not self._changed.wait_for(lambda: number in self._seen, _TIMEOUT_MS / 1000):
                raise TimeoutError(f"row {number} did not arrive")
        return at_once

    def close(self) -> None:
        self._closing = True
        self._thread.join(5)
        self._connection.close()

    def _listen(self) -> None:
        while not self._closing:
            for notification in self._connection.notifies(timeout=0.5):
                with self._changed:
                    self._seen.add(int(notification.payload))
                    self._changed.notify_all()


def fill(postgres: EmbeddedPostgres, scale: int) -> None:
    """pgbench's tables and ours."""
    pgbench(postgres, "-i", "-q", "-s", str(scale))
    postgres.execute(_MARKS, database=DATABASE)


def pgbench(postgres: EmbeddedPostgres, *arguments: str) -> None:
    command = [postgres.program("pgbench"), "-h", postgres.host, "-p", str(postgres.port), "-U", postgres.user]
    subprocess.run([*command, *arguments, DATABASE], check=True, capture_output=True)


def _until_copied(copy: EmbeddedPostgres) -> None:
    deadline, pause = monotonic() + 120, threading.Event()
    while copy.execute("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'", database=DATABASE) != [(0,)]:
        if monotonic() > deadline:
            raise TimeoutError("the subscriber did not copy the tables in time")
        pause.wait(0.2)


def _commits(postgres: EmbeddedPostgres) -> int:
    sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
    return int(postgres.execute(sql, [DATABASE])[0][0])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60, help="measured time of each (60)")
    parser.add_argument("--warm-up", type=float, default=10, help="time before it under the same load (10)")
    parser.add_argument("--rate", type=float, default=500, help="transactions a second on the source (500)")
    parser.add_argument("--waits", type=float, default=20, help="waits a second (20)")
    parser.add_argument("--scale", type=int, default=5, help="pgbench's scale factor (5)")
    parser.add_argument("--only", choices=["penstock", "native"], help="leave the other out")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args()


def main() -> int:
    options = _options()
    results: dict[str, Measured] = {}
    for name, run in (("native", native), ("penstock", penstock)):
        if options.only in (None, name):
            sys.stderr.write(f"measuring {name} for {options.seconds:g} s\n")
            results[name] = run(options)
    summaries = {name: measured.summary() for name, measured in results.items()}
    for measured in results.values():
        sys.stderr.writelines(f"failed: {text}\n" for text in measured.failed[:5])
    if options.json:
        sys.stdout.write(json.dumps(summaries, indent=2) + "\n")
    else:
        _print_table(summaries)
    ours = results.get("penstock")
    return 0 if ours is None or _good(ours) else 1


def _good(measured: Measured) -> bool:
    p50, p99 = percentile(measured.times, 0.50), percentile(measured.times, 0.99)
    return bool(measured.times) and not measured.failed and p50 <= P50_MOST_MS and p99 <= P99_MOST_MS


def _print_table(summaries: dict[str, dict[str, Any]]) -> None:
    rows = list(next(iter(summaries.values())))
    sys.stdout.write(f"{'acknowledged commit to answer':<32}" + "".join(f"{name:>12}" for name in summaries) + "\n")
    for row in rows:
        cells = "".join(f"{summary[row]:>12}" for summary in summaries.values())
        sys.stdout.write(f"{row:<32}{cells}\n")


if __name__ == "__main__":
    sys.exit(main())
