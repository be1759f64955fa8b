"""A user's query: exactly one read, in a process of its own, on one batch boundary, bounded in time, memory, rows and bytes."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import duckdb
import pyarrow as pa

from engine.model.identity import SubscriptionName
from engine.model.target import JudgeReads, QueryAnswer, QueryLimits, QueryRefused
from engine.targets.duckdb.database import Database
from engine.targets.duckdb.errors import is_broken
from engine.targets.duckdb.query_guard import Named
from engine.targets.duckdb.scans import Shown, Snapshot, snapshot
from engine.targets.query_pool import Message, QueryPool, QueryProcess
from engine.targets.query_rows import limited

_LATE = "late"
_GIVEN_UP = "given up"
_READ_BYTES = 1 << 16


@contextmanager
def run_query(
    database: Database,
    pool: QueryPool,
    sql: str,
    limits: QueryLimits,
    subscription: SubscriptionName,
    judge: JudgeReads,
) -> Iterator[QueryAnswer]:
    """Run `sql` and say at which position it saw the target.

    Raises:
        QueryRefused: `query_not_a_read`, `query_invalid`, `query_timeout`, `query_too_large`, `query_unavailable`.
        duckdb.FatalException: the target's instance is broken.
    """
    with pool.process() as process, ExitStack() as pins:
        limit = threading.Timer(limits.timeout_s, process.kill, [_LATE])
        limit.daemon = True
        limit.start()
        try:
            yield from _Statement(database, process, limits, subscription, pins).answers(sql, judge)
        finally:
            limit.cancel()
            if not process.fit:
                # Before the scans are waited for, which wait for it.
                process.kill(_GIVEN_UP)


class _Statement:
    """What goes on between engine and process while a statement runs."""

    def __init__(
        self,
        database: Database,
        process: QueryProcess,
        limits: QueryLimits,
        subscription: SubscriptionName,
        pins: ExitStack,
    ) -> None:
        self._database = database
        self._process = process
        self._limits = limits
        self._subscription = subscription
        self._pins = pins
        self._snapshot: Snapshot
        self._shown: list[Shown] = []

    def answers(self, sql: str, judge: JudgeReads) -> Iterator[QueryAnswer]:
        """The one answer. Goes on when its user is done with it."""
        self._process.on_scan = self._scan
        self._process.send({"sql": sql, "max_rows": self._limits.max_rows})
        named = _names(self._said("named")[0])
        self._plan(named)
        judge(
            self._snapshot.reads(
                [relation for relation in self._shown if self._snapshot.is_named(relation.name, named)]
            )
        )
        position = self._snapshot.position(self._subscription)
        self._process.send({"go": True})
        with os.fdopen(self._said("answer")[1], "rb", buffering=_READ_BYTES) as file:
            try:
                reader = pa.ipc.open_stream(file)
            except (OSError, pa.ArrowException) as error:
                raise self._failure() from error
            batches = self._batches(reader)
            answer = limited(reader.schema, position, batches, self._limits)
            yield answer
            if answer.truncated:
                deque(batches, maxlen=0)  # one row at most

    def _plan(self, named: Named) -> None:
        """Show the process what it may read, and pin a transaction for each of the scans that it makes of it."""
        scans = 1
        self._pin(scans, named)
        while True:
            self._process.send({"tables": [_told(relation) for relation in self._shown]})
            needed = self._said("planned")[0]["scans"]
            if needed <= scans:
                return
            scans, before = needed, self._shown
            self._pin(scans, named)
            if self._shown == before:
                return

    def _pin(self, scans: int, named: Named) -> None:
        self._pins.close()
        self._snapshot = self._pins.enter_context(snapshot(self._database, scans))
        self._shown = self._snapshot.shown(self._subscription, named)

    def _scan(self, message: Message, sink: int) -> None:
        self._snapshot.scan(self._shown[message["table"]], message, sink)

    def _batches(self, reader: Any) -> Iterator[Any]:
        # A stream that was cut ends like a whole one: what counts is what the process and the scans say.
        with suppress(OSError, pa.ArrowException):
            yield from reader
        end = self._process.said()
        if end is None or end[0]["refused"] is not None or self._snapshot.error is not None:
            raise self._failure(end)
        self._process.fit = end[0]["fit"]

    def _said(self, kind: str) -> tuple[Message, int]:
        said = self._process.said()
        if said is None or said[0]["kind"] != kind:
            raise self._failure(said)
        return said

    def _failure(self, end: tuple[Message, int] | None = None) -> Exception:
        """Why the statement ended; `end`: what the process said last, where it said anything."""
        error = self._snapshot.error if self._shown else None
        if self._process.killed == _LATE:
            return QueryRefused("query_timeout", f"the query did not end within {self._limits.timeout_s:g} s")
        if self._process.killed is not None or isinstance(error, duckdb.InterruptException):
            return QueryRefused("query_unavailable", "the target was being closed or needed its memory; ask again")
        if error is not None:
            return error if is_broken(error) else QueryRefused("query_unavailable", _words(error))
        if end is not None:
            self._process.fit = end[0]["fit"]
            return QueryRefused(*end[0]["refused"])
        code = self._process.exit_code
        if (
            code is None or code >= 0 or code == -signal.SIGKILL
        ):  # which neither DuckDB nor the bound on its memory sends
            return QueryRefused("query_unavailable", f"{self._process.death}; ask again")
        return QueryRefused("query_too_large", f"the query needs more memory than one may have: {self._process.death}")


def _names(message: Message) -> Named:
    places = frozenset((schema, name) for schema, name in message["places"])
    return Named(places, frozenset(message["expressions"]), message["catalog"])


def _told(relation: Shown) -> Message:
    name = relation.name
    return {"schema": name.schema, "name": name.name, "columns": relation.columns, "remarks": relation.remarks}


def _words(error: Exception) -> str:
    return f"the target could not be read ({type(error).__name__}); ask again"
