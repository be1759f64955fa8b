"""Applies the net changes of one table within the caller's transaction."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from engine.model.batch import TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.partitions import PartitionRows
from engine.model.schema import KeyMode, TableSchema
from engine.model.values import Kind, ValueType, value_type
from engine.targets.arrow_rows import joined, refuse_faults, require_form
from engine.targets.duckdb.identifiers import folded
from engine.targets.duckdb.key_index import KeyedTable, KeyIndex
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.duckdb.types import equal_means_identical, staged_as
from engine.targets.identifiers import quoted
from engine.targets.partition_rows import condition
from engine.targets.rows_written import RowsWritten
from engine.targets.soft_delete import (
    MARK,
    any_doubtful,
    live,
    make_room_statement,
    replaces,
    superseded,
    tombstones_of,
    truncated_at,
    void,
)
from engine.targets.target_metadata import behind

_COMPLETED = "__penstock_completed"
_TOMBSTONES = "__penstock_tombstones"
_ASIDE = "__penstock_aside"


@dataclass(frozen=True, slots=True)
class Place:
    """A table to apply changes to: its full quoted name and its current schema."""

    table: TableId
    qualified: str
    schema: TableSchema

    @property
    def columns(self) -> list[str]:
        return [quoted(column.name) for column in self.schema.columns]

    @property
    def values(self) -> list[ValueType]:
        return [value_type(column) for column in self.schema.columns]

    @property
    def key(self) -> list[int]:
        """Positions of the key columns, in key order."""
        names = [column.name for column in self.schema.columns]
        return [names.index(name) for name in self.schema.key]


def apply_changes(
    connection: StagingConnection, place: Place, changes: Sequence[TableChanges], index: KeyIndex | None = None
) -> RowsWritten:
    """Apply the slices in order; returns what DuckDB reports as written. `index`: of the tables of this connection.

    Raises EngineFault(NET_CHANGE_ANOMALY) if an expected row is missing.
    """
    refuse_faults(place.table, changes)
    pieces = sorted({c.piece for c in changes})
    written = RowsWritten()
    for piece in pieces:
        written += _apply_piece(connection, place, [c for c in changes if c.piece == piece], index)
        if index is not None:
            index.note_changes(place.qualified)
    return written


def _apply_piece(
    connection: StagingConnection, place: Place, changes: Sequence[TableChanges], index: KeyIndex | None
) -> RowsWritten:
    """Apply one slice. Partial rows are read before any delete, and all deletes precede all inserts, across buckets."""
    partials = joined([c.partials for c in changes])
    deletes = joined([c.deletes for c in changes])
    inserts = joined([c.inserts for c in changes])
    inserted = deleted = marked = 0
    if partials is not None:
        _complete(connection, place, partials, index)
    if place.schema.soft_delete:
        deleted, marked = _mark(connection, place, changes, deletes, index)
    elif any(c.truncated for c in changes):
        if deletes is not None:
            raise _anomaly(place, "rows to delete after the table was cleared")
        connection.execute(f"DELETE FROM {place.qualified}")
    elif deletes is not None:
        deleted = _delete(connection, place, deletes, index)
    if not place.schema.soft_delete:
        _remove_replaced(connection, place, changes)
    if replaces(place.schema):
        _make_room(connection, place, inserts, f"temp.{_COMPLETED}" if partials is not None else None)
    if inserts is not None:
        inserted = insert_rows(connection, place, inserts)
    if partials is not None:
        sql = f"INSERT INTO {place.qualified} ({', '.join(place.columns)}) FROM temp.{_COMPLETED}"
        inserted += int(connection.execute(sql).fetchall()[0][0])
        connection.execute(f"DROP TABLE temp.{_COMPLETED}")
    return RowsWritten(inserted, deleted, marked)


def _mark(
    connection: StagingConnection,
    place: Place,
    changes: Sequence[TableChanges],
    deletes: Any | None,
    index: KeyIndex | None,
) -> tuple[int, int]:
    """Remove the rows that are deleted or replaced, and write those that stay as deleted; returns the numbers of both. A deleted row
    that is void, or that a later one replaces at once, counts as written."""
    tombstones, truncated = tombstones_of(changes), truncated_at(changes)
    deleted = marked = 0
    if tombstones is not None:
        _complete_tombstones(connection, place, tombstones)
        if not all(equal_means_identical(place.values[i]) for i in place.key):
            sql = superseded(f"temp.{_TOMBSTONES}", [f"c{i}" for i in place.key])
            marked = int(connection.execute(sql).fetchall()[0][0])
    if deletes is not None:
        deleted = _delete(connection, place, deletes, index)
    _remove_replaced(connection, place, changes)
    if tombstones is not None and any_doubtful(tombstones):
        sql = void(f"temp.{_TOMBSTONES}", place.qualified, [(f"c{i}", place.columns[i]) for i in place.key])
        marked += int(connection.execute(sql).fetchall()[0][0])
    if truncated is not None:
        connection.execute(f"UPDATE {place.qualified} SET {MARK} = {truncated} WHERE {MARK} IS NULL")
    if tombstones is not None:
        _make_room(connection, place, None, f"temp.{_TOMBSTONES}")
        read = ", ".join([*(f"s.c{i}" for i in range(len(place.columns))), "s.at"])
        sql = f"INSERT INTO {place.qualified} ({', '.join([*place.columns, MARK])}) SELECT {read} FROM temp.{_TOMBSTONES} AS s"
        marked += int(connection.execute(sql).fetchall()[0][0])
        connection.execute(f"DROP TABLE temp.{_TOMBSTONES}")
    return deleted, marked


def _remove_replaced(connection: StagingConnection, place: Place, changes: Sequence[TableChanges]) -> None:
    """Remove the rows from before the slice with keys to which others came. It is not known how many there are."""
    replaced = joined([c.replaced for c in changes])
    if replaced is not None:
        delete_keys(connection, place, replaced)


def _make_room(connection: StagingConnection, place: Place, inserts: Any | None, prepared: str | None) -> None:
    """Remove the deleted rows whose keys are inserted. `prepared`: a table with columns c0 … cn."""
    if inserts is not None:
        keys = [(place.columns[i], staged_as(f"s.c{i}", place.values[i])) for i in place.key]
        with connection.staged(inserts.select([f"c{i}" for i in place.key])) as source:
            connection.execute(make_room_statement(place.qualified, place.schema, keys, f"{source} AS s"))
    if prepared is not None:
        keys = [(place.columns[i], f"s.c{i}") for i in place.key]
        connection.execute(make_room_statement(place.qualified, place.schema, keys, f"{prepared} AS s"))


def _complete_tombstones(connection: StagingConnection, place: Place, rows: Any) -> None:
    """Create the temporary table of deleted rows, with the time of deletion last. Those without unset columns need no existing row."""
    unset = [name for name in rows.schema.names if name.startswith("u")]
    with connection.staged(rows) as source:
        joined_rows = f"{source} AS s LEFT JOIN {place.qualified} AS t ON {_on_key(place)}"
        if unset:
            needed = " OR ".join(f"coalesce(s.{name}, false)" for name in unset)
            sql = f"SELECT count(*) FROM {joined_rows} WHERE ({needed}) AND t.{place.columns[place.key[0]]} IS NULL"
            lost = int(connection.execute(sql).fetchall()[0][0])
            if lost:
                raise _anomaly(place, f"{lost} deleted rows are not on the target")
        values = ", ".join([*completed_values(place, rows), "s.at", "s.n", "s.doubtful"])
        connection.execute(f"CREATE TEMP TABLE {_TOMBSTONES} AS SELECT {values} FROM {joined_rows}")


def insert_rows(connection: StagingConnection, place: Place, rows: Any) -> int:
    """Insert staged rows with columns c0 … cn; returns their number."""
    names = [f"c{i}" for i in range(len(place.columns))]
    require_form(place.table, rows, names, place.values)
    staged = ", ".join(staged_as(f"s.{name}", value) for name, value in zip(names, place.values, strict=True))
    with connection.staged(rows) as source:
        sql = f"INSERT INTO {place.qualified} ({', '.join(place.columns)}) SELECT {staged} FROM {source} AS s"
        return int(connection.execute(sql).fetchall()[0][0])


def rows_at(connection: StagingConnection, place: Place, keys: Any) -> Any:
    """The table's rows with these keys (columns k0 … km), as a pyarrow.Table with columns c0 … cn."""
    require_form(place.table, keys, [f"k{j}" for j in range(len(place.key))], [place.values[i] for i in place.key])
    read = ", ".join(
        f"CAST(t.{name} AS VARCHAR) AS c{i}" if value.kind is Kind.UUID else f"t.{name} AS c{i}"
        for i, (name, value) in enumerate(zip(place.columns, place.values, strict=True))
    )
    with connection.staged(keys) as source:
        sql = f"SELECT {read} FROM {place.qualified} AS t JOIN {source} AS s ON {_on_key(place)}"
        return connection.read(sql)


