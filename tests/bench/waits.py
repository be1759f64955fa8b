"""What outstanding freshness waits cost: how fast a backlog is replayed with none, some and many of them.

pgbench writes a backlog while the process of the source that sends the log is held (SIGSTOP). Then so many waits for the backlog's
end are opened, and when the server has them all, the sender is continued (SIGCONT). The rate is row changes over the time from then to the
commit of the batch that holds the end. Rounds take turns with the counts. Run as `python -m tests.bench.waits`.

The reader is not what is held: its connection would fill, and what is measured would be how long the kernel pauses before it tries
such a connection again, which grows with the time of the hold.

Exit code 1 where a wait was not answered with 200, or the copy does not equal the source in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import httpx
import psutil

from bench.pgbench import run
from engine.model.position import Lsn
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.rig import DATABASE, Rig

TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
ROWS_PER_TRANSACTION = 4
CLIENTS = 8
_TIMEOUT_MS = 300_000
_SENDERS = "SELECT active_pid FROM pg_replication_slots WHERE active"
_END = "SELECT pg_logical_emit_message(true, 'bench', '')::text"


@dataclass(frozen=True, slots=True)
class Replay:
    """One backlog: its rate, and the waits for its end."""

    waits: int
    rows_per_s: float
    answered: int
    server_cpu_s: float
    """CPU time of the server from the release until the commit was seen: what the waits cost the replay."""
    slowest_answer_ms: float
    """From the commit of the last batch until the last wait was answered."""


class Waits:
    """So many requests at once for one position, in a thread of their own. `join` gives the status and moment of each answer."""

    def __init__(self, rig: Rig, position: Lsn, count: int) -> None:
        self._url = f"{rig.running.options.url}/api/v1{rig.path}/freshness-waits"
        self._headers = {"Authorization": f"Bearer {rig.running.admin_token}"}
        self._body = {"position": str(position), "timeout_ms": _TIMEOUT_MS}
        self._count = count
        self._answers: list[tuple[int, float]] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._ask_all()), daemon=True)
        self._thread.start()

    def join(self) -> list[tuple[int, float]]:
        self._thread.join(_TIMEOUT_MS / 1000)
        return self._answers

    async def _ask_all(self) -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=_TIMEOUT_MS / 1000, trust_env=False) as client:
            await asyncio.gather(*(self._ask(client) for _ in range(self._count)))

    async def _ask(self, client: httpx.AsyncClient) -> None:
        try:
            status = (await client.post(self._url, headers=self._headers, json=self._body)).status_code
        except httpx.HTTPError:
            status = 0
        self._answers.append((status, time.time()))


def replay(rig: Rig, waits: int, transactions: int) -> Replay:
    """Make a backlog, open the waits, and let it be replayed."""
    with held_log(rig) as release:
        per_client = transactions // CLIENTS
        pgbench(rig.postgres, "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "1", "-t", str(per_client))
        end = Lsn.parse(str(rig.postgres.execute(_END, database=DATABASE)[0][0]))
        opened = Waits(rig, end, waits)
        rig.wait_until(lambda: rig.api.get(f"{rig.path}/freshness")["waits"] == waits, 120, f"{waits} waits were open")
        busy, began = _cpu_s(rig), time.time()
        release()
        rig.wait_until(lambda: _committed(rig, end) is not None, _TIMEOUT_MS / 1000, "the backlog was replayed")
        busy = _cpu_s(rig) - busy
    committed = _committed(rig, end)
    assert committed is not None
    answers = opened.join()
    rate = per_client * CLIENTS * ROWS_PER_TRANSACTION / (committed - began)
    slowest = max((at - committed for _, at in answers), default=0.0) * 1000
    return Replay(waits, rate, sum(status == 200 for status, _ in answers), busy, slowest)


def _cpu_s(rig: Rig) -> float:
    times = psutil.Process(rig.running.supervisor.pid("server")).cpu_times()
    return float(times.user + times.system)


def pgbench(postgres: EmbeddedPostgres, *arguments: str) -> None:
    """Run pgbench on the rig's database to its end."""
    head = [postgres.program("pgbench"), "-h", postgres.host, "-p", str(postgres.port), "-U", postgres.user]
    run([*head, *arguments, DATABASE])


@contextmanager
def held_log(rig: Rig) -> Iterator[Callable[[], None]]:
    """Stop the source's sending process; the function that this yields continues it."""
    rig.wait_until(lambda: len(rig.postgres.execute(_SENDERS)) == 1, 30, "the log was read")
    ((sender,),) = rig.postgres.execute(_SENDERS)
    os.kill(sender, signal.SIGSTOP)
    try:
        yield lambda: os.kill(sender, signal.SIGCONT)
    finally:
        os.kill(sender, signal.SIGCONT)


def _committed(rig: Rig, end: Lsn) -> float | None:
    """When the first batch that ends at or after `end` was committed, in seconds since 1970."""
    batches = rig.api.get(f"{rig.path}/batches", page_size=50)["items"]
    times = [datetime.fromisoformat(b["committed_at"]).timestamp() for b in batches if Lsn.parse(b["end"]) >= end]
    return min(times, default=None)


def measure(options: argparse.Namespace) -> tuple[list[Replay], bool]:
    """All rounds, and whether the copy equals the source in the end."""
    # A held sender does not notice that it is answered.
    with Rig(durable=False, settings={"wal_sender_timeout": "0", "max_wal_size": "'8GB'"}) as rig:
        pgbench(rig.postgres, "-i", "-q", "-s", str(options.scale))
        rig.declare([{"schema": "public", "name": n, "insert_only": n == "pgbench_history"} for n in TABLES])
        rig.wait_live(len(TABLES))
        replay(rig, 0, options.transactions // 4)
        done: list[Replay] = []
        for round_ in range(options.rounds):
            turn = round_ % len(options.counts)
            for count in options.counts[turn:] + options.counts[:turn]:
                done.append(replay(rig, count, options.transactions))
                _print_replay(done[-1])
        equal, _ = rig.verify()
        return done, equal


def _print_replay(one: Replay) -> None:
    sys.stderr.write(
        f"{one.waits:>6} waits: {one.rows_per_s:>9,.0f} rows/s, server {one.server_cpu_s:.2f} CPU s, {one.answered} answered"
        f" 200, the last {one.slowest_answer_ms:.0f} ms after the commit; load {os.getloadavg()[0]:.1f}\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="waits", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--transactions", type=int, default=100_000, help="pgbench transactions per backlog (100000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds over all counts (3)")
    parser.add_argument("--counts", type=int, nargs="+", default=[0, 30, 2000], help="waits at once (0 30 2000)")
    parser.add_argument("--scale", type=int, default=10, help="pgbench's scale factor (10)")
    options = parser.parse_args()
    done, equal = measure(options)
    rates = {count: [one.rows_per_s for one in done if one.waits == count] for count in options.counts}
    first = rates[options.counts[0]]
    sys.stdout.write(f"{'waits':>6} {'rows/s, median':>15} {'ratio within rounds, median':>28}   all rounds\n")
    for count, own in rates.items():
        ratio = statistics.median(rate / of for rate, of in zip(own, first, strict=True))
        each = ", ".join(f"{rate:,.0f}" for rate in own)
        sys.stdout.write(f"{count:>6} {statistics.median(own):>15,.0f} {ratio:>28.2f}   {each}\n")
    missed = sum(one.waits - one.answered for one in done)
    asked = sum(one.waits for one in done)
    sys.stdout.write(f"answered 200: {asked - missed} of {asked}; verification: {'equal' if equal else 'DIFFERENT'}\n")
    return 0 if equal and missed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
