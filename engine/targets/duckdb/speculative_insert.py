"""Inserts rows of an open source transaction in a DuckDB transaction concurrent with the writer's.

DuckDB writes large inserts to the file at once, so that the COMMIT of ten million rows is short. The transaction only inserts: inserts do
not conflict with concurrent changes, although its snapshot is old at its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.schema import TableSchema
from engine.model.target import BatchCommit, TableCommit
from engine.targets.duckdb.changes import Place, apply_changes
from engine.targets.duckdb.database import Database, roll_back
from engine.targets.duckdb.errors import is_broken
from engine.targets.duckdb.identifiers import folded, qualified
from engine.targets.duckdb.metadata import DuckDbMetadata
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.rows_written import require_all_written
from engine.targets.target_metadata import Position

LOG_BYTES = 256 * 1024 * 1024
"""DuckDB checkpoints its write-ahead log only while no other transaction writes; meanwhile it may grow to this size."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """A complete table as one connection sees it; equal values mean the same table with the same schema."""

    target: TableName
    schema: TableSchema
    number: int
    """DuckDB's number of the table."""


class DuckDbSpeculativeInsert:
    """Implements SpeculativeTransaction. The target's lock is never requested while this one's is held."""

    def __init__(
        self,
        database: Database,
        subscription: SubscriptionName,
        commit: Callable[[DuckDbSpeculativeInsert, BatchCommit], bool],
    ) -> None:
        """`commit`: implements the method `commit`; it calls `write` and `finish`. Raises duckdb.Error."""
        self.database = database
        self.subscription = subscription
        self._commit = commit
        self._lock = threading.Lock()
        """Held while the connection is in use."""
        self._tables: dict[TableId, _Standing] = {}
        self._over = False
        self._connection = database.further_writer()
        self._connection.execute("BEGIN TRANSACTION")

    @property
    def over(self) -> bool:
        return self._over

    @property
    def overdue(self) -> bool:
        log = Path(f"{self.database.path}.wal")
        try:
            return log.stat().st_size > LOG_BYTES
        except FileNotFoundError:
            return False

    def insert(self, table: TableCommit) -> bool:
        with self._lock:
            return not self._over and self._tried(lambda: self._insert(table))

    def commit(self, batch: BatchCommit) -> bool:
        return self._commit(self, batch)

    def roll_back(self) -> None:
        if not self._over:
            with suppress(duckdb.Error):  # it has just ended
                self._connection.interrupt()
            with self._lock:
                self._end()

    def in_the_way_of(self, batch: BatchCommit) -> bool:
        """Whether the batch changes one of these tables in a way that conflicts with open inserts into it."""
        if self._over or batch.subscription != self.subscription:
            return False
        tables = dict(self._tables)
        return any(table in tables for table in (*batch.removed, *batch.stale)) or any(
            commit.table in tables and not _leaves_alone(commit, tables[commit.table]) for commit in batch.tables
        )

    def write(self, batch: BatchCommit, position: Position, writer: StagingConnection) -> bool:
        """Insert the rest of the batch and its progress, after `position`. False if that is impossible; it has then ended.

        `writer` sees the current state of the target: every table must be the one that the rows were inserted into.
        """
        with self._lock:
            return not self._over and self._tried(lambda: self._write(batch, position, writer))

    def finish(self) -> None:
        """COMMIT. Raises duckdb.Error; it is then unknown whether the commit took effect."""
        with self._lock:
            try:
                self._connection.commit()
            finally:
                self._end()

    def _tried(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except (duckdb.Error, EngineFault, OSError, pa.ArrowException) as error:
            # Whatever the error is: the normal commit meets it again and reports it.
            self.database.broken = self.database.broken or is_broken(error)
            self._end()
            return False
        return True

    def _insert(self, table: TableCommit) -> None:
        place = self._place(table)
        if any(one.truncated or one.deletes is not None or one.partials is not None for one in table.changes):
            raise EngineFault(FaultKind.INTERNAL, table.table, "something else than inserts in a speculative insert")
        require_all_written(table.table, table.changes, apply_changes(self._connection, place, table.changes))

    def _write(self, batch: BatchCommit, position: Position, writer: StagingConnection) -> None:
        if batch.removed or batch.stale or batch.marks or self._tables.keys() - {one.table for one in batch.tables}:
            raise EngineFault(FaultKind.INTERNAL, batch.subscription, "a batch that does more than was begun")
        for table in batch.tables:
            self._place(table)
            if self._tables[table.table] != self._read_standing(table.table, writer):
                raise _changed(table.table)
        for table in batch.tables:
            self._insert(table)
        records = DuckDbMetadata(self._connection, self.database.catalog)
        records.add_position(batch.subscription, position.moved(batch))

    def _place(self, table: TableCommit) -> Place:
        standing = self._tables.get(table.table) or self._read_standing(table.table, self._connection)
        names = [folded(column.name) for column in table.schema.columns]
        if not _leaves_alone(table, standing) or "rowid" in names:  # see `_delete_copies`, which alters such a table
            raise _changed(table.table)
        self._tables[table.table] = standing
        return Place(table.table, qualified(self.database.catalog, standing.target), table.schema)

    def _read_standing(self, table: TableId, connection: StagingConnection) -> _Standing:
        found = DuckDbMetadata(connection, self.database.catalog).reservations(self.subscription, [table])
        if not found or found[0].schema is None or not found[0].ready or found[0].removed or found[0].parked:
            raise _changed(table)
        target = found[0].target
        sql = (
            "SELECT table_oid FROM duckdb_tables()"
            " WHERE database_name = ? AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)"
        )
        rows = connection.execute(sql, [self.database.catalog, target.schema, target.name]).fetchall()
        if len(rows) != 1:
            raise _changed(table)
        return _Standing(target, found[0].schema, int(rows[0][0]))

    def _end(self) -> None:
        if not self._over:
            self._over = True
            roll_back(self._connection)
            self._connection.close()


def _leaves_alone(commit: TableCommit, standing: _Standing) -> bool:
    """Whether the batch only changes individual rows of the table."""
    same = commit.ordinary and commit.schema == standing.schema
    return same and not any(change.truncated for change in commit.changes)


def _changed(table: TableId) -> EngineFault:
    return EngineFault(
        FaultKind.INTERNAL, table, "the table that rows were inserted into is not complete or was changed"
    )
