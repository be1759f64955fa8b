"""State of a source of several logs that are merged into one: what a restart needs, as the target records it with the data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn

PREFIX = "penstock.logs"
"""Prefix of the transactional message in a merged log that has a LogsMessage as its content."""
MOST_NODES = 64
"""Nodes that a merged log may have: six bits of a mark, so that it remains below 2**62."""
NODE_BIT = 56
"""Position of the node's number in a mark. The commit's end in the log of its node is below: PostgreSQL's positions count bytes, and no log
has 2**56 of them."""
MOST_BYTES = 64 * 1024
"""Longest text of a state, in bytes. 64 nodes need 6 KiB; the rest has room for about 290 open transactions with
identifiers of 199 ASCII characters, which is PostgreSQL's limit. Not measured."""

Published = tuple[str, tuple[int, ...]]
"""A global transaction that is in the merged log from here on, and the nodes on which its commit was not read yet."""
Closed = tuple[str, int, Lsn, int]
"""A global transaction, a node, and the end and time (microseconds since 1970 UTC) of its commit in the log of this node."""
Read = tuple[int, Lsn]
"""A node, and the position up to which everything that committed on it is included, or needs nothing."""


def commit_mark(node: int, end: Lsn) -> int:
    """The mark of a commit: the node, and the commit's end in the node's own log. 0 is no mark.

    Raises EngineFault(INTERNAL) if it cannot be represented.
    """
    if not 0 <= node < MOST_NODES or end.value >> NODE_BIT:
        raise EngineFault(FaultKind.INTERNAL, "log", f"a commit at {end} of node {node} has no mark")
    return node << NODE_BIT | end.value


@dataclass(frozen=True, slots=True)
class NodeLog:
    """What is included of one node's log.

    `read`: everything that committed up to here on this node is included, or needs nothing. `after`, `end`, `time_us`: the node's last
    transaction, as in LastCommit, by the node's own positions; `time_us` 0: it is unknown.
    """

    read: Lsn
    after: Lsn
    end: Lsn
    time_us: int

    @classmethod
    def unknown(cls, read: Lsn) -> NodeLog:
        """For a log of which nothing is known up to `read`."""
        return cls(read, read, read, 0)


@dataclass(frozen=True, slots=True)
class Away:
    """A node that cannot be read. `since_us`: since when, microseconds since 1970 UTC; `code`: kind of the last fault; `reason`: its text,
    without secrets."""

    since_us: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class LogStatus:
    """One of several logs that are merged. `end`: of the log now; `read`: up to where it is read, None if that is not known.

    `late`: changes of other logs wait for it. `away`: it cannot be read, and `end` is the last one that is known. `silent_since_us`: if
    it is late, since when nothing of it was read, microseconds since 1970 UTC; else 0.
    """

    name: str
    end: Lsn
    read: Lsn | None = None
    late: bool = False
    away: Away | None = None
    silent_since_us: int = 0


@dataclass(frozen=True, slots=True)
class NodeCommits:
    """What some consecutive transactions of one node add up to.

    `first`: end of the first one. `before`: end of the last one before `end`; None if there is none. `end`, `time_us`: of the last one.
    """

    first: Lsn
    before: Lsn | None
    end: Lsn
    time_us: int


@dataclass(frozen=True, slots=True)
class LogsMessage:
    """Content of a message with PREFIX."""

    published: tuple[Published, ...] = ()
    closed: tuple[Closed, ...] = ()
    read: tuple[Read, ...] = ()
    kept: tuple[Lsn, ...] = ()
    """By node, up to where its log may be released from here on; empty: as before."""
    transaction: tuple[str, int] | None = None
    """The global transaction that the message is in: its id, and its type: 1 = it has parts on several nodes, 2 = on one node, which is not
    the coordinator. None: it is in none, or an earlier version wrote it."""

    @property
    def content(self) -> bytes:
        """The content that `parse` reads: JSON in ASCII, without absent parts."""
        parts = {
            "published": [[gtid, list(nodes)] for gtid, nodes in self.published],
            "closed": [[gtid, node, str(end), time_us] for gtid, node, end, time_us in self.closed],
            "read": [[node, str(end)] for node, end in self.read],
            "kept": list(map(str, self.kept)),
            "global": self.transaction,
        }
        return _json({name: part for name, part in parts.items() if part}).encode("ascii")

    @classmethod
    def parse(cls, content: bytes) -> LogsMessage:
        """Parse the content of a message. Raises EngineFault(LOG_UNREADABLE) if it has another form."""
        try:
            parts = json.loads(content)
            if not isinstance(parts, dict):
                raise _other_form()
            return cls(
                tuple((_gtid(gtid), tuple(map(_node, nodes))) for gtid, nodes in parts.get("published", ())),
                tuple(
                    (_gtid(gtid), _node(node), Lsn.parse(end), int(time_us))
                    for gtid, node, end, time_us in parts.get("closed", ())
                ),
                tuple((_node(node), Lsn.parse(end)) for node, end in parts.get("read", ())),
                tuple(map(Lsn.parse, parts.get("kept", ()))),
                _transaction(*parts["global"]) if "global" in parts else None,
            )
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            detail = "a message about the merged logs is not of the expected form"
            raise EngineFault(FaultKind.LOG_UNREADABLE, "log", detail) from error


