"""What a dashboard costs others: how long freshness waits take with and without ten SQL sessions that scan a large table continuously.

Under transactions at a steady rate, clients commit rows at scheduled times and wait for each. Rounds without and with the dashboard take
turns in one run. A wait is timed from the acknowledgement of its commit until its answer; the client's own delay at its begin is added. Run
as `python -m tests.bench.dashboard_waits`.

Prints the 99th percentiles and their ratio, and writes `dashboard-waits.json`. Exits with 1 if a wait or a scan failed, or the copy
differs. The goal of the ratio is only reported.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import psycopg

from bench.histogram import Times
from server.processes.ports import free_port
from tests.bench.http_lines import HttpLine, LostError
from tests.bench.lateness import short
from tests.bench.many_clients import LoopLateness, sql_settings
from tests.bench.proof_command import add_common_options, conclude
from tests.chaos import steady_writes
from tests.chaos.steady_writes import SteadyWrites
from tests.fixtures.rig import Rig

GOAL = 1.5
_CLIENTS = 24
_SETTLE_S = 3.0
_WAIT_MS = 60_000
_FILE = "dashboard-waits.json"
_END = "SELECT pg_current_wal_insert_lsn()::text"
_MAKE = """
CREATE TABLE marks (id bigint PRIMARY KEY);
CREATE TABLE facts (id bigint PRIMARY KEY, customer int NOT NULL, day date NOT NULL, amount numeric(12, 2) NOT NULL, note text NOT NULL);
INSERT INTO facts SELECT i, i % 1000, date '2026-01-01' + (i % 365)::int, i % 997, md5(i::text) FROM generate_series(1, {rows}) i;
"""
SCANS = (
    "SELECT customer, count(*), sum(amount) FROM facts GROUP BY customer ORDER BY 3 DESC LIMIT 10",
    "SELECT day, count(DISTINCT customer), avg(amount) FROM facts GROUP BY day ORDER BY day",
    "SELECT count(*) FROM facts WHERE note LIKE '%abc%'",
    "SELECT day, max(note), sum(amount) FROM facts WHERE customer < 500 GROUP BY day ORDER BY 3 LIMIT 20",
)
TABLES = ("marks", "facts", *steady_writes.TABLES)

Document = dict[str, Any]


class Others:
    """Clients that commit and wait, in an open loop."""

    def __init__(self, rig: Rig, per_s: float) -> None:
        self.times = Times()
        self.failures: Counter[str] = Counter()
        self._rig = rig
        self._per_s = per_s
        self._number = 0
        self._idle: asyncio.Queue[tuple[psycopg.AsyncConnection[Any], HttpLine]] = asyncio.Queue()

    async def connect(self, stack: AsyncExitStack) -> None:
        for _ in range(_CLIENTS):
            connection = await psycopg.AsyncConnection.connect(self._rig.dsn, autocommit=True)
            line = HttpLine(self._rig.running.options.port, self._rig.running.admin_token)
            self._idle.put_nowait((await stack.enter_async_context(connection), await stack.enter_async_context(line)))

    async def run(self, seconds: float, *, keep: bool) -> None:
        """Commit and wait for `seconds`; `keep` False discards the times."""
        loop = asyncio.get_running_loop()
        began, number = loop.time(), 0
        async with asyncio.TaskGroup() as group:
            while (due := number / self._per_s) < seconds:
                await asyncio.sleep(began + due - loop.time())
                number += 1
                group.create_task(self._one(began + due, keep=keep))

    async def _one(self, due: float, *, keep: bool) -> None:
        loop = asyncio.get_running_loop()
        connection, line = await self._idle.get()
        try:
            self._number += 1
            late = loop.time() - due
            await connection.execute("INSERT INTO marks VALUES (%s)", [self._number])
            acknowledged = loop.time()
            ((position,),) = await (await connection.execute(_END)).fetchall()
            body = {"position": position, "timeout_ms": _WAIT_MS}
            status, document = await line.request("POST", f"{self._rig.path}/freshness-waits", body)
            took = loop.time() - acknowledged
        except LostError as error:
            self.failures[str(error)] += 1
            return
        finally:
            self._idle.put_nowait((connection, line))
        if status != 200:
            self.failures[f"{status} {document.get('code')}"] += 1
        elif keep:
            self.times.record((took + late) * 1000)


class Dashboard:
    """Sessions that scan, one statement after another, for the duration of the block."""

    def __init__(self, settings: dict[str, Any], sessions: int) -> None:
        self.times = Times()
        self.failures: Counter[str] = Counter()
        self._settings = settings
        self._sessions = sessions
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> None:
        self._stopping = False
        self._tasks = [asyncio.create_task(self._session(number)) for number in range(self._sessions)]

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _session(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with await psycopg.AsyncConnection.connect(**self._settings, autocommit=True) as connection:
                while not self._stopping:
                    number += 1
                    began = loop.time()
                    await (await connection.execute(SCANS[number % len(SCANS)].encode())).fetchall()
                    self.times.record((loop.time() - began) * 1000)
        except psycopg.Error as error:
            self.failures[f"{type(error).__name__} {error.sqlstate or ''}".strip()] += 1


async def measure(rig: Rig, port: int, options: argparse.Namespace) -> Document:
    """All rounds; each kind's 99th percentiles, and the ratio."""
    dashboard = Dashboard(sql_settings(rig, port), options.sessions)
    loop = LoopLateness()
    ticking = asyncio.create_task(loop.run())
    rounds: dict[str, list[Document]] = {"without": [], "with": []}
    failures: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        others = Others(rig, options.waits_per_s)
        await others.connect(stack)
        await others.run(_SETTLE_S, keep=False)
        for _ in range(options.rounds):
            for kind, done in rounds.items():
                others.times = Times()
                async with AsyncExitStack() as scanning:
                    if kind == "with":
                        await scanning.enter_async_context(dashboard)
                    await others.run(_SETTLE_S, keep=False)
                    await others.run(options.round_seconds, keep=True)
                done.append(short(others.times))
                sys.stderr.write(f"{kind}: {done[-1]}\n")
        failures = others.failures + dashboard.failures
    ticking.cancel()
    p99 = {kind: statistics.median(one["p99_ms"] for one in each) for kind, each in rounds.items()}
    pairs = zip(rounds["with"], rounds["without"], strict=True)
    return {
        "rounds": rounds,
        "p99_ms": p99,
        "ratio": round(statistics.median(one["p99_ms"] / other["p99_ms"] for one, other in pairs), 2),
        "scans": short(dashboard.times),
        "failures": dict(failures),
        "client_loop_late": short(loop.times),
    }


