"""Random merged logs, and the state of their logs at every position by rules that take one transaction after another."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

from engine.model.control import ControlKind
from engine.model.merged_logs import LogsMessage, MergedLogs, NodeLog, commit_mark
from engine.model.position import Lsn
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.sort.log_script import LogFeed

_GTIDS = ("a", "b b", "c")


@dataclass(slots=True)
class Merged:
    """A transaction. `mark`: node and end in the log of the node; None: it has none. `xid`: of a streamed one, else 0."""

    end: int
    time_us: int
    messages: list[LogsMessage] = field(default_factory=list)
    mark: tuple[int, int] | None = None
    changes: int = 0
    xid: int = 0


def make_log(rng: random.Random, nodes: int, count: int) -> list[Merged]:
    """A log that begins its state with one of the transactions, or with none."""
    ends = [rng.randint(0, 50) for _ in range(nodes)]
    first = rng.randint(0, count)
    log = []
    for number in range(count):
        one = Merged(100 * (number + 1), rng.randint(1, 9) * 1000 + number, changes=rng.choice((0, 1, 1, 3)))
        if number == first:
            read = tuple((node, Lsn(end)) for node, end in enumerate(ends))
            one.messages.append(LogsMessage(read=tuple(rng.sample(read, nodes))))
        while rng.random() < 0.4:
            one.messages.append(_noise(rng, ends, begun=number >= first))
        rng_node = rng.randrange(nodes)
        if number < first or rng.random() < 0.8:
            ends[rng_node] += rng.choice((0, 1, 7)) if number > first else rng.randint(1, 5)
            one.mark = (rng_node, ends[rng_node])
        if rng.random() < 0.1:
            one.xid, one.mark = 1000 + number, None
        log.append(one)
    return log


def _noise(rng: random.Random, ends: list[int], *, begun: bool) -> LogsMessage:
    """A message that begins no state. Before one has begun it may name any node. `ends`: of the last commit of each node."""
    most = len(ends) if begun else 64

    def node() -> int:
        return rng.randrange(most)

    published = tuple(
        (rng.choice(_GTIDS), tuple(node() for _ in range(rng.randint(0, 2)))) for _ in range(rng.choice((0, 0, 1, 2)))
    )
    closed = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        number = node()
        if begun:
            ends[number] += rng.choice((0, 1, 7))
        end = ends[number] if begun else rng.randint(0, 200)
        closed.append((rng.choice(_GTIDS), number, Lsn(end), rng.randint(1, 9)))
    read = tuple((node(), Lsn(rng.randint(0, 200))) for _ in range(rng.choice((0, 1))))
    if not begun:
        read = tuple((number or 1, end) for number, end in read)
    return LogsMessage(published, tuple(closed), read)


class Reference:
    """The rules, for one transaction after another. `unknown_end`: up to here the log was read with another origin filter."""

    def __init__(self, unknown_end: int) -> None:
        self.unknown_end = unknown_end
        self.read: list[int] = []
        self.last: list[tuple[int, int, int]] = []
        self.known: list[bool] = []
        self.pairs: set[tuple[str, int]] = set()

    def add(self, one: Merged) -> None:
        for message in one.messages:
            self._take(message, one.end)
        if self.read and one.mark is not None:
            self._commit(*one.mark, one.time_us, one.end)

    def _commit(self, node: int, end: int, time_us: int, end_of_it: int) -> None:
        if end > self.last[node][1]:
            self.last[node] = (self.last[node][1], end, time_us)
            self.known[node] = end_of_it > self.unknown_end
        self.read[node] = max(self.read[node], end)

    def _take(self, message: LogsMessage, end_of_it: int) -> None:
        if not self.read:
            found = {node: end.value for node, end in message.read}
            if not found or sorted(found) != list(range(len(found))):
                return
            self.read = [found[node] for node in sorted(found)]
            self.last = [(end, end, 0) for end in self.read]
            self.known = [end_of_it > self.unknown_end] * len(found)
        self.pairs |= {(gtid, node) for gtid, nodes in message.published for node in nodes}
        for gtid, node, end, time_us in message.closed:
            self.pairs.discard((gtid, node))
            self._commit(node, end.value, time_us, end_of_it)
        for node, end in message.read:
            self.read[node] = max(self.read[node], end.value)

    @property
    def state(self) -> MergedLogs | None:
        if not self.read:
            return None
        nodes = (
            NodeLog(Lsn(read), Lsn(after), Lsn(end), time) if known else NodeLog.unknown(Lsn(read))
            for read, (after, end, time), known in zip(self.read, self.last, self.known, strict=True)
        )
        names = {gtid for gtid, _ in self.pairs}
        return MergedLogs(
            tuple(nodes), {name: tuple(sorted(node for gtid, node in self.pairs if gtid == name)) for name in names}
        )


def states_of(log: list[Merged], unknown_end: int = 0) -> dict[int, MergedLogs | None]:
    """The state after each transaction, by its end; by 0 the one before them."""
    reference = Reference(unknown_end)
    found: dict[int, MergedLogs | None] = {0: None}
    for one in log:
        reference.add(one)
        found[one.end] = reference.state
    return found


def play(one: Merged, feed: LogFeed, rng: random.Random) -> None:
    """Write a transaction, with records of other kinds among its own."""
    if one.xid:
        feed.control(ControlKind.STREAM_START, one.xid)
    elif rng.random() < 0.2:
        feed.relation(rng.randint(1, 3))
    if not one.xid:
        feed.control(ControlKind.BEGIN, one.end)
    for message in one.messages:
        if rng.random() < 0.3:
            _other_message(feed, rng)
        feed.logs(message.content)
    for _ in range(one.changes):
        feed.change()
    if one.xid:
        feed.control(ControlKind.STREAM_STOP, subxid=1)
        if rng.random() < 0.5:
            feed.control(ControlKind.STREAM_ABORT, one.xid, one.xid + 5000)
        feed.control(ControlKind.STREAM_COMMIT, one.xid, end=one.end, time_us=one.time_us)
        return
    mark = 0 if one.mark is None else commit_mark(one.mark[0], Lsn(one.mark[1]))
    feed.control(ControlKind.COMMIT, end=one.end, time_us=one.time_us, commit_lsn=mark)


def _other_message(feed: LogFeed, rng: random.Random) -> None:
    """A relation record, a DDL message, a ticket marker, or a message of a user."""
    kind = rng.randrange(4)
    if kind == 0:
        feed.relation(rng.randint(1, 3))
        return
    ordinal = feed.control(ControlKind.MESSAGE, xid=feed.stream)
    if kind == 1:
        feed.relations[ordinal] = pgoutput.message("penstock.ddl", b"{}", feed.stream)
    elif kind == 2:
        xid = struct.pack(">I", feed.stream) if feed.stream else b""
        ticket = pgoutput.message("penstock.ticket", b"t1 5")
        feed.relations[ordinal] = ticket[:1] + xid + ticket[1:]
