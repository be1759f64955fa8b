"""History tables of targets: every version of each row of a table, with the times and positions of its begin and its end.

A history table has at most one current version with a key. It changes in the transactions that change its table, so after any crash both
are at the same batch boundary. Portable SQL; kinds of target implement how rows are staged and compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.model.batch import OPTIONAL, TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.history import FROM_POSITION, HISTORY_COLUMNS, HISTORY_SUFFIX, TO_POSITION, VALID_FROM, VALID_TO
from engine.model.identity import TableId
from engine.model.partitions import PartitionRows
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.target import BatchCommit
from engine.model.widening import same_form
from engine.targets.arrow_rows import joined, rows_of
from engine.targets.evolution import Evolution
from engine.targets.identifiers import quoted
from engine.targets.soft_delete import carried, moment

FROM_AT, FROM_TEXT, TO_AT, TO_TEXT = STAGED = ("from_at", "from_position", "to_at", "to_position")
"""Staged columns: time and position of a version's begin and end."""
_FROM, _TO, _FROM_POSITION, _TO_POSITION = map(quoted, (VALID_FROM, VALID_TO, FROM_POSITION, TO_POSITION))
CURRENT = f"{_TO} IS NULL"
"""SQL condition: the version is current."""
_REMEDY = (
    "To begin another history, set history to false and reload the table; rename or drop the table"
    f" …{HISTORY_SUFFIX} on the target; then set history to true and reload it again"
)


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of a table as of a position: time in microseconds since 1970 UTC."""

    time_us: int
    position: Lsn

    @classmethod
    def of(cls, batch: BatchCommit) -> Moment:
        """The batch's end. The time is that of the last transaction up to it; if that is unknown, the engine's."""
        known = batch.last is not None and batch.last.known
        return cls(batch.last.time_us if batch.last is not None and known else batch.now_us, batch.end)


class HistoryTable(ABC):
    """A history table within the caller's transaction. `table` is its table, `place` its own full quoted name."""

    temporary: str
    """Name of the temporary table of completed versions."""
    create: str
    """SQL that creates it, followed by a SELECT."""

    def __init__(self, table: TableId, place: str, schema: TableSchema) -> None:
        self.table = table
        self.place = place
        self.schema = schema
        self.names = [quoted(column.name) for column in schema.columns]
        own = [column.name for column in schema.columns]
        self.key = [own.index(name) for name in schema.key]

    @abstractmethod
    def run(self, rows: Any, names: Sequence[str], sql: Callable[[str], str]) -> int:
        """Execute a statement on staged rows with these columns; returns the number of affected rows. `sql` gets the FROM item `s`."""

    @abstractmethod
    def run_within(self, rows: PartitionRows, sql: Callable[[str, str], str]) -> int:
        """The same with the FROM item of the partitions' bounds, and the condition that a version `t` is in these partitions."""

    @abstractmethod
    def execute(self, sql: str) -> int:
        """Execute a statement; returns the number of affected rows."""

    @abstractmethod
    def value(self, name: str, column: int) -> str:
        """SQL: the staged value `s.<name>` with the type of the table's column at this position."""

    @abstractmethod
    def completed(self, rows: Any) -> list[str]:
        """SQL for c0 … cn: of the staged version `s`, or where it is unset there, of the current version `t`."""

    @abstractmethod
    def identical(self, left: str, right: str) -> str:
        """SQL condition: whether two rows (aliases) print the same values in all columns of the schema."""

    def apply(self, changes: Sequence[TableChanges]) -> None:
        """Begin and end versions, slice by slice.

        Raises EngineFault: NET_CHANGE_ANOMALY if a version to end or to complete is missing, LEDGER_UNBALANCED if other numbers of versions
        are written than were computed.
        """
        for piece in sorted({change.piece for change in changes}):
            self._apply_slice([change for change in changes if change.piece == piece])

    def bring(self, copy: str, now: Moment, only: PartitionRows | None = None) -> None:
        """Bring the current versions to the rows of a copy (its full quoted name): equal ones stay, others end and begin `now`. `only`: the
        copy has the rows of these partitions."""
        at, position = moment(now.time_us), f"'{now.position}'"
        other = f"NOT EXISTS (SELECT 1 FROM {copy} AS c WHERE {self._same_key('c')} AND {self.identical('c', 't')})"
        delete, update = f"DELETE FROM {self.place} AS t", f"UPDATE {self.place} AS t SET {_ending(at, position)}"
        void = f"{_current('t')} AND {other} AND t.{_FROM_POSITION} = {position}"
        if only is None:
            self.execute(f"{delete} WHERE {void}")
            self.execute(f"{update} WHERE {_current('t')} AND {other}")
        else:
            self.run_within(only, lambda source, inside: f"{delete} USING {source} WHERE ({inside}) AND {void}")
            self.run_within(
                only, lambda source, inside: f"{update} FROM {source} WHERE ({inside}) AND {_current('t')} AND {other}"
            )
        read = ", ".join([*(f"c.{name}" for name in self.names), at, "NULL", position, "NULL"])
        lacks = f"NOT EXISTS (SELECT 1 FROM {self.place} AS t WHERE {self._same_key('c')} AND {_current('t')})"
        self.execute(f"INSERT INTO {self._into} SELECT {read} FROM {copy} AS c WHERE {lacks}")

    def repair(self, keys: Any, rows: str, live: str, now: Moment) -> None:
        """Bring the current versions with these keys (columns k0 … km) to the rows of the table: equal ones stay, others end and begin
        `now`.

        `rows`: the table's full quoted name, `c`; `live`: SQL to append to a condition on it: the row exists on the source.
        """
        at, position = moment(now.time_us), f"'{now.position}'"
        names = [f"k{j}" for j in range(len(self.key))]
        same = f"{self._same_key('c')} AND {self.identical('c', 't')}{live}"
        other = f"{self.on_staged_key('t')} AND {_current('t')} AND NOT EXISTS (SELECT 1 FROM {rows} AS c WHERE {same})"
        void = f"{other} AND t.{_FROM_POSITION} = {position}"
        self.run(keys, names, lambda source: f"DELETE FROM {self.place} AS t USING {source} WHERE {void}")
        ending = _ending(at, position)
        self.run(keys, names, lambda source: f"UPDATE {self.place} AS t SET {ending} FROM {source} WHERE {other}")
        read = ", ".join([*(f"c.{name}" for name in self.names), at, "NULL", position, "NULL"])
        lacks = f"NOT EXISTS (SELECT 1 FROM {self.place} AS t WHERE {self._same_key('c')} AND {_current('t')})"
        found = f"{self.on_staged_key('c')}{live} AND {lacks}"
        self.run(
            keys,
            names,
            lambda source: f"INSERT INTO {self._into} SELECT {read} FROM {rows} AS c, {source} WHERE {found}",
        )

    def _apply_slice(self, changes: Sequence[TableChanges]) -> None:
        versions = joined([_stated(change.versions, ("from", "to"), change) for change in changes])
        ended = joined([_stated(change.ended, ("to",), change) for change in changes])
        unset = [name for name in versions.schema.names if name.startswith("u")] if versions is not None else []
        if unset:
            self._complete(versions, unset)
        over = 0 if ended is None else self._end_those(ended)
        truncated = next((c for c in changes if c.truncated_end), None)
        if truncated is not None:
            self._end_all(truncated)
        begun = 0 if versions is None else self._insert(versions, prepared=bool(unset))
        wanted = [sum(change.staged.get(name, 0) for change in changes) for name in ("begin", "end")]
        if [begun, over] != wanted:
            detail = f"{wanted[0]} versions were to begin and {wanted[1]} to end; the target reports {begun} and {over}"
            raise EngineFault(FaultKind.LEDGER_UNBALANCED, self.table, detail)

    def _complete(self, versions: Any, unset: Sequence[str]) -> None:
        """Create the temporary table of versions whose unset columns have the values of the current version."""
        names = [*self._keys, *self._columns, *unset, *STAGED]
        on = self.on_staged_key("t")
        needed = " OR ".join(f"coalesce(s.{name}, false)" for name in unset)
        lost = f"({needed}) AND t.{self.names[self.key[0]]} IS NULL AS lost"
        read = ", ".join([*self.completed(versions), *(f"s.{name}" for name in STAGED), lost])
        there = f"LEFT JOIN {self.place} AS t ON {on} AND {_current('t')}"
        self.run(versions, names, lambda source: f"{self.create} SELECT {read} FROM {source} {there}")
        if self.execute(f"DELETE FROM {self.temporary} WHERE lost"):
            raise self._anomaly("rows to complete have no current version")

    def _end_those(self, ended: Any) -> int:
        """End the versions that are there for certain, and those that may be there; returns the number of the former."""
        if OPTIONAL not in ended.schema.names:
            return self._end_all_of(ended)
        optional = pc.fill_null(ended.column(OPTIONAL), False)
        self._end(ended.filter(optional))
        certain = ended.filter(pc.invert(optional))
        return self._end_all_of(certain) if certain.num_rows else 0

    def _end_all_of(self, ended: Any) -> int:
        found = self._end(ended)
        if found != ended.num_rows:
            raise self._anomaly(f"{ended.num_rows} versions to end, of which the history has {found}")
        return found

    def _end(self, ended: Any) -> int:
        """End the current versions of these keys; returns their number. One that began with the same transaction is void: slices of a large
        transaction are applied one after another."""
        names = [*self._keys, TO_AT, TO_TEXT]
        on = f"{self.on_staged_key('t')} AND {_current('t')}"
        void = f"t.{_FROM_POSITION} = s.{TO_TEXT}"
        delete, update = f"DELETE FROM {self.place} AS t", f"UPDATE {self.place} AS t"
        ending = _ending(f"s.{TO_AT}", f"s.{TO_TEXT}")
        found = self.run(ended, names, lambda source: f"{delete} USING {source} WHERE {on} AND {void}")
        return found + self.run(ended, names, lambda source: f"{update} SET {ending} FROM {source} WHERE {on}")

    def _end_all(self, truncated: TableChanges) -> None:
        """End all current versions with the TRUNCATE."""
        end = truncated.commit_end or truncated.truncated_end
        at, position = moment(truncated.commit_us or truncated.truncated_us), f"'{Lsn(end)}'"
        self.execute(f"DELETE FROM {self.place} AS t WHERE {_current('t')} AND t.{_FROM_POSITION} = {position}")
        self.execute(f"UPDATE {self.place} AS t SET {_ending(at, position)} WHERE {_current('t')}")

    def _insert(self, versions: Any, *, prepared: bool) -> int:
        times = [f"s.{name}" for name in (FROM_AT, TO_AT, FROM_TEXT, TO_TEXT)]
        if prepared:
            read = ", ".join([*(f"s.{name}" for name in self._columns), *times])
            found = self.execute(f"INSERT INTO {self._into} SELECT {read} FROM {self.temporary} AS s")
            self.execute(f"DROP TABLE {self.temporary}")
            return found
        read = ", ".join([*(self.value(name, i) for i, name in enumerate(self._columns)), *times])
        names = [*self._columns, *STAGED]
        return self.run(versions, names, lambda source: f"INSERT INTO {self._into} SELECT {read} FROM {source}")

    @property
    def _into(self) -> str:
        return f"{self.place} ({', '.join([*self.names, *map(quoted, HISTORY_COLUMNS)])})"

    @property
    def _columns(self) -> list[str]:
        return [f"c{i}" for i in range(len(self.names))]

    @property
    def _keys(self) -> list[str]:
        return [f"k{j}" for j in range(len(self.key))]

    def on_staged_key(self, alias: str) -> str:
        """SQL condition: a row has the key k0 … km of the staged row `s`."""
        return " AND ".join(f"{alias}.{self.names[i]} = {self.value(f'k{j}', i)}" for j, i in enumerate(self.key))

    def _same_key(self, alias: str) -> str:
        """SQL condition: a row has the key of the version `t`."""
        return " AND ".join(f"{alias}.{self.names[i]} = t.{self.names[i]}" for i in self.key)

    def _anomaly(self, detail: str) -> EngineFault:
        return EngineFault(FaultKind.NET_CHANGE_ANOMALY, self.table, detail)


