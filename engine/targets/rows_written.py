"""Compares the rows that a target reports as written with the rows that the netting left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.model.batch import TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId


@dataclass(frozen=True, slots=True)
class RowsWritten:
    """Rows as the target counted them: inserted ones, and staged deletes whose rows were found. A row that was updated counts as both."""

    inserted: int = 0
    deleted: int = 0

    def __add__(self, other: RowsWritten) -> RowsWritten:
        return RowsWritten(self.inserted + other.inserted, self.deleted + other.deleted)


def require_all_written(table: TableId, changes: Sequence[TableChanges], written: RowsWritten) -> None:
    """Raise EngineFault(LEDGER_UNBALANCED) if the target wrote another number of rows than the netting left in `changes`."""
    if any(change.tally is None for change in changes):
        return
    inserted = sum(change.staged.get("insert", 0) + change.staged.get("complete", 0) for change in changes)
    deleted = sum(change.staged.get("delete", 0) for change in changes)
    require_same(table, RowsWritten(inserted, deleted), written)


def require_same(table: TableId, wanted: RowsWritten, written: RowsWritten) -> None:
    """Raise EngineFault(LEDGER_UNBALANCED) if the target wrote another number of rows than it was given."""
    if written != wanted:
        detail = (
            f"{wanted.inserted} rows were to be inserted and {wanted.deleted} to be deleted or replaced; the target reports"
            f" {written.inserted} and {written.deleted}"
        )
        raise EngineFault(FaultKind.LEDGER_UNBALANCED, table, detail)
