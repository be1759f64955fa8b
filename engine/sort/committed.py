"""Committed transactions as the sorter emits them: runs of plain ones as arrays, and single streamed ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.model.batch import LogRange, LogsSeen, MessageSeen, PlacedMessage, RelationSeen, TicketSeen
from engine.model.identity import Ordinal
from engine.model.last_commit import CommitTimes, LastCommit
from engine.model.position import Lsn
from engine.model.subscription import OriginFilter
from engine.model.ticket import TicketMarker

Ints = npt.NDArray[np.int64]
Lsns = npt.NDArray[np.uint64]
Ids = npt.NDArray[np.uint32]
Announcement = RelationSeen | MessageSeen | TicketSeen | LogsSeen
"""Records that sort and the stages after it interpret: relation records, DDL messages, ticket markers, messages about merged logs."""
Controls = npt.NDArray[Any]
"""Control records: a structured array with the fields of engine.model.control.CONTROL_FIELDS."""
_EMPTY = 2
"""Records of a transaction without changes: BEGIN and COMMIT. Some versions of PostgreSQL send such transactions."""


@dataclass(frozen=True, slots=True)
class TransactionRun:
    """One or more non-streamed transactions in commit order, with no record of another transaction between them.

    Arrays have one entry per transaction: records `[starts[i], stops[i])`, end LSN, commit time in microseconds, `commit_lsn` of its
    control record, transaction id. `loose`: ordinals of relation records before the first transaction, outside any. `announcements` are
    in ascending order of ordinals.
    """

    starts: Ints
    stops: Ints
    ends: Lsns
    times: Ints
    commits: Lsns
    xids: Ids
    loose: tuple[int, ...] = ()
    announcements: tuple[Announcement, ...] = ()

    @property
    def count(self) -> int:
        return len(self.stops)

    @property
    def first_ordinal(self) -> int:
        return self.loose[0] if self.loose else int(self.starts[0])

    @property
    def first_end(self) -> int:
        return int(self.ends[0])

    @property
    def last_end(self) -> int:
        return int(self.ends[-1])

    @property
    def first_time_us(self) -> int:
        return int(self.times[0])

    @property
    def last_time_us(self) -> int:
        return int(self.times[-1])

    def spans(self) -> list[tuple[int, int]]:
        """Borders of the records, `[start, stop)` each."""
        return [*((at, at + 1) for at in self.loose), (int(self.starts[0]), int(self.stops[-1]))]

    def ranges(self) -> list[LogRange]:
        end = Lsn(self.last_end)
        before = [LogRange(Ordinal(at), Ordinal(at + 1), Lsn(self.first_end)) for at in self.loose]
        return [*before, LogRange(Ordinal(int(self.starts[0])), Ordinal(int(self.stops[-1])), end)]

    def last_commit(self, after: int, origin: OriginFilter) -> LastCommit | None:
        """The run's last transaction with changes, None if none has any. `after`: end of the transaction before the first one."""
        changing = np.flatnonzero(self.stops - self.starts > _EMPTY)
        if not len(changing):
            return None
        at = int(changing[-1])
        before = int(self.ends[at - 1]) if at else after
        return LastCommit(Lsn(before), Lsn(int(self.ends[at])), int(self.times[at]), origin)

    def through(self, end: int) -> int:
        """How many of its transactions end at or before `end`."""
        return int(np.searchsorted(self.ends, np.uint64(end), side="right"))

    def end_at(self, ordinal: int) -> int:
        """End LSN of the transaction that holds this record."""
        return int(self.ends[self.place_of(ordinal)])

    def place_of(self, ordinal: int) -> int:
        """Number of the transaction that holds this record."""
        return int(np.searchsorted(self.stops, ordinal, side="right"))

    def split(self, count: int) -> tuple[TransactionRun, TransactionRun]:
        """The first `count` transactions, and the rest. Neither may be empty."""
        border = int(self.stops[count - 1])
        here = tuple(seen for seen in self.announcements if seen.ordinal < border)
        head = TransactionRun(
            self.starts[:count],
            self.stops[:count],
            self.ends[:count],
            self.times[:count],
            self.commits[:count],
            self.xids[:count],
            self.loose,
            here,
        )
        tail = TransactionRun(
            self.starts[count:],
            self.stops[count:],
            self.ends[count:],
            self.times[count:],
            self.commits[count:],
            self.xids[count:],
            (),
            self.announcements[len(here) :],
        )
        return head, tail


