"""Applies one batch within the caller's transaction: schemas and changes of every table, hand-over of copies, progress record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from engine.model.batch import TableChanges
from engine.model.change_data import changes_of, kept_with
from engine.model.copies import StandingCopy
from engine.model.fault import EngineFault, FaultKind
from engine.model.history import history_of
from engine.model.identity import TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.quarantine import PARKED_KEPT
from engine.model.schema import TableSchema
from engine.model.target import BatchCommit, PartitionSwap, TableCommit, TableRecord
from engine.targets.arrow_rows import refuse_faults
from engine.targets.batch_quarantine import BatchQuarantine
from engine.targets.change_data import ChangeDataWriter, has_change_data
from engine.targets.evolution import evolution
from engine.targets.history import Moment, followed
from engine.targets.metadata_store import MetadataStore
from engine.targets.quarantined_rows import DecodeText
from engine.targets.rows_written import require_all_written
from engine.targets.shared import SharedTables, SqlViews, shown_alike
from engine.targets.sql_tables import SqlTables
from engine.targets.target_metadata import (
    CopyRecord,
    Position,
    TableReservation,
    loaded_partitions,
    loaded_whole,
    refuse_batch,
)

_OF_HISTORY = "the history", "set history to false"
_OF_CHANGES = "the CD table", "give the table another name on the target"


class BatchWriter:
    """Applies one batch."""

    def __init__(
        self,
        records: MetadataStore,
        tables: SqlTables,
        views: SqlViews,
        decode: DecodeText,
        careful: Collection[TableId] = frozenset(),
    ) -> None:
        """`careful`: tables that rejected rows in a previous attempt; the rejected rows are now searched for."""
        self.records = records
        self.tables = tables
        self._views = views
        self.shared = SharedTables(records, views, tables.exists)
        self.decode = decode
        self.refused = BatchQuarantine(records, tables, decode, careful)
        self.changes = ChangeDataWriter(records, tables)

    def apply(self, batch: BatchCommit) -> None:
        """Apply the whole batch, without BEGIN and COMMIT. A fault of one table has it as its subject."""
        self._advance(batch)
        names = [commit.table for commit in batch.tables]
        known = {r.table: r for r in self.records.reservations(batch.subscription, names)} if names else {}
        applied: list[TableId] = []
        for commit in batch.tables:
            with self.tables.faults_of(commit.table):
                if self.apply_table(batch, commit, known):
                    applied.append(commit.table)
        if applied:
            self.records.write_applied(batch.subscription, applied, batch.end)
        self.changes.write_units(batch)
        self._record_table_states(batch)
        self._park_after(batch)
        self.shared.redefine_relations(self.tables.faults_of)

    def begin_in_order(self, batch: BatchCommit) -> Position:
        """Write what must be recorded before the first of the batch's transactions; returns the subscription's recorded position."""
        position = self.fence(batch)
        known = {r.table: r for r in self.records.reservations(batch.subscription, [c.table for c in batch.tables])}
        for commit in batch.tables:
            with self.tables.faults_of(commit.table):
                before = known.get(commit.table)
                if commit.parked is not None:
                    self._park(batch, commit, before)
                elif before is None or not before.ready or before.removed or not commit.ordinary:
                    detail = "changes in log order for a table that is not complete on the target"
                    raise EngineFault(FaultKind.INTERNAL, commit.table, detail)
                elif before.schema != commit.schema:
                    self._restructure(batch, commit, before, before.applied)
        self._record_table_states(batch)
        self.shared.redefine_relations(self.tables.faults_of)
        return position

    def end_in_order(self, batch: BatchCommit) -> None:
        """All transactions of the batch are written: move the progress record to its end."""
        self._advance(batch)
        changed = [commit.table for commit in batch.tables if commit.parked is None]
        if changed:
            self.records.write_applied(batch.subscription, changed, batch.end)
        self._park_after(batch)

    def fence(self, batch: BatchCommit) -> Position:
        """The subscription's recorded position; raises if this batch must not be applied after it."""
        return refuse_batch(self.records.position(batch.subscription), batch)

    def drop_copies(self, copies: Sequence[CopyRecord]) -> None:
        """Drop hidden tables and their records."""
        for copy in copies:
            self.tables.drop(copy.place)
            self.records.delete_copy(copy.table)
            self.records.delete_refused(None, copy.table, of_copy=True)

    def _record_table_states(self, batch: BatchCommit) -> None:
        """Record everything about the tables other than their changes."""
        if batch.marks:
            self.records.write_marks(batch.subscription, batch.marks)
        if batch.stale:
            self.records.mark_unready(batch.subscription, batch.stale)
        for table in batch.left:
            for copy in self.records.copies(batch.subscription, table):
                self.records.amend_copy(replace(copy, standing=None))
        if batch.removed:
            self._remove(batch)

    def _park_after(self, batch: BatchCommit) -> None:
        for table, code in batch.then_parked.items():
            self.records.mark_parked(batch.subscription, table, code)

    def _advance(self, batch: BatchCommit) -> None:
        """Check the fence and move the progress record."""
        position = self.fence(batch)
        self.records.write_position(batch.subscription, position.moved(batch))

    def apply_table(self, batch: BatchCommit, commit: TableCommit, known: Mapping[TableId, TableReservation]) -> bool:
        """Returns whether the table's `applied` has yet to be set to the batch's end."""
        if commit.parked is not None:
            self._park(batch, commit, known.get(commit.table))
            return False
        if commit.handover:
            self._hand_over(batch, commit, known.get(commit.table))
            return False
        if commit.copy is not None:
            self._change_copy(batch, commit, commit.copy)
            return False
        reservation = known.get(commit.table)
        ready = reservation is not None and (reservation.ready or commit.resumed)
        if reservation is None or reservation.schema is None or not ready or reservation.removed:
            raise EngineFault(FaultKind.INTERNAL, commit.table, "changes for a table that does not exist on the target")
        if commit.schema != reservation.schema or commit.resumed:
            self._restructure(batch, commit, reservation, batch.end)
        self._change(batch, commit, reservation.target)
        if commit.swap is not None:
            self._exchange(batch, commit, commit.swap, reservation)
        if commit.schema.staging and not _is_staged(commit):
            self.changes.reload(reservation.target, batch.end)
        return True

    def _restructure(self, batch: BatchCommit, commit: TableCommit, before: TableReservation, applied: Lsn) -> None:
        """Change a table and its record to the commit's schema."""
        if shown_alike(before.schema, commit.schema):
            self._evolve(commit, before.target, before)
        else:
            self.shared.open(commit.table, before.target)
            self._evolve(commit, before.target, before)
            self.shared.shown(before.target, commit.schema)
        self._evolve_kept(commit, before)
        record = TableRecord(
            commit.table,
            before.target,
            commit.schema,
            ready=True,
            applied=applied,
            parked=None if commit.resumed else before.parked,
            mark=before.mark,
        )
        self.records.write_table(batch.subscription, record)

    def _evolve_kept(self, commit: TableCommit, before: TableReservation) -> None:
        """Change the table's history and CD tables to the commit's schema."""
        old, new = before.schema, commit.schema
        if old is None or old == new:
            return
        for place in kept_with(before.target, history=new.history, staging=new.staging):
            self.tables.evolve(commit.table, place, new, evolution(commit.table, old, new))

    def _evolve(self, commit: TableCommit, place: TableName, before: TableReservation | CopyRecord) -> None:
        if before.schema is None or before.schema == commit.schema:
            return
        self.tables.evolve(commit.table, place, commit.schema, evolution(commit.table, before.schema, commit.schema))

    def _computed(self, commit: TableCommit, place: TableName) -> Sequence[TableChanges]:
        """The changes, with the values of columns that the log does not contain."""
        if commit.compute is None:
            return commit.changes
        return commit.compute(commit.changes, partial(self.tables.read_rows, commit.table, place, commit.schema))

    def _change(self, batch: BatchCommit, commit: TableCommit, place: TableName, *, of_copy: bool = False) -> None:
        careful = self.refused.concern(batch, commit, of_copy=of_copy)
        if not (careful or commit.changes):
            return
        if careful:
            refuse_faults(commit.table, commit.changes)
        changes = self._computed(commit, place)
        if careful:
            self.refused.change(batch, commit, place, changes, of_copy=of_copy)
        elif not of_copy and _is_staged(commit):
            self._write_staged(commit, place, changes)
        else:
            self._write(commit, place, changes)
        if commit.schema.history and not of_copy:
            self.tables.history(commit.table, history_of(place), commit.schema).apply(changes)

    def _write_staged(self, commit: TableCommit, place: TableName, changes: Sequence[TableChanges]) -> None:
        """Apply net changes slice by slice, each after its change data, which may need values that the table has before."""
        for piece in sorted({change.piece for change in changes}):
            of_piece = [change for change in changes if change.piece == piece]
            refuse_faults(commit.table, of_piece)
            self.changes.write(commit, place, of_piece)
            self._write(commit, place, of_piece)

    def _write(self, commit: TableCommit, place: TableName, changes: Sequence[TableChanges]) -> None:
        """Apply net changes. Raises EngineFault(LEDGER_UNBALANCED) if the target reports another number of rows."""
        written = self.tables.apply_changes(commit.table, place, commit.schema, changes)
        require_all_written(commit.table, changes, written)

    def _hand_over(self, batch: BatchCommit, commit: TableCommit, before: TableReservation | None) -> None:
        copies = self.records.copies(batch.subscription, commit.table)
        if not copies or before is None or before.removed or not self.records.same_table(before.target, commit.target):
            raise EngineFault(FaultKind.INTERNAL, commit.table, "no complete copy is available to replace this table")
        copy = copies[0]
        if copy.load is not None:
            raise EngineFault(FaultKind.INTERNAL, commit.table, "the copy has only the rows of some partitions")
        self._evolve(commit, copy.place, copy)
        self._change(batch, commit, copy.place, of_copy=True)
        if commit.check_key:
            self.tables.check_key(commit.table, copy.place, commit.schema)
        self._bring_history(batch, commit, copy, before)
        self._begin_changes(batch, commit, before)
        self._keep_deleted(batch, commit, copy, before)
        self.shared.open(commit.table, commit.target)
        self.refused.put_in_place(
            batch,
            commit,
            lambda most: self.tables.put_in_place(copy.place, commit.target, commit.schema, refuse=most),
        )
        self.shared.shown(commit.target, commit.schema)
        self.records.delete_copy(commit.table)
        record = TableRecord(commit.table, commit.target, commit.schema, ready=True, applied=batch.end)
        self.records.write_table(batch.subscription, record)
        known = self.records.loads(batch.subscription).get(commit.table, {})
        after = loaded_whole(known, batch.end, first=before.applied == ZERO)
        self.records.write_loads(batch.subscription, commit.table, after)

    def _keep_deleted(
        self, batch: BatchCommit, commit: TableCommit, copy: CopyRecord, before: TableReservation
    ) -> None:
        """With soft delete, add the deleted rows of the table that readers see to the copy that replaces it."""
        if not commit.schema.soft_delete or before.schema is None or before.applied == ZERO:
            return
        if self.tables.exists(before.target):
            self.tables.keep_deleted(
                commit.table, copy.place, commit.schema, before.target, before.schema, batch.now_us
            )

    def _bring_history(
        self, batch: BatchCommit, commit: TableCommit, copy: CopyRecord, before: TableReservation
    ) -> None:
        """With history, begin it with the rows of the copy, or continue that of the table that the copy replaces."""
        if not commit.schema.history:
            return
        place, old = history_of(commit.target), before.schema
        if old is not None and self._has_history(before) and self.tables.exists(place):
            change = followed(commit.table, old, commit.schema)
            self.tables.evolve(commit.table, place, commit.schema, change)
        else:
            self._take_name(commit.table, place, _OF_HISTORY)
            self.tables.create_history(place, commit.schema)
        history = self.tables.history(commit.table, place, commit.schema)
        history.bring(self.tables.qualified(copy.place), Moment.of(batch))

    def _begin_changes(self, batch: BatchCommit, commit: TableCommit, before: TableReservation) -> None:
        """With staging tables, note in the CD table that the copy replaces the table."""
        if commit.schema.staging:
            if not has_change_data(before):
                self._take_name(commit.table, changes_of(commit.target), _OF_CHANGES)
            self.changes.begin(commit, before, batch.end)

    def check_kept_names(self, table: TableId, before: TableReservation, schema: TableSchema) -> None:
        """Raise EngineFault(TABLE_NAME_COLLISION) if the table is to have a history or CD table and another one has its name."""
        if schema.history and not self._has_history(before):
            self._take_name(table, history_of(before.target), _OF_HISTORY)
        if schema.staging and not has_change_data(before):
            self._take_name(table, changes_of(before.target), _OF_CHANGES)

    def _has_history(self, reservation: TableReservation) -> bool:
        """Whether the history table with the table's name is ours."""
        return reservation.schema is not None and reservation.schema.history and reservation.applied > ZERO

    def _take_name(self, table: TableId, place: TableName, use: tuple[str, str]) -> None:
        """Make sure that a table of ours may have this name. `use`: what the table is for, and a remedy besides another name."""
        others = [one for one in self.records.reservations(None) if self.records.same_table(one.target, place)]
        if self.tables.exists(place) or any(not one.removed for one in others):
            what, remedy = use
            detail = f"{what} of the table would be {place}, the name of another table on the target; rename or drop that, or {remedy}"
            raise EngineFault(FaultKind.TABLE_NAME_COLLISION, table, detail)
        if others:
            # The table that was left under this name was dropped: it is not to be taken over any more.
            self.records.delete_left(place)

    def _exchange(self, batch: BatchCommit, commit: TableCommit, swap: PartitionSwap, before: TableReservation) -> None:
        copies = self.records.copies(batch.subscription, commit.table)
        if not copies or copies[0].load != swap.load:
            raise EngineFault(FaultKind.INTERNAL, commit.table, "no copy of its partitions is ready")
        copy = copies[0]
        self._evolve(commit, copy.place, copy)
        if swap.changes:
            self._write(commit, copy.place, swap.changes)
        if commit.schema.history:
            history = self.tables.history(commit.table, history_of(before.target), commit.schema)
            history.bring(self.tables.qualified(copy.place), Moment.of(batch), swap.rows)
        self.tables.exchange_partitions(commit.table, copy.place, before.target, commit.schema, swap.rows, batch.now_us)
        self.records.delete_copy(commit.table)
        known = self.records.loads(batch.subscription).get(commit.table, {})
        after = loaded_partitions(known, swap.reasons, batch.end, swap.request)
        self.records.write_loads(batch.subscription, commit.table, after)

    def _change_copy(self, batch: BatchCommit, commit: TableCommit, standing: StandingCopy) -> None:
        """Apply to a copy that is not complete yet. The first time it has no rows but those of its first chunk."""
        copies = self.records.copies(batch.subscription, commit.table)
        if not copies or (copies[0].standing is None and standing.chunks != 1):
            raise EngineFault(FaultKind.INTERNAL, commit.table, "not the copy that the batch was made for")
        copy = copies[0]
        self._evolve(commit, copy.place, copy)
        if commit.changes:
            self._write(commit, copy.place, self._computed(commit, copy.place))
        after = replace(copy, schema=commit.schema, standing=standing)
        if after != copy:
            self.records.amend_copy(after)

    def _park(self, batch: BatchCommit, commit: TableCommit, before: TableReservation | None) -> None:
        """Park the table: its rows and the schema that describes them stay."""
        schema = before.schema if before is not None and before.schema is not None else commit.schema
        if (tried := commit.tried) is not None and before is not None:
            self.refused.keep_parked(batch, tried, before, lambda: self._try(batch, tried, before))
        record = TableRecord(
            commit.table,
            before.target if before is not None else commit.target,
            schema,
            ready=before is not None and before.ready,
            applied=before.applied if before is not None else ZERO,
            parked=commit.parked,
        )
        self.records.write_table(batch.subscription, record)

    def _try(self, batch: BatchCommit, tried: TableCommit, before: TableReservation) -> BatchQuarantine:
        writer = BatchWriter(self.records, self.tables, self._views, self.decode, {tried.table})
        with self.tables.trial() as possible:
            if possible:
                writer.apply_table(batch, replace(tried, set_aside=PARKED_KEPT), {tried.table: before})
        return writer.refused

    def _remove(self, batch: BatchCommit) -> None:
        self.records.mark_removed(batch.subscription, batch.removed)
        for table in batch.removed:
            self.records.delete_refused(batch.subscription, table)
            self.drop_copies(self.records.copies(batch.subscription, table))
        for reservation in self.records.reservations(batch.subscription, batch.removed):
            member = self.records.member(reservation.target)
            if member is not None and member.schema is None:
                self.shared.remove_member(reservation.target)
        for reservation in self.records.reservations(batch.subscription, batch.dropped) if batch.dropped else ():
            with self.tables.faults_of(reservation.table):
                self._drop(batch, reservation)

    def _drop(self, batch: BatchCommit, left: TableReservation) -> None:
        """Drop the table that readers saw. Raises EngineFault(TABLE_NOT_DROPPED) if it is not ours or others depend on it."""
        if left.existing is not None:
            detail = f"{left.target} on the target was made by its owner, and stays"
            raise EngineFault(FaultKind.TABLE_NOT_DROPPED, left.table, detail)
        if left.applied > ZERO:
            self.shared.open(left.table, left.target)
            if self._has_history(left):
                self.tables.drop_for_good(left.table, history_of(left.target))
            if has_change_data(left):
                self.tables.drop_for_good(left.table, changes_of(left.target))
            self.tables.drop_for_good(left.table, left.target)
            self.shared.remove_member(left.target)
        elif self.tables.exists(left.target):
            detail = f"{left.target} on the target is from before: no copy of the table has taken its place yet"
            raise EngineFault(FaultKind.TABLE_NOT_DROPPED, left.table, detail)
        self.records.delete_table(batch.subscription, left.table)


def _is_staged(commit: TableCommit) -> bool:
    """Whether the table's changes go to its CD table. Where it takes changes that it missed, or rows, a reload is noted instead."""
    return commit.schema.staging and commit.swap is None and not commit.resumed