@dataclass(frozen=True, slots=True)
class MergedLogs:
    """State at a position of a merged log. `nodes`: by number.

    `open`: global transactions that are in the merged log and whose commit was not read yet on these nodes, in ascending order. It is not
    to be published again when it is read there.
    """

    nodes: tuple[NodeLog, ...]
    open: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    kept: tuple[Lsn, ...] = ()
    """By node, the last position up to which its log may have been released; empty: it is unknown. What is prepared and not published is
    after it: a log that was released further has lost rows."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.nodes) <= MOST_NODES:
            raise ValueError(f"{len(self.nodes)} nodes")

    @property
    def text(self) -> str:
        """The stored form: JSON in ASCII, without blanks. Equal states have the same text.

        Raises EngineFault(NODE_SILENT) if it is longer than MOST_BYTES: so many global transactions are open only if their commits are
        not read on some node. That is the state of the source and no defect, and it ends when they are; so the fault is one that is
        retried, and its remedy concerns the node.
        """
        nodes = [[str(node.read), str(node.after), str(node.end), node.time_us] for node in self.nodes]
        kept = {"kept": list(map(str, self.kept))} if self.kept else {}
        text = _json({"nodes": nodes, "open": dict(sorted(self.open.items())), **kept})
        if len(text) > MOST_BYTES:
            behind = sorted({node for nodes in self.open.values() for node in nodes})
            detail = f"{len(self.open)} published global transactions wait for their commits on nodes {behind}"
            raise EngineFault(FaultKind.NODE_SILENT, "log", detail)
        return text

    @classmethod
    def parse(cls, text: str) -> MergedLogs:
        """Parse `text`. Raises ValueError if it has another form."""
        try:
            parts = json.loads(text)
            nodes = (
                NodeLog(Lsn.parse(read), Lsn.parse(after), Lsn.parse(end), int(time_us))
                for read, after, end, time_us in parts["nodes"]
            )
            return cls(
                tuple(nodes),
                {_gtid(gtid): tuple(sorted(map(_node, open_))) for gtid, open_ in parts["open"].items()},
                tuple(map(Lsn.parse, parts.get("kept", ()))),
            )
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise _other_form() from error

    @classmethod
    def begun(cls, message: LogsMessage) -> MergedLogs | None:
        """The state that begins with this message: one that has `read` for all nodes, numbered from 0 on. None for another one."""
        read: dict[int, Lsn] = {}
        for node, end in message.read:
            read[node] = max(end, read.get(node, end))
        if not read or max(read) != len(read) - 1:
            return None
        return cls(tuple(NodeLog.unknown(read[node]) for node in range(len(read)))).with_messages([message])

    def with_messages(self, messages: Iterable[LogsMessage]) -> MergedLogs:
        """The state after these messages, which are in log order; the commits that close transactions are those of `with_commits`, too.

        Raises EngineFault(LOG_UNREADABLE) if one names a node that the source did not have when the state began.
        """
        read, open_ = [log.read for log in self.nodes], {gtid: set(each) for gtid, each in self.open.items()}
        kept = self.kept
        for message in messages:
            if message.kept:
                self._check(len(message.kept) - 1)
                kept = message.kept
            for gtid, names in message.published:
                for node in names:
                    self._check(node)
                    open_.setdefault(gtid, set()).add(node)
            for gtid, node, end, _ in message.closed:
                self._check(node)
                read[node] = max(read[node], end)
                if gtid in open_:
                    open_[gtid].discard(node)
                    if not open_[gtid]:
                        del open_[gtid]
            for node, end in message.read:
                self._check(node)
                read[node] = max(read[node], end)
        nodes = (
            log if log.read == raised else replace(log, read=raised)
            for log, raised in zip(self.nodes, read, strict=True)
        )
        return MergedLogs(tuple(nodes), {gtid: tuple(sorted(each)) for gtid, each in open_.items()}, kept)

    def with_commits(self, commits: Mapping[int, NodeCommits]) -> MergedLogs:
        """The state after transactions of these nodes. One that ends where the last known one ends is the same one.

        Raises EngineFault(LOG_UNREADABLE) if a node's transactions are out of order, or the source did not have it when the state began.
        """
        nodes = list(self.nodes)
        for number, new in commits.items():
            self._check(number)
            known = nodes[number]
            if new.first < known.end:
                detail = f"commits of node {number} out of order: at {new.first} after {known.end}"
                raise EngineFault(FaultKind.LOG_UNREADABLE, "log", detail)
            if new.end > known.end:
                after = known.end if new.before is None else max(new.before, known.end)
                nodes[number] = NodeLog(max(known.read, new.end), after, new.end, new.time_us)
        return MergedLogs(tuple(nodes), self.open, self.kept)

    def forgotten(self, numbers: Iterable[int] | None = None) -> MergedLogs:
        """The state if it is unknown which transaction was the last one on these nodes; None: on all."""
        numbers = frozenset(range(len(self.nodes)) if numbers is None else numbers)
        nodes = (NodeLog.unknown(log.read) if n in numbers else log for n, log in enumerate(self.nodes))
        return MergedLogs(tuple(nodes), self.open, self.kept)

    def _check(self, node: int) -> None:
        if node >= len(self.nodes):
            detail = f"a record of node {node}, while the source has {len(self.nodes)} nodes"
            raise EngineFault(FaultKind.LOG_UNREADABLE, "log", detail)


def _json(value: object) -> str:
    """Compact JSON in ASCII. Blanks are only within texts, where they are escaped."""
    return json.dumps(value, separators=(",", ":")).replace(" ", "\\u0020")


def _gtid(value: Any) -> str:
    if not isinstance(value, str):
        raise _other_form()
    return value


def _transaction(gtid: Any, kind: Any) -> tuple[str, int]:
    if type(kind) is not int:
        raise _other_form()
    return _gtid(gtid), kind


def _node(value: Any) -> int:
    if type(value) is not int or not 0 <= value < MOST_NODES:
        raise _other_form()
    return value


def _other_form() -> ValueError:
    return ValueError("not of the expected form")
