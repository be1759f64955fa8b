"""Measures a running subscription as a client: its reported lag, and the duration of freshness waits."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import psycopg

from server.cli.client import Api, Document, NoServerError, ProblemError, segment

_TIMEOUT_MS = 10_000
_LOOK_EVERY = 4
"""After so many waits, the target is queried for the row that was waited for."""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed; 0 if there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(slots=True)
class Samples:
    """The measurements so far. Lists only grow, so another thread may read them at any time."""

    lag_ms: list[float] = field(default_factory=list)
    waits_ms: list[float] = field(default_factory=list)
    timed_out: int = 0
    missing: int = 0
    """Rows that were missing on the target after their wait was satisfied."""
    refused: int = 0
    """Requests that failed for another reason."""
    latest: Document = field(default_factory=dict)
    """The subscription as last seen."""

    def lag(self) -> dict[str, float]:
        return {
            "p50": round(percentile(self.lag_ms, 0.50), 1),
            "p95": round(percentile(self.lag_ms, 0.95), 1),
            "max": round(max(self.lag_ms, default=0.0), 1),
        }

    def waits(self) -> dict[str, float]:
        return {
            "count": len(self.waits_ms) + self.timed_out,
            "p50_ms": round(percentile(self.waits_ms, 0.50), 1),
            "p95_ms": round(percentile(self.waits_ms, 0.95), 1),
            "p99_ms": round(percentile(self.waits_ms, 0.99), 1),
            "timed_out": self.timed_out,
        }


class Probe:
    """Samples the lag and issues freshness waits from `start` to `stop`, four of each per second."""

    def __init__(self, api: Api, subscription: str, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self.samples = Samples()
        self._api = api
        self._path = f"/subscriptions/{segment(subscription)}"
        self._connect = connect
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._until_stopped, args=(self._sample_lag,), name="sample-lag", daemon=True),
            threading.Thread(target=self._until_stopped, args=(self._issue_waits,), name="issue-waits", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_MS / 1000 + 5)

    def interrupt(self) -> None:
        """Start nothing new, and do not wait for what is in progress."""
        self._stopping.set()

    def _until_stopped(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            if not self._stopping.is_set():  # else server and engine are being stopped
                raise

    def _sample_lag(self) -> None:
        while not self._stopping.wait(0.25):
            try:
                latest = self._api.get(self._path)
            except (ProblemError, NoServerError):
                self.samples.refused += not self._stopping.is_set()
                continue
            self.samples.latest = latest
            lag = (latest.get("lag") or {}).get("seconds")
            if lag is not None:
                self.samples.lag_ms.append(float(lag) * 1000)

    def _issue_waits(self) -> None:
        with self._connect() as connection:
            turn = 0
            while not self._stopping.wait(0.25):
                turn += 1
                try:
                    self._one_wait(connection, turn)
                except (ProblemError, NoServerError) as error:
                    if isinstance(error, ProblemError) and error.code == "freshness_timeout":
                        self.samples.timed_out += 1
                    elif not self._stopping.is_set():
                        self.samples.refused += 1

    def _one_wait(self, connection: psycopg.Connection[Any], turn: int) -> None:
        """Commit a row, wait for it (alternately by its position and by the current one), and at intervals query for the row."""
        number = _one(connection, "INSERT INTO pulse DEFAULT VALUES RETURNING id")
        body: Document = {"timeout_ms": _TIMEOUT_MS}
        if turn % 2:
            body["position"] = str(_one(connection, "SELECT pg_current_wal_lsn()"))
        began = perf_counter()
        self._api.post(f"{self._path}/freshness-waits", body, timeout_s=_TIMEOUT_MS / 1000 + 5)
        self.samples.waits_ms.append((perf_counter() - began) * 1000)
        if turn % _LOOK_EVERY == 1:
            sql = f"SELECT count(*) FROM public.pulse WHERE id = {int(number)}"
            rows = self._api.post(f"{self._path}/queries", {"sql": sql})["rows"]
            self.samples.missing += rows != [[1]]


def _one(connection: psycopg.Connection[Any], sql: str) -> Any:
    row = connection.execute(sql.encode()).fetchone()
    if row is None:
        raise AssertionError("the statement returns a row")
    return row[0]
