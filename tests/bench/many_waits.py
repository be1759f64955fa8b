"""Thousands of freshness waits, SQL sessions and event streams at once, for minutes: is any wake-up lost, and how late is it?

Each of the waits is for a position of the near future, so that they end one after another, and a client whose wait has ended begins the
next. At the end the log is lengthened past all of them, and they end together. Reported: how long the server took from the receipt of a
report to each answer, by its own histogram, which is what the goal is about; how late answers are after the commit of the
batch that reached their position (at least that) and after the first answer of any client
that reports it, how late this client's own event loop is, memory and CPU of each process over time, and failures by
kind. Run as `python -m tests.bench.many_waits`.

Prints a summary and writes `many-waits.json`. Exits with 1 if a wake-up or an event was lost, anything failed, or the copy differs. The
goal of the 99th percentile is only reported.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import httpx

from engine.model.position import Lsn
from server.processes.ports import free_port
from tests.bench.lateness import Answered, Committed, Lateness, short
from tests.bench.many_clients import LogEnd, LoopLateness, SqlSessions, Streams, Waits, push_log, sql_settings
from tests.bench.proof_command import add_common_options, conclude
from tests.bench.role_memory import RoleMemory
from tests.bench.wake_up_histogram import WakeUpHistogram
from tests.chaos import steady_writes
from tests.chaos.steady_writes import SteadyWrites
from tests.fixtures.rig import SUBSCRIPTION, Rig

GOAL_MS = 300.0
LOST_S = 30.0
_LOOK_S = 0.2
_EVENTS_S = 5.0
_SQL_EVERY_S = 5.0
_BEGIN_S = 30.0
_READ_S = 120.0
_PAGE = 1000
_FILE = "many-waits.json"

Document = dict[str, Any]


class Run:
    """One run on the rig, whose tables are live."""

    def __init__(self, rig: Rig, sql_port: int, options: argparse.Namespace) -> None:
        self._rig = rig
        self._options = options
        self._log = LogEnd(rig)
        self._waits = Waits(rig, self._log, options.waits, options.hold)
        self._sql = SqlSessions(sql_settings(rig, sql_port), options.sessions, _SQL_EVERY_S)
        self._streams = Streams(rig, options.streams, _EVENTS_S)
        self._loop = LoopLateness()
        self._steady = 0
        self._unended = 0
        self._together_s = 0.0
        self._equal = False
        self._read: list[WakeUpHistogram] = []
        """The server's histogram when the waits began, before they ended together, and after that."""

    def go(self) -> Document:
        with SteadyWrites(self._rig, self._options.rate) as writes, RoleMemory(self._rig) as memory:
            began = time.monotonic()
            asyncio.run(self._clients())
            written = writes.document(time.monotonic() - began)
        self._equal, _ = self._rig.verify()
        return self._report(written, memory.document())

    async def _clients(self) -> None:
        helpers = [asyncio.create_task(one) for one in (self._log.run(), self._loop.run(), self._streams.run())]
        try:
            async with asyncio.timeout(_BEGIN_S):
                while not self._log.is_known:
                    await asyncio.sleep(_LOOK_S)
            # What exists by now would be examined again and again.
            gc.collect()
            gc.freeze()
            await self._read_wake_ups()
            sys.stderr.write("the waits begin\n")
            until = time.monotonic() + self._options.seconds
            waits = asyncio.create_task(self._waits.run())
            sql = asyncio.create_task(self._sql.run())
            await self._streams.write(lambda: time.monotonic() < until)
            await self._read_wake_ups()
            await self._end_together(waits)
            await self._read_wake_ups()
            self._sql.stopping = True
            await sql
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)

    async def _read_wake_ups(self) -> None:
        running = self._rig.running
        url, headers = (
            f"http://127.0.0.1:{running.options.port}/metrics",
            {"Authorization": f"Bearer {running.admin_token}"},
        )
        async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=_READ_S) as client:
            answer = (await client.get(url)).raise_for_status()
        self._read.append(WakeUpHistogram.parse(answer.text, SUBSCRIPTION))

    async def _end_together(self, waits: asyncio.Task[None]) -> None:
        sys.stderr.write("the waits end together\n")
        self._waits.no_more = True
        self._steady = len(self._waits.answers)
        pushed = time.monotonic()
        furthest = max(self._waits.outstanding.values(), default=0)
        await asyncio.to_thread(push_log, self._rig, max(0, furthest - self._log.expected_in(0)))
        done, _ = await asyncio.wait([waits], timeout=LOST_S)
        self._together_s = time.monotonic() - pushed
        self._unended = len(self._waits.outstanding)
        if not done:
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)

    def _report(self, written: Document, roles: Document) -> Document:
        batches = self._batches()
        steady, last = self._waits.answers[: self._steady], self._waits.answers[self._steady :]
        lateness = Lateness(steady, batches)
        begun, steadily, ended = self._read
        in_server = steadily.since(begun).document(GOAL_MS)
        lost = lateness.after_commit.percentile(100) > LOST_S * 1000
        failures = {
            "waits": dict(self._waits.failures),
            "sql": dict(self._sql.failures),
            "streams": dict(self._streams.failures),
        }
        wrong = [f"{part}: {found}" for part, found in failures.items() if found]
        if self._unended or lost:
            wrong.append(f"wake-ups were lost: {self._unended} waits did not end")
        if self._streams.missing():
            wrong.append(f"{self._streams.missing()} events did not arrive")
        if not self._equal:
            wrong.append("the copy does not equal the source")
        return {
            "passed": not wrong,
            "wrong": wrong,
            "goal_ms": GOAL_MS,
            "goal_met": in_server["goal_met"],
            "waits_at_once": self._waits.most,
            "load": written,
            "wake_ups": {"in_server": in_server, **lateness.document()},
            "ended_together": {"in_server": ended.since(steadily).document(GOAL_MS), **self._together(last, batches)},
            "sql_sessions": short(self._sql.times),
            "events": {
                **short(self._streams.late),
                "changed": self._streams.changed,
                "missing": self._streams.missing(),
            },
            "client_loop_late": short(self._loop.times),
            "failures": failures,
            "memory": roles,
            "batches": len(batches),
        }

    def _together(self, last: Sequence[Answered], batches: Sequence[Committed]) -> Document:
        """The waits that ended at once, in the end."""
        found = Lateness(last, batches)
        return {"count": len(last), "took_s": round(self._together_s, 2), **found.document()}

    def _batches(self) -> list[Committed]:
        items = self._rig.api.items(f"{self._rig.path}/batches", page_size=_PAGE)
        return [
            Committed(Lsn.parse(one["end"]).value, datetime.fromisoformat(one["committed_at"]).timestamp())
            for one in items
        ]


