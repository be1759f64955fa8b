"""Clients of one event loop: freshness waits, sessions of the SQL endpoint, and event streams, in large numbers."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from bench.histogram import Times
from engine.model.position import Lsn
from server.cli.client import NoServerError, ProblemError
from tests.bench.http_lines import HttpLine, LostError
from tests.bench.lateness import Answered
from tests.fixtures.rig import SUBSCRIPTION, Rig

WAIT_TIMEOUT_S = 600.0
USER = "preset-admin"
_AGAIN_S = 0.5
_RATE_OVER_S = 10
_TICK_S = 0.01
_CONNECTS_PER_S = 400
_SOONEST_S = 0.5
_END = "SELECT pg_current_wal_insert_lsn()::text"
_SUM = (
    "SELECT CAST((SELECT sum(amount) FROM debits) + (SELECT sum(amount) FROM credits) AS bigint),"
    " (SELECT count(*) FROM debits)"
)


class LoopLateness:
    """How late this loop is itself: a client that is late measures late answers."""

    def __init__(self) -> None:
        self.times = Times()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self.times.record((loop.time() - due) * 1000)


class LogEnd:
    """The end of the source's log, second by second, and where it will be."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._seen: list[tuple[float, int]] = []

    async def run(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._rig.dsn, autocommit=True) as connection:
            while True:
                ((text,),) = await (await connection.execute(_END)).fetchall()
                self._seen.append((time.monotonic(), Lsn.parse(text).value))
                del self._seen[: -_RATE_OVER_S - 1]
                await asyncio.sleep(1)

    @property
    def bytes_per_s(self) -> float:
        (first, low), (last, high) = self._seen[0], self._seen[-1]
        return (high - low) / (last - first) if last > first else 0.0

    @property
    def is_known(self) -> bool:
        return len(self._seen) > 3 and self.bytes_per_s > 0

    def expected_in(self, seconds: float) -> int:
        """The position that it reaches in about so many seconds."""
        at, end = self._seen[-1]
        return round(end + self.bytes_per_s * (time.monotonic() - at + seconds))


@dataclass
class Waits:
    """So many waits at once, each for a position of the near future; a client whose wait has ended begins the next one."""

    rig: Rig
    log: LogEnd
    count: int
    hold_s: float
    """Mean duration of a wait: `count` over it is the number of waits that end per second."""
    answers: list[Answered] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    outstanding: dict[int, int] = field(default_factory=dict)
    """By client, the position that it waits for."""
    no_more: bool = False
    most: int = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._client(number) for number in range(self.count)))

    async def _client(self, number: int) -> None:
        rng = random.Random(number)
        await asyncio.sleep(number / _CONNECTS_PER_S)
        async with HttpLine(self.rig.running.options.port, self.rig.running.admin_token) as line:
            while not self.no_more:
                # Both ends so that the mean is `hold_s`.
                position = self.log.expected_in(rng.uniform(_SOONEST_S, 2 * self.hold_s - _SOONEST_S))
                self.outstanding[number] = position
                self.most = max(self.most, len(self.outstanding))
                try:
                    await self._wait(line, position)
                except LostError as error:
                    self.failures[str(error)] += 1
                    await asyncio.sleep(_AGAIN_S)
                finally:
                    del self.outstanding[number]

    async def _wait(self, line: HttpLine, position: int) -> None:
        body = {"position": str(Lsn(position)), "timeout_ms": round(WAIT_TIMEOUT_S * 1000)}
        asked = time.time()
        status, document = await line.request("POST", f"{self.rig.path}/freshness-waits", body)
        if status != 200:
            self.failures[f"{status} {document.get('code')}"] += 1
            await asyncio.sleep(_AGAIN_S)
            return
        applied = Lsn.parse(document["applied"]).value
        if applied < position:
            self.failures["answered too early"] += 1
        self.answers.append(Answered(position, applied, asked, time.time(), document["waited_ms"] / 1000))


