"""One batch as one transaction: every table's structure and changes, the hand-over of copies, and the progress record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from engine.apply.duckdb.changes import Place, apply_changes, check_key
from engine.apply.duckdb.errors import fault_of, is_broken, is_out_of_memory
from engine.apply.duckdb.identifiers import qualified, quoted
from engine.apply.duckdb.preflight import folded_name
from engine.apply.duckdb.records import CopyRecord, Position, Records, Reservation
from engine.apply.duckdb.structure import evolution, evolve_statements
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.position import ZERO
from engine.model.target import BatchCommit, TableCommit, TableRecord


class BatchWriter:
    """Applies one batch inside a transaction of the caller."""

    def __init__(self, connection: Any, catalog: str, path: Path, *, crowded: bool = False) -> None:
        """`crowded`: as in Records."""
        self._connection = connection
        self._catalog = catalog
        self._path = path
        self._records = Records(connection, catalog, crowded=crowded)

    def apply(self, batch: BatchCommit) -> None:
        """Everything but BEGIN and COMMIT. A fault of one table names it as its subject."""
        self._advance(batch)
        names = [commit.table for commit in batch.tables]
        known = {r.table: r for r in self._records.reservations(batch.subscription, names)} if names else {}
        applied: list[TableId] = []
        for commit in batch.tables:
            with self._faults_of(commit.table):
                if self._apply_table(batch, commit, known):
                    applied.append(commit.table)
        if applied:
            self._records.write_applied(batch.subscription, applied, batch.end)
        if batch.marks:
            self._records.write_marks(batch.subscription, batch.marks)
        if batch.stale:
            self._records.mark_unready(batch.subscription, batch.stale)
        if batch.removed:
            self._remove(batch)

    def fence(self, batch: BatchCommit) -> Position:
        """Where the subscription stands; raises where this batch must not be written behind that."""
        position = self._records.position(batch.subscription)
        if position is None or position.epoch != batch.epoch:
            detail = "another engine has taken this subscription over" if position else "the target was not claimed"
            raise EngineFault(FaultKind.EPOCH_LOST, batch.subscription, detail)
        if batch.end < position.end:
            detail = f"a batch that ends at {batch.end} after one that ended at {position.end}"
            raise EngineFault(FaultKind.INTERNAL, batch.subscription, detail)
        return position

    def _advance(self, batch: BatchCommit) -> None:
        """Check the fence and move the progress record."""
        position = self.fence(batch)
        self._records.write_position(batch.subscription, replace(position, batch=batch.batch, end=batch.end))

    def _apply_table(self, batch: BatchCommit, commit: TableCommit, known: Mapping[TableId, Reservation]) -> bool:
        """True where `applied` remains to be set to the batch's end."""
        if commit.parked is not None:
            self._park(batch, commit, known.get(commit.table))
            return False
        if commit.handover:
            self._hand_over(batch, commit, known.get(commit.table))
            return False
        reservation = known.get(commit.table)
        ready = reservation is not None and (reservation.ready or commit.resumed)
        if reservation is None or reservation.schema is None or not ready or reservation.removed:
            raise EngineFault(FaultKind.INTERNAL, commit.table, "changes for a table that is not on the target")
        if commit.schema != reservation.schema or commit.resumed:
            self._evolve(commit, reservation.target, reservation)
            record = TableRecord(
                commit.table,
                reservation.target,
                commit.schema,
                ready=True,
                applied=batch.end,
                parked=reservation.parked,
                mark=reservation.mark,
            )
            self._records.write_table(batch.subscription, record)
        self._change(commit, reservation.target)
        return True

    def _evolve(self, commit: TableCommit, place: TableName, before: Reservation | CopyRecord) -> None:
        if before.schema is None or before.schema == commit.schema:
            return
        change = evolution(commit.table, before.schema, commit.schema)
        for statement in evolve_statements(commit.table, qualified(self._catalog, place), change):
            self._connection.execute(statement)

    def _change(self, commit: TableCommit, place: TableName) -> None:
        if commit.changes:
            where = Place(commit.table, qualified(self._catalog, place), commit.schema)
            apply_changes(self._connection, where, commit.changes)

    def _hand_over(self, batch: BatchCommit, commit: TableCommit, before: Reservation | None) -> None:
        copies = self._records.copies(batch.subscription, commit.table)
        if not copies or before is None or before.removed or folded_name(before.target) != folded_name(commit.target):
            raise EngineFault(FaultKind.INTERNAL, commit.table, "no copy stands ready to take this table's place")
        copy = copies[0]
        self._evolve(commit, copy.place, copy)
        self._change(commit, copy.place)
        if commit.check_key:
            check_key(self._connection, Place(commit.table, qualified(self._catalog, copy.place), commit.schema))
        self._connection.execute(f"DROP TABLE IF EXISTS {qualified(self._catalog, commit.target)}")
        hidden = qualified(self._catalog, copy.place)
        self._connection.execute(f"ALTER TABLE {hidden} RENAME TO {quoted(commit.target.name)}")
        self._records.delete_copy(commit.table)
        record = TableRecord(commit.table, commit.target, commit.schema, ready=True, applied=batch.end)
        self._records.write_table(batch.subscription, record)

    def _park(self, batch: BatchCommit, commit: TableCommit, before: Reservation | None) -> None:
        """The rows stay as they are, and so does the structure that describes them."""
        schema = before.schema if before is not None and before.schema is not None else commit.schema
        record = TableRecord(
            commit.table,
            before.target if before is not None else commit.target,
            schema,
            ready=before is not None and before.ready,
            applied=before.applied if before is not None else ZERO,
            parked=commit.parked,
        )
        self._records.write_table(batch.subscription, record)

    def _remove(self, batch: BatchCommit) -> None:
        self._records.mark_removed(batch.subscription, batch.removed)
        for table in batch.removed:
            self.drop_copies(self._records.copies(batch.subscription, table))

    def drop_copies(self, copies: list[CopyRecord]) -> None:
        """Drop hidden tables and their records."""
        for copy in copies:
            self._connection.execute(f"DROP TABLE IF EXISTS {qualified(self._catalog, copy.place)}")
            self._records.delete_copy(copy.table)

    @contextmanager
    def _faults_of(self, table: TableId) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            if is_broken(error) or is_out_of_memory(error):
                raise
            raise fault_of(error, self._path, table) from error
