"""Writes the staging tables of a target within the caller's transaction: CD tables with the changes of each table, and the table of
transactions, UOW. Portable SQL; rows are appended, and only the rows of the table are read: new values of unset columns, and whether a row
was there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.model.batch import OPTIONAL, TableChanges
from engine.model.change_data import (
    CHANGE_COLUMNS,
    UNIT_COLUMNS,
    GlobalUnit,
    Operation,
    UnitKind,
    changes_of,
    global_units,
)
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.last_commit import CommitTimes
from engine.model.position import ZERO, Lsn
from engine.model.schema import TableSchema
from engine.model.soft_delete import DELETED_AT
from engine.model.target import BatchCommit, TableCommit
from engine.targets.arrow_rows import joined, rows_of
from engine.targets.evolution import evolution
from engine.targets.history import HistoryTable
from engine.targets.identifiers import quoted
from engine.targets.metadata_store import MetadataStore
from engine.targets.sql_tables import SqlTables
from engine.targets.target_metadata import TableReservation

STAGED_POSITION, STAGED_NUMBER, STAGED_OPERATION = STAGED = ("position", "n", "op")
"""Staged columns of change data: the end of the transaction (int64), the number of the change in it (int64), an Operation."""
STAGED_TIME, STAGED_ID, STAGED_GTID, STAGED_KIND = ("commit_time", "transaction", "gtid", "type")
"""Staged columns of transactions, besides the position."""

_MOST = 2**63 - 1
"""The largest position that a signed number of 64 bits holds."""


class ChangeDataWriter:
    """The staging tables in one target transaction."""

    def __init__(self, records: MetadataStore, tables: SqlTables) -> None:
        self._records = records
        self._tables = tables
        self._ends: list[Any] = []
        """Transactions that changed a table with a CD table, as arrays of uint64."""
        self._statements: HistoryTable | None = None
        self._last: dict[TableId, tuple[int, int]] = {}
        """By table, the last transaction, and the number of its changes so far."""

    def write(self, commit: TableCommit, place: TableName, changes: Sequence[TableChanges]) -> None:
        """Append the change data of one slice, before its changes are applied to the table at `place`.

        Raises EngineFault: NET_CHANGE_ANOMALY if a row to complete is missing, LEDGER_UNBALANCED if other numbers of rows are written than
        were computed.
        """
        rows = joined([_with_end(change) for change in changes if change.change_data is not None])
        if rows is None:
            return
        self._statements = statements = self._tables.row_statements(commit.table, place, commit.schema)
        self._ends.append(np.unique(np.asarray(rows.column("end"))))
        rows = rows.filter(pc.is_valid(rows.column("op")))
        wanted = sum(change.staged.get("change", 0) for change in changes)
        found = 0
        if rows.num_rows:
            rows = self._numbered(commit.table, rows)
            for some in _alike(rows):
                written = self._insert(commit, place, statements, some)
                found += 0 if _is_optional(some) and _deletes(some) else written
        if found != wanted:
            detail = f"{wanted} rows of change data were to be written; the target reports {found}"
            raise EngineFault(FaultKind.LEDGER_UNBALANCED, commit.table, detail)

    def begin(self, commit: TableCommit, before: TableReservation, end: Lsn) -> None:
        """A copy takes the table's place: make its CD table fit it, and note the reload. Its name must be free if it is not ours."""
        place, old = changes_of(commit.target), before.schema
        ours = has_change_data(before) and self._tables.exists(place)
        if ours and old is not None and not self._fits(commit.table, place, old, commit.schema):
            # Rows before the reload are void.
            self._tables.drop(place)
            ours = False
        if not ours:
            self._tables.create_changes(place, commit.schema)
        self._records.create_units()
        self.reload(commit.target, end)

    def reload(self, target: TableName, end: Lsn) -> None:
        """Note that the table was brought to a position without its changes."""
        names = ", ".join(map(quoted, CHANGE_COLUMNS))
        values = f"{end.value}, 0, '{Operation.RELOAD}'"
        self._tables.execute(f"INSERT INTO {self._tables.qualified(changes_of(target))} ({names}) VALUES ({values})")

    def write_units(self, batch: BatchCommit) -> None:
        """Append the transactions whose change data was written."""
        if not self._ends or self._statements is None:
            return
        rows = unit_rows(batch, np.unique(np.concatenate(self._ends)))
        names = ", ".join(map(quoted, UNIT_COLUMNS))
        staged = (STAGED_POSITION, STAGED_TIME, STAGED_ID, STAGED_GTID, STAGED_KIND)
        subscription = str(batch.subscription).replace("'", "''")
        read = ", ".join([f"'{subscription}'", *(f"s.{quoted(name)}" for name in staged)])
        into = f"INSERT INTO {self._records.units_place} ({names}) SELECT {read}"
        written = self._statements.run(rows, staged, lambda source: f"{into} FROM {source}")
        if written != rows.num_rows:
            detail = f"{rows.num_rows} transactions were to be recorded; the target reports {written}"
            raise EngineFault(FaultKind.LEDGER_UNBALANCED, batch.subscription, detail)

    def clear(self, subscription: SubscriptionName, *, changes: bool) -> None:
        """Delete the subscription's transactions; with `changes` also its change data: positions begin again."""
        kept = [
            one for one in self._records.reservations(subscription) if one.schema is not None and one.schema.staging
        ]
        if not kept:
            return
        self._records.create_units()
        self._records.delete_units(subscription)
        for one in kept if changes else ():
            place = changes_of(one.target)
            if has_change_data(one) and self._tables.exists(place):
                with self._tables.faults_of(one.table):
                    self._tables.execute(f"DELETE FROM {self._tables.qualified(place)}")

    def _fits(self, table: TableId, place: TableName, old: TableSchema, new: TableSchema) -> bool:
        """Change the CD table's columns to those of the new structure. False if it has to be created again."""
        if old.relation != new.relation:
            return False
        try:
            change = evolution(table, old, new)
        except EngineFault:
            return False
        self._tables.evolve(table, place, new, change)
        return True

    def _into(self, commit: TableCommit, place: TableName) -> str:
        names = [*CHANGE_COLUMNS, *(column.name for column in commit.schema.columns)]
        return f"INSERT INTO {self._tables.qualified(changes_of(place))} ({', '.join(map(quoted, names))})"

    def _insert(self, commit: TableCommit, place: TableName, statements: HistoryTable, rows: Any) -> int:
        """Append rows of one kind: see `_alike`. Returns their number."""
        into, table = self._into(commit, place), self._tables.qualified(place)
        columns = [f"c{i}" for i in range(len(commit.schema.columns))]
        names, own, joins = [*columns, *STAGED], [f"s.{name}" for name in STAGED], ""
        values = [statements.value(name, i) for i, name in enumerate(columns)]
        is_unset, is_optional = pc.any(_unset(rows)).as_py(), _is_optional(rows)
        if is_unset:
            names = [*(f"k{j}" for j in range(len(commit.schema.key))), *names]
            names += [name for name in rows.column_names if name.startswith("u")]
            values = statements.completed(rows)
            joins += f" JOIN {table} AS t ON {statements.on_staged_key('t')}"
        if is_optional:
            joins += (
                f" {'' if _deletes(rows) else 'LEFT '}JOIN {table} AS o ON {_has_key_of_row(statements, commit.schema)}"
            )
            missing = f"o.{statements.names[statements.key[0]]} IS NULL"
            own[-1] = f"CASE WHEN {missing} THEN '{Operation.INSERT}' ELSE {own[-1]} END"
        read = ", ".join([*own, *values])
        found = statements.run(rows, names, lambda source: f"{into} SELECT {read} FROM {source}{joins}")
        if is_unset and found != rows.num_rows:
            detail = f"{rows.num_rows} changed rows, of which the target has {found}"
            raise EngineFault(FaultKind.NET_CHANGE_ANOMALY, commit.table, detail)
        return found

    def _numbered(self, table: TableId, rows: Any) -> Any:
        """The rows with position and number in place of `end` and `place`."""
        ends, places = (np.asarray(rows.column(name)) for name in ("end", "place"))
        order = np.lexsort((places, ends))
        first = np.flatnonzero(np.diff(ends[order], prepend=0))
        sizes = np.diff(first, append=len(order))
        before = np.zeros(len(first), np.int64)
        last, count = self._last.get(table, (0, 0))
        if int(ends[order[0]]) == last:
            before[0] = count
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.arange(1, len(order) + 1) - np.repeat(first - before, sizes)
        self._last[table] = int(ends[order[-1]]), int(numbers[order[-1]])
        rows = rows.drop_columns(["end", "place"])
        rows = rows.append_column(STAGED_POSITION, pa.array(ends.astype(np.int64)))
        return rows.append_column(STAGED_NUMBER, pa.array(numbers))


