"""What the source showed below partitioned tables (GuardReading.marks), as the target keeps it for the next start to compare with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from engine.model.batch import SealedBatch
from engine.model.identity import RelationId, TableId, TableName
from engine.model.position import Lsn
from engine.model.target import TableCommit, TargetProgress

WithTold = Callable[[str, Mapping[RelationId, TableName]], str]
"""As Source.mark_told."""

BelowTold = Mapping[TableId, Mapping[RelationId, TableName]]
"""Partitions that the log names below tables."""


class PartitionFingerprints:
    """The marks of one run. Used by the thread that commits; `note` and `note_copied` may be called from any."""

    def __init__(self, with_told: WithTold, below: Callable[[SealedBatch], BelowTold]) -> None:
        """`below` finds the partitions that a batch names, by the tables of which the log tells through it."""
        self._with_told, self._below = with_told, below
        self._lock = threading.Lock()
        self._written: dict[TableId, str] = {}
        """As the target has them."""
        self._copied: dict[TableId, str] = {}
        self._noted: dict[TableId, str] = {}
        """To be written with the next target transaction."""
        self._unmarked: dict[TableId, Lsn] = {}
        """End of the last batch that took a table's mark away, or added to it: a look that began before it may show the table as it was."""
        self._told: BelowTold = {}
        """By the batch that is being committed."""

    def begin(self, progress: TargetProgress) -> None:
        """What the target has when the run begins."""
        ready = {table: record.mark for table, record in progress.tables.items() if record.ready}
        self._written = {table: mark for table, mark in ready.items() if mark is not None}

    def note(self, marks: Mapping[TableId, str], as_of: Lsn) -> bool:
        """What the source showed below these tables, to be written with the next target transaction.

        `as_of`: batches up to here were sealed when the look began. True where there is something new to write.
        """
        with self._lock:
            before = dict(self._noted)
            for table, mark in marks.items():
                if as_of < self._unmarked.get(table, as_of):
                    continue
                self._noted.pop(table, None)
                if self._written.get(table) != mark:
                    self._noted[table] = mark
            return any(before.get(table) != mark for table, mark in self._noted.items())

    def note_copied(self, marks: Mapping[TableId, str]) -> None:
        """What the source showed below these tables before copies of them began, to be written with their hand-over."""
        with self._lock:
            self._copied.update(marks)

    @property
    def pending(self) -> bool:
        """Whether something was noted and is not written."""
        return bool(self._noted)

    def next(self, batch: SealedBatch) -> None:
        """This batch is committed next."""
        self._told = self._below(batch)

    @property
    def lacking(self) -> bool:
        """Whether the batch names partitions that have to be written with it."""
        with self._lock:
            return bool(self._with_named({**self._written, **self._noted}))

    def due(self, commits: Mapping[TableId, TableCommit], end: Lsn) -> dict[TableId, str | None]:
        """What a batch writes: what was noted, and no mark for tables whose mark would be held against them at the next start.

        A truncate explains new storage only while it is in the log; behind a hand-over the source may have changed since the look, but for
        what was seen before its copy. Partitions that the batch names and no look has met are added: where the run ends before one does,
        the next start looks for them.
        """
        with self._lock:
            lost = {table for table, commit in commits.items() if _unmarks(commit)}
            for table in lost:
                self._noted.pop(table, None)
                self._unmarked[table] = end
            self._copied.update(self._with_named(self._copied))
            copied = {t: self._copied[t] for t, commit in commits.items() if commit.handover and t in self._copied}
            added = self._with_named({t: mark for t, mark in {**self._written, **self._noted}.items() if t not in lost})
            for table in added:
                self._noted.pop(table, None)
                self._unmarked[table] = end
            return {**self._noted, **dict.fromkeys(lost & self._written.keys()), **copied, **added}

    def written(self, marks: Mapping[TableId, str | None]) -> None:
        """The batch with these marks is on the target."""
        self._told = {}
        with self._lock:
            for table, mark in marks.items():
                if mark is None:
                    self._written.pop(table, None)
                    continue
                self._written[table] = mark
                if self._noted.get(table) == mark:
                    del self._noted[table]

    def _with_named(self, marks: Mapping[TableId, str]) -> dict[TableId, str]:
        """Those of these marks that the batch's partitions add something to, with them."""
        more = {t: self._with_told(marks[t], below) for t, below in self._told.items() if t in marks}
        return {table: mark for table, mark in more.items() if mark != marks[table]}


def _unmarks(commit: TableCommit) -> bool:
    truncated = any(change.truncated or "truncate" in change.counts for change in commit.changes)
    return commit.handover or commit.parked is not None or truncated
