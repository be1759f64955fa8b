"""The common part of targets that are SQL databases: claims, copies, quarantined rows. Each kind implements the rest."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.model.change_data import kept_with
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Epoch, SubscriptionName, TableId, TableName
from engine.model.position import Lsn
from engine.model.quarantine import RefusedCause, RefusedRow, SetAside, Texts
from engine.model.repair import Repair, RepairResult
from engine.model.schema import TableSchema
from engine.model.target import BatchCommit, LogStart, Target, TargetProgress
from engine.queries.pool import Begin, QueryPool
from engine.targets.batch_writer import BatchWriter
from engine.targets.evolution import Structure, evolution
from engine.targets.identifiers import qualified
from engine.targets.metadata_store import MetadataStore
from engine.targets.quarantined_rows import in_order
from engine.targets.row_repair import RefusedTable, repair_tables
from engine.targets.target_metadata import CopyRecord, Position, claimed, hidden_name, rebased

Rule = Callable[[SubscriptionName, Position | None, Position], Position]
"""Determines the new position from the recorded one and the initial one."""


class SqlTarget(Target):
    """A base for targets: a method here implements `Target`, and may raise what `writing` and `reading` raise.

    A kind of target names its `structure`, and implements nine methods: the two abstract ones, and of the protocol `check`, `adopt`,
    `append_copy`, `commit`, `query`, `pin` and `close`. `on_reset`, `after_claim` and `fence` are hooks, without effect by default.
    `writing` yields a BatchWriter with the kind's SqlTables and SqlViews.
    """

    structure: Structure

    def __init__(self) -> None:
        self._queries: QueryPool | None = None
        """The processes of readers' statements. Guarded by `_pooling`."""
        self._pooling = threading.Lock()

    @abstractmethod
    def writing(self, table: TableId | None = None) -> AbstractContextManager[BatchWriter]:
        """A separate transaction, committed at the end of the block and rolled back on any exception; serialized, from any thread.

        The driver's errors become EngineFault, of `table` if it is given and the cause.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[MetadataStore]:
        """The committed metadata, read-only; from any thread, also during writes.

        The driver's errors become EngineFault.
        """

    def on_reset(self, records: MetadataStore, subscription: SubscriptionName, before: Position | None) -> None:
        """End everything uncommitted that was begun for the subscription, by any engine.

        Called when it is claimed, rebased or forgotten, in that transaction, before any other write. `before`: the subscription's
        position, which no one else moves before the transaction ends.
        """
        del records, subscription, before

    def after_claim(self, subscription: SubscriptionName, epoch: Epoch, reached: Lsn | None) -> None:
        """Called after the claim is recorded. Wait until no older engine writes any more.

        `reached`: the position to continue at; None if it begins again.
        """
        del subscription, epoch, reached

    def fence(self, records: MetadataStore, subscription: SubscriptionName) -> None:
        """Make other claims of the subscription wait for the end of the transaction.

        Raises EngineFault(EPOCH_LOST) if another engine claimed it since the last claim here. Needed if other processes can write to the
        target.
        """
        del records, subscription

    def progress(self, subscription: SubscriptionName) -> TargetProgress | None:
        with self.reading() as records:
            return records.progress(subscription)

    def claim(self, subscription: SubscriptionName, epoch: Epoch, log: LogStart) -> None:
        """Drops the subscription's unfinished copies, of any engine, except resumable ones."""
        with self.writing() as writer:
            after = self._begin_again(writer.records, subscription, Position.beginning(epoch, log), claimed)
            writer.drop_copies([copy for copy in writer.records.copies(subscription) if copy.standing is None])
        self.after_claim(subscription, epoch, after.end)
        # An error here recurs at the next definition of the shared table, which can name a table.
        with suppress(EngineFault), self.writing() as writer:
            writer.shared.mend(subscription)

    def rebase(self, subscription: SubscriptionName, epoch: Epoch, log: LogStart) -> None:
        with self.writing() as writer:
            self._begin_again(writer.records, subscription, Position.beginning(epoch, log), rebased)
            writer.drop_copies(writer.records.copies(subscription))
            writer.changes.clear(subscription, changes=True)
            writer.records.mark_unready(subscription)
        self.after_claim(subscription, epoch, None)

    def _begin_again(
        self, records: MetadataStore, subscription: SubscriptionName, wanted: Position, rule: Rule
    ) -> Position:
        """Set the position that the rule determines, and end what other engines have begun."""
        records.create()
        before = records.position(subscription)
        after = rule(subscription, before, wanted)
        self.on_reset(records, subscription, before)
        records.write_position(subscription, after)
        return after

    def forget(self, subscription: SubscriptionName) -> None:
        with self.writing() as writer:
            records = writer.records
            if records.exist():
                records.create()
                self.on_reset(records, subscription, records.position(subscription))
                writer.drop_copies(records.copies(subscription))
                writer.changes.clear(subscription, changes=False)
                records.forget(subscription)

    def begin_copy(
        self,
        subscription: SubscriptionName,
        table: TableId,
        target: TableName,
        schema: TableSchema,
        *,
        keyed: bool = False,
        load: str | None = None,
    ) -> None:
        with self.writing(table) as writer:
            records = writer.records
            self.fence(records, subscription)
            reserved = [r for r in records.reservations(subscription, [table]) if records.same_table(r.target, target)]
            if not reserved:
                raise EngineFault(FaultKind.INTERNAL, table, "its name on the target was not reserved")
            writer.check_kept_names(table, reserved[0], schema)
            writer.drop_copies(records.copies(None, table))
            place = hidden_name(table, target)
            writer.tables.make_copy(table, place, target, schema, keyed=keyed)
            writer.shared.refuse_columns(table, target, schema)
            records.write_copy(subscription, CopyRecord(table, place, schema, load=load))

    def finish_copy(self, table: TableId) -> None:
        """No effect: appended rows are already part of the copy."""
        del table

    def set_aside_of_copy(self, table: TableId, refused: Sequence[tuple[Texts, RefusedCause]], most: int) -> None:
        with self.writing(table) as writer:
            subscription, copy = self.loading(writer.records, table)
            writer.refused.keep_of_copy(subscription, copy, refused, most)

    def trim_copy(self, table: TableId, above: Any) -> int:
        self.finish_copy(table)
        with self.writing(table) as writer:
            _, copy = self.loading(writer.records, table)
            return writer.tables.trim(table, copy.place, copy.schema, above)

    def discard_copy(self, table: TableId) -> None:
        with self.writing(table) as writer:
            subscription = writer.records.copying(table)
            if subscription is not None:
                self.fence(writer.records, subscription)
                writer.drop_copies(writer.records.copies(None, table))

    def loading(self, records: MetadataStore, table: TableId) -> tuple[SubscriptionName, CopyRecord]:
        """The table's copy, if this engine may still load it.

        Raises EngineFault(COPY_FAILED) if there is none, and as `fence`.
        """
        subscription = records.copying(table)
        if subscription is None:
            raise EngineFault(FaultKind.COPY_FAILED, table, "no copy of this table is being loaded")
        self.fence(records, subscription)
        return subscription, records.copies(subscription, table)[0]

    def standing_aside(self, batch: BatchCommit) -> dict[TableId, SetAside]:
        """The quarantined rows after a batch about which nothing else is known."""
        if not any(commit.set_aside or commit.aside for commit in batch.tables):
            return {}
        with self.reading() as records:
            counts = records.set_aside(batch.subscription)
        return {commit.table: SetAside(counts.get(commit.table, 0), 0) for commit in batch.tables}

    def refused_rows(self, subscription: SubscriptionName, table: TableId) -> list[RefusedRow]:
        with self.reading() as records:
            return in_order(records.refused(subscription, table)) if records.exist() else []

    def retry_refused(self, subscription: SubscriptionName, table: TableId, rows: Collection[str] | None) -> list[str]:
        with self.writing(table) as writer:
            self.fence(writer.records, subscription)
            return writer.refused.retry(subscription, table, rows)

    def skip_refused(
        self, subscription: SubscriptionName, table: TableId, rows: Collection[str] | None, by: str
    ) -> list[str]:
        with self.writing(table) as writer:
            self.fence(writer.records, subscription)
            return writer.refused.skip(subscription, table, rows, by)

    def repair(self, repair: Repair) -> RepairResult:
        refused: dict[TableId, str] = {}
        while True:
            todo = replace(repair, tables=[table for table in repair.tables if table.table not in refused])
            try:
                with self.writing() as writer:
                    self.fence(writer.records, repair.subscription)
                    done = repair_tables(writer, todo)
            except RefusedTable as error:
                refused[error.table.table] = error.reason
                continue
            return RepairResult(done.written, {**done.left, **refused})

    def evolution(self, table: TableId, target: TableName, old: TableSchema, new: TableSchema) -> list[str]:
        places = [target, *kept_with(target, history=new.history, staging=new.staging)]
        change = evolution(table, old, new)
        return [one for place in places for one in self.structure.evolve(table, qualified(place), change)]

    def check_place(self) -> None:
        """No effect: a database cannot disappear while sessions use it."""

    def query_pool(self, begin: Callable[[Path | None], Begin], folder: Path | None = None) -> QueryPool:
        """The processes for readers' statements; created with these arguments at first use."""
        with self._pooling:
            if self._queries is None:
                self._queries = QueryPool(begin, folder)
            return self._queries

    def close_queries(self) -> None:
        """End all statements. A later query creates new processes."""
        with self._pooling:
            queries, self._queries = self._queries, None
        if queries is not None:
            queries.close()
