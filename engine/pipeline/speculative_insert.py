"""Rows of large open transactions in the target before their commit, where it takes them: the commit is short then, whatever came.

One transaction at a time, and only one that does nothing but insert. The staged files stay until its batch is committed, so that at
any doubt the rows are given up and the batch is applied from the files like any other.

Measured with `bench run huge-transaction`, with it and without by turns, three rounds each on two busy cores: of 10 million rows the last
is visible 2.7 s after the commit (1.9 to 2.8), else 5.9 s (4.8 to 7.0); the peak of memory is the same (1.6 GB), and so is the time
in all. Of 2 million rows it gains nothing (2.3 s, else 2.0 s).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.model.batch import StagedRows, TableChanges
from engine.model.fault import EngineFault
from engine.model.identity import TableId
from engine.model.target import BatchCommit, SpeculativeTransaction, TableCommit
from engine.pipeline.batch_slices import Staged
from engine.platform.clock import Clock
from engine.platform.failpoints import Failpoint, hit
from engine.tables.registry import TableRegistry

OPEN_MS = 600_000.0
"""How long rows may wait in the target for their commit: all the while it cannot do its housekeeping."""
WAIT_S = 0.2


@dataclass(slots=True)
class SpeculativeCounts:
    """Since the run began: pieces inserted early, and transactions whose rows were committed so, or given up again."""

    inserted: int = 0
    committed: int = 0
    given_up: int = 0


class SpeculativeRows:
    """What of one transaction is in the target already. Safe to use from any thread."""

    def __init__(self, rows: SpeculativeTransaction, counts: SpeculativeCounts) -> None:
        self._rows = rows
        self._counts = counts
        self._lock = threading.Lock()
        self._closed = False
        self._staged: set[StagedRows] = set()

    @property
    def over(self) -> bool:
        return self._rows.over

    @property
    def overdue(self) -> bool:
        return self._rows.overdue

    def insert(self, tables: Sequence[TableCommit]) -> bool:
        """Put staged rows in; False where no more are wanted, or the target does not take them."""
        with self._lock:
            for table in tables:
                if self._closed or not self._rows.insert(table):
                    return False
                self._staged.update(change.inserts for change in table.changes if change.inserts is not None)
            return True

    def close(self) -> frozenset[StagedRows]:
        """What is in. Nothing is inserted any more; waits for what is under way."""
        with self._lock:
            self._closed = True
            return frozenset(self._staged)

    def commit(self, batch: BatchCommit) -> bool:
        """As AheadRows.commit."""
        committed = self._rows.commit(batch)
        self._counts.committed += committed
        return committed

    def roll_back(self) -> None:
        """As AheadRows.roll_back."""
        self._rows.roll_back()


@dataclass(slots=True, eq=False)
class SpeculativeLot:
    """The staged pieces of one transaction, as the inserter sees them."""

    xid: int
    waiting: deque[Staged] = field(default_factory=deque)
    pieces: int = 0
    unfit: bool = False
    """Its rows are not wanted in the target early: it does more than insert, or that failed, or took too long."""


class SpeculativeInserter:
    """Chooses a transaction, and inserts its pieces as they are staged. `run` is one thread's; the rest may be called from any."""

    def __init__(self, begin: Callable[[], SpeculativeTransaction | None], book: TableRegistry, clock: Clock) -> None:
        self._begin = begin
        self._book = book
        self._clock = clock
        self._changed = threading.Condition()
        self._lots: list[SpeculativeLot] = []
        """Of open transactions, and of committed ones until a batch takes them."""
        self._lot: SpeculativeLot | None = None
        """Whose rows are in the target."""
        self._rows: SpeculativeRows | None = None
        self._taken = False
        """By a batch, which alone ends them then."""
        self._began_ms = 0.0
        self.counts = SpeculativeCounts()

    def add(self, lot: SpeculativeLot, staged: Staged) -> None:
        """Another piece of an open transaction is staged."""
        with self._changed:
            if lot not in self._lots:
                self._lots.append(lot)
            lot.pieces += 1
            lot.waiting.append(staged)
            lot.unfit = lot.unfit or not only_inserts(staged.changes)
            self._changed.notify_all()

    def spoil(self, lot: SpeculativeLot) -> None:
        """Something that is staged of it does not count any more."""
        with self._changed:
            lot.unfit = True
            self._changed.notify_all()

    def end(self, lot: SpeculativeLot) -> None:
        """The transaction rolled back, or nobody will ask for what is staged of it."""
        with self._changed:
            lot.unfit = True
            lot.waiting.clear()
            if lot in self._lots:
                self._lots.remove(lot)
            self._changed.notify_all()

    def holds(self, xid: int) -> bool:
        """Whether rows of this transaction are in the target: it should be a batch of its own."""
        with self._changed:
            lot, rows = self._lot, self._rows
            return lot is not None and lot.xid == xid and not lot.unfit and rows is not None and not rows.over

    def take(self, lots: Sequence[SpeculativeLot], *, alone: bool) -> SpeculativeRows | None:
        """A batch works on these transactions now. `alone`: on a single one and nothing else; its rows are the batch's then.

        What of it still waits is inserted until the batch closes them.
        """
        with self._changed:
            self._lots = [lot for lot in self._lots if lot not in lots]
            mine = alone and len(lots) == 1 and lots[0] is self._lot and not lots[0].unfit
            if mine:
                self._taken = True
                return self._rows
            for lot in lots:
                lot.unfit = True
            self._changed.notify_all()
            return None

    def run(self, stop: threading.Event) -> None:
        """Insert piece after piece until `stop`."""
        while not stop.is_set():
            lot, rows = self._chosen()
            if lot is None:
                continue
            if rows is None:
                self._open(lot)
            elif rows.over or (lot.unfit and not self._taken):
                self._let_go(lot, rows)
            else:
                self._insert_next(lot, rows)

    def close(self) -> None:
        """Give up what is still in the target. Behind the end of everything else that works with it."""
        with self._changed:
            rows, self._rows, self._lot = self._rows, None, None
        if rows is not None:
            rows.roll_back()

    def _chosen(self) -> tuple[SpeculativeLot | None, SpeculativeRows | None]:
        """The transaction to work on next, with its rows where it has some; waits a moment where there is nothing to do."""
        with self._changed:
            lot, rows = self._lot, self._rows
            if lot is None:
                fit = [one for one in self._lots if one.waiting and not one.unfit]
                lot = max(fit, key=lambda one: one.pieces, default=None)
            elif rows is not None and not rows.over and (self._taken or not lot.unfit) and not lot.waiting:
                late = self._clock.monotonic_ms() - self._began_ms > OPEN_MS or rows.overdue
                lot.unfit = lot.unfit or late
                lot = lot if late and not self._taken else None
            if lot is None:
                self._changed.wait(WAIT_S)
            return lot, rows

    def _open(self, lot: SpeculativeLot) -> None:
        try:
            rows = self._begin()
        except EngineFault:
            rows = None  # the next commit meets the fault, and ends the run
        with self._changed:
            if rows is None:
                self._changed.wait(WAIT_S)
                return
            self._lot, self._rows, self._taken = lot, SpeculativeRows(rows, self.counts), False
            self._began_ms = self._clock.monotonic_ms()

    def _let_go(self, lot: SpeculativeLot, rows: SpeculativeRows) -> None:
        """Make room for the next one. A batch that has taken the rows ended them by itself."""
        rows.roll_back()
        with self._changed:
            self.counts.given_up += not self._taken
            self._lot = self._rows = None
            lot.unfit = True
            lot.waiting.clear()

    def _insert_next(self, lot: SpeculativeLot, rows: SpeculativeRows) -> None:
        with self._changed:
            if not lot.waiting:
                return
            staged = lot.waiting.popleft()
        tables = self._tables(staged)
        if tables is not None and rows.insert(tables):
            self.counts.inserted += 1
            hit(Failpoint.EARLY_INSERTED)
            return
        with self._changed:
            # A batch that has taken the rows wants no more of them, or finds out by itself.
            lot.unfit = True
            lot.waiting.clear()

    def _tables(self, staged: Staged) -> list[TableCommit] | None:
        found = []
        for change in staged.changes:
            entry = self._book.get(change.table)
            if entry is None:
                return None
            if change.inserts is not None:
                found.append(TableCommit(change.table, staged.schemas[change.table], entry.spec.target, (change,)))
        return found


def rest_of(commits: Mapping[TableId, TableCommit], early: frozenset[StagedRows]) -> tuple[TableCommit, ...] | None:
    """The batch without these rows. None where it does more than insert, the source has to compute values, or not all are part of it."""
    found: set[StagedRows] = set()
    rest = []
    for commit in commits.values():
        if not commit.ordinary or commit.compute is not None or not only_inserts(commit.changes):
            return None
        done = [
            change for change in commit.changes if isinstance(change.inserts, StagedRows) and change.inserts in early
        ]
        found.update(change.inserts for change in done if change.inserts is not None)
        rest.append(replace(commit, changes=tuple(change for change in commit.changes if change not in done)))
    return tuple(rest) if early and found == early else None


def only_inserts(changes: Sequence[TableChanges]) -> bool:
    """Whether nothing else is needed to apply them."""
    return not any(
        one.truncated
        or one.fault is not None
        or one.refused is not None
        or one.deletes is not None
        or one.partials is not None
        for one in changes
    )
