"""Consistent reads under snapshots that are the ends of windows."""

from __future__ import annotations

from contextlib import AbstractContextManager

from engine.model.source import ExportedSnapshot
from engine.sources.postgres.reads import PostgresReads
from engine.sources.postgres_triggers.windows import snapshot_at_window


class WindowSnapshots(PostgresReads):
    """`SnapshotSource`. A snapshot waits for no open transaction."""

    def snapshot(self, timeout_s: float) -> AbstractContextManager[ExportedSnapshot]:
        del timeout_s
        return snapshot_at_window(self._connector)
