"""Waits for commits on several nodes of one source, at a steady rate of transactions over all of them."""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from bench.contenders import connection_to, declared, wait_until
from bench.errors import BenchError
from bench.workload import DATABASE, Connection, Table
from server.cli.client import Api
from server.cli.running import Running, UpOptions
from server.cli.verify_command import run_verification, verified_equal
from server.demo.embedded import EmbeddedPostgres
from server.processes.ports import free_port
from server.processes.supervisor import ChildDied

Document = dict[str, Any]

_PATH = "/subscriptions/bench"
_LIVE_S = 180.0
_WARM_UP_S = 5.0
_WAIT_MS = 10_000
_SPAN_SHARE = 0.1
"""Share of the transactions that span two nodes."""


def measure_waits(
    nodes: Sequence[EmbeddedPostgres], tables: Sequence[Table], rate: float, waits_per_s: float, seconds: float
) -> Document:
    """Times from a commit on some node to the end of a wait for "now", in ms, while `rate` transactions a second are written."""
    home = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    deaths: list[ChildDied] = []
    running = Running(UpOptions(home, port=free_port(), logs=home / "logs"), deaths.append)
    api = running.api()
    try:
        running.start()
        _follow(api, nodes, tables, home)
        over, faults, written = threading.Event(), list[BaseException](), [0]
        writer = threading.Thread(target=_write, args=[nodes, rate, over, faults, written], daemon=True)
        writer.start()
        try:
            over.wait(_WARM_UP_S)
            first = written[0]
            began = perf_counter()
            times = _wait(api, nodes, waits_per_s, seconds)
            took = perf_counter() - began
            reached = (written[0] - first) / took
        finally:
            over.set()
            writer.join(30)
        if faults:
            raise faults[0]
        equal = verified_equal(run_verification(api, "bench", {}, 180))
    finally:
        api.close()
        running.stop()
        shutil.rmtree(home, ignore_errors=True)
    if deaths:
        raise BenchError(f"a process of Penstock ended: {deaths[0]}")
    return {
        "nodes": len(nodes),
        "transactions_per_s": round(reached),
        "waits": len(times),
        "p50_ms": round(statistics.median(times), 1),
        "p99_ms": round(sorted(times)[max(0, int(len(times) * 0.99) - 1)], 1),
        "equal": equal,
    }


def _follow(api: Api, nodes: Sequence[EmbeddedPostgres], tables: Sequence[Table], home: Path) -> None:
    wait_until(lambda: api.send("GET", "/readyz", timeout_s=2.0) is not None, 120, "an engine connected")
    for number, node in enumerate(nodes):
        api.put(f"/connections/n{number}", connection_to(node))
    listed = [{"name": f"n{number}", "connection": f"n{number}"} for number in range(len(nodes))]
    api.put("/connections/nodes", {"kind": "partitioned", "settings": {"nodes": listed}})
    api.put("/connections/copy", {"kind": "duckdb", "settings": {"path": str(home / "copy.duckdb")}})
    body = {
        "source": "nodes",
        "target": "copy",
        "tables": [declared(table) for table in tables],
        "capture": {"kind": "postgres_logs", "gid_pattern": "^(?P<gtid>.+)@"},
        "desired_state": "running",
    }
    api.put(_PATH, body)

    def is_live() -> bool:
        states = [table["state"] for table in api.items(f"{_PATH}/tables", page_size=500)]
        if "parked" in states:
            raise BenchError("a table is parked")
        return len(states) == len(tables) and set(states) == {"live"}

    wait_until(is_live, _LIVE_S, "all tables are live")


def _wait(api: Api, nodes: Sequence[EmbeddedPostgres], waits_per_s: float, seconds: float) -> list[float]:
    times: list[float] = []
    sessions = [node.connect(DATABASE) for node in nodes]
    pause = threading.Event()
    try:
        began = monotonic()
        while (now := monotonic()) < began + seconds:
            session = sessions[len(times) % len(sessions)]
            session.execute("UPDATE accounts SET amount = amount WHERE id = (SELECT max(id) FROM accounts)")
            at = perf_counter()
            api.post(f"{_PATH}/freshness-waits", {"timeout_ms": _WAIT_MS})
            times.append((perf_counter() - at) * 1000)
            pause.wait(max(0.0, now + 1 / waits_per_s - monotonic()))
    finally:
        for session in sessions:
            session.close()
    return times


def _write(
    nodes: Sequence[EmbeddedPostgres],
    rate: float,
    over: threading.Event,
    faults: list[BaseException],
    written: list[int],
) -> None:
    """Write local transactions, and some of two nodes, at this rate."""
    chance = random.Random(1)  # noqa: S311 - no secret
    sessions = [node.connect(DATABASE) for node in nodes]
    began, count = monotonic(), 0
    try:
        while not over.is_set():
            late = count / rate - (monotonic() - began)
            if late > 0 and over.wait(late):
                return
            if chance.random() < _SPAN_SHARE:
                pair = chance.sample(range(len(nodes)), 2)
                write_global(sessions, pair, "w", count)
            else:
                session = sessions[chance.randrange(len(nodes))]
                statement = "UPDATE accounts SET amount = amount + 1 WHERE id = (SELECT min(id) FROM accounts) + %s"
                session.execute(statement, [chance.randrange(1000)])
            count += 1
            written[0] = count
    except BaseException as error:
        faults.append(error)
    finally:
        for session in sessions:
            session.close()


def write_global(sessions: Sequence[Connection], parts: Sequence[int], prefix: str, number: int) -> None:
    """Commit a global transaction with a part on each of these nodes, in two phases. Its id is the prefix with the number."""
    for at in parts:
        sessions[at].execute("BEGIN")
        sessions[at].execute("INSERT INTO history VALUES (%s, now(), 'global')", [number])
        sessions[at].execute(f"PREPARE TRANSACTION '{prefix}{number}@{at}'".encode())
    for at in parts:
        sessions[at].execute(f"COMMIT PREPARED '{prefix}{number}@{at}'".encode())
