"""Follows the state of a merged log over the transactions of a batcher, see engine.model.merged_logs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.model.batch import LogsSeen
from engine.model.fault import EngineFault, FaultKind
from engine.model.merged_logs import NODE_BIT, Closed, LogsMessage, MergedLogs, NodeCommits
from engine.model.position import Lsn
from engine.sort.committed import CommittedTransactions, TransactionRun

_END_BITS = np.uint64((1 << NODE_BIT) - 1)
"""The part of a mark that is the commit's end in its node's log."""


class LogsFold:
    """The state after the transactions that were added. For a log that is not merged it remains None, and nothing is computed.

    Used by one thread. The transactions are added in commit order, in runs that may be cut anywhere: the state does not depend on it.
    """

    def __init__(self, logs: MergedLogs | None, after: Lsn) -> None:
        """`logs`: the state at `after`, if it has begun."""
        self._logs = logs
        self._ends = [] if logs is None else [after.value] * len(logs.nodes)
        """By node: end in the merged log of its last transaction, or `after`."""

    def add(self, closed: CommittedTransactions) -> None:
        """Add the next transactions. Raises EngineFault(LOG_UNREADABLE) if what they say of the logs contradicts the state."""
        if self._logs is None and not closed.announcements:
            return
        seen = [one for one in closed.announcements if isinstance(one, LogsSeen)]
        if self._logs is None and not seen:
            return
        first, closings = self._take_messages(closed, seen)
        if self._logs is not None:
            self._take_commits(self._logs, closed, first, closings)

    def state(self, unknown_end: Lsn) -> MergedLogs | None:
        """The state. `unknown_end`: up to here the log was read with another origin filter, under which other transactions have changes."""
        if self._logs is None or unknown_end.value == 0:
            return self._logs
        before = [node for node, end in enumerate(self._ends) if end <= unknown_end.value]
        return self._logs.forgotten(before) if before else self._logs

    def _take_messages(
        self, closed: CommittedTransactions, seen: list[LogsSeen]
    ) -> tuple[int, list[tuple[int, Closed]]]:
        """Take the messages. Returns the number of the first transaction whose commit counts, since before the state begins none does; and
        the commits on nodes that messages name, each with the number of its message's transaction."""
        messages = [(one.ordinal, LogsMessage.parse(one.content)) for one in seen]
        closings: list[tuple[int, Closed]] = []
        first = 0
        while self._logs is None and messages:
            ordinal, message = messages.pop(0)
            self._logs = MergedLogs.begun(message)
            if self._logs is not None:
                first = closed.place_of(ordinal)
                begun = closed.end_at(ordinal)
                self._ends = [begun] * len(self._logs.nodes)
                closings += [(first, each) for each in message.closed]
        if self._logs is not None and messages:
            self._logs = self._logs.with_messages(message for _, message in messages)
            closings += [(closed.place_of(at), each) for at, message in messages for each in message.closed]
        return first, closings

    def _take_commits(
        self, logs: MergedLogs, taken: CommittedTransactions, first: int, closings: list[tuple[int, Closed]]
    ) -> None:
        """`closings`: a message's transaction is after the commits that it names."""
        run = taken if isinstance(taken, TransactionRun) else None
        marks = np.empty(0, np.uint64) if run is None else run.commits[first:]
        marked = np.flatnonzero(marks & _END_BITS)
        if not len(marked) and not closings:
            return
        places = np.concatenate([marked + first, np.array([place for place, _ in closings], np.int64)])
        nodes = np.concatenate(
            [
                (marks[marked] >> np.uint64(NODE_BIT)).astype(np.uint8),
                np.array([each[1] for _, each in closings], np.uint8),
            ]
        )
        ends = np.concatenate([marks[marked] & _END_BITS, np.array([each[2].value for _, each in closings], np.uint64)])
        written = np.empty(0, np.int64) if run is None else run.times[marked + first]
        times = np.concatenate([written, np.array([each[3] for _, each in closings], np.int64)])
        own = np.concatenate([np.ones(len(marked), np.bool_), np.zeros(len(closings), np.bool_)])
        order = np.lexsort((own, places, nodes))
        places, nodes, ends, times = places[order], nodes[order], ends[order], times[order]
        borders = np.flatnonzero(nodes[1:] != nodes[:-1]) + 1
        commits: dict[int, NodeCommits] = {}
        last: dict[int, int] = {}
        for start, stop in zip([0, *borders.tolist()], [*borders.tolist(), len(nodes)], strict=True):
            node = int(nodes[start])
            at = start + int(np.searchsorted(_ascending(ends[start:stop], node), ends[stop - 1]))
            before = Lsn(int(ends[at - 1])) if at > start else None
            commits[node] = NodeCommits(Lsn(int(ends[start])), before, Lsn(int(ends[at])), int(times[at]))
            last[node] = taken.last_end if run is None else int(run.ends[places[at]])
        self._logs = logs.with_commits(commits)
        for node, end in last.items():
            if self._logs.nodes[node].end > logs.nodes[node].end:
                self._ends[node] = end


def _ascending(ends: npt.NDArray[np.uint64], node: int) -> npt.NDArray[np.uint64]:
    if bool((ends[1:] < ends[:-1]).any()):
        raise EngineFault(FaultKind.LOG_UNREADABLE, "log", f"commits of node {node} out of order")
    return ends