def has_change_data(reservation: TableReservation) -> bool:
    """Whether the CD table with the table's name is ours."""
    return reservation.schema is not None and reservation.schema.staging and reservation.applied > ZERO


def unit_rows(batch: BatchCommit, ends: Any) -> Any:
    """The batch's transactions that end at these positions (uint64, ascending), in the columns of staged transactions.

    Raises EngineFault(INTERNAL) if the batch does not have one of them.
    """
    times = batch.times or CommitTimes(np.empty(0, np.uint64), np.empty(0, np.int64))
    at = np.searchsorted(times.ends, ends)
    if not len(times.ends) or not np.array_equal(times.ends[np.minimum(at, len(times.ends) - 1)], ends):
        detail = "a table has changes of a transaction that the batch does not have"
        raise EngineFault(FaultKind.INTERNAL, batch.subscription, detail)
    if int(ends[-1]) > _MOST:
        raise EngineFault(FaultKind.INTERNAL, batch.subscription, f"the position {ends[-1]} is too large for a number")
    known = global_units(times)
    named: list[GlobalUnit | None] = [known.get(int(end)) for end in ends] if known else [None] * len(ends)
    us = times.times_us[at]
    xids = np.zeros(len(ends), np.int64) if times.xids is None else times.xids[at].astype(np.int64)
    unknown = np.array([one is not None for one in named], np.bool_) | (xids == 0)
    return pa.table(
        {
            STAGED_POSITION: pa.array(ends.astype(np.int64)),
            STAGED_TIME: pa.array(us, pa.int64(), mask=us == 0).cast(pa.timestamp("us", "UTC")),
            STAGED_ID: pa.array(xids, mask=unknown),
            STAGED_GTID: pa.array([None if one is None else one.gtid for one in named], pa.string()),
            STAGED_KIND: pa.array([str(UnitKind.LOCAL if one is None else one.kind) for one in named], pa.string()),
        }
    )


