"""Reloads requested by users: the tables that each still waits for, and the reports about it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from engine.model.batch import TableFault
from engine.model.copies import CopyProgress
from engine.model.fault import FaultKind
from engine.model.identity import TableId
from engine.model.partitions import LoadReason
from engine.model.position import Lsn
from engine.platform.fault_policy import policy
from engine.tables.reporter import CopyTotals, LoadedPartition, Reporter

CANCELLED = "its reload was cancelled"
"""Reason of a table that parks because its reload was cancelled."""


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """Some partitions of a table. `names`: as schema.name; None: those whose rows differ from the source's."""

    names: tuple[str, ...] | None


@dataclass(slots=True)
class WantedPartitions:
    """An unfinished reload of partitions. `reasons`: why each is loaded, by name; empty until that is determined. `tries`: attempts
    so far."""

    request: str
    table: TableId
    choice: PartitionChoice
    reasons: dict[str, LoadReason] = field(default_factory=dict)
    tries: int = 0


@dataclass
class _Reload:
    waiting: set[TableId]
    partitions: Sequence[LoadedPartition] | None = None
    """None: whole tables are reloaded."""
    asked: set[TableId] = field(default_factory=set)
    """Tables of which the reload is not in force yet: what is handed over now was copied before it was requested."""
    progress: dict[TableId, CopyProgress] = field(default_factory=dict)
    tables: int = 0
    percent: float = 0.0

    def __post_init__(self) -> None:
        self.tables = len(self.waiting)

    def course(self) -> tuple[float, float | None, CopyTotals]:
        """Percent (never decreases), remaining seconds, and totals over all tables of the reload; None if unknown."""
        done = list(self.progress.values())
        known = [p.total_bytes for p in done if p.total_bytes is not None]
        total = sum(known) if len(known) == self.tables else None
        size = sum(p.bytes for p in done)
        # Until the sizes of all tables are known, every table counts the same.
        mean = sum(p.percent for p in done) / max(1, self.tables)
        self.percent = max(self.percent, round(100 * size / total if total else mean, 1))
        pace = sum(p.bytes_per_second or 0.0 for p in done if p.percent < 100)
        eta = round((total - size) / pace, 1) if total is not None and pace else None
        rows = [p.total_rows for p in done if p.total_rows is not None]
        total_rows = sum(rows) if len(rows) == self.tables else None
        rows_pace = sum(p.rows_per_second or 0.0 for p in done if p.percent < 100)
        return self.percent, eta, CopyTotals(total_rows, total, round(rows_pace, 1), all(p.goes_on for p in done))