@dataclass
class SqlSessions:
    """Sessions of the SQL endpoint that read for the newest rows, each every few seconds."""

    settings: dict[str, Any]
    count: int
    every_s: float
    times: Times = field(default_factory=Times)
    failures: Counter[str] = field(default_factory=Counter)
    stopping: bool = False

    async def run(self) -> None:
        await asyncio.gather(*(self._session(number) for number in range(self.count)))

    async def _session(self, number: int) -> None:
        rng = random.Random(number)
        while not self.stopping:
            try:
                connection = await psycopg.AsyncConnection.connect(**self.settings, autocommit=True)
                async with connection:
                    await connection.execute("SET penstock.freshness = 'latest'")
                    while not self.stopping:
                        await asyncio.sleep(rng.uniform(0, 2 * self.every_s))
                        await self._read(connection)
            except psycopg.Error as error:
                self.failures[f"{type(error).__name__} {error.sqlstate or ''}".strip()] += 1
                await asyncio.sleep(_AGAIN_S)

    async def _read(self, connection: psycopg.AsyncConnection[Any]) -> None:
        asked = time.monotonic()
        ((total, _),) = await (await connection.execute(_SUM)).fetchall()
        self.times.record((time.monotonic() - asked) * 1000)
        if total != 0:
            self.failures[f"the sum is {total}"] += 1


@dataclass
class Streams:
    """Event streams, and a connection made and deleted every few seconds, of which each stream has to bring both events."""

    rig: Rig
    count: int
    every_s: float
    late: Times = field(default_factory=Times)
    failures: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    arrived: Counter[tuple[str, str]] = field(default_factory=Counter)
    written: dict[tuple[str, str], float] = field(default_factory=dict)
    connected: int = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._stream(number) for number in range(self.count)))

    async def write(self, going_on: Callable[[], bool]) -> None:
        """Cause events while `going_on`."""
        number = 0
        while going_on():
            await asyncio.sleep(self.every_s)
            number += 1
            path = f"/connections/passing-{number}"
            body = {"kind": "duckdb", "settings": {"path": str(self.rig.home / f"passing-{number}.duckdb")}}
            for kind, method, sent in (("connection_created", "PUT", body), ("connection_deleted", "DELETE", None)):
                with suppress(NoServerError, ProblemError):
                    await asyncio.to_thread(self.rig.api.send, method, path, sent)
                    self.written[kind, f"passing-{number}"] = time.monotonic()

    def missing(self) -> int:
        """Events that did not arrive, of all streams together."""
        return sum(max(0, self.connected - self.arrived[event]) for event in self.written)

    async def _stream(self, number: int) -> None:
        await asyncio.sleep(number / _CONNECTS_PER_S)
        self.connected += 1
        async with HttpLine(self.rig.running.options.port, self.rig.running.admin_token) as line:
            try:
                async for kind, data in line.events("/events/stream"):
                    self._take(kind, data)
            except LostError as error:
                self.failures[str(error)] += 1

    def _take(self, kind: str, data: str) -> None:
        if kind == "changed":
            self.changed += 1
            return
        event = json.loads(data)
        name = event["kind"], str(event["subject"])
        self.arrived[name] += 1
        if name in self.written:
            self.late.record((time.monotonic() - self.written[name]) * 1000)


def sql_settings(rig: Rig, port: int) -> dict[str, Any]:
    """Parameters of a session of the SQL endpoint."""
    token = rig.running.admin_token
    return {
        "host": "127.0.0.1",
        "port": port,
        "user": USER,
        "password": token,
        "dbname": SUBSCRIPTION,
        "sslmode": "disable",
    }


def push_log(rig: Rig, size: int) -> None:
    """Lengthen the source's log by so many bytes, at once."""
    piece = 1 << 20
    with rig.connect() as connection:
        for _ in range(-(-size // piece)):
            connection.execute("SELECT pg_logical_emit_message(false, 'bench', repeat('x', %s))", [piece])
