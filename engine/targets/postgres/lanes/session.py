"""One connection that writes for a subscription, with the procedure it keeps."""

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
"""Statements that a session keeps planned, the least recently used ones going first."""


@dataclass(frozen=True, slots=True)
class Writing:
    """On whose behalf a lane writes: parameters 7 to 10 of the procedure."""

    subscription: SubscriptionName
    epoch: Epoch
    batch: BatchId
    lock_class: int


class LaneSession:
    """Used by one thread at a time; `cancel` may be called from any."""

    def __init__(self, connection: PostgresConnection, *, marked: bool) -> None:
        """`connection`: in autocommit mode, for this use alone; `marked`: with a replication origin."""
        self._connection = connection
        self._marked = marked
        self._kept: OrderedDict[Kind, None] = OrderedDict()
        self._procedure: Procedure | None = None
        self._numbers: np.ndarray[tuple[int], np.dtype[np.int32]] = np.empty(0, np.int32)
        register(connection)
        # A run of transactions ends with a durable one of another session, which brings those before it to disk as well.
        connection.execute("SET synchronous_commit = off")
        # Planned once, whatever is known of the table then.
        connection.execute("SET plan_cache_mode = force_generic_plan")

    @property
    def pid(self) -> int:
        return self._connection.info.backend_pid

    @property
    def usable(self) -> bool:
        return not self._connection.closed

    def prepare(self, kinds: Sequence[Kind]) -> None:
        """See that the procedure knows these kinds, and each of them for many rows; numbers in later calls are those of `kinds`, from
        1 on, and behind them those for many rows."""
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
        # Marks are 0 and -1: they stay what they are at both ends of the table of numbers.
        self._numbers = np.array([0, *(numbers[kind] for kind in kinds), -1], np.int32)

    def take_lock(self, number: int, lock_class: int) -> None:
        """Take a unit's lock."""
        self._connection.execute("SELECT pg_advisory_lock(%s::int4, %s::int4)", [lock_class, number])

    def release_locks(self) -> None:
        """Give all locks back."""
        if not self._connection.closed:
            with suppress(psycopg.OperationalError):
                self._connection.execute("SELECT pg_advisory_unlock_all()")

    def run(self, calls: Iterable[Call], lanes: int, writing: Writing) -> None:
        """One call after another. Raises psycopg.Error; all units before the one that failed are committed."""
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
        """Whose statement failed, where it was one's."""
        return None if self._procedure is None else self._procedure.kind_at(error.diag.context)

    def cancel(self) -> None:
        """Let what it does fail. From any thread."""
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=5.0)

    def close(self) -> None:
        self._connection.close()


def _made_ahead(calls: Iterable[Call]) -> Iterator[Call]:
    """The same calls; while one is at work, another thread makes the next."""
    left = iter(calls)
    with ThreadPoolExecutor(1, thread_name_prefix="lane-ahead") as maker:
        following = maker.submit(next, left, None)
        while (call := following.result()) is not None:
            following = maker.submit(next, left, None)
            yield call
