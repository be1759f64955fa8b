"""Replaces single rows of a table within the caller's transaction, and keeps what was changed in the target's metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from engine.model.batch import TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.history import history_of
from engine.model.identity import TableId
from engine.model.quarantine import Texts
from engine.model.repair import REPAIRED_KEPT, Repair, RepairedRows, RepairResult, TableRepair
from engine.model.schema import TableSchema
from engine.targets.batch_writer import BatchWriter
from engine.targets.history import Moment
from engine.targets.quarantined_rows import texts_in_form, texts_of, typed
from engine.targets.rows_written import RowsWritten, require_same
from engine.targets.soft_delete import live
from engine.targets.target_metadata import TableReservation

ROWS_AT_ONCE, BYTES_AT_ONCE = 10_000, 16 * 1024 * 1024
"""Rows whose previous values are in memory at once, fewer if they are large: as large as the source's rows on average, or as of 16 KiB if
it has none of them. DuckDB reads the keys of the whole table for each such group: 100,000 rows of a million take 6.0 s in groups of 1,000
and 2.8 s in groups of 10,000."""


@dataclass(frozen=True, slots=True)
class RepairedRow:
    """What a repair changed in one row: values as texts by column name; `before` None for an inserted row, `after` for a deleted one."""

    kind: str
    key: Texts
    before: str | None
    after: str | None


def refusal(table: TableRepair, before: TableReservation | None, set_aside: int) -> str | None:
    """Why the rows cannot be replaced in the table as the target records it now; None if they can."""
    if before is None or before.removed or not before.ready or before.parked is not None:
        return "the table is not live any more"
    if before.schema is None or _form(before.schema) != _form(table.schema):
        return "the table's columns changed since it was compared; verify again"
    if before.existing is not None:
        return "the table was made by its owner on the target, who may compute or refuse values; reload it"
    if set_aside:
        return "rows of the table are in quarantine; retry or skip them, or reload the table"
    return None


_OF_A_TABLE = frozenset(
    {
        FaultKind.VALUE_OUT_OF_DOMAIN,
        FaultKind.ROW_REFUSED,
        FaultKind.TABLE_STRUCTURE_CHANGED,
        FaultKind.TABLE_UNFIT,
        FaultKind.NET_CHANGE_ANOMALY,
        FaultKind.LEDGER_UNBALANCED,
    }
)
"""Faults because of which a table is left out of a repair, if they name it."""


def _form(schema: TableSchema) -> tuple[object, ...]:
    """What a repair depends on. A TRUNCATE changes the rest."""
    return schema.relation, schema.columns, schema.key, schema.mode


class RefusedTable(Exception):
    """A table whose fault left it out; the transaction is to be repeated without it."""

    def __init__(self, table: TableRepair, fault: EngineFault) -> None:
        super().__init__(fault.detail)
        self.table = table
        self.reason = f"the target refused the rows: {fault.detail}"


def repair_tables(writer: BatchWriter, repair: Repair) -> RepairResult:
    """Replace the rows of every table of the repair. Raises RefusedTable; EngineFault(INTERNAL) if the target is at another position."""
    records, subscription = writer.records, repair.subscription
    position = records.position(subscription)
    if position is None or position.end != repair.position:
        raise EngineFault(FaultKind.INTERNAL, subscription, "a repair for another position than the target's")
    known = {one.table: one for one in records.reservations(subscription, [each.table for each in repair.tables])}
    aside = records.set_aside(subscription)
    now_us = records.now_us()
    last = position.last.time_us if position.last is not None and position.last.known else now_us
    written: dict[TableId, RepairedRows] = {}
    left: dict[TableId, str] = {}
    records.begin_repair()
    for table in repair.tables:
        before = known.get(table.table)
        reason = refusal(table, before, aside.get(table.table, 0))
        if reason is not None or before is None:
            left[table.table] = reason or ""
            continue
        try:
            with writer.tables.faults_of(table.table):
                written[table.table] = RowRepair(writer, repair, table, before, now_us, last).write()
        except EngineFault as fault:
            if fault.subject == table.table and fault.kind in _OF_A_TABLE:
                raise RefusedTable(table, fault) from fault
            raise
    records.end_repair(subscription, REPAIRED_KEPT)
    return RepairResult(written, left)


class RowRepair:
    """Replaces the rows of one table.

    With soft delete a row that the source does not have is marked as deleted `now_us`, by the target's clock. With history its version
    ends, and that of a row of the source begins, at the repair's position, with `last_us` as time: that of the last transaction up to
    there (microseconds since 1970 UTC). By the target's clock a version could end before it began.
    """

    def __init__(
        self,
        writer: BatchWriter,
        repair: Repair,
        table: TableRepair,
        place: TableReservation,
        now_us: int,
        last_us: int,
    ) -> None:
        self._writer = writer
        self._repair = repair
        self._table = table
        self._place = place
        self._now_us = now_us
        self._last_us = last_us

    def write(self) -> RepairedRows:
        """Delete the rows with the keys, insert the source's, and keep both; rows that are the same already are not touched.

        All rows are deleted before any is inserted, because values of another unique key may move between them.
        """
        schema, names = self._table.schema, [f"c{i}" for i in range(len(self._table.schema.columns))]
        key = [f"c{[column.name for column in schema.columns].index(name)}" for name in schema.key]
        at = {k: n for n, k in enumerate(texts_of(self._table.rows, key, schema.key_columns))}
        inserts: list[int] = []
        counts = {"inserted": 0, "updated": 0, "deleted": 0}
        at_once = _rows_at_once(self._table)
        for start in range(0, self._table.keys.num_rows, at_once):
            keys = self._table.keys.slice(start, at_once)
            wanted = texts_of(keys, [f"k{j}" for j in range(len(schema.key))], schema.key_columns)
            new = [at[k] for k in wanted if k in at]
            rows = self._table.rows.take(new) if new else self._table.rows.slice(0, 0)
            after = dict(zip([k for k in wanted if k in at], texts_of(rows, names, schema.columns), strict=True))
            before = self._before(keys)
            changed, kept = _changes(schema, wanted, before, after)
            found = [n for n, k in enumerate(wanted) if k in changed]
            if found:
                self._writer.tables.delete_rows(self._table.table, self._place.target, schema, keys.take(found))
            gone = [n for n in found if wanted[n] in before and wanted[n] not in at]
            if schema.soft_delete and gone:
                self._mark(keys.take(gone), [before[wanted[n]][0] for n in gone])
            inserts += [at[wanted[n]] for n in found if wanted[n] in at]
            self._writer.records.keep_repaired(self._repair, self._place, [_row(one) for one in kept])
            for one in kept:
                counts[one.kind] += 1
        self._insert(inserts)
        if schema.history:
            for start in range(0, self._table.keys.num_rows, at_once):
                self._bring_history(self._table.keys.slice(start, at_once))
        if schema.staging and any(counts.values()):
            self._writer.changes.reload(self._place.target, self._repair.position)
        return RepairedRows(**counts)

    def _before(self, keys: Any) -> dict[Texts, list[Texts]]:
        """The rows with these keys by key, in the form of `texts_of`."""
        rows = self._writer.tables.rows_with(self._table.table, self._place.target, self._table.schema, keys)
        found: dict[Texts, list[Texts]] = {}
        in_form = texts_in_form(self._table.schema, [values for _, values in rows], self._writer.decode)
        for (key, _), values in zip(rows, in_form, strict=True):
            found.setdefault(key, []).append(values)
        return found

    def _mark(self, keys: Any, rows: Sequence[Texts]) -> None:
        """Write rows that were deleted again, marked as such. `rows`: their values, in the order of the keys."""
        table, schema = self._table.table, self._table.schema
        marked = typed(schema, rows, self._writer.decode)
        for name in keys.column_names:
            marked = marked.append_column(name, keys.column(name))
        at = pa.array([self._now_us] * len(rows), pa.int64()).cast(pa.timestamp("us", "UTC"))
        marked = marked.append_column("at", at).append_column("n", pa.array(range(len(rows)), pa.int64()))
        marked = marked.append_column("doubtful", pa.array([False] * len(rows), pa.bool_()))
        changes = TableChanges(table, truncated=False, tombstones=marked)
        written = self._writer.tables.apply_changes(table, self._place.target, schema, [changes])
        require_same(table, RowsWritten(marked=len(rows)), written)

    def _bring_history(self, keys: Any) -> None:
        tables, schema = self._writer.tables, self._table.schema
        history = tables.history(self._table.table, history_of(self._place.target), schema)
        now = Moment(self._last_us, self._repair.position)
        history.repair(keys, tables.qualified(self._place.target), live(schema, "c"), now)

    def _insert(self, at: Sequence[int]) -> None:
        """Insert these of the source's rows. The caller's transaction fails if the target rejects one."""
        if at:
            rows = self._table.rows.take(pa.array(sorted(at), pa.int64()))
            changes = TableChanges(self._table.table, truncated=False, inserts=rows)
            table, target = self._table.table, self._place.target
            written = self._writer.tables.apply_changes(table, target, self._table.schema, [changes])
            require_same(table, RowsWritten(inserted=len(at)), written)


def _rows_at_once(table: TableRepair) -> int:
    rows = table.rows.num_rows
    average = table.rows.nbytes // rows if rows else 16 * 1024
    return max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // max(1, average)))


def _changes(
    schema: TableSchema, keys: Sequence[Texts], before: dict[Texts, list[Texts]], after: dict[Texts, Texts]
) -> tuple[set[Texts], list[RepairedRow]]:
    """The keys whose rows are to be replaced, and what changes. Of several rows with one key all but one are deleted."""
    changed: set[Texts] = set()
    kept: list[RepairedRow] = []

    def shown(values: Texts | None) -> str | None:
        names = (column.name for column in schema.columns)
        return None if values is None else json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False)

    for key in dict.fromkeys(keys):
        old, new = before.get(key, []), after.get(key)
        if old == ([] if new is None else [new]):
            continue
        changed.add(key)
        if new is not None and new not in old:
            kept.append(RepairedRow("updated" if old else "inserted", key, shown(old[0] if old else None), shown(new)))
            old = old[1:]
        elif new is not None:
            old = [*old[: old.index(new)], *old[old.index(new) + 1 :]]
        kept += [RepairedRow("deleted", key, shown(values), None) for values in old]
    return changed, kept


def _row(one: RepairedRow) -> tuple[str, str, str | None, str | None]:
    return one.kind, json.dumps(list(one.key), ensure_ascii=False), one.before, one.after