class ReloadRequests:
    """The open reload requests of a subscription. Safe to use from any thread."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()
        self._open: dict[str, _Reload] = {}
        self._begun: set[str] = set()
        self._cancelled: set[str] = set()
        self.wanted: dict[TableId, WantedPartitions] = {}
        """Unfinished reloads of partitions. They outlive a run: the next one continues them."""

    def begin(self, request: str, tables: list[TableId], *, in_force: bool = True) -> None:
        """Begin a reload of these tables. A repeated call with the same id has no effect. `in_force`: else no hand-over ends it before
        `put_in_force` is called."""
        if not tables:
            self._reporter.reload(request, "succeeded", rows=0, percent=100.0)
            return
        with self._lock:
            self._begun.add(request)
            reload = self._open.setdefault(request, _Reload(set(tables)))
            if not in_force:
                reload.asked |= reload.waiting.intersection(tables)
        self._reporter.reload(request, "running")

    def put_in_force(self, request: str, tables: Sequence[TableId]) -> None:
        """Further hand-overs of these tables end the reload. To be called within the registry's lock, with the change of their states."""
        with self._lock:
            reload = self._open.get(request)
            if reload is not None:
                reload.asked.difference_update(tables)

    def take_up(self) -> None:
        """Another run begins; the earlier one hands over nothing more."""
        with self._lock:
            for reload in self._open.values():
                reload.asked.clear()

    def served_by(self, table: TableId) -> frozenset[str]:
        """The open reloads that a hand-over of the table at this moment ends."""
        with self._lock:
            found = self._open.items()
            return frozenset(request for request, one in found if table in one.waiting and table not in one.asked)

    def knows(self, request: str) -> bool:
        """Whether this reload is open."""
        with self._lock:
            return request in self._open

    def is_cancelled(self, request: str) -> bool:
        """Whether this reload was cancelled."""
        with self._lock:
            return request in self._cancelled

    def waiting(self) -> list[tuple[str, TableId]]:
        """The tables that open reloads of whole tables still wait for, as pairs of request and table."""
        with self._lock:
            partial = {(wanted.request, wanted.table) for wanted in self.wanted.values()}
            found = [(request, table) for request, reload in self._open.items() for table in sorted(reload.waiting)]
            return [each for each in found if each not in partial]

    def partitions(self, table: TableId, loaded: Sequence[LoadedPartition]) -> None:
        """Report the partitions of the table that a reload loads, and their generations."""
        for request, reload in self._requests_of(table):
            reload.partitions = loaded
            self._reporter.reload(request, "running", partitions=loaded)

    def loaded(self, table: TableId) -> list[LoadedPartition]:
        """The partitions of the table that open reloads load."""
        return [part for _, reload in self._requests_of(table) for part in reload.partitions or ()]

    def cancelled(self, request: str, table: TableId | None = None) -> frozenset[TableId]:
        """Cancel a reload. Returns the tables that a reload of whole tables still waited for.

        `table` is returned if an earlier engine process began the request, and no open reload waits for the table.
        """
        with self._lock:
            reload = self._open.pop(request, None)
            earlier = request not in self._begun | self._cancelled
            self._cancelled.add(request)
            if table is not None and earlier and all(table not in other.waiting for other in self._open.values()):
                return frozenset({table})
        partial = [wanted.table for wanted in list(self.wanted.values()) if wanted.request == request]
        for one in partial:
            self.wanted.pop(one, None)
        return frozenset() if reload is None or partial else frozenset(reload.waiting)

    def progressed(self, progress: CopyProgress) -> None:
        """Report the progress of the reloads that wait for the table."""
        for request, reload in self._requests_of(progress.table):
            reload.progress[progress.table] = progress
            share, eta, totals = reload.course()
            self._reporter.reload(
                request,
                "running",
                rows=sum(p.rows for p in reload.progress.values()),
                size=sum(p.bytes for p in reload.progress.values()),
                percent=share,
                eta_seconds=eta,
                totals=totals,
                partitions=reload.partitions,
            )

    def finished(self, table: TableId, position: Lsn, only: Collection[str] | None = None) -> None:
        """The table was handed over. A reload succeeds with its last table. `only`: the reloads that it ends; None: all."""
        for request, reload in self._requests_of(table):
            if only is not None and request not in only:
                continue
            reload.waiting.discard(table)
            if not reload.waiting:
                self._close(request)
                rows = sum(p.rows for p in reload.progress.values())
                self._reporter.reload(
                    request, "succeeded", rows=rows, percent=100.0, position=position, partitions=reload.partitions
                )

    def failed(self, table: TableId, fault: TableFault) -> None:
        """The table was parked: its reloads fail."""
        for request, reload in self._requests_of(table):
            self._close(request)
            remedy = policy(FaultKind(fault.code)).remedy
            problem = (fault.code, fault.detail, remedy)
            self._reporter.reload(request, "failed", problem=problem, partitions=reload.partitions)

    def _requests_of(self, table: TableId) -> list[tuple[str, _Reload]]:
        with self._lock:
            return [(request, reload) for request, reload in self._open.items() if table in reload.waiting]

    def _close(self, request: str) -> None:
        with self._lock:
            self._open.pop(request, None)
