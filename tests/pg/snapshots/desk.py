"""A snapshot desk on a subscription of the test's process, and what it reports."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import duckdb

from engine.control.snapshots import SnapshotDesk
from engine.link.client import ServerLink
from engine.link.snapshots import DeleteSnapshot, Snapshot, SnapshotDeleted, SnapshotReport
from tests.fixtures.replication import Replica

DEADLINE_S = 60.0


class Desk:
    """Takes snapshots of a replica and keeps the reports."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.reports: list[SnapshotReport | SnapshotDeleted] = []
        self._changed = threading.Condition()
        self._numbers = 0
        settings = replica.engine_settings()
        self.folder = settings.snapshots_folder / str(replica.spec.name)
        self.desk = SnapshotDesk(settings, lambda name: replica.pipeline if name == replica.spec.name else None)
        self.desk.connect(cast("ServerLink", self))

    def report(self, report: Any) -> None:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()

    def begin(self, **asked: Any) -> str:
        """Ask for a snapshot; its id."""
        self._numbers += 1
        snapshot = asked.pop("snapshot_id", f"n{self._numbers}")
        self.desk.take(Snapshot(subscription=str(self.replica.spec.name), snapshot_id=snapshot, **asked))
        return snapshot

    def take(self, **asked: Any) -> SnapshotReport:
        """Take a snapshot; its last report."""
        return self.end_of(self.begin(**asked))

    def end_of(self, snapshot: str) -> SnapshotReport:
        """The last report of a snapshot, once it has ended."""
        return cast(
            "SnapshotReport",
            self._wait(lambda r: r.snapshot_id == snapshot and getattr(r, "state", "running") != "running"),
        )

    def delete(self, snapshot: str) -> SnapshotDeleted:
        self.desk.delete(DeleteSnapshot(subscription=str(self.replica.spec.name), snapshot_id=snapshot))
        return cast(
            "SnapshotDeleted", self._wait(lambda r: isinstance(r, SnapshotDeleted) and r.snapshot_id == snapshot)
        )

    def _wait(self, found: Callable[[Any], bool]) -> SnapshotReport | SnapshotDeleted:
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(found, self.reports)), DEADLINE_S), self.reports
            return next(filter(found, reversed(self.reports)))

    def names(self) -> list[str]:
        """Everything in the folder, hidden entries too."""
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []


def manifest(report: SnapshotReport) -> dict[str, Any]:
    assert report.folder is not None
    found: dict[str, Any] = json.loads((Path(report.folder) / "manifest.json").read_text())
    return found


def rows(report: SnapshotReport, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """The rows of public.`table` in a snapshot of either format, sorted."""
    assert report.folder is not None
    file = Path(report.folder) / "copy.duckdb"
    if file.exists():
        with duckdb.connect(str(file), read_only=True) as connection:
            return connection.execute(f"SELECT {columns} FROM public.{table} ORDER BY ALL").fetchall()
    with duckdb.connect() as connection:
        parquet = Path(report.folder) / f"public.{table}.parquet"
        return connection.execute(f"SELECT {columns} FROM read_parquet('{parquet}') ORDER BY ALL").fetchall()
