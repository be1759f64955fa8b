"""Writes a stream's transactions in commit order over several sessions, and repeats in order those that blocked each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from zlib import crc32

import psycopg

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.model.subscription import LanePolicy
from engine.model.target import BatchCommit, InOrderPlan
from engine.postgres.sessions import PostgresConnection
from engine.targets.postgres.errors import TARGET, fault_of_table
from engine.targets.postgres.lanes.assignment import Cut, calls
from engine.targets.postgres.lanes.deadlocks import circle_of
from engine.targets.postgres.lanes.procedure import OUT_OF_TURN, ROW_MISSING
from engine.targets.postgres.lanes.session import LaneSession, Writing
from engine.targets.postgres.lanes.stream import Stream
from engine.targets.postgres.origins import Origins

WATCH_S = 0.02
"""Interval of the check for a cycle of waiting lanes."""
MOST_RETRIES = 5
"""How often one sequence of transactions is retried alone after deadlocks with other users of the target."""
OPTIMISTIC_UNITS = 300
"""Units assigned at once if lanes may block each other: after a conflict, the remaining ones are assigned again."""
_AGAIN = frozenset({"40001", "40P01", "57014"})


@dataclass(frozen=True, slots=True)
class _Failure:
    """What ended a lane, and the kind whose statement failed."""

    lane: LaneSession
    error: psycopg.Error


class LaneWriter:
    """The lanes of one target. One batch at a time."""

    def __init__(
        self, connect: Callable[[], PostgresConnection], watch: Callable[[], PostgresConnection], origins: Origins
    ) -> None:
        """`connect` opens a session that writes, `watch` one that only monitors, both in autocommit mode; they raise
        EngineFault(TARGET_UNAVAILABLE)."""
        self._connect = connect
        self._watch_with = watch
        self._origins = origins
        self._lanes: list[LaneSession] = []
        self._watcher: PostgresConnection | None = None
        self.redone = 0
        """How often lanes were stopped and their transactions repeated in order."""

    def write(
        self, batch: BatchCommit, stream: Stream, way: InOrderPlan, after: Lsn, position: Callable[[], Lsn]
    ) -> None:
        """Commit every transaction after `after`, the recorded position. `position` reads the recorded one, and raises if another engine
        has the claim.

        Raises:
            EngineFault: TARGET_UNAVAILABLE; a fault of one table names it. The transactions before the failed one are committed.
        """
        tries, alone = 0, False
        while (first := stream.behind(after)) < stream.transactions:
            stop, clears = stream.stretch(first) if way.lanes > 1 else (stream.transactions, False)
            pessimistic = way.policy is LanePolicy.PESSIMISTIC
            if way.lanes > 1 and not pessimistic:
                stop = min(stop, first + way.group * OPTIMISTIC_UNITS)
            cut = Cut(first, stop, way.group, way.lanes, pessimistic)
            if clears or alone:
                cut = replace(cut, lanes=1, stop=min(stop, first + way.group * way.lanes), together=not alone)
            failure = self._run(batch, stream, cut, after)
            if failure is None:
                after, tries, alone = stream.end(cut.stop), 0, False
                continue
            reached = position()
            tries = tries + 1 if reached == after else 1
            # A failure among concurrent lanes may be caused by their conflict; a single lane, row by row, shows the actual fault.
            if alone and (failure.error.sqlstate not in _AGAIN or tries > MOST_RETRIES):
                raise _fault(failure)
            if not failure.lane.usable:
                raise _fault(failure)
            self.redone += not alone
            after, alone = reached, True

    def close(self) -> None:
        """Close all sessions. A later batch connects again."""
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            lane.close()
        if self._watcher is not None:
            self._watcher.close()

    def _run(self, batch: BatchCommit, stream: Stream, cut: Cut, after: Lsn) -> _Failure | None:
        """Write a cut. After a failure no lane is active, and the committed transactions are a prefix of the cut."""
        writing = Writing(batch.subscription, batch.epoch, batch.batch, _lock_class(batch.subscription))
        lanes = self._sessions(cut.lanes)
        lane = lanes[0]
        try:
            for number, lane in enumerate(lanes):
                lane.prepare(stream.kinds)
                if cut.lanes > 1:
                    lane.take_lock(number, writing.lock_class)
            if cut.lanes == 1:
                lane.run(calls(stream, cut, 0, after), 1, writing)
                return None
            with ThreadPoolExecutor(len(lanes), thread_name_prefix="lane") as pool:
                work = {
                    pool.submit(lane.run, calls(stream, cut, number, after), cut.lanes, writing): lane
                    for number, lane in enumerate(lanes)
                }
                return self._watch(work)
        except psycopg.Error as error:
            return _Failure(lane, error)
        finally:
            if cut.lanes > 1:
                for one in lanes:
                    one.release_locks()

    def _watch(self, work: dict[Future[None], LaneSession]) -> _Failure | None:
        """Wait until all lanes have ended. Stops lanes that wait for each other in a cycle, and those after a failed one."""
        left, failure = set(work), None
        defect: BaseException | None = None
        while left:
            done, left = wait(left, WATCH_S, FIRST_EXCEPTION)
            for one in done:
                error = one.exception()
                if isinstance(error, psycopg.Error):
                    failure = _telling(failure, _Failure(work[one], error))
                else:
                    defect = defect or error
            if failure is not None or defect is not None:
                # Repeatedly: a statement may just be on its way to the server.
                self._stop(work[other] for other in left)
            elif not done and len(left) > 1:
                self._stop(self._circle([work[one] for one in left]))
        if defect is not None:
            raise defect
        return failure

    def _circle(self, lanes: list[LaneSession]) -> list[LaneSession]:
        """Lanes that wait for each other in a cycle."""
        by_pid = {lane.pid: lane for lane in lanes}
        if self._watcher is None or self._watcher.closed:
            self._watcher = self._watch_with()
        sql = "SELECT pid, pg_blocking_pids(pid) FROM unnest(%s::int4[]) AS u(pid)"
        try:
            found = self._watcher.execute(sql, [list(by_pid)]).fetchall()
        except psycopg.Error:
            self._watcher.close()
            return []
        return [by_pid[pid] for pid in circle_of(dict(found))]

    @staticmethod
    def _stop(lanes: Iterable[LaneSession]) -> None:
        for lane in lanes:
            lane.cancel()

    def _sessions(self, count: int) -> list[LaneSession]:
        usable = [lane for lane in self._lanes if lane.usable]
        while len(usable) < count:
            connection = self._connect()
            usable.append(LaneSession(connection, marked=self._origins.marked(connection)))
        self._lanes = usable
        return usable[:count]


def _lock_class(subscription: str) -> int:
    """First key of a subscription's advisory locks; two subscriptions that share it merely wait for each other."""
    return crc32(f"penstock {subscription}".encode()) - 2**31


def _telling(before: _Failure | None, failure: _Failure) -> _Failure:
    """The failure to report: not that of a lane that was stopped or out of turn, which is only a consequence."""
    silent = {"57014", OUT_OF_TURN}
    return failure if before is None or before.error.sqlstate in silent else before


def _fault(failure: _Failure) -> EngineFault:
    error, kind = failure.error, failure.lane.kind_of(failure.error)
    if error.sqlstate == OUT_OF_TURN:
        return EngineFault(FaultKind.EPOCH_LOST, "progress", "another engine has taken over this subscription")
    if kind is None:
        return TARGET.fault(error, "lanes")
    if error.sqlstate == ROW_MISSING:
        detail = "a row to change or delete is not there"
        fault = EngineFault(FaultKind.NET_CHANGE_ANOMALY, kind.place.table, detail)
    else:
        fault = fault_of_table(error, kind.place.table, of_owner=bool(kind.place.types))
    fault.__cause__ = error
    return fault