def _with_end(change: TableChanges) -> Any:
    """The rows with the end of their transaction if they were computed before its commit."""
    rows = rows_of(change.change_data)
    if not change.commit_end:
        return rows
    end = pa.array(np.full(rows.num_rows, change.commit_end, np.uint64))
    return rows.set_column(rows.schema.get_field_index("end"), "end", end)


def _has_key_of_row(statements: HistoryTable, schema: TableSchema) -> str:
    """SQL condition: the table's row `o` is there, and has the key of the staged row's values."""
    same = [f"o.{statements.names[i]} = {statements.value(f'c{i}', i)}" for i in statements.key]
    return " AND ".join([*same, *([f"o.{quoted(DELETED_AT)} IS NULL"] if schema.soft_delete else [])])


def _alike(rows: Any) -> list[Any]:
    """The rows in parts of one kind each: with unset columns or without, and optional ones apart, deletes apart from these."""
    unset = _unset(rows)
    optional = pc.fill_null(rows.column(OPTIONAL), False) if OPTIONAL in rows.column_names else None
    if optional is None:
        kinds = [pc.invert(unset), unset]
    else:
        deleted = pc.equal(rows.column("op"), str(Operation.DELETE))
        certain, kept = pc.invert(optional), pc.and_(optional, pc.invert(deleted))
        whole = pc.invert(unset)
        pairs = ((certain, whole), (certain, unset), (kept, whole), (kept, unset), (pc.and_(optional, deleted), whole))
        kinds = [pc.and_(one, other) for one, other in pairs]
    return [some for kind in kinds if (some := rows.filter(kind)).num_rows]


def _is_optional(rows: Any) -> bool:
    return OPTIONAL in rows.column_names and bool(rows.column(OPTIONAL)[0].as_py())


def _deletes(rows: Any) -> bool:
    return bool(rows.column("op")[0].as_py() == str(Operation.DELETE))


def _unset(rows: Any) -> Any:
    """Which rows have unset columns, as an array of bool."""
    found = pa.array(np.zeros(rows.num_rows, np.bool_))
    for name in rows.column_names:
        if name.startswith("u"):
            found = pc.or_(found, pc.fill_null(rows.column(name).combine_chunks(), False))
    return found