def own_columns(time: str, text: str) -> list[str]:
    """Definitions of the columns HISTORY_COLUMNS with these types."""
    kinds = (time, time, text, text)
    return [f"{quoted(name)} {kind}" for name, kind in zip(HISTORY_COLUMNS, kinds, strict=True)]


def _current(alias: str) -> str:
    return f"{alias}.{CURRENT}"


def _ending(at: str, position: str) -> str:
    return f"{_TO} = {at}, {_TO_POSITION} = {position}"


def _stated(staged: Any | None, borders: Sequence[str], change: TableChanges) -> Any | None:
    """The rows with times and positions of these borders (`from`, `to`) in place of numbers."""
    if staged is None:
        return None
    rows = rows_of(staged)
    for border in borders:
        end, us = (rows.column(f"{border}_{name}").combine_chunks() for name in ("end", "us"))
        if change.commit_end:
            there = pc.is_valid(end)
            end = pc.if_else(there, pa.scalar(change.commit_end, pa.uint64()), None)
            us = pc.if_else(there, pa.scalar(change.commit_us, pa.int64()), None)
        rows = rows.drop_columns([f"{border}_end", f"{border}_us"])
        rows = rows.append_column(f"{border}_at", us.cast(pa.timestamp("us", "UTC")))
        rows = rows.append_column(f"{border}_position", _texts(end))
    return rows


def _texts(ends: Any) -> Any:
    """Positions as text; few are different ones."""
    numbers = np.asarray(pc.fill_null(ends, 0))
    different, which = np.unique(numbers, return_inverse=True)
    texts = pa.array([str(Lsn(int(number))) for number in different], pa.string())
    return texts.take(pa.array(which, mask=np.asarray(pc.is_null(ends))))


def followed(table: TableId, old: TableSchema, new: TableSchema) -> Evolution:
    """The change of the history table with which its old versions fit a new copy.

    Raises EngineFault(TABLE_COLUMNS_UNFIT) if they do not.
    """
    pairs = [(before, after) for after, before in carried(table, old, new, "versions in its history", _REMEDY)]
    kept, fresh = {id(before) for before, _ in pairs}, {id(after) for _, after in pairs}
    return Evolution(
        tuple(column for column in old.columns if id(column) not in kept),
        tuple(column for column in new.columns if id(column) not in fresh),
        tuple((before, after) for before, after in pairs if before.name != after.name),
        tuple(after for before, after in pairs if not same_form(before.type, after.type)),
    )
