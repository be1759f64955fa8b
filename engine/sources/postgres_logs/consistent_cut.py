"""A moment of all nodes at once: snapshots of the nodes, and the position of the merged log with exactly the transactions that they have.

The merge releases nothing while the snapshots are taken, so nothing is released that one of them does not have. Then it releases what they
have, and the position is between that and all later transactions. Each of the following ends the attempt, and another one may begin at
once:

- A node's snapshot does not have a transaction whose commit is in the log before that of one that it has, or that is released already. Its
  commit is in the log, but not visible yet: it waits for a synchronous standby, or the snapshot was taken within these microseconds.
- A global transaction is in the snapshot of one node only, since it was taken between two of its commits.
- A row that ordinary transactions have moved is in the snapshots of both nodes, since that of the node that it left was taken before. The
  ends of the logs are taken after all snapshots, so the transaction is read by which it left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from engine.platform.compiled import Array
from engine.sort.merge import LogMerge
from engine.sources.postgres_logs.node_log import NodeLog

_HALF = np.int64(1 << 31)


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node's snapshot, as pg_current_snapshot prints it. `end`: the end of its log, taken after the snapshots of all
    nodes."""

    xmin: int
    xmax: int
    running: tuple[int, ...]
    end: int

    @classmethod
    def parse(cls, text: str, end: int) -> NodeSnapshot:
        """Raises ValueError if it has another form."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), tuple(map(int, running.split(","))) if running else (), end)

    def has(self, xids: Array) -> Array:
        """Which of these committed transactions it has: bool. `xids`: int64, of which the log holds the low 32 bits."""
        full = self.xmax + (xids - self.xmax + _HALF) % (2 * _HALF) - _HALF
        found: Array = (full < self.xmax) & ~np.isin(full, np.array(self.running, np.int64))
        return found


class CutState(Enum):
    """How far a cut is."""

    FROZEN = "frozen"
    """Nothing is released. The snapshots are being taken, or the logs are read up to their ends."""
    HELD = "held"
    """What the snapshots have is being released, and nothing else."""
    COMPLETE = "complete"
    """Exactly that is released."""
    TORN = "torn"
    """The snapshots are not of one moment."""


class ConsistentCut:
    """One attempt. Used by the thread that merges. From its beginning on nothing is released."""

    def __init__(self, merge: LogMerge, logs: Sequence[NodeLog]) -> None:
        self._merge = merge
        self._logs = logs
        self._snapshots: Sequence[NodeSnapshot] | None = None
        self.state = CutState.FROZEN

    def take(self, snapshots: Sequence[NodeSnapshot]) -> None:
        """The snapshots, by node. All of them were taken since the cut began."""
        self._snapshots = snapshots

    @property
    def ends(self) -> list[int] | None:
        """By node, up to where its log has to be read; None before the snapshots are taken."""
        return None if self._snapshots is None else [each.end for each in self._snapshots]

    def to_read(self) -> frozenset[int]:
        """The nodes that have to be read further before anything can be released."""
        if self.ends is None or self.state is not CutState.FROZEN:
            return frozenset()
        pairs = zip(self._merge.reads(), self.ends, strict=True)
        return frozenset(node for node, (read, end) in enumerate(pairs) if read < end)

    def give_up(self) -> None:
        """A node cannot be read, which may last long."""
        if self.state is not CutState.COMPLETE:
            self.state = CutState.TORN

    def step(self) -> CutState:
        """Continue after logs were read, or something was released."""
        if self.state is CutState.FROZEN and self._snapshots is not None:
            reads = self._merge.reads()
            if all(read >= each.end for read, each in zip(reads, self._snapshots, strict=True)):
                self._hold(self._snapshots)
        elif self.state is CutState.HELD:
            if self._merge.is_held():
                is_torn = bool(self._merge.unclosed()) or any(log.removes_moved() for log in self._logs)
                self.state = CutState.TORN if is_torn else CutState.COMPLETE
            elif self._merge.is_torn():
                self.state = CutState.TORN
        return self.state

    def _hold(self, snapshots: Sequence[NodeSnapshot]) -> None:
        released = self._merge.released_to()
        ends = []
        for log, snapshot, passed in zip(self._logs, snapshots, released, strict=True):
            end = log.end_of(snapshot.has, passed)
            if end is None:
                self.state = CutState.TORN
                return
            ends.append(end)
        self._merge.hold(ends)
        self.state = CutState.HELD
