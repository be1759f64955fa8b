"""The sustained mode: a load at a steady rate, and a separate client that commits rows and waits for them.

Both are open loops: each transaction begins at its scheduled time, whether or not earlier ones have ended. A wait is
timed from the acknowledgement of its commit to the answer that it is visible. If the client itself began late, that
delay is added, so that a stall counts for every wait that it delayed.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from time import monotonic, perf_counter
from typing import Any

import psycopg

from bench.contenders import Side
from bench.environment import Stage
from bench.errors import BenchError
from bench.facts import load_average
from bench.histogram import Times
from bench.workload import Connection
from server.cli.client import NoServerError, ProblemError
from server.processes.children import end, spawn

Document = dict[str, Any]

_CLIENTS = 48
_LAG_EVERY_S = 0.25


class Client:
    """Commits rows of its own at scheduled times, and measures the time until each is visible."""

    def __init__(self, stage: Stage, side: Side, per_second: float) -> None:
        self.waits = Times()
        self.failed: list[str] = []
        self.latest_s = 0.0
        """The largest delay of the client itself, in seconds."""
        self._side = side
        self._per_second = per_second
        self._next = stage.first_mark()
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        self._all = [stage.connect() for _ in range(_CLIENTS)]
        for connection in self._all:
            connection.execute("SELECT pg_current_wal_lsn()")
            self._idle.put(connection)
        self._pause = threading.Event()

    def run(self, seconds: float, *, keep: bool) -> None:
        """Run for `seconds`; `keep` False discards the times (warm-up)."""
        began, number = perf_counter(), 0
        with ThreadPoolExecutor(_CLIENTS) as pool:
            while (due := number / self._per_second) < seconds:
                self._pause.wait(max(0.0, began + due - perf_counter()))
                number += 1
                self._next += 1
                pool.submit(self._write_one, self._next, began + due, keep=keep)

    def close(self) -> None:
        for connection in self._all:
            connection.close()

    def _write_one(self, number: int, due: float, *, keep: bool) -> None:
        connection = self._idle.get()
        try:
            late = perf_counter() - due
            connection.execute("INSERT INTO marks (id) VALUES (%s)", [number])
            acknowledged = perf_counter()
            self._side.visible(connection, number)
            took = perf_counter() - acknowledged
        except (ProblemError, NoServerError, TimeoutError, psycopg.Error) as error:
            self.failed.append(f"{type(error).__name__}: {error}")
            return
        finally:
            self._idle.put(connection)
        if keep:
            self.latest_s = max(self.latest_s, late)
            self.waits.record((took + late) * 1000)


class LagSampler:
    """Samples the lag of a side from `start` to `stop`."""

    def __init__(self, side: Side) -> None:
        self.times = Times()
        self._side = side
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sample-lag", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_LAG_EVERY_S):
            try:
                lag = self._side.lag_ms()
            except (ProblemError, NoServerError):
                continue
            if lag is not None:
                self.times.record(lag)


@contextmanager
def load(stage: Stage, rate: float) -> Iterator[None]:
    """Run the workload's own load for the duration of the block. BenchError if it ends earlier."""
    process = spawn(stage.workload.load_command(stage.source, rate), output=subprocess.DEVNULL)
    try:
        yield
        if process.poll() is not None:
            raise BenchError("the load ended before its time")
    finally:
        end(process, signal.SIGINT, 5)


def measure(stage: Stage, side: Side, *, rate: float, waits: float, warm_up: float, seconds: float) -> Document:
    """Warm up, then measure one side for `seconds`."""
    client, lag = Client(stage, side, waits), LagSampler(side)
    sampler = stage.sampler(side)
    try:
        with load(stage, rate):
            client.run(warm_up, keep=False)
            before, began = stage.row_changes(), monotonic()
            sampler.start()
            lag.start()
            try:
                client.run(seconds, keep=True)
                changed, took = stage.row_changes() - before, monotonic() - began
                load_now = load_average()
            finally:
                lag.stop()
                usage = sampler.stop()
    finally:
        client.close()
    rows_per_s = changed / took
    return {
        "seconds": round(took, 2),
        "rows_per_s": round(rows_per_s, 1),
        "transactions_per_s": round(rows_per_s / stage.workload.row_changes_per_transaction(), 1),
        "waits": {**client.waits.summary(), "failed": len(client.failed), "failures": client.failed[:5]},
        "client_late_most_ms": round(client.latest_s * 1000, 2),
        "lag": lag.times.summary(),
        "load_average": load_now,
        **usage.per_million(changed),
        **usage.document(),
    }
