"""The batcher seals committed transactions into batches: by count, bytes or age, earlier on demand, or exactly at a cut."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.model.batch import SealedBatch
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.last_commit import CommitTimes, LastCommit
from engine.model.position import ZERO, Lsn
from engine.model.subscription import BatchPolicy, OriginFilter
from engine.sort.committed import (
    CommittedTransactions,
    StreamedTransaction,
    TransactionRun,
    join_ranges,
    part_announcements,
    times_of,
)
from engine.sort.logs_fold import LogsFold

BytesOf = Callable[[Ordinal, Ordinal], int]
"""Bytes of the raw records `[start, stop)`. Must be monotonic: a larger range never has fewer bytes."""
Alone = Callable[[int, int], bool]
"""Whether a streamed transaction must be a batch of its own, by its xid and the bytes of its records."""


@dataclass(slots=True)
class _Pending:
    """Transactions that wait to be sealed, the time when they were added, and their bytes (-1 = not measured yet)."""

    closed: CommittedTransactions
    added_ms: int
    bytes: int = -1


class Batcher:
    """Seals consecutive batches without gaps: each batch's `after` is the previous one's `end`. Used by one thread.

    Callers pass the time, in milliseconds of any monotonic clock.
    """

    def __init__(
        self,
        policy: BatchPolicy,
        after: Lsn,
        alone: Alone = lambda _xid, _bytes: False,
        last: LastCommit | None = None,
        origin: OriginFilter = OriginFilter.ANY,
    ) -> None:
        """`alone`: called whenever a streamed transaction may be sealed; if true, it is sealed at once. `last`: the last transaction up to
        `after`. `origin`: the filter with which the added transactions are read."""
        self._policy = policy
        self._alone = alone
        self._pending: deque[_Pending] = deque()
        self._count = 0
        self._measured = 0
        self._bytes = 0
        self._sealed_end = after.value
        self._sealed_commit = after.value
        """End of the last sealed transaction."""
        self._added_end = after.value
        self._before = last or LastCommit.unknown(after)
        self._sealed_last = self._added_last = self._before
        self._sealed_logs, self._added_logs = LogsFold(self._before.logs, after), LogsFold(self._before.logs, after)
        self._origin = origin
        self._unknown_end = ZERO
        self._wal_end = after.value
        self._wal_moved_ms: int | None = None
        self._demands: list[int] = []
        """A heap of positions. Each demand is served on its own, so that one far ahead does not delay the nearer ones."""
        self._demanded_in_flight = False
        self._cuts: list[int] = []
        self._holds: list[int] = []

    @property
    def sealed_end(self) -> Lsn:
        """`end` of the last sealed batch, or `after`."""
        return Lsn(self._sealed_end)

    @property
    def captured(self) -> Lsn:
        """Every transaction that committed up to here has been added."""
        return Lsn(max(self._wal_end, self._added_end))

    @property
    def last_commit(self) -> LastCommit:
        """The last transaction that has been added."""
        return self._known(self._added_last, self._added_logs, self.captured)

    def know_nothing_before(self, position: Lsn) -> None:
        """The log up to `position` was read with another origin filter: which transactions have changes under this one is unknown."""
        self._unknown_end = position

    @property
    def oldest_commit_us(self) -> int | None:
        """Commit time of the first unsealed transaction, in microseconds by the source's clock; None if there is none."""
        return self._pending[0].closed.first_time_us if self._pending else None

    def oldest_unsealed_ordinal(self) -> Ordinal | None:
        """The lowest ordinal that unsealed transactions need; None if none does."""
        firsts = [first for pending in self._pending if (first := pending.closed.first_ordinal) is not None]
        return Ordinal(min(firsts)) if firsts else None

    def add(self, closed: Iterable[CommittedTransactions], now_ms: int) -> None:
        """Add committed transactions in the sorter's order. Call it before `advance` to a position at or after their ends."""
        for one in closed:
            if one.first_end <= max(self._added_end, self._sealed_end):
                raise EngineFault(
                    FaultKind.INTERNAL, "batch", "a transaction arrived at a position that was already sealed"
                )
            self._added_last = one.last_commit(self._added_end, self._origin) or self._added_last
            self._added_logs.add(one)
            self._added_end = one.last_end
            self._count += one.count
            self._pending.append(_Pending(one, now_ms))

    def advance(self, wal_end: Lsn) -> None:
        """Everything committed up to `wal_end` has been read and added. A lower position than before changes nothing."""
        self._wal_end = max(self._wal_end, wal_end.value)

    def demand(self, position: Lsn) -> None:
        """A query waits for `position`: seal as soon as capture has reached it."""
        if position.value > self._sealed_end:
            heapq.heappush(self._demands, position.value)

    def in_flight_done(self) -> None:
        """The batch sealed on demand was committed or abandoned; the next one may be sealed on demand."""
        self._demanded_in_flight = False

    def hold_back(self, for_ms: int) -> None:
        """Seal transactions no earlier than `for_ms` after they were added, until `let_go`: a cut will be requested at a position that is
        being determined. The longest of several hold-backs counts."""
        self._holds.append(for_ms)

    def let_go(self, for_ms: int) -> None:
        """End one `hold_back` of this length."""
        if for_ms not in self._holds:
            raise EngineFault(FaultKind.INTERNAL, "batch", "released without being held")
        self._holds.remove(for_ms)

    def request_cut(self, position: Lsn) -> bool:
        """Request a batch that ends at `position` and contains every transaction up to it. It names the cut, and may be empty.

        False if transactions after `position` are sealed already, so that no batch can end there.
        """
        if position.value < self._sealed_commit:
            return False
        if position.value not in self._cuts:
            insort(self._cuts, position.value)
        return True

    def due_in_ms(self, now_ms: int) -> int | None:
        """Milliseconds until the age limit seals the next batch; None if nothing is pending. Other limits may seal it earlier."""
        since = self._oldest_ms()
        return None if since is None else max(0, since + self._policy.max_age_ms - now_ms)

    def seal(self, now_ms: int, bytes_of: BytesOf, crowded: bool = False) -> SealedBatch | None:
        """The next batch if one is due, else None. Call it until it returns None: several may be due.

        `crowded`: earlier batches are not committed yet. Then only a demand or a cut seals; other transactions accumulate, so that the
        next batch is larger.
        """
        if not self._pending and self._wal_moved_ms is None and self._wal_end > self._sealed_end:
            self._wal_moved_ms = now_ms
        added_by = now_ms - max(self._holds, default=0)
        if self._pending and self._pending[0].added_ms > added_by:
            return None
        self._measure(bytes_of)
        demanded = self._demand_due()
        due = not crowded and self._limit_due(now_ms)
        if not (due or self._cut_due() or demanded):
            return None
        early = demanded and not due
        return self._finish(self._take_transactions(bytes_of, added_by), demanded=early)

    def _oldest_ms(self) -> int | None:
        return self._pending[0].added_ms if self._pending else self._wal_moved_ms

    def _measure(self, bytes_of: BytesOf) -> None:
        while self._measured < len(self._pending):
            pending = self._pending[self._measured]
            pending.bytes = _bytes(pending.closed, bytes_of)
            self._bytes += pending.bytes
            self._measured += 1

    def _demand_due(self) -> bool:
        while self._demands and self._demands[0] <= self._sealed_end:
            heapq.heappop(self._demands)
        if self._demanded_in_flight or not self._demands:
            return False
        return self.captured.value >= self._demands[0]

    def _cut_due(self) -> bool:
        return bool(self._cuts) and self.captured.value >= self._cuts[0]

    def _limit_due(self, now_ms: int) -> bool:
        policy = self._policy
        if self._count >= policy.max_transactions or (self._pending and self._bytes >= policy.max_bytes):
            return True
        if self._pending and self._is_alone(self._pending[0]):
            return True
        since = self._oldest_ms()
        return since is not None and now_ms >= since + policy.max_age_ms

    def _take_transactions(self, bytes_of: BytesOf, added_by: int) -> list[CommittedTransactions]:
        """Remove transactions from the head: as many as the limits allow, none added after `added_by`, none after the next cut. At least
        one if there is one; only that one if it must be a batch of its own."""
        taken: list[CommittedTransactions] = []
        count = size = 0
        while self._pending and count < self._policy.max_transactions:
            pending = self._pending[0]
            alone = self._is_alone(pending)
            if taken and (alone or pending.added_ms > added_by):
                break
            fits = self._fitting(pending, self._policy.max_transactions - count, bytes_of, size)
            if fits == 0 and not taken and self._before_cut(pending.closed) > 0:
                fits = 1
            if fits == 0:
                break
            whole = fits == pending.closed.count
            taken.append(self._pop(fits, bytes_of))
            count += fits
            size += pending.bytes
            if alone or not whole or size > self._policy.max_bytes:
                break
        return taken

    def _is_alone(self, pending: _Pending) -> bool:
        closed = pending.closed
        return isinstance(closed, StreamedTransaction) and self._alone(closed.xid, pending.bytes)

    def _before_cut(self, closed: CommittedTransactions) -> int:
        return closed.through(self._cuts[0]) if self._cuts else closed.count

    def _fitting(self, pending: _Pending, most: int, bytes_of: BytesOf, size: int) -> int:
        """How many transactions at the head of `pending` fit into the batch by count, cut and bytes."""
        closed = pending.closed
        most = min(most, self._before_cut(closed))
        left = self._policy.max_bytes - size
        if most == closed.count and pending.bytes <= left:
            return most
        if not isinstance(closed, TransactionRun):
            return 0
        low = 0
        while low < most:
            middle = (low + most + 1) // 2
            if _head_bytes(closed, middle, bytes_of) <= left:
                low = middle
            else:
                most = middle - 1
        return low

    def _pop(self, count: int, bytes_of: BytesOf) -> CommittedTransactions:
        """Remove `count` transactions from the head of the first entry."""
        pending = self._pending[0]
        self._count -= count
        self._bytes -= pending.bytes
        closed = pending.closed
        if count == closed.count or not isinstance(closed, TransactionRun):
            self._pending.popleft()
            self._measured -= 1
            return closed
        head, tail = closed.split(count)
        self._pending[0] = _Pending(tail, pending.added_ms, _bytes(tail, bytes_of))
        self._bytes += self._pending[0].bytes
        return head

    def _finish(self, taken: list[CommittedTransactions], *, demanded: bool) -> SealedBatch:
        after = self._sealed_end
        end = max(after, taken[-1].last_end) if taken else after
        for one in taken:
            self._sealed_last = one.last_commit(self._sealed_commit, self._origin) or self._sealed_last
            self._sealed_logs.add(one)
            self._sealed_commit = one.last_end
        cuts = self._reached_cuts()
        if cuts:
            # No transaction is left before the cut, so the batch contains everything up to it and ends at the cut.
            end = max(end, cuts[-1])
        elif not self._pending:
            end = max(end, self._wal_end)
        self._sealed_end = end
        relations, messages, tickets = part_announcements(taken)
        self._wal_moved_ms = None
        self._demanded_in_flight = self._demanded_in_flight or demanded
        return SealedBatch(
            after=Lsn(after),
            end=Lsn(end),
            transactions=sum(one.count for one in taken),
            ranges=join_ranges([part for one in taken for part in one.ranges()]),
            relations=relations,
            first_commit_us=taken[0].first_time_us if taken else 0,
            last_commit_us=taken[-1].last_time_us if taken else 0,
            demanded=demanded,
            cuts=tuple(Lsn(cut) for cut in cuts),
            messages=messages,
            tickets=tickets,
            last=self._known(self._sealed_last, self._sealed_logs, Lsn(end)),
            times=self._times(taken),
        )

    def _known(self, last: LastCommit, fold: LogsFold, position: Lsn) -> LastCommit:
        """`last` with the state of `fold` if it was read with the current filter; else a LastCommit that is unknown up to `position`."""
        logs = fold.state(self._unknown_end)
        if last.end > self._unknown_end:
            return last if logs is last.logs else replace(last, logs=logs)
        return LastCommit.unknown(min(self._unknown_end, position), self._before.origin, logs)

    def _times(self, taken: Sequence[CommittedTransactions]) -> CommitTimes:
        times = times_of(taken)
        return replace(times, times_us=np.where(times.ends > np.uint64(self._unknown_end.value), times.times_us, 0))

    def _reached_cuts(self) -> list[int]:
        """Remove and return the cuts that are reached: captured, and with no unsealed transaction before them."""
        border = self.captured.value
        if self._pending:
            border = min(border, self._pending[0].closed.first_end - 1)
        reached = [cut for cut in self._cuts if cut <= border]
        self._cuts = self._cuts[len(reached) :]
        return reached


def _bytes(closed: CommittedTransactions, bytes_of: BytesOf) -> int:
    return sum(bytes_of(Ordinal(start), Ordinal(stop)) for start, stop in closed.spans())


def _head_bytes(run: TransactionRun, count: int, bytes_of: BytesOf) -> int:
    loose = sum(bytes_of(Ordinal(at), Ordinal(at + 1)) for at in run.loose)
    return loose + bytes_of(Ordinal(int(run.starts[0])), Ordinal(int(run.stops[count - 1])))