def summary(document: Document) -> str:
    """A few lines for people."""
    wake, herd, loop = document["wake_ups"], document["ended_together"], document["client_loop_late"]
    load, events = document["load"], document["events"]
    lines = [
        f"{document['waits_at_once']} waits at once, {load['transactions_per_s']} transactions/s, {document['batches']} batches",
        f"wake-up in the server, from the receipt of the report to the answer: {_of_server(wake['in_server'])}",
        f"wake-up after the batch's commit: {_line(wake['after_commit'])}",
        f"wake-up after the first answer:   {_line(wake['after_first_answer'])}",
        f"answer and request, outside the wait itself: {_line(wake['outside_the_wait'])}",
        f"this client's own lateness: {_line(loop)}",
        f"{herd['count']} waits ended together within {herd['took_s']} s: {_line(herd['after_commit'])};"
        f" in the server {_of_server(herd['in_server'])}",
        f"SQL sessions, for the newest rows: {_line(document['sql_sessions'])}",
        f"events: {_line(events)}; {events['changed']} notices, {events['missing']} events missing",
    ]
    lines += [
        f"  {role}: {one['first_mb']} to {one['last_mb']} MB, most {one['most_mb']}, {one['slope_mb_per_min']:+} MB/min;"
        f" CPU {one['cpu_percent']} %"
        for role, one in document["memory"].items()
    ]
    met = "met" if document["goal_met"] else "MISSED"
    lines.append(
        f"goal, p99 of wake-ups at most {document['goal_ms']:.0f} ms after the server received the report: {met}"
    )
    lines.append("PASSED" if document["passed"] else f"FAILED: {document['wrong']}")
    return "\n".join(lines)


def _line(times: Document) -> str:
    return f"p50 {times['p50_ms']}, p99 {times['p99_ms']}, most {times['max_ms']} ms ({times['count']})"


def _of_server(found: Document) -> str:
    return f"p50 {found['p50_ms']}, p99 {found['p99_ms']} ms, {found['above_goal']} above the goal ({found['count']})"


def run(options: argparse.Namespace) -> Document:
    """One run with a source, server, engine and copy of its own."""
    port = free_port()
    with Rig(durable=False, extra={"PENSTOCK_SQL_PORT": str(port)}, target_kind=options.target) as rig:
        with rig.connect() as connection:
            connection.execute(steady_writes.DDL.encode())
        rig.declare([{"schema": "public", "name": table} for table in steady_writes.TABLES])
        rig.wait_live(len(steady_writes.TABLES))
        return Run(rig, port, options).go()


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="many_waits", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--waits", type=int, default=5000, help="freshness waits at once (5000)")
    parser.add_argument("--hold", type=float, default=60, help="mean duration of a wait in seconds (60)")
    parser.add_argument("--sessions", type=int, default=50, help="sessions of the SQL endpoint (50)")
    parser.add_argument("--streams", type=int, default=200, help="event streams (200)")
    parser.add_argument("--seconds", type=float, default=600, help="duration (600)")
    parser.add_argument("--rate", type=float, default=300, help="transactions a second (300)")
    add_common_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    document = run(options)
    return conclude(document, summary(document), options.out / _FILE)


if __name__ == "__main__":
    sys.exit(main())
