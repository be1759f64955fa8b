"""Fingerprints of the partitions of replicated tables (GuardReading.marks), which the target stores for the next start to compare with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from engine.model.batch import SealedBatch
from engine.model.identity import RelationId, TableId, TableName
from engine.model.position import Lsn
from engine.model.target import TableCommit, TargetProgress

WithObserved = Callable[[str, Mapping[RelationId, TableName]], str]
"""As PartitionedTables.with_observed."""

PartitionsByTable = Mapping[TableId, Mapping[RelationId, TableName]]
"""Partitions that relation records name, by root table."""


class PartitionFingerprints:
    """The fingerprints (marks) of one run.

    Used by the commit thread; `record_checked` and `record_copied` may be called from any thread.
    """

    def __init__(self, with_observed: WithObserved, below: Callable[[SealedBatch], PartitionsByTable]) -> None:
        """`with_observed`: adds partitions to a fingerprint. `below`: the partitions that a batch names, by root table."""
        self._with_observed, self._below = with_observed, below
        self._lock = threading.Lock()
        self._written: dict[TableId, str] = {}
        """Fingerprints as stored on the target."""
        self._copied: dict[TableId, str] = {}
        self._noted: dict[TableId, str] = {}
        """Fingerprints to write with the next target transaction."""
        self._unmarked: dict[TableId, Lsn] = {}
        """End of the last batch that removed or extended a table's fingerprint: a check that began before it may show an older state."""
        self._named: PartitionsByTable = {}
        """Partitions that the batch in commit names."""

    def begin(self, progress: TargetProgress) -> None:
        """Load the target's fingerprints at the start of the run."""
        ready = {table: record.mark for table, record in progress.tables.items() if record.ready}
        self._written = {table: mark for table, mark in ready.items() if mark is not None}

    def record_checked(self, marks: Mapping[TableId, str], as_of: Lsn) -> bool:
        """Set the fingerprints of a check, to be written with the next target transaction.

        `as_of`: end of the last batch sealed when the check began. Returns True if there is something new to write.
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

    def record_copied(self, marks: Mapping[TableId, str]) -> None:
        """Set the fingerprints taken before the copies of these tables began; they are written with the copies' hand-over."""
        with self._lock:
            self._copied.update(marks)

    @property
    def pending(self) -> bool:
        """Whether there are fingerprints that are not written yet."""
        return bool(self._noted)

    def next(self, batch: SealedBatch) -> None:
        """Set the batch that is committed next."""
        self._named = self._below(batch)

    @property
    def lacking(self) -> bool:
        """Whether the batch names partitions that must be added to stored fingerprints."""
        with self._lock:
            return bool(self._with_named({**self._written, **self._noted}))

    def due(self, commits: Mapping[TableId, TableCommit], end: Lsn) -> dict[TableId, str | None]:
        """Fingerprints that a batch writes; None removes a table's fingerprint that would cause a false fault at the next start.

        A TRUNCATE explains new storage only while it is in the log. At a hand-over the source may have changed since the last check, so
        only the fingerprint taken before the copy is valid. Partitions that the batch names and no check has seen are added, so that the
        next start checks them if this run ends before its own check.
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
        """The batch with these fingerprints was committed."""
        self._named = {}
        with self._lock:
            for table, mark in marks.items():
                if mark is None:
                    self._written.pop(table, None)
                    continue
                self._written[table] = mark
                if self._noted.get(table) == mark:
                    del self._noted[table]

    def _with_named(self, marks: Mapping[TableId, str]) -> dict[TableId, str]:
        """The fingerprints that change when the batch's partitions are added, in their new form."""
        more = {t: self._with_observed(marks[t], below) for t, below in self._named.items() if t in marks}
        return {table: mark for table, mark in more.items() if mark != marks[table]}


def _unmarks(commit: TableCommit) -> bool:
    truncated = any(change.truncated or "truncate" in change.counts for change in commit.changes)
    return commit.handover or commit.parked is not None or truncated
