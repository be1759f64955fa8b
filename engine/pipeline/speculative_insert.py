"""Inserts rows of a large open transaction into the target before the transaction commits on the source, if the target supports it.

The commit is then short, whatever the size of the transaction. One transaction at a time is inserted, and only one that consists of
inserts. The staged files are kept until its batch is committed: in any doubt, the rows are rolled back and the batch is applied from the
files as usual.

Measured with `bench run huge-transaction`, alternately with and without it, three rounds each on two busy cores: the last of 10 million
rows is visible 2.7 s after the commit (1.9 to 2.8), without it after 5.9 s (4.8 to 7.0). Peak memory (1.6 GB) and total time are equal.
With 2 million rows it has no advantage (2.3 s, without it 2.0 s).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.model.batch import StagedRows, TableChanges
from engine.model.fault import EngineFault
from engine.model.identity import TableId
from engine.model.schema import TableSchema
from engine.model.target import BatchCommit, SpeculativeTransaction, TableCommit
from engine.pipeline.batch_slices import Staged
from engine.platform.clock import Clock
from engine.platform.failpoints import Failpoint, hit
from engine.tables.registry import TableRegistry

OPEN_MS = 600_000.0
"""Longest time in ms for which rows wait in the target for their commit: the target cannot do its maintenance meanwhile."""
WAIT_S = 0.2
"""Longest wait in seconds for rows or commits; both end it at once. It bounds the time until a late transaction is noticed. Not
measured."""


@dataclass(slots=True)
class SpeculativeCounts:
    """Counts since the run began: slices inserted early, and transactions whose rows were committed that way, or rolled back."""

    inserted: int = 0
    committed: int = 0
    given_up: int = 0


class SpeculativeRows:
    """The rows of one transaction that are in the target already. Any thread may use it."""

    def __init__(self, rows: SpeculativeTransaction, counts: SpeculativeCounts) -> None:
        self._rows = rows
        self._counts = counts
        self._lock = threading.Lock()
        self._closed = False
        self._staged: set[StagedRows] = set()

    @property
    def over(self) -> bool:
        """As SpeculativeTransaction.over."""
        return self._rows.over

    @property
    def overdue(self) -> bool:
        """As SpeculativeTransaction.overdue."""
        return self._rows.overdue

    def insert(self, tables: Sequence[TableCommit]) -> bool:
        """Insert staged rows. Returns False after `close`, or if the target did not insert them; some may have been inserted then."""
        with self._lock:
            for table in tables:
                if self._closed or not self._rows.insert(table):
                    return False
                self._staged.update(change.inserts for change in table.changes if change.inserts is not None)
            return True

    def close(self) -> frozenset[StagedRows]:
        """Accept no more rows, and return those that were inserted. Blocks until an insert in progress has ended."""
        with self._lock:
            self._closed = True
            return frozenset(self._staged)

    def commit(self, batch: BatchCommit) -> bool:
        """As SpeculativeTransaction.commit."""
        committed = self._rows.commit(batch)
        self._counts.committed += committed
        return committed

    def roll_back(self) -> None:
        """As SpeculativeTransaction.roll_back."""
        self._rows.roll_back()


@dataclass(slots=True, eq=False)
class SpeculativeLot:
    """The staged slices of one transaction that wait for the inserter. `pieces`: number of slices so far."""

    xid: int
    waiting: deque[Staged] = field(default_factory=deque)
    pieces: int = 0
    unfit: bool = False
    """Its rows are not inserted early: it does more than insert, an insert failed, or its commit took too long."""


class SpeculativeInserter:
    """Chooses a transaction and inserts its slices when they are staged. One thread calls `run`; any thread may call the rest."""

    def __init__(self, begin: Callable[[], SpeculativeTransaction | None], book: TableRegistry, clock: Clock) -> None:
        self._begin = begin
        self._book = book
        self._clock = clock
        self._changed = threading.Condition()
        self._lots: list[SpeculativeLot] = []
        """Lots of open transactions, and of committed ones until a batch takes them."""
        self._lot: SpeculativeLot | None = None
        """The transaction whose rows are in the target."""
        self._rows: SpeculativeRows | None = None
        self._taken = False
        """Whether a batch has taken `_rows`; only that batch commits or rolls them back then."""
        self._began_ms = 0.0
        self.counts = SpeculativeCounts()

    def add(self, lot: SpeculativeLot, staged: Staged) -> None:
        """Queue another staged slice of an open transaction."""
        with self._changed:
            if lot not in self._lots:
                self._lots.append(lot)
            lot.pieces += 1
            lot.waiting.append(staged)
            replacing = any(_replaces(staged.schemas[change.table]) for change in staged.changes)
            lot.unfit = lot.unfit or replacing or not only_inserts(staged.changes)
            self._changed.notify_all()

    def spoil(self, lot: SpeculativeLot) -> None:
        """A staged slice of it is not valid any more: its rows in the target are rolled back."""
        with self._changed:
            lot.unfit = True
            self._changed.notify_all()

    def end(self, lot: SpeculativeLot) -> None:
        """The transaction was rolled back, or no batch will take its staged slices. Its rows in the target are rolled back."""
        with self._changed:
            lot.unfit = True
            lot.waiting.clear()
            if lot in self._lots:
                self._lots.remove(lot)
            self._changed.notify_all()

    def holds(self, xid: int) -> bool:
        """Whether rows of this transaction are in the target, so that it should be a batch of its own."""
        with self._changed:
            lot, rows = self._lot, self._rows
            return lot is not None and lot.xid == xid and not lot.unfit and rows is not None and not rows.over

    def take_rows(self, lots: Sequence[SpeculativeLot], *, alone: bool) -> SpeculativeRows | None:
        """Called when a batch with these transactions is computed. Returns the rows in the target if it may commit them, else None.

        `alone`: the batch consists of a single transaction, which is a condition for that. From then on, only the batch ends the rows;
        waiting slices are inserted until it closes them.
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
        """Insert slices until `stop` is set."""
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
        """Roll back rows that are still in the target. Call it after all other users of this object have ended."""
        with self._changed:
            rows, self._rows, self._lot = self._rows, None, None
        if rows is not None:
            rows.roll_back()

    def _chosen(self) -> tuple[SpeculativeLot | None, SpeculativeRows | None]:
        """The transaction to process next, and its rows if it has some. (None, …) after a wait of WAIT_S if there is nothing to do."""
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
            rows = None  # The next commit raises the same fault and ends the run.
        with self._changed:
            if rows is None:
                self._changed.wait(WAIT_S)
                return
            self._lot, self._rows, self._taken = lot, SpeculativeRows(rows, self.counts), False
            self._began_ms = self._clock.monotonic_ms()

    def _let_go(self, lot: SpeculativeLot, rows: SpeculativeRows) -> None:
        """Roll back the rows, so that another transaction can be inserted. Rows that a batch has taken have been ended by it."""
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
            # A batch that has taken the rows either needs no more of them, or detects the failure itself.
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
    """The batch's commits without the rows that are in the target already (`early`).

    None if the rows cannot be used: the batch does more than insert, a table keeps rows, the source has to compute values, or not all
    of `early` are in it.
    """
    found: set[StagedRows] = set()
    rest = []
    for commit in commits.values():
        if not commit.ordinary or commit.compute is not None or not only_inserts(commit.changes):
            return None
        if _replaces(commit.schema):
            return None
        done = [
            change for change in commit.changes if isinstance(change.inserts, StagedRows) and change.inserts in early
        ]
        found.update(change.inserts for change in done if change.inserts is not None)
        rest.append(replace(commit, changes=tuple(change for change in commit.changes if change not in done)))
    return tuple(rest) if early and found == early else None


def _replaces(schema: TableSchema) -> bool:
    """Whether rows that are inserted may replace others."""
    return schema.soft_delete or schema.keeps_rows or schema.scattered


def only_inserts(changes: Sequence[TableChanges]) -> bool:
    """Whether the changes consist of inserts, without faults, refused rows and versions."""
    return not any(
        one.truncated or one.fault is not None or any(part is not None for part in one.parts if part is not one.inserts)
        for one in changes
    )
