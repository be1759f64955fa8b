"""Consistent reads of a PostgreSQL database under exported snapshots."""

from __future__ import annotations

from contextlib import AbstractContextManager

from engine.model.source import ExportedSnapshot
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.reads import PostgresReads
from engine.sources.postgres_log import slots


class PostgresSnapshots(PostgresReads):
    """`SnapshotSource` by temporary replication slots and COPY."""

    def __init__(self, connector: Connector) -> None:
        super().__init__(connector)
        self.open_slots: set[str] = set()
        """Temporary slots of the snapshots that are open."""

    def snapshot(self, timeout_s: float) -> AbstractContextManager[ExportedSnapshot]:
        return slots.temporary(self._connector, timeout_s, self.open_slots)
