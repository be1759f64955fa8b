"""Processes large open transactions before they end: their streamed records are netted and staged in slices (called pieces in the code).

Nothing of a transaction is visible before its commit. A staged slice becomes invalid if its transaction, or later a savepoint in it, is
rolled back, if a table's schema changes, or if a new session begins. Only the work on it is lost: the batch computes it again.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.model.batch import LogRange, StagedRows, TablePart, TaskDescriptor
from engine.model.control import ControlKind
from engine.model.fault import EngineFault
from engine.model.identity import BatchId, Ordinal
from engine.model.position import ZERO, Lsn
from engine.model.subscription import SubscriptionSpec
from engine.model.table_state import TableStateKind
from engine.model.tasks import TaskRunner
from engine.pipeline.batch_slices import BytesOf, Staged, cut
from engine.pipeline.speculative_insert import SpeculativeInserter, SpeculativeLot, SpeculativeRows
from engine.pipeline.task_functions import net_task
from engine.queue.catalog import QueueCatalog
from engine.sort.committed import Controls
from engine.sort.sorter import TransactionSorter
from engine.tables.registry import TableRegistry

OPEN_SLICE_RATIO = 4
"""Ratio of the slice size of batches to that of open transactions, which is smaller because an incomplete slice is left for the commit."""
_ANY_END = Lsn(2**64 - 1)
"""End position of ranges whose transaction has not committed: after every position that its tables have reached."""


@dataclass(slots=True)
class _Growing:
    """An open transaction. `taken`: borders in finished slices. `seen`: borders that were counted. `bytes`: size since the last slice."""

    taken: int = 0
    seen: int = 0
    bytes: int = 0


class StreamedSliceCutter:
    """Cuts the records of large open transactions into slices and passes them to the stager. Used by the thread that feeds the sorter."""

    def __init__(
        self, sorter: TransactionSorter, bytes_of: BytesOf, most_bytes: int, desk: StreamedTransactionStager
    ) -> None:
        self._sorter = sorter
        self._bytes_of = bytes_of
        self._most_bytes = most_bytes
        self._desk = desk
        self._open: dict[int, _Growing] = {}
        self._known = ZERO

    def process_controls(self, controls: Controls) -> None:
        """Process control records. Call it after the sorter was fed with them."""
        kinds = controls["kind"]
        if (kinds == ControlKind.SESSION).any():
            self.begin_session()
        for xid in np.unique(controls["xid"][kinds == ControlKind.STREAM_START]).tolist():
            self._grow(xid)
        for xid, subxid in controls[["xid", "subxid"]][kinds == ControlKind.STREAM_ABORT].tolist():
            if xid != subxid:
                self._desk.drop_part(xid, subxid)
            elif self._open.pop(xid, None) is not None:
                self._desk.drop(xid)
        for xid, end in controls[["xid", "end_lsn"]][kinds == ControlKind.STREAM_COMMIT].tolist():
            if self._open.pop(xid, None) is not None:
                if end > self._known.value:
                    self._desk.close(xid)
                else:
                    self._desk.drop(xid)

    def begin_session(self, known: Lsn | None = None) -> None:
        """Drop all open transactions: the session sends them again. `known`: transactions that end at or before it are in no batch."""
        for xid in self._open:
            self._desk.drop(xid)
        self._open = {}
        self._known = known or self._known

    def _grow(self, xid: int) -> None:
        found = self._sorter.open_chunks(xid)
        if found is None:
            return
        borders, aborted, relations = found
        growing = self._open.setdefault(xid, _Growing())
        for at in range(growing.seen, len(borders), 2):
            growing.bytes += self._bytes_of(Ordinal(borders[at]), Ordinal(borders[at + 1]))
        growing.seen = len(borders)
        if growing.bytes < self._most_bytes:
            return
        ranges = [
            LogRange(Ordinal(borders[at]), Ordinal(borders[at + 1]), _ANY_END, xid, aborted)
            for at in range(growing.taken, growing.seen, 2)
        ]
        growing.taken, growing.bytes = growing.seen, 0
        for piece in cut(ranges, self._bytes_of, self._most_bytes):
            inside = [seen for seen in relations if any(r.start <= seen.ordinal < r.stop for r in piece)]
            self._desk.put(xid, Work(piece, Counter(int(seen.relation) for seen in inside)))


@dataclass(frozen=True, slots=True)
class Work:
    """A slice to stage, and the number of relation records in it by relation."""

    ranges: tuple[LogRange, ...]
    announced: Mapping[int, int]


@dataclass(slots=True, eq=False)
class _Transaction:
    lot: SpeculativeLot
    waiting: deque[Work] = field(default_factory=deque)
    staged: list[Staged] = field(default_factory=list)
    dropped: bool = False


@dataclass(slots=True)
class StreamedCounts:
    """Counts of slices since the run began: staged, used by a batch, and removed with their transaction."""

    staged: int = 0
    used: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """Staged slices of a batch's ranges, and those of their rows that are in the target already."""

    staged: tuple[Staged, ...] = ()
    early: SpeculativeRows | None = None


