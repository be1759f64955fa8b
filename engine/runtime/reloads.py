"""Reloads that somebody asked for: which tables each still waits for, and what is reported of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from engine.copy.progress import CopyProgress
from engine.model.batch import TableFault
from engine.model.fault import FaultKind
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.runtime.fault_policy import policy
from engine.runtime.reporting import Reporter


@dataclass
class _Reload:
    waiting: set[TableId]
    progress: dict[TableId, CopyProgress] = field(default_factory=dict)


class ReloadBook:
    """Open reload requests of one run. Safe to use from any thread."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()
        self._open: dict[str, _Reload] = {}

    def begin(self, request: str, tables: list[TableId]) -> None:
        """A reload of these tables was asked for; asking again with the same id changes nothing."""
        if not tables:
            self._reporter.reload(request, "succeeded", rows=0, percent=100.0)
            return
        with self._lock:
            self._open.setdefault(request, _Reload(set(tables)))
        self._reporter.reload(request, "running")

    def progressed(self, progress: CopyProgress) -> None:
        for request, reload in self._of(progress.table):
            reload.progress[progress.table] = progress
            done = list(reload.progress.values())
            self._reporter.reload(
                request,
                "running",
                rows=sum(p.rows for p in done),
                size=sum(p.bytes for p in done),
                percent=min(p.percent for p in done),
                eta_seconds=max((p.eta_seconds or 0.0 for p in done), default=None),
            )

    def finished(self, table: TableId, position: Lsn) -> None:
        """The table was handed over; a reload is done with its last table."""
        for request, reload in self._of(table):
            reload.waiting.discard(table)
            if not reload.waiting:
                self._close(request)
                rows = sum(p.rows for p in reload.progress.values())
                self._reporter.reload(request, "succeeded", rows=rows, percent=100.0, position=position)

    def failed(self, table: TableId, fault: TableFault) -> None:
        """The table parked; a reload of it has failed."""
        for request, _ in self._of(table):
            self._close(request)
            remedy = policy(FaultKind(fault.code)).remedy
            self._reporter.reload(request, "failed", problem=(fault.code, fault.detail, remedy))

    def _of(self, table: TableId) -> list[tuple[str, _Reload]]:
        with self._lock:
            return [(request, reload) for request, reload in self._open.items() if table in reload.waiting]

    def _close(self, request: str) -> None:
        with self._lock:
            self._open.pop(request, None)
