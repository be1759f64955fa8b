"""The ledger: the outcome of each captured change, counted where the change passes, so that the counts can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.model.identity import TableId
from engine.model.schema import KeyMode


@dataclass(frozen=True, slots=True)
class PartTally:
    """Changes of one table in the records of a scan. `seen`: counted from types and relations of the records; the scan itself counted
    `rolled_back`, of rolled back subtransactions, and `known`, of transactions that the table contains already. A TRUNCATE is a change of
    each table that it names."""

    seen: int
    rolled_back: int = 0
    known: int = 0

    @property
    def given(self) -> int:
        """The changes that the table gets."""
        return self.seen - self.rolled_back - self.known

    def plus(self, other: PartTally) -> PartTally:
        """Both together."""
        return PartTally(self.seen + other.seen, self.rolled_back + other.rolled_back, self.known + other.known)


@dataclass(frozen=True, slots=True)
class LogTally:
    """Changes in the records of one scan, by table, and in `other` those of relations that are no table of the scan."""

    tables: Mapping[TableId, PartTally]
    other: int = 0

    @property
    def total(self) -> int:
        """All changes in the records."""
        return self.other + sum(one.seen for one in self.tables.values())


@dataclass(frozen=True, slots=True)
class NetTally:
    """What the netting of one table's changes in one bucket did, counted by the netting and the decoder themselves.

    `mode`: None if the changes were not netted. `cleared`: changes by operation up to the last TRUNCATE. `taken`: later changes that were
    processed; for BAG, row images. `alive`, `before`: rows that exist after the changes, and rows that existed before them; for BAG,
    images added and removed. `removed`: rows that the decoded deletes remove. `effective`: changes with an effect of their own, the others
    were netted; not counted for BAG, whose images of one change may be in several buckets. `refused`: rows for the quarantine;
    `withheld`: those of them that count as `alive`. With soft delete, changes before a TRUNCATE are processed too: `swept` is the number of
    rows that existed after them and that it removed, and `marked` the number of rows to keep as deleted.

    If not all operations are followed: `unwanted` are the changes by operation that were left out, and are in none of the other counts. If
    deletes are among them, `moved` is the number of updates that were taken for inserts, as they changed the key, and `swept` that of rows
    that a later insert replaced. Of a scattered table, `swept` counts the rows, known from its changes, that others replaced, too.
    """

    mode: KeyMode | None
    taken: int
    alive: int = 0
    before: int = 0
    removed: int = 0
    effective: int = 0
    refused: int = 0
    withheld: int = 0
    swept: int = 0
    marked: int = 0
    moved: int = 0
    cleared: Mapping[str, int] = field(default_factory=dict)
    unwanted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The changes of one table in one batch: `captured` + `retained` is the sum of the others.

    `captured`: in the batch's records; `retained`: of earlier batches, kept for a copy that this batch continues. `applied`: changes with
    an effect of their own. `netted`: replaced by later ones of the batch. `filtered`: of rows that an unfinished copy does not have yet,
    or of operations that are not followed.
    `quarantined`: the target cannot hold the row. `rolled_back`: of rolled back subtransactions. `known`: of transactions that the table
    contains already. `held`: left to a copy that is to come. `parked`: of a table that parks with the batch.
    """

    captured: int = 0
    retained: int = 0
    applied: int = 0
    netted: int = 0
    filtered: int = 0
    quarantined: int = 0
    rolled_back: int = 0
    known: int = 0
    held: int = 0
    parked: int = 0


@dataclass(frozen=True, slots=True)
class BatchLedger:
    """The ledger of one batch.

    `captured`: changes in its transactions, as the log reader counted them; None if it did not. `left_out`: changes of relations that are
    no table of the batch: tables that are paused, parked, not copied yet, or not in the subscription.
    """

    captured: int | None
    left_out: int
    tables: Mapping[TableId, LedgerEntry]