class StreamedTransactionStager:
    """Stages slices of open transactions, one at a time. One thread calls `run`; any thread may call the rest."""

    def __init__(
        self,
        spec: SubscriptionSpec,
        book: TableRegistry,
        catalog: QueueCatalog,
        runner: TaskRunner,
        staging: Path,
        early: SpeculativeInserter,
    ) -> None:
        self._early = early
        self._spec = spec
        self._book = book
        self._catalog = catalog
        self._runner = runner
        self._staging = staging
        self._changed = threading.Condition()
        self._open: dict[int, _Transaction] = {}
        self._closed: deque[_Transaction] = deque()
        """Committed transactions in commit order, until a batch takes them."""
        self._working: _Transaction | None = None
        self._number = 0
        self.counts = StreamedCounts()

    def put(self, xid: int, work: Work) -> None:
        """Queue another slice of an open transaction."""
        with self._changed:
            self._open.setdefault(xid, _Transaction(SpeculativeLot(xid))).waiting.append(work)
            self._changed.notify_all()

    def close(self, xid: int) -> None:
        """The transaction committed: staged slices wait for its batch, which computes the rest."""
        with self._changed:
            transaction = self._open.pop(xid, None)
            if transaction is not None:
                transaction.waiting.clear()
                self._closed.append(transaction)

    def drop(self, xid: int) -> None:
        """The transaction was rolled back, or its session ended: remove its staged files."""
        with self._changed:
            transaction = self._open.pop(xid, None)
            if transaction is not None:
                transaction.waiting.clear()
                transaction.dropped = True
                self._early.end(transaction.lot)
                self._remove(transaction.staged)

    def drop_part(self, xid: int, subxid: int) -> None:
        """A subtransaction of an open transaction was rolled back: staged slices with its rows are not inserted early."""
        with self._changed:
            transaction = self._open.get(xid)
            if transaction is not None and any(subxid in staged.xids for staged in transaction.staged):
                self._early.spoil(transaction.lot)

    def alone(self, xid: int) -> bool:
        """Whether this transaction should be a batch of its own, because rows of it are in the target."""
        return self._early.holds(xid)

    def knows(self, xid: int) -> bool:
        """Whether slices of this transaction were queued or staged."""
        with self._changed:
            return xid in self._open or any(transaction.lot.xid == xid for transaction in self._closed)

    def take_slices(self, ranges: Sequence[LogRange]) -> Taken:
        """The staged slices of committed transactions in the ranges of a batch. The caller owns their files from now on.

        Blocks while a slice of a committed transaction is being staged. Call it in the order of the batches.
        """
        streamed = [one for one in ranges if one.xid]
        if not streamed:
            return Taken()
        with self._changed:
            while any(transaction is self._working for transaction in self._closed):
                self._changed.wait()
            mine = [t for t in self._closed if t.staged and _within(t.staged[0], streamed)]
            while mine and (passed := self._closed.popleft()) is not mine[-1]:
                # Batches arrive in commit order, so no later batch contains the skipped transactions.
                if passed not in mine:
                    self._early.end(passed.lot)
                    self._remove(passed.staged)
            taken = [staged for transaction in mine for staged in transaction.staged]
            self.counts.used += len(taken)
            alone = len({one.xid for one in ranges}) == 1
            return Taken(tuple(taken), self._early.take_rows([one.lot for one in mine], alone=alone))

    def run(self, stop: threading.Event) -> None:
        """Stage slices until `stop` is set."""
        while not stop.is_set():
            found = self._next()
            if found is None:
                continue
            transaction, work = found
            staged = self._stage(work)
            with self._changed:
                self._working = None
                if staged is not None:
                    self.counts.staged += 1
                    transaction.staged.append(staged)
                    if transaction.dropped:
                        self._remove([staged])
                    else:
                        self._early.add(transaction.lot, staged)
                self._changed.notify_all()

    def _next(self) -> tuple[_Transaction, Work] | None:
        with self._changed:
            for transaction in self._open.values():
                if transaction.waiting and self._runner.ready:
                    self._working = transaction
                    return transaction, transaction.waiting.popleft()
            self._changed.wait(0.2)
            return None

    def _stage(self, work: Work) -> Staged | None:
        """Net a slice in a task. None if no table is suitable, or if the task fails; the transaction's batch then computes the slice."""
        live = self._book.all().in_state(TableStateKind.LIVE)
        schemas = {e.table: e.schema for e in live if e.schema is not None and not (e.spec.key or e.schema.computed)}
        if not schemas:
            return None
        self._number += 1
        descriptor = TaskDescriptor(
            subscription=self._spec.name,
            epoch=self._spec.epoch,
            batch=BatchId(0),
            attempt=0,
            bucket=0,
            buckets=1,
            ranges=work.ranges,
            blocks=self._catalog.blocks_for(work.ranges),
            tables=tuple(
                TablePart(table, (schema,) * (1 + work.announced.get(schema.relation, 0)), ZERO)
                for table, schema in schemas.items()
            ),
            staging=str(self._staging),
            piece=self._number,
        )
        try:
            result = self._runner.run(net_task, [descriptor], f"{self._spec.name}-ahead")[0]
        except EngineFault:
            return None
        return Staged(work.ranges, result.xids, schemas, result.tables, result.tally)

    def _remove(self, staged: Sequence[Staged]) -> None:
        self.counts.dropped += len(staged)
        for path in (path for one in staged for path in files_of(one)):
            Path(path).unlink(missing_ok=True)


def _within(staged: Staged, ranges: Sequence[LogRange]) -> bool:
    start = staged.ranges[0].start
    return any(one.start <= start < one.stop for one in ranges)


def files_of(staged: Staged) -> set[str]:
    """Paths of the slice's row files."""
    return {part.path for change in staged.changes for part in change.parts if isinstance(part, StagedRows)}
