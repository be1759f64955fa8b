"""Balances the ledger of a batch before its target transaction is committed.

Each count comes from another place than those it is compared with: the log reader counts changes while it captures them, the scan counts
the records of the batch's ranges, the netting counts the changes that it takes in and the rows before and after, the decoder counts rows.
`engine.targets.rows_written` compares the last with the rows that the target reports as written. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.model.batch import LogRange, TableChanges, TablePart
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.ledger import BatchLedger, LedgerEntry, NetTally, PartTally
from engine.model.schema import KeyMode
from engine.model.target import TableCommit
from engine.pipeline.compute import Computed, Scans


@dataclass(frozen=True, slots=True)
class Decided:
    """What the commit stage decided about a computed batch."""

    commits: Mapping[TableId, TableCommit]
    faults: Collection[TableId]
    """Tables that park with the batch."""
    taking: Collection[TableId]
    """Tables whose readers see the batch's changes. Changes of others are for a copy, or ignored because a new copy replaces them."""
    chunks: Collection[TableId]
    """Tables of which the batch takes a chunk, with what the chunk missed."""


def balanced(computed: Computed, decided: Decided) -> BatchLedger:
    """The ledger of a batch. Raises EngineFault(LEDGER_UNBALANCED) if two counts of the same changes differ."""
    planned, missed = computed.planned, computed.planned.missed
    total = _checked_total(planned.captured, computed.scans, planned.ranges, planned.parts)
    here = _by_table(computed.scans, planned.parts)
    retained: dict[TableId, PartTally] = {}
    if missed is not None:
        _checked_total(missed.captured, computed.missed_scans, missed.ranges, missed.parts)
        retained = _by_table(computed.missed_scans, missed.parts)
    changes, late = _grouped(computed.changes), _grouped(computed.missed)
    entries = {}
    for table in dict.fromkeys([*here, *retained, *changes, *late]):
        book = _Book(table, here.get(table), changes.get(table, ()), retained.get(table), late.get(table, ()))
        entries[table] = book.entry(decided)
    left_out = total - sum(one.seen for one in here.values())
    return BatchLedger(planned.batch.captured, left_out, entries)


def with_refused(ledger: BatchLedger, table: TableId, *, parked: bool) -> BatchLedger:
    """The ledger after the target refused a table's changes. `parked`: the table parks, else a new copy replaces it."""
    entry = ledger.tables.get(table)
    if entry is None:
        return ledger
    given = entry.applied + entry.netted + entry.filtered + entry.quarantined
    moved = replace(
        entry, applied=0, netted=0, filtered=0, quarantined=0,
        parked=entry.parked + (given if parked else 0), held=entry.held + (0 if parked else given),
    )  # fmt: skip
    return replace(ledger, tables={**ledger.tables, table: moved})


def with_quarantined(ledger: BatchLedger, found: Mapping[TableId, int]) -> BatchLedger:
    """The ledger after the target refused these numbers of rows."""
    tables = dict(ledger.tables)
    for table, count in found.items():
        entry = tables.get(table)
        if entry is not None:
            given = entry.applied + entry.quarantined
            quarantined = min(given, max(count, entry.quarantined))
            tables[table] = replace(entry, applied=given - quarantined, quarantined=quarantined)
    return replace(ledger, tables=tables)


def _checked_total(
    captured: int | None, scans: Scans | None, ranges: Sequence[LogRange], parts: Sequence[TablePart]
) -> int:
    """The number of changes in the ranges, of all relations. Raises if the log reader counted another number than the scans."""
    if scans is not None and scans.disagreed:
        raise unbalanced("batch", "tasks counted the same records differently")
    covering = [tallies for tallies in (scans.slices, scans.apart) if tallies] if scans is not None else []
    if ranges and not parts and not covering:
        return captured or 0  # Nothing is scanned for no table.
    found = [sum(tally.total for tally in tallies) for tallies in covering] or [0]
    for scanned in found:
        if captured is not None and scanned != captured:
            raise unbalanced("batch", f"{captured} changes were captured, and {scanned} scanned")
    return found[0]


def _by_table(scans: Scans | None, parts: Sequence[TablePart]) -> dict[TableId, PartTally]:
    """The scans' counts of each table that they were made for. A slice that was staged early may have counted others."""
    found: dict[TableId, PartTally] = {}
    if scans is None:
        return found
    apart = {part.table for part in parts if part.whole and scans.apart}
    sliced = {part.table for part in parts} - apart
    for tallies, tables in ((scans.slices, sliced), (scans.apart, apart)):
        for tally in tallies:
            for table in tally.tables.keys() & tables:
                found[table] = found.get(table, PartTally(0)).plus(tally.tables[table])
    return found


def _grouped(changes: Iterable[TableChanges]) -> dict[TableId, list[TableChanges]]:
    found: dict[TableId, list[TableChanges]] = {}
    for change in changes:
        found.setdefault(change.table, []).append(change)
    return found