def read_rows(
    connection: StagingConnection, place: Place, keys: Any, columns: Sequence[int], index: KeyIndex | None = None
) -> Any:
    """The current rows, as `model.target.ReadRows`. `index`: as in `apply_changes`."""
    named = [f"k{j}" for j in range(len(place.key))]
    require_form(place.table, keys, named, [place.values[i] for i in place.key])
    read = ", ".join(f"t.{place.columns[i]} AS c{i}" for i in columns)
    found: Any = None
    with closing(
        _searches(index, place, keys.append_column("n", pa.array(range(keys.num_rows), pa.int64())))
    ) as searches:
        for rows, same in searches:
            with connection.staged(rows) as source:
                sql = f"SELECT {read} FROM {source} AS s JOIN {place.qualified} AS t ON {same} ORDER BY s.n"
                found = connection.read(sql)
            if found.num_rows >= keys.num_rows:
                break
    if found.num_rows != keys.num_rows:
        raise _anomaly(place, f"{keys.num_rows} changed rows, of which the target has {found.num_rows}")
    return found


def delete_behind(connection: StagingConnection, place: Place, above: Any) -> int:
    """Delete the rows whose key is above a bound (one row, columns k0 … km); returns their number."""
    keys = place.key[: above.num_columns]
    require_form(place.table, above, [f"k{j}" for j in range(len(keys))], [place.values[i] for i in keys])
    pairs = [(f"t.{place.columns[i]}", staged_as(f"s.k{j}", place.values[i])) for j, i in enumerate(keys)]
    with connection.staged(above) as source:
        sql = f"DELETE FROM {place.qualified} AS t USING {source} AS s WHERE {behind(pairs)}"
        return int(connection.execute(sql).fetchall()[0][0])


