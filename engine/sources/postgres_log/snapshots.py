"""Consistent reads of a PostgreSQL database under exported snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from engine.model.copies import KeyBound
from engine.model.schema import TableSchema
from engine.model.source import (
    CopyChunk,
    ExportedSnapshot,
    KeyWalk,
)
from engine.model.subscription import TableSpec
from engine.sources.postgres_log import (
    chunks,
    slots,
)
from engine.sources.postgres_log.connect import Connector
from engine.sources.postgres_log.key_walk import walk_key


class PostgresSnapshots:
    """`SnapshotSource` by temporary replication slots and COPY."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self.open_slots: set[str] = set()
        """Temporary slots of the snapshots that are open."""

    def snapshot(self, timeout_s: float) -> AbstractContextManager[ExportedSnapshot]:
        return slots.temporary(self._connector, timeout_s, self.open_slots)

    def copy_chunks(self, schema: TableSchema, spec: TableSpec, chunk_bytes: int) -> list[CopyChunk]:
        del spec
        return chunks.cut_table(self._connector, schema, chunk_bytes)

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        chunk_bytes: int,
        most_chunks: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        return walk_key(self._connector, schema, after, chunk_bytes, most_chunks, above_bytes)

    def read_chunk(self, chunk: CopyChunk, snapshot: str) -> Iterator[bytes]:
        """Raises COPY_LOST if the snapshot is gone, TABLE_STRUCTURE_CHANGED if the table was rewritten or truncated after it."""
        return chunks.read_chunk(self._connector, chunk, snapshot)