@dataclass(frozen=True, slots=True)
class _Book:
    """The counts of one table. `late`: of the changes that its chunks missed; `retained`: of their records."""

    table: TableId
    here: PartTally | None
    changes: Sequence[TableChanges]
    retained: PartTally | None
    late: Sequence[TableChanges]

    def entry(self, decided: Decided) -> LedgerEntry:
        here, retained = self.here or PartTally(0), self.retained or PartTally(0)
        entry = LedgerEntry(
            captured=here.seen,
            retained=retained.seen,
            rolled_back=here.rolled_back + retained.rolled_back,
            known=here.known + retained.known,
        )
        commit = decided.commits.get(self.table)
        if self.table in decided.faults or (commit is not None and commit.parked is not None):
            return replace(entry, parked=here.given + retained.given)
        late = self.late if self.table in decided.chunks else ()
        if commit is None and self.table not in decided.taking:
            return replace(entry, held=here.given + retained.given)
        self._check_net(self.here, self.changes)
        if late:
            self._check_net(self.retained, late)
        else:
            entry = replace(entry, held=retained.given)
        given = here.given + retained.given - entry.held
        return self._settled(entry, given, [*self.changes, *late], commit)

    def _check_net(self, tally: PartTally | None, changes: Sequence[TableChanges]) -> None:
        if tally is not None:
            self._check_scanned(tally, changes)
        for piece in sorted({change.piece for change in changes}):
            self._check_netted([change for change in changes if change.piece == piece])

    def _check_scanned(self, tally: PartTally, changes: Sequence[TableChanges]) -> None:
        counted = sum(sum(change.counts.values()) for change in changes)
        if tally.given != counted:
            raise unbalanced(
                self.table, f"the records hold {tally.given} changes, of which {counted} reached the netting"
            )

    def _check_netted(self, changes: Sequence[TableChanges]) -> None:
        """Check the buckets of one slice."""
        tallies = [change.tally for change in changes if change.tally is not None]
        if len(tallies) < len(changes) or not tallies:
            return
        live = Counter[str]()
        for change, tally in zip(changes, tallies, strict=True):
            live.update(change.counts)
            live.subtract(tally.cleared)
            live.subtract(tally.unwanted)
        mode, taken = tallies[0].mode, sum(tally.taken for tally in tallies)
        given = sum(live.values()) + (live["update"] if mode is KeyMode.BAG else 0)
        if taken != given:
            raise unbalanced(self.table, f"{given} changes were to be netted, and {taken} were")
        if mode is None:
            return
        alive, before = sum(tally.alive for tally in tallies), sum(tally.before for tally in tallies)
        swept, inserts = sum(tally.swept for tally in tallies), live["insert"] + sum(tally.moved for tally in tallies)
        if alive - before != inserts - live["delete"] - swept:
            detail = f"{inserts} inserts and {live['delete']} deletes left {alive} rows of {before}"
            raise unbalanced(self.table, detail)
        self._check_decoded(changes, tallies)

    def _check_decoded(self, changes: Sequence[TableChanges], tallies: Sequence[NetTally]) -> None:
        for change, tally in zip(changes, tallies, strict=True):
            rows = change.staged.get("insert", 0) + change.staged.get("complete", 0) + tally.withheld
            if rows != tally.alive:
                raise unbalanced(self.table, f"the netting left {tally.alive} rows, of which {rows} were decoded")
            if tally.removed != tally.before and (tally.refused == 0 or tally.removed > tally.before):
                detail = f"{tally.before} rows are to be removed, of which {tally.removed} were decoded"
                raise unbalanced(self.table, detail)
            if tally.marked != change.staged.get("mark", 0):
                detail = f"{tally.marked} rows are to be marked, of which {change.staged.get('mark', 0)} were decoded"
                raise unbalanced(self.table, detail)

    def _settled(
        self, entry: LedgerEntry, given: int, changes: Sequence[TableChanges], commit: TableCommit | None
    ) -> LedgerEntry:
        """The entry with the outcome of the `given` changes."""
        effective = _effective(changes)
        quarantined = sum(change.tally.refused for change in changes if change.tally is not None)
        swapped = commit.swap.changes if commit is not None and commit.swap is not None else ()
        written = [*commit.changes, *swapped] if commit is not None else []
        filtered = 0
        if commit is not None and not commit.ordinary and not commit.resumed:
            inserts = _staged(changes, "insert", "complete") - _staged(written, "insert", "complete")
            filtered = min(effective, max(inserts, _staged(changes, "delete") - _staged(written, "delete"), 0))
        elif (missing := _net_rows(changes) - _net_rows(written)) or _clears(changes) != _clears(written):
            raise unbalanced(self.table, f"{missing} net rows are not in the target transaction")
        applied = max(0, effective - filtered - quarantined)
        unwanted = sum(sum(change.tally.unwanted.values()) for change in changes if change.tally is not None)
        netted = given - applied - filtered - quarantined - unwanted
        return replace(entry, applied=applied, netted=netted, filtered=filtered + unwanted, quarantined=quarantined)


def _effective(changes: Sequence[TableChanges]) -> int:
    """The number of changes that have an effect of their own."""
    images: dict[int, tuple[int, int]] = {}
    effective = 0
    for change in changes:
        tally = change.tally
        if tally is None:
            continue
        effective += tally.effective
        if tally.mode is KeyMode.BAG:
            alive, before = images.get(change.piece, (0, 0))
            images[change.piece] = alive + tally.alive, before + tally.before
    return effective + sum(max(pair) for pair in images.values())


def _clears(changes: Iterable[TableChanges]) -> bool:
    return any(change.truncated for change in changes)


def _net_rows(changes: Iterable[TableChanges]) -> int:
    return sum(change.net_rows for change in changes)


def _staged(changes: Iterable[TableChanges], *operations: str) -> int:
    return sum(change.staged.get(operation, 0) for change in changes for operation in operations)


def unbalanced(subject: str, detail: str) -> EngineFault:
    """The fault of a ledger whose counts differ."""
    return EngineFault(FaultKind.LEDGER_UNBALANCED, subject, detail)