def belongs(place: Place, rows: PartitionRows) -> str:
    """SQL condition: whether a row `t` of the table is in these partitions; `b` is the row of `rows.values`."""
    names = {column.name: f"t.{quoted(column.name)}" for column in place.schema.columns}
    return condition(rows, lambda name: names[name], lambda n: staged_as(f"b.v{n}", place.values[rows.columns[n]]))


def identical(left: str, right: str, value: ValueType) -> str:
    """SQL condition: the same value, including NULL or NaN on both sides, but not 0 and -0."""
    equal = f"{left} IS NOT DISTINCT FROM {right}"
    if equal_means_identical(value):
        return equal
    if value.kind is Kind.LIST:
        return f"{equal} AND CAST({left} AS VARCHAR) IS NOT DISTINCT FROM CAST({right} AS VARCHAR)"
    return f"{equal} AND signbit({left}) IS NOT DISTINCT FROM signbit({right})"


def _complete(connection: StagingConnection, place: Place, partials: Any, index: KeyIndex | None) -> None:
    """Create the temporary table of rows whose unset columns have the value of the existing row."""
    values, found = ", ".join(completed_values(place, partials)), 0
    with closing(_searches(index, place, partials)) as searches:
        for rows, same in searches:
            with connection.staged(rows) as source:
                sql = (
                    f"CREATE OR REPLACE TEMP TABLE {_COMPLETED} AS SELECT {values}"
                    f" FROM {source} AS s JOIN {place.qualified} AS t ON {same}"
                )
                found = int(connection.execute(sql).fetchall()[0][0])
            if found >= partials.num_rows:
                break
    if found != partials.num_rows:
        raise _anomaly(place, f"{partials.num_rows} changed rows, of which the target has {found}")


def completed_values(place: Place, rows: Any) -> list[str]:
    """Expressions for c0 … cn: of the row `s`, or if it is unset there, of the existing row `t`."""
    columns = [f"c{i}" for i in range(len(place.columns))]
    keys = [f"k{j}" for j in range(len(place.key))]
    require_form(place.table, rows, columns + keys, place.values + [place.values[i] for i in place.key])
    present = set(rows.schema.names)
    parts = []
    for i, (name, value) in enumerate(zip(place.columns, place.values, strict=True)):
        given = staged_as(f"s.c{i}", value)
        expression = f"CASE WHEN s.u{i} THEN t.{name} ELSE {given} END" if f"u{i}" in present else given
        parts.append(f"{expression} AS c{i}")
    return parts


def _delete(connection: StagingConnection, place: Place, deletes: Any, index: KeyIndex | None) -> int:
    """Delete the rows; returns the number of staged deletes whose rows DuckDB found."""
    if place.schema.mode is KeyMode.BAG:
        return _delete_copies(connection, place, deletes)
    if not place.key:
        raise _anomaly(place, "deletes of a table that has no key")
    _require_keys(place, deletes)
    found = 0
    with closing(_searches(index, place, deletes)) as searches:
        for rows, same in searches:
            found += _delete_rows(connection, place, rows, same)
            if found >= deletes.num_rows:
                break
    if found != deletes.num_rows:
        raise _anomaly(place, f"{deletes.num_rows} rows to delete or replace, of which the target has {found}")
    return found


