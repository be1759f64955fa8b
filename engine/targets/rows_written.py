"""Compares the rows that a target reports as written with the rows that the netting left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.model.batch import TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId


@dataclass(frozen=True, slots=True)
class RowsWritten:
    """Rows as the target counted them: inserted ones, staged deletes whose rows were found, and with soft delete rows that were inserted as
    deleted. A row that was updated counts as inserted and deleted."""

    inserted: int = 0
    deleted: int = 0
    marked: int = 0

    def __add__(self, other: RowsWritten) -> RowsWritten:
        return RowsWritten(self.inserted + other.inserted, self.deleted + other.deleted, self.marked + other.marked)


def require_all_written(table: TableId, changes: Sequence[TableChanges], written: RowsWritten) -> None:
    """Raise EngineFault(LEDGER_UNBALANCED) if the target wrote another number of rows than the netting left in `changes`."""
    if any(change.tally is None for change in changes):
        return
    inserted = sum(change.staged.get("insert", 0) + change.staged.get("complete", 0) for change in changes)
    deleted = sum(change.staged.get("delete", 0) for change in changes)
    marked = sum(change.staged.get("mark", 0) for change in changes)
    require_same(table, RowsWritten(inserted, deleted, marked), written)


def require_same(table: TableId, wanted: RowsWritten, written: RowsWritten) -> None:
    """Raise EngineFault(LEDGER_UNBALANCED) if the target wrote another number of rows than it was given."""
    if written != wanted:
        detail = (
            f"{wanted.inserted} rows were to be inserted, {wanted.deleted} to be deleted or replaced, and {wanted.marked} to be marked as"
            f" deleted; the target reports {written.inserted}, {written.deleted} and {written.marked}"
        )
        raise EngineFault(FaultKind.LEDGER_UNBALANCED, table, detail)
