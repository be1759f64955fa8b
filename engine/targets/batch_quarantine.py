"""Handles rejected rows within the caller's transaction: quarantines, retries and skips them, or keeps them for a parked table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from engine.model.batch import TableChanges
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.quarantine import (
    PARKED_KEPT,
    SET_ASIDE_LIMIT,
    RefusedCause,
    RefusedRow,
    RefusedState,
    SetAside,
    Texts,
)
from engine.model.schema import TableSchema
from engine.model.target import BatchCommit, QueryRefused, TableCommit
from engine.targets.metadata_store import MetadataStore
from engine.targets.quarantine import RowQuarantine, TableAt
from engine.targets.quarantined_rows import (
    OF_COPY,
    DecodeText,
    Origin,
    RefusedByTarget,
    key_of,
    moment,
    refused_row,
    texts_of,
)
from engine.targets.sql_tables import SqlTables
from engine.targets.target_metadata import CopyRecord, TableReservation

PutInPlace = Callable[[int], RefusedByTarget]
"""Moves a copy into its table's place; at most this many rows may be rejected. Returns the rejected rows."""
Trial = Callable[[], "BatchQuarantine"]
"""Applies a table's share of a batch with a search for rejected rows, and rolls it back. Returns the rejected rows."""


class BatchQuarantine:
    """The effects of one transaction on quarantined rows."""

    def __init__(
        self, records: MetadataStore, tables: SqlTables, decode: DecodeText, careful: Collection[TableId]
    ) -> None:
        """`careful`: as in BatchWriter."""
        self._records = records
        self._tables = tables
        self._decode = decode
        self._careful = careful
        self.set_aside: dict[TableId, SetAside] = {}
        """Tables that have quarantined rows or may get some."""
        self._settings: list[RowQuarantine] = []

    def concern(self, batch: BatchCommit, commit: TableCommit, *, of_copy: bool) -> bool:
        """Whether changes of the table, or of its copy, must be applied with `change`."""
        aside = commit.aside
        if of_copy:
            if aside or commit.set_aside:
                self.set_aside[commit.table] = SetAside(0, 0)
            aside = bool(self._records.refused(batch.subscription, commit.table, of_copy=True))
        refused = commit.set_aside and any(change.refused is not None for change in commit.changes)
        return bool(aside or refused or commit.table in self._careful)

    def change(
        self,
        batch: BatchCommit,
        commit: TableCommit,
        place: TableName,
        changes: Sequence[TableChanges],
        *,
        of_copy: bool,
    ) -> None:
        """Apply net changes; rejected rows are quarantined."""
        at = TableAt(commit.table, place, commit.schema)
        setting = self._setting(batch.subscription, at, commit.set_aside, of_copy=of_copy)
        setting.change(changes, Origin(batch.batch, batch.end))
        self.set_aside[commit.table] = setting.result()
        self._write(batch.subscription, commit.table, setting, of_copy=of_copy)

    def put_in_place(self, batch: BatchCommit, commit: TableCommit, put: PutInPlace) -> None:
        """Replace the table's quarantined rows by those of the copy."""
        self._records.take_refused_of_copy(batch.subscription, commit.table)
        refused = put(commit.set_aside if commit.table in self._careful else 0)
        if not refused:
            return
        at = TableAt(commit.table, commit.target, commit.schema)
        setting = self._setting(batch.subscription, at, commit.set_aside)
        names = [f"c{i}" for i in range(len(commit.schema.columns))]
        rows = [(texts_of(row, names, commit.schema.columns)[0], cause) for row, cause in refused]
        self._add(setting, commit.schema, rows, Origin(batch.batch, batch.end))
        self.set_aside[commit.table] = setting.result()
        self._write(batch.subscription, commit.table, setting)

    def keep_of_copy(
        self,
        subscription: SubscriptionName,
        copy: CopyRecord,
        refused: Sequence[tuple[Texts, RefusedCause]],
        most: int,
    ) -> None:
        """As Target.set_aside_of_copy."""
        setting = self._setting(subscription, TableAt(copy.table, copy.place, copy.schema), most, of_copy=True)
        self._add(setting, copy.schema, refused, OF_COPY)
        setting.result()
        self._write(subscription, copy.table, setting, of_copy=True)

    def keep_parked(self, batch: BatchCommit, tried: TableCommit, before: TableReservation, trial: Trial) -> None:
        """Keep the rows because of which the table parks, in place of earlier ones. Quarantined rows stay."""
        old = [r.row for r in self._records.refused(batch.subscription, tried.table) if r.state is RefusedState.PARKED]
        if any(change.refused is not None for change in tried.changes):
            at = TableAt(tried.table, before.target, tried.schema)
            setting = self._setting(batch.subscription, at, SET_ASIDE_LIMIT)
            setting.keep_refused(tried.changes, Origin(batch.batch, batch.end))
            fresh = setting.fresh
        else:
            fresh = next((setting.fresh for setting in trial()._settings if setting.fresh), [])
        kept = [replace(row, state=RefusedState.PARKED) for row in fresh[:PARKED_KEPT]]
        if old:
            self._records.delete_refused(batch.subscription, tried.table, old)
        if kept:
            self._records.write_refused(batch.subscription, tried.table, self._dated(kept))

    def retry(self, subscription: SubscriptionName, table: TableId, rows: Collection[str] | None) -> list[str]:
        """Like Target.retry_refused."""
        with self._tables.faults_of(table):
            setting = self._of_standing(subscription, table)
            waiting = [id_ for id_, row in setting.rows.items() if row.state is RefusedState.SET_ASIDE]
            done = setting.retry(waiting if rows is None else rows)
            self._write(subscription, table, setting)
        return done

    def skip(self, subscription: SubscriptionName, table: TableId, rows: Collection[str] | None, by: str) -> list[str]:
        """Like Target.skip_refused."""
        setting = self._of_standing(subscription, table)
        done = setting.skip(list(setting.rows) if rows is None else rows, by, moment(self._records.now_us()))
        self._write(subscription, table, setting)
        return done

    def _of_standing(self, subscription: SubscriptionName, table: TableId) -> RowQuarantine:
        for found in self._records.reservations(subscription, [table]):
            if found.schema is not None and found.ready and found.parked is None and not found.removed:
                return self._setting(subscription, TableAt(table, found.target, found.schema), SET_ASIDE_LIMIT)
        raise QueryRefused("table_not_live", "the table is not complete on the target")

    def _setting(
        self, subscription: SubscriptionName, at: TableAt, most: int, *, of_copy: bool = False
    ) -> RowQuarantine:
        standing = self._records.refused(subscription, at.table, of_copy=of_copy)
        standing = [row for row in standing if row.state is not RefusedState.PARKED]
        self._settings.append(RowQuarantine(self._tables, self._decode, at, standing, most))
        return self._settings[-1]

    def _add(
        self, setting: RowQuarantine, schema: TableSchema, rows: Sequence[tuple[Texts, RefusedCause]], origin: Origin
    ) -> None:
        for values, cause in rows:
            setting.add(refused_row(schema, values, key_of(schema, values, self._decode), "copy", cause, origin))

    def _write(
        self, subscription: SubscriptionName, table: TableId, setting: RowQuarantine, *, of_copy: bool = False
    ) -> None:
        changed = [row for row in setting.rows.values() if setting.before.get(row.row) != row]
        gone = (setting.before.keys() - setting.rows.keys()) | (setting.before.keys() & {row.row for row in changed})
        if gone:
            self._records.delete_refused(subscription, table, gone, of_copy=of_copy)
        if changed:
            self._records.write_refused(subscription, table, self._dated(changed), of_copy=of_copy)

    def _dated(self, rows: Sequence[RefusedRow]) -> list[RefusedRow]:
        now = moment(self._records.now_us())
        return [row if row.refused_at else replace(row, refused_at=now) for row in rows]