@dataclass(frozen=True, slots=True)
class StreamedTransaction:
    """A committed streamed transaction: the source sent it in one or more chunks of records while it was open."""

    xid: int
    end: int
    time_us: int
    chunks: tuple[tuple[int, int], ...]
    aborted: frozenset[int] = frozenset()
    announcements: tuple[Announcement, ...] = ()
    own: bool = False
    """The top-level transaction wrote rows itself, not only its subtransactions."""

    count = 1

    @property
    def first_ordinal(self) -> int | None:
        return self.chunks[0][0] if self.chunks else None

    @property
    def first_end(self) -> int:
        return self.end

    @property
    def last_end(self) -> int:
        return self.end

    @property
    def first_time_us(self) -> int:
        return self.time_us

    @property
    def last_time_us(self) -> int:
        return self.time_us

    def spans(self) -> list[tuple[int, int]]:
        """Borders of the records, `[start, stop)` each; empty if no chunk held a record."""
        return list(self.chunks)

    def ranges(self) -> list[LogRange]:
        end = Lsn(self.end)
        return [
            LogRange(Ordinal(start), Ordinal(stop), end, self.xid, self.aborted, self.time_us)
            for start, stop in self.chunks
        ]

    def end_at(self, ordinal: int) -> int:
        """End LSN of the transaction that holds this record."""
        del ordinal
        return self.end

    def place_of(self, ordinal: int) -> int:
        """As TransactionRun.place_of."""
        del ordinal
        return 0

    def last_commit(self, after: int, origin: OriginFilter) -> LastCommit | None:
        """As TransactionRun.last_commit."""
        if not self.chunks:
            return None
        return LastCommit(Lsn(after), Lsn(self.end), self.time_us, origin, certain=self.own or not self.aborted)

    def through(self, end: int) -> int:
        """1 if it ends at or before `end`, else 0."""
        return int(self.end <= end)


CommittedTransactions = TransactionRun | StreamedTransaction


def part_announcements(
    taken: Iterable[CommittedTransactions],
) -> tuple[tuple[RelationSeen, ...], tuple[PlacedMessage, ...], tuple[TicketMarker, ...]]:
    """Relation records, DDL messages with their places among them, and ticket markers, each in log order."""
    relations: list[RelationSeen] = []
    messages: list[PlacedMessage] = []
    tickets: list[TicketMarker] = []
    for closed in taken:
        for seen in closed.announcements:
            if isinstance(seen, RelationSeen):
                relations.append(seen)
            elif isinstance(seen, TicketSeen):
                tickets.append(seen.marker)
            elif isinstance(seen, MessageSeen):
                messages.append(PlacedMessage(len(relations), seen, Lsn(closed.end_at(seen.ordinal))))
    return tuple(relations), tuple(messages), tuple(tickets)


def times_of(taken: Sequence[CommittedTransactions]) -> CommitTimes:
    """The transactions, with the messages about merged logs that they have."""
    parts = [
        (one.ends, one.times, one.xids)
        if isinstance(one, TransactionRun)
        else (np.array([one.end], np.uint64), np.array([one.time_us], np.int64), np.array([one.xid], np.uint32))
        for one in taken
    ]
    if not parts:
        return CommitTimes(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.uint32))
    ends, times, xids = (np.concatenate(values) for values in zip(*parts, strict=True))
    return CommitTimes(ends, times, xids, _messages_of(taken))


def _messages_of(taken: Sequence[CommittedTransactions]) -> tuple[tuple[int, bytes], ...]:
    return tuple(
        (closed.end_at(seen.ordinal), seen.content)
        for closed in taken
        for seen in closed.announcements
        if isinstance(seen, LogsSeen)
    )


def join_ranges(parts: list[LogRange]) -> tuple[LogRange, ...]:
    """The same records in the same order, with adjoining plain ranges joined."""
    joined: list[LogRange] = []
    for part in parts:
        before = joined[-1] if joined else None
        if before is not None and before.xid == 0 and part.xid == 0 and before.stop == part.start:
            joined[-1] = LogRange(before.start, part.stop, part.end)
        else:
            joined.append(part)
    return tuple(joined)
