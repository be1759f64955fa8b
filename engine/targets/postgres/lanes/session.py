"""One connection of a lane, with its procedure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import psycopg

from engine.model.identity import BatchId, Epoch, SubscriptionName
from engine.postgres.sessions import PostgresConnection
from engine.targets.postgres.lanes.arrays import register
from engine.targets.postgres.lanes.assignment import Call
from engine.targets.postgres.lanes.procedure import NAME, Kind, Procedure, procedure

KINDS_KEPT = 500
"""Statements that a session keeps in its procedure, least recently used ones dropped first."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Parameters 7 to 10 of the procedure: the subscription that a lane writes for."""

    subscription: SubscriptionName
    epoch: Epoch
    batch: BatchId
    lock_class: int


class LaneSession:
    """Used by one thread at a time; `cancel` is callable from any."""

    def __init__(self, connection: PostgresConnection, *, marked: bool) -> None:
        """`connection`: in autocommit mode, used for nothing else; `marked`: with a replication origin."""
        self._connection = connection
        self._marked = marked
        self._kept: OrderedDict[Kind, None] = OrderedDict()
        self._procedure: Procedure | None = None
        self._numbers: np.ndarray[tuple[int], np.dtype[np.int32]] = np.empty(0, np.int32)
        register(connection)
        # A sequence of transactions ends with a durable commit of another session, which also flushes the earlier ones.
        connection.execute("SET synchronous_commit = off")
        # Generic plans, independent of the table's current statistics.
        connection.execute("SET plan_cache_mode = force_generic_plan")

    @property
    def pid(self) -> int:
        return self._connection.info.backend_pid

    @property
    def usable(self) -> bool:
        return not self._connection.closed

    def prepare(self, kinds: Sequence[Kind]) -> None:
        """Ensure that the procedure has these kinds, each also for many rows. In later calls, `kinds` are numbered from 1 on, followed
        by those for many rows."""
        kinds = [*kinds, *(replace(kind, many=kind.shareable) for kind in kinds)]
        for kind in kinds:
            self._kept[kind] = None
            self._kept.move_to_end(kind)
        known = self._procedure.kinds if self._procedure is not None else ()
        if not set(kinds) <= set(known) or self._procedure is None:
            while len(self._kept) > max(KINDS_KEPT, len(kinds)):
                self._kept.popitem(last=False)
            self._procedure = procedure(tuple(self._kept), marked=self._marked)
            self._connection.execute(self._procedure.sql.encode())
        numbers = {kind: number for number, kind in enumerate(self._procedure.kinds, 1)}
        # Marks are 0 and -1, and map to themselves at both ends of the array.
        self._numbers = np.array([0, *(numbers[kind] for kind in kinds), -1], np.int32)

    def take_lock(self, number: int, lock_class: int) -> None:
        """Acquire a unit's lock."""
        self._connection.execute("SELECT pg_advisory_lock(%s::int4, %s::int4)", [lock_class, number])

    def release_locks(self) -> None:
        """Release all locks."""
        if not self._connection.closed:
            with suppress(psycopg.OperationalError):
                self._connection.execute("SELECT pg_advisory_unlock_all()")

    def run(self, calls: Iterable[Call], lanes: int, writing: Writing) -> None:
        """Execute the calls in order. Raises psycopg.Error; all units before the failed one are committed."""
        cursor = psycopg.RawCursor(self._connection)
        for call in _made_ahead(calls):
            cursor.execute(
                f"CALL {NAME}($1, $2, $3, $4, $5::int4, $6, $7::text, $8::int8, $9::int8, $10::int4, $11::int4, $12)".encode(),
                [
                    call.marks(self._numbers),
                    call.values,
                    call.before,
                    call.behind,
                    call.first,
                    call.counts,
                    writing.subscription,
                    writing.epoch,
                    writing.batch,
                    writing.lock_class,
                    lanes,
                    call.lasts,
                ],
                prepare=False,
            )

    def kind_of(self, error: psycopg.Error) -> Kind | None:
        """The kind whose statement failed; None if it was not a statement of one."""
        return None if self._procedure is None else self._procedure.kind_at(error.diag.context)

    def cancel(self) -> None:
        """Cancel the running statement. Callable from any thread."""
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=5.0)

    def close(self) -> None:
        self._connection.close()


def _made_ahead(calls: Iterable[Call]) -> Iterator[Call]:
    """The same calls; while one is executed, another thread prepares the next."""
    left = iter(calls)
    with ThreadPoolExecutor(1, thread_name_prefix="lane-ahead") as maker:
        following = maker.submit(next, left, None)
        while (call := following.result()) is not None:
            following = maker.submit(next, left, None)
            yield call