def run(options: argparse.Namespace) -> Document:
    """One run with a source, server, engine and copy of its own."""
    port = free_port()
    with Rig(durable=False, extra={"PENSTOCK_SQL_PORT": str(port)}, target_kind=options.target) as rig:
        with rig.connect() as connection:
            connection.execute((steady_writes.DDL + _MAKE.format(rows=options.rows)).encode())
        rig.declare([{"schema": "public", "name": table} for table in TABLES])
        rig.wait_live(len(TABLES))
        with SteadyWrites(rig, options.rate):
            document = asyncio.run(measure(rig, port, options))
        equal, _ = rig.verify()
    wrong = [f"failed: {document['failures']}"] if document["failures"] else []
    wrong += [] if equal else ["the copy does not equal the source"]
    return {"passed": not wrong, "wrong": wrong, "goal": GOAL, "goal_met": document["ratio"] <= GOAL, **document}


def summary(document: Document) -> str:
    """A few lines for people."""
    p99, scans = document["p99_ms"], document["scans"]
    lines = [
        f"p99 of waits without the dashboard {p99['without']} ms, with it {p99['with']} ms (medians of the rounds)",
        f"{scans['count']} scans, p50 {scans['p50_ms']}, p99 {scans['p99_ms']} ms",
        f"this client's own lateness: p99 {document['client_loop_late']['p99_ms']} ms",
        f"ratio of p99, median of the rounds: {document['ratio']} (goal {GOAL}: {'met' if document['goal_met'] else 'MISSED'})",
        "PASSED" if document["passed"] else f"FAILED: {document['wrong']}",
    ]
    return "\n".join(lines)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dashboard_waits", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=10, help="sessions of the dashboard (10)")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of rounds without and with the dashboard (5)")
    parser.add_argument("--round-seconds", type=float, default=30, help="duration of a round (30)")
    parser.add_argument("--waits-per-s", type=float, default=20, help="waits of the others a second (20)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the scanned table (1000000)")
    parser.add_argument("--rate", type=float, default=300, help="transactions a second (300)")
    add_common_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    document = run(options)
    return conclude(document, summary(document), options.out / _FILE)


if __name__ == "__main__":
    sys.exit(main())
