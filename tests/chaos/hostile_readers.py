"""Readers whose statements use all available resources, under load: sixty in a row from ten sessions while transactions are replicated.

Waits for "now" are requested continuously, first alone and then concurrently with the statements. Measured: the memory of all our
processes, the duration of the waits, and whether any process except those of the statements restarted. Prints a JSON summary; exits with
1 if memory exceeds the limit, the median wait more than doubles, or a process restarted. Run as `python -m tests.chaos.hostile_readers`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import httpx
import psutil

from bench.pgbench import run as pgbench
from engine.platform.settings import EngineSettings
from server.cli.client import NoServerError, ProblemError
from tests.chaos.memory import Memory
from tests.fixtures.rig import Rig

SESSIONS = 10
STATEMENTS = 60
RATE = 500
CALM_S = 20.0
LIMIT_MS = 5_000
OWN_MB = 2_500
QUERY_MB = 512
TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers")
_WIDE = ", ".join(f"md5(CAST(i + {n} AS text)) AS c{n}" for n in range(30))
HOSTILE: dict[str, list[str]] = {
    "duckdb": [
        "SELECT len(range(300000000))",
        "SELECT length(repeat('x', 1500000000))",
        "SELECT length(lpad('x', 1500000000, 'y'))",
        "SELECT length(printf('%1500000000d', 1))",
        "SELECT len(list(repeat('x', 1000000))) FROM range(100000)",
        "SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))",
        f"SELECT {_WIDE} FROM range(1000000) AS r(i)",
        "SELECT string_agg(repeat('x', 100000)) FROM range(100000)",
        "SELECT count(*) FROM pgbench_accounts a, pgbench_accounts b, pgbench_accounts c WHERE hash(a.aid + b.aid + c.aid) = 1",
        "SELECT * FROM pgbench_accounts a, pgbench_accounts b ORDER BY hash(a.aid * b.aid)",
    ],
    "postgres": [
        "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b",
        "SELECT repeat('x', 900000000)",
        "SELECT length(repeat('x', 1000000000))",
        "SELECT pg_sleep(100)",
        "SELECT md5(i::text) FROM generate_series(1, 20000000) i ORDER BY 1",
        "SELECT array_agg(repeat('x', 1000)) FROM generate_series(1, 1000000)",
        f"SELECT {_WIDE} FROM generate_series(1, 1000000) i",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
        "SELECT count(*) FROM pgbench_accounts a, pgbench_accounts b, pgbench_accounts c WHERE a.aid * b.aid = c.aid + 1",
        "SELECT * FROM pgbench_accounts a, pgbench_accounts b ORDER BY a.filler, b.filler",
    ],
}


class Waits:
    """Asks for waits one after another, and keeps how long each took."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.took_ms: list[float] = []
        self.failed: Counter[str] = Counter()

    @contextmanager
    def asked(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()

    def _run(self) -> None:
        with self._rig.running.api() as api:
            while not self._stopping.wait(0.02):
                began = monotonic()
                try:
                    api.post(f"{self._rig.path}/freshness-waits", {"timeout_ms": 60_000}, timeout_s=70.0)
                except (ProblemError, NoServerError) as error:
                    self.failed[getattr(error, "code", type(error).__name__)] += 1
                self.took_ms.append((monotonic() - began) * 1000)


def ask_all(rig: Rig, token: str, statements: Sequence[str]) -> tuple[Counter[str], float]:
    """Run them from SESSIONS sessions; how they ended, and the longest time that one took."""
    left, ends, longest = list(statements), Counter[str](), [0.0]

    def session() -> None:
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/csv"}
        url = f"{rig.running.options.url}/api/v1{rig.path}/queries"
        with httpx.Client(headers=headers, timeout=120.0, trust_env=False) as client:
            while left:
                sql = left.pop()
                began = monotonic()
                ends[_end_of(client, url, sql)] += 1
                longest[0] = max(longest[0], monotonic() - began)

    threads = [threading.Thread(target=session) for _ in range(SESSIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends, longest[0]


def _end_of(client: httpx.Client, url: str, sql: str) -> str:
    try:
        with client.stream("POST", url, json={"sql": sql, "timeout_ms": LIMIT_MS}) as answer:
            if answer.is_error:
                answer.read()
                return str(answer.json()["code"])
            for _ in answer.iter_raw():
                pass
            return "answered"
    except httpx.TransportError as error:
        return type(error).__name__


def standing(rig: Rig) -> set[tuple[int, float, str]]:
    """Every process of ours that does not run statements."""
    found = set()
    for pid in _pids(rig):
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            name = Path("/proc", str(process.pid), "comm").read_text().strip()
            if name != "penstock-query":
                found.add((process.pid, process.create_time(), name))
    return found


def _pids(rig: Rig) -> list[int]:
    found = [rig.running.supervisor.pid(name) for name in ("server", "engine")]
    return [pid for pid in found if pid is not None]


def torment(kind: str, at_once: int | None) -> dict[str, Any]:
    """One run on a target of this kind, and what was found. `at_once`: so many statements run (None: as the engine has it)."""
    environment = {"PENSTOCK_QUERY_MEMORY_MB": str(QUERY_MB)}
    if at_once is not None:
        environment["PENSTOCK_QUERIES_AT_ONCE"] = str(at_once)
    processes = 2 + (at_once or EngineSettings().query_places)
    with Rig(durable=False, target_kind=kind, extra=environment) as rig:
        pgbench([rig.postgres.program("pgbench"), "-i", "-q", "-s", "1", rig.dsn])
        rig.declare([{"schema": "public", "name": name} for name in TABLES])
        rig.wait_live(len(TABLES))
        token = str(rig.api.post("/tokens", {"name": "reader", "role": "viewer"})["token"])
        rig.query("SELECT count(*) FROM public.pgbench_accounts")
        program = [rig.postgres.program("pgbench"), "-n", "-N", "-c", "4", "-R", str(RATE), "-T", "3600", rig.dsn]
        load = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        memory = Memory(lambda: _pids(rig), OWN_MB + processes * QUERY_MB)
        try:
            with Waits(rig).asked():
                threading.Event().wait(CALM_S / 2)
            calm, beside = Waits(rig), Waits(rig)
            memory.start()
            with calm.asked():
                threading.Event().wait(CALM_S)
            alone_mb = max(memory.samples)
            before = standing(rig)
            statements = (HOSTILE[kind] * STATEMENTS)[:STATEMENTS]
            began = monotonic()
            with beside.asked():
                ends, longest_s = ask_all(rig, token, statements)
            took_s = monotonic() - began
            gone = sorted(name for _, _, name in before - standing(rig))
        finally:
            memory.stop()
            load.kill()
            load.wait()
        equal, _ = rig.verify()
        waits = {"alone_ms": median(calm.took_ms), "beside_ms": median(beside.took_ms)}
        return {
            "target": kind,
            "ends": dict(ends),
            "longest_s": round(longest_s, 1),
            "took_s": round(took_s, 1),
            "waits": waits | {"count": len(beside.took_ms), "failed": dict(beside.failed)},
            "alone_mb": round(alone_mb),
            "memory": memory.summary(),
            "gone": gone + [str(death) for death in rig.deaths],
            "equal": equal,
            "wrong": _find_wrong(waits, memory, gone, beside, equal=equal),
        }


def _find_wrong(waits: dict[str, float], memory: Memory, gone: list[str], beside: Waits, *, equal: bool) -> list[str]:
    found = [memory.found() or ""] if memory.found() and "grows" not in (memory.found() or "") else []
    if waits["beside_ms"] > 2 * waits["alone_ms"]:
        found.append("the median wait more than doubled")
    if gone:
        found.append(f"ended meanwhile: {gone}")
    if beside.failed:
        found.append(f"waits failed: {dict(beside.failed)}")
    return found if equal else [*found, "the copy does not equal the source"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=sorted(HOSTILE), default="duckdb")
    parser.add_argument("--at-once", type=int)
    given = parser.parse_args(arguments)
    found = torment(given.target, given.at_once)
    print(json.dumps(found, indent=2))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
