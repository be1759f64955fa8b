"""Runs a user's query: exactly one read-only statement, in a separate process, at one batch boundary, with limits on time, memory,
rows and bytes."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import duckdb
import pyarrow as pa

from engine.model.identity import SubscriptionName
from engine.model.position import Lsn
from engine.model.target import BoundStatement, JudgeReads, QueryAnswer, QueryLimits, QueryRefused, SqlClient
from engine.queries.pool import Message, QueryPool, QueryProcess, Statement
from engine.queries.rows import limited
from engine.targets.duckdb.database import Database
from engine.targets.duckdb.errors import is_broken
from engine.targets.duckdb.query_guard import Named
from engine.targets.duckdb.scans import Shown, Snapshot, snapshot

_READ_BYTES = 1 << 16
"""Buffer in bytes for reading an answer: the default capacity of a pipe on Linux."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Where a statement reads. `pin` begins so many concurrent scans, for the statement of this process; `ended`: why the snapshot that it
    reads can no longer be read."""

    pin: Callable[[int, QueryProcess], AbstractContextManager[Snapshot]]
    ended: Callable[[], QueryRefused | None] = lambda: None

    @classmethod
    def of_present(cls, database: Database) -> Reads:
        """The file's last committed state."""
        return cls(lambda scans, _: snapshot(database, scans))


@contextmanager
def run_query(
    where: Reads,
    pool: QueryPool,
    statement: BoundStatement,
    limits: QueryLimits,
    subscription: SubscriptionName,
    judge: JudgeReads,
    client: SqlClient | None = None,
) -> Iterator[QueryAnswer]:
    """Run `statement`; the answer has the position of the target that it saw.

    Raises:
        QueryRefused: `query_not_a_read`, `query_invalid`, `query_timeout`, `query_too_large`, `query_unavailable`.
        duckdb.FatalException: the target's instance is broken.
    """
    # The process ends first: scans, which are waited for, wait for it.
    with ExitStack() as pins, pool.process(limits) as process:
        yield from _Statement(where, process, limits, subscription, pins).answers(statement, judge, client)


class _Statement(Statement):
    """A statement, and the scans that it makes of the target's file."""

    killed_for = "the target was being closed or needed its memory"

    def __init__(
        self,
        where: Reads,
        process: QueryProcess,
        limits: QueryLimits,
        subscription: SubscriptionName,
        pins: ExitStack,
    ) -> None:
        super().__init__(process, limits)
        self._where = where
        self._subscription = subscription
        self._pins = pins
        self._snapshot: Snapshot
        self._shown: list[Shown] = []

    def answers(self, statement: BoundStatement, judge: JudgeReads, client: SqlClient | None) -> Iterator[QueryAnswer]:
        """Yields the answer. Resumes when the caller has finished with it."""
        self._process.on_scan = self._scan
        sql, parameters = statement
        asked = {"sql": sql, "parameters": [*parameters], "max_rows": self._limits.max_rows}
        self._process.send({**asked, "client": None if client is None else asdict(client)})
        named = _names(self.said("named")[0])
        self._plan(named)
        judge(
            self._snapshot.reads(
                [relation for relation in self._shown if self._snapshot.is_named(relation.name, named)]
            )
        )
        position = self._snapshot.position(self._subscription)
        self._process.send({"go": True})
        if self._limits.unread and self._limits.max_rows is None and self._limits.max_bytes is None:
            yield from self._unread(position)
            return
        with os.fdopen(self.said("answer")[1], "rb", buffering=_READ_BYTES) as file:
            try:
                reader = pa.ipc.open_stream(file)
            except (OSError, pa.ArrowException) as error:
                raise self.failure() from error
            batches = self._batches(reader)
            answer = limited(reader.schema, position, batches, self._limits)
            yield answer
            if answer.truncated:
                deque(batches, maxlen=0)  # at most one row

    def _unread(self, position: Lsn) -> Iterator[QueryAnswer]:
        """Yields the answer as a pipe. The process ends if the pipe is not read to its end: at the limit of time, or cancelled."""
        pipe = self.said("answer")[1]
        try:
            yield QueryAnswer(None, position, self._batches(()), pipe=pipe)
        finally:
            os.close(pipe)

    def _plan(self, named: Named) -> None:
        """Send the process the relations it may read, and open a transaction for each of its scans."""
        scans = 1
        self._pin(scans, named)
        while True:
            self._process.send({"tables": [_relation_message(relation) for relation in self._shown]})
            needed = self.said("planned")[0]["scans"]
            if needed <= scans:
                return
            scans, before = needed, self._shown
            self._pin(scans, named)
            if self._shown == before:
                return

    def _pin(self, scans: int, named: Named) -> None:
        self._pins.close()
        self._snapshot = self._pins.enter_context(self._where.pin(scans, self._process))
        self._shown = self._snapshot.shown(self._subscription, named)

    def _scan(self, message: Message, sink: int) -> None:
        self._snapshot.scan(self._shown[message["table"]], message, sink)

    def _batches(self, reader: Any) -> Iterator[Any]:
        with suppress(OSError, pa.ArrowException):
            yield from reader
        self.end()

    def lacks_rows(self) -> bool:
        return self._snapshot.error is not None

    def failure(self, end: tuple[Message, int] | None = None) -> Exception:
        ended = self._where.ended()
        if ended is not None:
            return ended
        error = self._snapshot.error if self._shown else None
        if self._process.killed is not None:
            return super().failure(end)
        if isinstance(error, duckdb.InterruptException):
            return QueryRefused("query_unavailable", f"{self.killed_for}; ask again")
        if error is not None:
            return (
                error
                if isinstance(error, QueryRefused) or is_broken(error)
                else QueryRefused("query_unavailable", _words(error))
            )
        code = self._process.exit_code if end is None else None
        if code is None or code >= 0 or code == -signal.SIGKILL:
            # Neither DuckDB nor the bound on its memory ends it in such a way.
            return super().failure(end)
        return QueryRefused("query_too_large", f"the query needs more memory than one may have: {self._process.death}")


def _names(message: Message) -> Named:
    places = frozenset((schema, name) for schema, name in message["places"])
    return Named(places, frozenset(message["expressions"]), message["catalog"])


def _relation_message(relation: Shown) -> Message:
    name = relation.name
    shown = {"columns": relation.columns, "remarks": relation.remarks, "key": relation.key}
    return {"schema": name.schema, "name": name.name, **shown}


def _words(error: Exception) -> str:
    return f"the target could not be read ({type(error).__name__}); retry"