def _searches(index: KeyIndex | None, place: Place, rows: Any) -> Generator[tuple[Any, str]]:
    """Staged rows with the condition on them, `s`, and rows of the table, `t`, until the caller has found all: by numbers of rows where the
    index has them, and in the whole table. To be closed, as searches are timed."""
    on_key = _on_key(place)
    if index is None or any(folded(column.name) == "rowid" for column in place.schema.columns):
        yield rows, on_key
        return
    names = ", ".join(f"t.{place.columns[i]}" for i in place.key)
    staged = ", ".join(staged_as(f"s.k{j}", place.values[i]) for j, i in enumerate(place.key))
    table = KeyedTable(place.qualified, f"hash({names})", f"hash({staged})")
    for located in index.attempts(table, rows):
        # DuckDB compares keys for all rows of the row groups that it reads, unless the comparison is within an expression.
        yield located, f"t.rowid = s.r AND coalesce({on_key}, false)"
    with index.searching(table, rows.num_rows):
        yield rows, on_key


def delete_keys(connection: StagingConnection, place: Place, keys: Any) -> int:
    """Delete the rows with these keys (columns k0 … km); returns their number."""
    _require_keys(place, keys)
    return _delete_rows(connection, place, keys, _on_key(place))


def _require_keys(place: Place, keys: Any) -> None:
    require_form(place.table, keys, [f"k{j}" for j in range(len(place.key))], [place.values[i] for i in place.key])


def _delete_rows(connection: StagingConnection, place: Place, staged: Any, same: str) -> int:
    with connection.staged(staged) as source:
        sql = f"DELETE FROM {place.qualified} AS t USING {source} AS s WHERE {same}"
        return int(connection.execute(sql).fetchall()[0][0])


def _delete_copies(connection: StagingConnection, place: Place, deletes: Any) -> int:
    """Delete n of the rows identical to each image; which of them does not matter.

    Row numbers are compared with the opposite sign to avoid a DuckDB 2.0.0 bug: its scan skips row numbers outside the range of the other
    side of a join, but incorrectly so after inserts in the same transaction, as by earlier slices: it deletes the wrong rows, finds
    fewer, or crashes. It does not do so for an expression.
    """
    columns = [f"c{i}" for i in range(len(place.columns))]
    require_form(place.table, deletes, columns, place.values)
    wanted = int(pa.compute.sum(deletes["n"]).as_py() or 0)
    hidden = next((c.name for c in place.schema.columns if folded(c.name) == "rowid"), None)
    if hidden is not None:  # a column with this name hides DuckDB's row number
        connection.execute(f"ALTER TABLE {place.qualified} RENAME COLUMN {quoted(hidden)} TO {_ASIDE}")
    names = [_ASIDE if folded(c.name) == "rowid" else quoted(c.name) for c in place.schema.columns]
    matches = " AND ".join(
        identical(f"t.{name}", staged_as(f"s.c{i}", value), value)
        for i, (name, value) in enumerate(zip(names, place.values, strict=True))
    )
    with connection.staged(deletes.append_column("image", pa.array(range(deletes.num_rows), pa.int64()))) as source:
        sql = (
            f"DELETE FROM {place.qualified} WHERE -rowid IN (SELECT -r FROM ("
            f"SELECT t.rowid AS r, s.n AS n, row_number() OVER (PARTITION BY s.image ORDER BY t.rowid) AS nth"
            f" FROM {place.qualified} AS t JOIN {source} AS s ON {matches}) WHERE nth <= n)"
        )
        found = int(connection.execute(sql).fetchall()[0][0])
    if hidden is not None:
        connection.execute(f"ALTER TABLE {place.qualified} RENAME COLUMN {_ASIDE} TO {quoted(hidden)}")
    if found != wanted:
        raise _anomaly(place, f"{wanted} rows to delete, of which the target has {found}")
    return int(deletes.num_rows)


def _on_key(place: Place) -> str:
    """SQL condition: the row `t` has the key of `s` and exists on the source."""
    same = " AND ".join(
        f"t.{place.columns[i]} = {staged_as(f's.k{j}', place.values[i])}" for j, i in enumerate(place.key)
    )
    return same + live(place.schema, "t")


def _anomaly(place: Place, detail: str) -> EngineFault:
    return EngineFault(FaultKind.NET_CHANGE_ANOMALY, place.table, detail)
