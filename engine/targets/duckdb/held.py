"""A held snapshot of a DuckDB file: connections whose read transactions began between the same two commits.

DuckDB keeps old rows, structures and dropped tables for a transaction that may read them, so every table stays readable as it was. A
transaction belongs to one connection, and a failed or interrupted statement aborts it: there are several connections, and scans on
them are not interrupted before the snapshot ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import duckdb

from engine.model.identity import SubscriptionName
from engine.model.target import ENDED, JudgeReads, QueryAnswer, QueryLimits, QueryRefused, SqlClient, any_reads
from engine.queries.pool import QueryPool, QueryProcess
from engine.targets.duckdb.database import Database
from engine.targets.duckdb.metadata import DuckDbMetadata
from engine.targets.duckdb.query import Reads, run_query
from engine.targets.duckdb.scans import MOST_SCANS, Snapshot, begin_together
from engine.targets.held_state import held_state

HELD_SCANS = MOST_SCANS
"""Scans that the statements of one held snapshot may have open at once: as many as one statement may. Beginning their transactions delays
commits by some 30 ms, and their memory is below a megabyte (measured)."""
_LEAST = HELD_SCANS // 2
"""Connections below which it ends: each failed scan costs one."""
_LOOK_SECONDS = 0.5
"""How often, in seconds, a statement that waits for connections checks whether it was cancelled."""

Fault = Callable[[duckdb.Error, Database], Exception]


class DuckDbHeld:
    """Implements HeldSnapshot. Statements read at the same time as long as there are connections for all their scans; else they wait."""

    def __init__(
        self, database: Database, pool: Callable[[], QueryPool], fault: Fault, subscription: SubscriptionName
    ) -> None:
        """`fault` converts the driver's errors.

        Raises QueryRefused(query_unavailable) if nothing is recorded, and duckdb.Error.
        """
        self.subscription = subscription
        self._database = database
        self._pool = pool
        self._fault = fault
        self._changed = threading.Condition()
        self._why: str | None = None
        self._stops: dict[int, Callable[[], None]] = {}
        """End the statements that read, by the first connection of each."""
        with ExitStack() as opened:
            stacks = [opened.enter_context(ExitStack()) for _ in range(HELD_SCANS)]
            connections = [stack.enter_context(database.reader()) for stack in stacks]
            begin_together(database, connections)
            self.state = held_state(DuckDbMetadata(connections[0], database.catalog), subscription)
            self._open = {id(one): stack.pop_all() for one, stack in zip(connections, stacks, strict=True)}
        self._free = list(connections)
        self._size = _size(database.path)

    def lost(self) -> str | None:
        return self._why

    def kept_bytes(self) -> int:
        """By how much the file has grown: DuckDB does not reuse the place of rows that the snapshot may read."""
        return max(0, _size(self._database.path) - self._size)

    @contextmanager
    def query(
        self,
        sql: str,
        limits: QueryLimits,
        judge: JudgeReads = any_reads,
        parameters: Sequence[str | None] = (),
        client: SqlClient | None = None,
    ) -> Iterator[QueryAnswer]:
        deadline = monotonic() + limits.timeout_s
        reads = Reads(lambda scans, process: self._lease(scans, process, deadline), self._ended)
        refused = self._ended()
        if refused is not None:
            raise refused
        try:
            with run_query(reads, self._pool(), (sql, parameters), limits, self.subscription, judge, client) as answer:
                yield answer
        except duckdb.Error as error:
            raise self._fault(error, self._database) from error

    def end(self, why: str) -> None:
        """See the protocol. Connections that a statement uses are closed by it; its process is killed."""
        with self._changed:
            self._why = self._why or why
            idle, self._free = self._free, []
            stops = list(self._stops.values())
            self._changed.notify_all()
        for stop in stops:
            stop()
        for connection in idle:
            self._close(connection)

    def _ended(self) -> QueryRefused | None:
        return None if self._why is None else QueryRefused(ENDED, f"the read point has ended: {self._why}")

    @contextmanager
    def _lease(self, scans: int, process: QueryProcess, deadline: float) -> Iterator[Snapshot]:
        """Connections of the snapshot for so many concurrent scans."""
        connections = self._take(max(scans, 1), process, deadline)
        # An interrupt aborts the transaction of a connection, so scans only end early with the snapshot.
        found = Snapshot(self._database, connections, interrupted=lambda: self._why is not None)
        try:
            yield found
        finally:
            found.end()
            self._give_back(connections, failed=found.error is not None)

    def _take(self, scans: int, process: QueryProcess, deadline: float) -> list[Any]:
        with self._changed:
            while self._why is None:
                if scans > len(self._open):
                    detail = f"the statement reads {scans} tables; at this read point the limit is {len(self._open)}"
                    raise QueryRefused("query_too_large", detail)
                if len(self._free) >= scans:
                    taken, self._free = self._free[:scans], self._free[scans:]
                    self._stops[id(taken[0])] = lambda: process.kill(ENDED)
                    return taken
                if process.killed is not None or monotonic() >= deadline:
                    detail = "other queries of the read point did not end before the time limit or a cancellation"
                    raise QueryRefused("query_timeout", detail)
                self._changed.wait(min(_LOOK_SECONDS, max(0.0, deadline - monotonic())))
        raise self._ended() or QueryRefused(ENDED, "the read point has ended")

    def _give_back(self, connections: Sequence[Any], *, failed: bool) -> None:
        lame = [one for one in connections if failed and not self._is_sound(one)]
        with self._changed:
            self._stops.pop(id(connections[0]), None)
            ended = self._why is not None
            if not ended:
                self._free += [one for one in connections if one not in lame]
            self._changed.notify_all()
        for connection in connections if ended else lame:
            self._close(connection)
        if not ended and len(self._open) < _LEAST:
            self.end("scans of it failed, for lack of memory or disk")

    def _is_sound(self, connection: Any) -> bool:
        """Whether the connection's transaction is still open."""
        try:
            DuckDbMetadata(connection, self._database.catalog).begin_snapshot()
        except duckdb.Error:
            return False
        return True

    def _close(self, connection: Any) -> None:
        with self._changed:
            stack = self._open.pop(id(connection))
        stack.close()


def _size(path: Path) -> int:
    """Bytes of the file and its write-ahead log, as far as they exist."""
    found = 0
    for each in (path, Path(f"{path}.wal")):
        with suppress(OSError):
            found += each.stat().st_size
    return found
