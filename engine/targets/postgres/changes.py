"""Applies the net changes of one table within the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from engine.model.batch import TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.partitions import PartitionRows
from engine.model.schema import KeyMode, TableSchema
from engine.model.values import Kind, ValueType, value_type
from engine.postgres.sessions import PostgresConnection
from engine.targets.arrow_rows import joined, refuse_faults, require_form, split
from engine.targets.identifiers import quoted
from engine.targets.partition_rows import condition
from engine.targets.postgres.errors import cause_of
from engine.targets.postgres.plans import JOIN_WHOLE_ROWS
from engine.targets.postgres.staging import (
    COPY_ABOVE_ROWS,
    MOST_ARRAY_BYTES,
    Source,
    StagedColumn,
    copy_rows,
    in_key_order,
    staged,
)
from engine.targets.postgres.types import MARK_TYPE, postgres_type
from engine.targets.quarantined_rows import RefusedByTarget
from engine.targets.rows_written import RowsWritten, require_all_written
from engine.targets.soft_delete import (
    MARK,
    any_doubtful,
    keep_statement,
    live,
    make_room_statement,
    replaces,
    superseded,
    tombstones_of,
    truncated_at,
    void,
)
from engine.targets.target_metadata import behind

_COMPLETED = "pg_temp.__penstock_completed"
_TOMBSTONES = "pg_temp.__penstock_tombstones"
_EXACT = frozenset({Kind.INT16, Kind.INT32, Kind.INT64, Kind.UINT32, Kind.TEXT, Kind.UUID, Kind.DATE, Kind.TIMESTAMPTZ})
"""Kinds of key columns whose values are equal here if and only if they are equal to the server."""
COPY_INTO_ABOVE_ROWS = 500
"""Number of rows above which a table receives them directly by COPY, without a temporary table."""
_BOOL = ValueType(Kind.BOOL)
_COUNT = ValueType(Kind.INT64)
_AT = StagedColumn("at", ValueType(Kind.TIMESTAMPTZ), MARK_TYPE)


@dataclass(frozen=True, slots=True)
class Place:
    """A table to apply changes to: its full quoted name and its current schema."""

    table: TableId
    qualified: str
    schema: TableSchema
    types: tuple[str, ...] = ()
    """Types of the columns, if they differ from those that the schema implies."""
    always: frozenset[int] = frozenset()
    """Positions of GENERATED ALWAYS AS IDENTITY columns: they can be inserted, but not updated."""
    own: frozenset[int] = frozenset()
    """Positions of columns that the table computes: they are never written."""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.schema.columns]

    @property
    def quoted(self) -> list[str]:
        return [quoted(name) for name in self.names]

    @property
    def columns(self) -> list[StagedColumn]:
        """c0 … cn, the columns by position."""
        types = self.types or [postgres_type(column) for column in self.schema.columns]
        return [StagedColumn(f"c{i}", value_type(c), types[i]) for i, c in enumerate(self.schema.columns)]

    @property
    def written(self) -> list[int]:
        """Positions of the written columns."""
        return [i for i in range(len(self.schema.columns)) if i not in self.own]

    @property
    def key(self) -> list[int]:
        """Positions of the key columns, in key order."""
        return [self.names.index(name) for name in self.schema.key]

    @property
    def key_columns(self) -> list[StagedColumn]:
        """k0 … km, the key columns in key order."""
        whole = self.columns
        return [StagedColumn(f"k{j}", whole[i].value, whole[i].type) for j, i in enumerate(self.key)]

    @property
    def row_columns(self) -> list[StagedColumn]:
        """k0 … km, the columns by which a single change finds its row: the key, or all written columns if only whole rows identify a
        row."""
        if self.schema.mode is not KeyMode.BAG:
            return self.key_columns
        whole = self.columns
        return [StagedColumn(f"k{i}", whole[i].value, whole[i].type) for i in self.written]


def apply_changes(
    connection: PostgresConnection,
    place: Place,
    changes: Sequence[TableChanges],
    clear: Callable[[], None],
    *,
    in_place: bool,
) -> RowsWritten:
    """Apply the slices in order; returns what the server reports as written. `clear` removes all rows of the table.

    `in_place`: rows that keep their key are updated. This is cheaper than deleting and inserting them, but values of another unique key
    may conflict temporarily.

    Raises EngineFault(NET_CHANGE_ANOMALY) if an expected row is missing.
    """
    refuse_faults(place.table, changes)
    written = RowsWritten()
    for piece in sorted({c.piece for c in changes}):
        of_piece = _replaced(place, [c for c in changes if c.piece == piece], in_place=in_place)
        written += _apply_piece(connection, place, of_piece, clear)
    return written


def _replaced(place: Place, changes: Sequence[TableChanges], *, in_place: bool) -> list[TableChanges]:
    """The slices, with rows that keep their key as deletes and inserts if they cannot be updated."""
    if in_place and not set(place.written) <= set(place.key) and place.always <= set(place.key):
        return list(changes)
    return [replace(c, paired=0) for c in changes]


def _apply_piece(
    connection: PostgresConnection, place: Place, changes: Sequence[TableChanges], clear: Callable[[], None]
) -> RowsWritten:
    """Apply one slice. Partial rows are read before any delete, and all deletes precede all inserts, across buckets."""
    partials = joined([c.partials for c in changes])
    deletes, updates, inserts = split(changes)
    inserted = deleted = updated = marked = 0
    if partials is not None:
        _complete(connection, place, partials)
    if place.schema.soft_delete:
        deleted, marked = _mark(connection, place, changes, deletes)
    elif any(c.truncated for c in changes):
        if deletes is not None or updates is not None:
            raise _anomaly(place, "rows to delete after the table was cleared")
        clear()
    elif deletes is not None:
        deleted = _delete(connection, place, deletes)
    if not place.schema.soft_delete:
        _remove_replaced(connection, place, changes)
    if replaces(place.schema):
        _make_room(connection, place, inserts, _COMPLETED if partials is not None else None)
    if updates is not None:
        updated = _update(connection, place, updates)
    if inserts is not None:
        inserted = insert_rows(connection, place, inserts)
    if partials is not None:
        into, read = ", ".join(place.quoted[i] for i in place.written), ", ".join(f"c{i}" for i in place.written)
        sql = f"INSERT INTO {place.qualified} ({into}) OVERRIDING SYSTEM VALUE SELECT {read} FROM {_COMPLETED}"
        inserted += connection.execute(sql.encode()).rowcount
        connection.execute(f"DROP TABLE {_COMPLETED}")
    if place.types:
        # Triggers of its owner may skip rows of the table; it is not counted what they leave.
        inserted = sum(rows.num_rows for rows in (inserts, partials) if rows is not None)
    return RowsWritten(inserted + updated, deleted + updated, marked)


def _mark(
    connection: PostgresConnection, place: Place, changes: Sequence[TableChanges], deletes: Any | None
) -> tuple[int, int]:
    """Remove the rows that are deleted or replaced, and write those that stay as deleted; returns the numbers of both. A deleted row
    that is void, or that a later one replaces at once, counts as written."""
    tombstones, truncated = tombstones_of(changes), truncated_at(changes)
    deleted = marked = 0
    if tombstones is not None:
        _complete_tombstones(connection, place, tombstones)
        if any(column.value.kind not in _EXACT for column in place.key_columns):
            sql = superseded(_TOMBSTONES, [f"c{i}" for i in place.key])
            marked = connection.execute(sql.encode()).rowcount
    if deletes is not None:
        deleted = _delete(connection, place, deletes)
    _remove_replaced(connection, place, changes)
    if tombstones is not None and any_doubtful(tombstones):
        sql = void(_TOMBSTONES, place.qualified, [(f"c{i}", place.quoted[i]) for i in place.key])
        marked += connection.execute(sql.encode()).rowcount
    if truncated is not None:
        connection.execute(f"UPDATE {place.qualified} SET {MARK} = {truncated} WHERE {MARK} IS NULL".encode())
    if tombstones is not None:
        _make_room(connection, place, None, _TOMBSTONES)
        columns, read = ", ".join([*place.quoted, MARK]), ", ".join([*(c.name for c in place.columns), "at"])
        sql = f"INSERT INTO {place.qualified} ({columns}) SELECT {read} FROM {_TOMBSTONES}"
        marked += connection.execute(sql.encode()).rowcount
        connection.execute(f"DROP TABLE {_TOMBSTONES}")
    return deleted, marked


def _remove_replaced(connection: PostgresConnection, place: Place, changes: Sequence[TableChanges]) -> None:
    """Remove the rows from before the slice with keys to which others came. It is not known how many there are."""
    replaced = joined([c.replaced for c in changes])
    if replaced is not None:
        delete_keys(connection, place, replaced)


def _make_room(connection: PostgresConnection, place: Place, inserts: Any | None, prepared: str | None) -> None:
    """Remove the deleted rows whose keys are inserted. `prepared`: a table with columns c0 … cn."""
    keys = [(place.quoted[i], f"s.c{i}") for i in place.key]
    if inserts is not None:
        key = [place.columns[i] for i in place.key]
        with staged(connection, inserts.select([c.name for c in key]), key, key) as source:
            _run(connection, make_room_statement(place.qualified, place.schema, keys, source.sql), source)
    if prepared is not None:
        connection.execute(make_room_statement(place.qualified, place.schema, keys, f"{prepared} AS s").encode())


def _complete_tombstones(connection: PostgresConnection, place: Place, rows: Any) -> None:
    """Create the temporary table of deleted rows, with the time of deletion last. Those without unset columns need no existing row."""
    columns, parts = completed_values(place, rows)
    unset = [c.name for c in columns if c.value is _BOOL]
    needed = " OR ".join(f"coalesce(s.{name}, false)" for name in unset) or "false"
    more = [_AT, StagedColumn("n", _COUNT, "pg_catalog.int8"), StagedColumn("doubtful", _BOOL, "pg_catalog.bool")]
    with staged(connection, rows, [*columns, *more], place.key_columns) as source:
        lost = f"({needed}) AND t.{place.quoted[place.key[0]]} IS NULL AS lost"
        sql = f"CREATE TEMPORARY TABLE {_TOMBSTONES} ON COMMIT DROP AS SELECT {', '.join(parts)}, s.at, s.n, s.doubtful, {lost}"
        _run(connection, f"{sql} FROM {source.sql} LEFT JOIN {place.qualified} AS t ON {_on_key(place)}", source)
    lost_rows = connection.execute(f"SELECT count(*) FROM {_TOMBSTONES} WHERE lost".encode()).fetchall()[0][0]
    if lost_rows:
        raise _anomaly(place, f"{lost_rows} deleted rows are not on the target")


def take_changes(
    connection: PostgresConnection, place: Place, changes: TableChanges, clear: Callable[[], None], most: int
) -> RefusedByTarget:
    """Clear, delete and insert, without the rows that the table rejects; returns those. Other errors raise as in `apply_changes`."""
    if changes.truncated:
        clear()
    if changes.deletes is not None:
        _delete(connection, place, changes.deletes)
    _remove_replaced(connection, place, [changes])
    if replaces(place.schema):
        _make_room(connection, place, changes.inserts, None)
    return [] if changes.inserts is None else insert_but_refused(connection, place, changes.inserts, most)


def insert_but_refused(connection: PostgresConnection, place: Place, rows: Any, most: int) -> RefusedByTarget:
    """Insert rows except those that the table rejects, found by bisection; returns those, and stops if there are more than `most`."""
    refused: RefusedByTarget = []
    waiting = [rows]
    while waiting and len(refused) <= most:
        some = waiting.pop()
        try:
            with connection.transaction():
                insert_rows(connection, place, some)
        except psycopg.Error as error:
            cause = cause_of(error)
            if cause is None:
                raise
            if some.num_rows > 1:
                middle = some.num_rows // 2
                waiting += [some.slice(middle), some.slice(0, middle)]
                continue
            refused.append((some, cause))
    return refused


def texts_at(connection: PostgresConnection, place: Place, keys: Any) -> list[tuple[str | None, ...]]:
    """The table's rows with these keys (columns k0 … km): every column as its text."""
    _require(place, keys, place.key_columns)
    read = ", ".join(f"t.{name}::pg_catalog.text" for name in place.quoted)
    with staged(connection, keys, place.key_columns, place.key_columns) as source:
        sql = f"SELECT {read} FROM {source.sql} JOIN {place.qualified} AS t ON {_on_key(place)}"
        return psycopg.RawCursor(connection).execute(sql.encode(), source.parameters).fetchall()


@dataclass(frozen=True, slots=True)
class Share:
    """Some of a table's rows, divided as by `split`; they can be applied independently of the rest of the batch."""

    place: Place
    deletes: Any | None
    updates: Any | None
    inserts: Any | None

    @property
    def rows(self) -> int:
        return sum(rows.num_rows for rows in (self.deletes, self.updates, self.inserts) if rows is not None)

    @property
    def wanted(self) -> RowsWritten:
        """What the server has to report."""
        deletes, updates, inserts = (
            0 if rows is None else rows.num_rows for rows in (self.deletes, self.updates, self.inserts)
        )
        return RowsWritten(inserts + updates, deletes + updates)


def shares(place: Place, changes: Sequence[TableChanges], count: int) -> list[Share]:
    """Divide a table's changes of one slice into this many shares with disjoint keys; neighbouring keys are together as far as possible.

    If one row's old key is another row's new key, all rows that are inserted, deleted or moved are in the first share.
    """
    gone, updated, new = split(_replaced(place, changes, in_place=True))
    keys = [place.columns[i] for i in place.key]
    updates = _parted(updated, keys, count)
    if _may_meet(place, gone, new):
        nothing: list[Any | None] = [None] * (count - 1)
        deletes, inserts = [gone, *nothing], [new, *nothing]
    else:
        deletes, inserts = _parted(gone, place.key_columns, count), _parted(new, keys, count)
    found = [Share(place, *rows) for rows in zip(deletes, updates, inserts, strict=True)]
    require_all_written(place.table, changes, sum((share.wanted for share in found), RowsWritten()))
    return found


def apply_share(connection: PostgresConnection, share: Share) -> RowsWritten:
    """Apply a share without a temporary table; returns what the server reports as written. Raises as `apply_changes`."""
    deleted = sum(_delete(connection, share.place, rows) for rows in _slices(share.deletes))
    updated = sum(_update(connection, share.place, rows) for rows in _slices(share.updates))
    inserted = 0 if share.inserts is None else insert_rows(connection, share.place, share.inserts)
    if share.place.types and share.inserts is not None:
        inserted = share.inserts.num_rows  # As in `_apply_piece`.
    return RowsWritten(inserted + updated, deleted + updated)


def _may_meet(place: Place, deletes: Any | None, inserts: Any | None) -> bool:
    """Whether a key to delete may also be a key to insert."""
    if deletes is None or inserts is None:
        return False
    if any(column.value.kind not in _EXACT for column in place.key_columns):
        return True
    names = [column.name for column in place.key_columns]
    new = inserts.select([f"c{i}" for i in place.key]).rename_columns(names)
    return bool(deletes.select(names).join(new, names, join_type="left semi").num_rows)


def _parted(rows: Any | None, key: Sequence[StagedColumn], count: int) -> list[Any | None]:
    if rows is None:
        return [None] * count
    ordered = in_key_order(rows, key)
    borders = [rows.num_rows * number // count for number in range(count + 1)]
    return [ordered.slice(start, stop - start) if stop > start else None for start, stop in pairwise(borders)]


def _slices(rows: Any | None) -> Iterator[Any]:
    """Slices small enough to be passed as arrays."""
    if rows is not None:
        by_bytes = MOST_ARRAY_BYTES * rows.num_rows // max(rows.nbytes, 1)
        step = max(1, min(COPY_ABOVE_ROWS, by_bytes))
        for start in range(0, rows.num_rows, step):
            yield rows.slice(start, step)


def insert_rows(connection: PostgresConnection, place: Place, rows: Any) -> int:
    """Insert staged rows with columns c0 … cn; returns their number."""
    _require(place, rows, place.columns)
    whole = place.columns
    columns = [whole[i] for i in place.written]
    if rows.num_rows > COPY_INTO_ABOVE_ROWS or rows.nbytes > MOST_ARRAY_BYTES:
        return copy_rows(connection, place.qualified, [place.names[i] for i in place.written], rows, columns)
    with staged(connection, rows, columns) as source:
        into, read = ", ".join(place.quoted[i] for i in place.written), ", ".join(f"s.{c.name}" for c in columns)
        sql = f"INSERT INTO {place.qualified} ({into}) OVERRIDING SYSTEM VALUE SELECT {read}"
        return _run(connection, f"{sql} FROM {source.sql}", source)


def read_rows(connection: PostgresConnection, place: Place, keys: Any, columns: Sequence[int]) -> Any:
    """The current rows, as `model.target.ReadRows`, as text."""
    order = StagedColumn("n", _COUNT, "pg_catalog.int8")
    staged_keys = [*place.key_columns, order]
    rows = keys.append_column("n", pa.array(range(keys.num_rows), pa.int64()))
    _require(place, rows, staged_keys)
    read = ", ".join(f"t.{place.quoted[i]}::pg_catalog.text" for i in columns)
    with staged(connection, rows, staged_keys) as source:
        sql = f"SELECT {read} FROM {source.sql} JOIN {place.qualified} AS t ON {_on_key(place)} ORDER BY s.n"
        found = psycopg.RawCursor(connection).execute(sql.encode(), source.parameters).fetchall()
    if len(found) != keys.num_rows:
        raise _anomaly(place, f"{keys.num_rows} changed rows, of which the target has {len(found)}")
    return pa.table(
        {f"c{i}": pa.array(values, pa.string()) for i, values in zip(columns, zip(*found, strict=True), strict=True)}
    )


def delete_behind(connection: PostgresConnection, place: Place, above: Any) -> int:
    """Delete the rows whose key is above a bound (one row, columns k0 … km); returns their number."""
    columns = place.key_columns[: above.num_columns]
    _require(place, above, columns)
    # Texts are compared by their bytes, whatever the database's collation is.
    in_bytes = [' COLLATE "C"' if c.type.name in {"text", "varchar"} else "" for c in place.schema.key_columns]
    at = zip(place.key, in_bytes, columns, strict=False)
    pairs = [(f"t.{place.quoted[i]}{collate}", f"s.{column.name}") for i, collate, column in at]
    with staged(connection, above, columns) as source:
        return _run(connection, f"DELETE FROM {place.qualified} AS t USING {source.sql} WHERE {behind(pairs)}", source)


def bounds_of(place: Place, rows: PartitionRows) -> list[StagedColumn]:
    """The columns of `rows.values`."""
    own = place.columns
    values = [StagedColumn(f"v{n}", own[i].value, own[i].type) for n, i in enumerate(rows.columns)]
    return [StagedColumn("n", _COUNT, "pg_catalog.int8"), *values]


def belongs(place: Place, rows: PartitionRows, bounds: str) -> str:
    """SQL condition: whether a row `t` of the table is in these partitions; `bounds` is the row of `rows.values`."""
    names = dict(zip(place.names, place.quoted, strict=True))
    return condition(rows, lambda name: f"t.{names[name]}", lambda n: f"{bounds}.v{n}")


def delete_rows(connection: PostgresConnection, place: Place, rows: PartitionRows) -> None:
    """Delete these rows."""
    with staged(connection, rows.values, bounds_of(place, rows)) as source:
        _run(
            connection,
            f"DELETE FROM {place.qualified} AS t USING {source.sql} WHERE {belongs(place, rows, 's')}",
            source,
        )


def keep_rows(
    connection: PostgresConnection, place: Place, copy: tuple[str, TableSchema], rows: PartitionRows, now_us: int
) -> None:
    """Add the deleted ones of these rows to a copy, as SqlTables.keep_deleted. `copy`: its full quoted name, and its schema."""
    with staged(connection, rows.values, bounds_of(place, rows)) as source:
        only = f", {source.sql} WHERE ({belongs(place, rows, 's')})"
        _run(connection, keep_statement(place.table, copy, (place.qualified, place.schema), now_us, only), source)


def image(alias: str, names: Sequence[str]) -> str:
    """SQL: a row as text, equal if all values print equally, including NULL or NaN on both sides, but not 0 and -0."""
    return f'ROW({", ".join(f"{alias}.{name}" for name in names)})::pg_catalog.text COLLATE "C"'


def _complete(connection: PostgresConnection, place: Place, partials: Any) -> None:
    """Create the temporary table of rows whose unset columns have the value of the existing row."""
    columns, parts = completed_values(place, partials)
    with staged(connection, partials, columns, place.key_columns) as source:
        sql = f"CREATE TEMPORARY TABLE {_COMPLETED} ON COMMIT DROP AS SELECT {', '.join(parts)}"
        found = _run(connection, f"{sql} FROM {source.sql} JOIN {place.qualified} AS t ON {_on_key(place)}", source)
    if found != partials.num_rows:
        raise _anomaly(place, f"{partials.num_rows} changed rows, of which the target has {found}")


def completed_values(place: Place, rows: Any) -> tuple[list[StagedColumn], list[str]]:
    """The staged columns, and expressions for c0 … cn: of the row `s`, or if it is unset there, of the existing row `t`."""
    unset = [f"u{i}" for i in range(len(place.columns)) if rows.schema.get_field_index(f"u{i}") >= 0]
    columns = [*place.key_columns, *place.columns, *(StagedColumn(name, _BOOL, "pg_catalog.bool") for name in unset)]
    _require(place, rows, columns)
    parts = [
        f"CASE WHEN s.u{i} THEN t.{name} ELSE s.c{i} END AS c{i}" if f"u{i}" in unset else f"s.c{i}"
        for i, name in enumerate(place.quoted)
    ]
    return columns, parts


def _update(connection: PostgresConnection, place: Place, rows: Any) -> int:
    _require(place, rows, place.columns)
    values = [i for i in place.written if i not in place.key]
    assignments = ", ".join(f"{place.quoted[i]} = s.c{i}" for i in values)
    on_key = " AND ".join(f"t.{place.quoted[i]} = s.c{i}" for i in place.key) + live(place.schema, "t")
    key = [place.columns[i] for i in place.key]
    with staged(connection, rows, place.columns, key) as source:
        sql = f"UPDATE {place.qualified} AS t SET {assignments} FROM {source.sql} WHERE {on_key}"
        found = _run(connection, sql, source)
    if found != rows.num_rows:
        raise _anomaly(place, f"{rows.num_rows} rows to replace, of which the target has {found}")
    return found


def _delete(connection: PostgresConnection, place: Place, deletes: Any) -> int:
    """Delete the rows; returns the number of staged deletes whose rows the server found."""
    if place.schema.mode is KeyMode.BAG:
        return _delete_copies(connection, place, deletes)
    if not place.key:
        raise _anomaly(place, "deletes of a table that has no key")
    found = delete_keys(connection, place, deletes)
    if found != deletes.num_rows:
        raise _anomaly(place, f"{deletes.num_rows} rows to delete or replace, of which the target has {found}")
    return found


def delete_keys(connection: PostgresConnection, place: Place, keys: Any) -> int:
    """Delete the rows with these keys (columns k0 … km); returns their number."""
    _require(place, keys, place.key_columns)
    with staged(connection, keys, place.key_columns, place.key_columns) as source:
        return _run(connection, f"DELETE FROM {place.qualified} AS t USING {source.sql} WHERE {_on_key(place)}", source)


def _delete_copies(connection: PostgresConnection, place: Place, deletes: Any) -> int:
    """Delete n of the rows identical to each image; which of them does not matter."""
    compared = [place.columns[i] for i in place.written]
    columns = [*compared, StagedColumn("n", _COUNT, "pg_catalog.int8")]
    _require(place, deletes, columns)
    wanted = int(pc.sum(deletes["n"]).as_py() or 0)
    connection.execute(JOIN_WHOLE_ROWS)
    given = image("s", [column.name for column in compared])
    same = f"{image('t', [place.quoted[i] for i in place.written])} = {given}"
    with staged(connection, deletes, columns) as source:
        numbered = (
            "SELECT t.tableoid AS part, t.ctid AS at, s.n,"
            f" row_number() OVER (PARTITION BY {given} ORDER BY t.ctid) AS nth"
            f" FROM {place.qualified} AS t JOIN {source.sql} ON {same}"
        )
        found = _run(
            connection,
            f"DELETE FROM {place.qualified} AS t USING ({numbered}) AS d"
            " WHERE d.nth <= d.n AND t.ctid = d.at AND t.tableoid = d.part",
            source,
        )
    if found != wanted:
        raise _anomaly(place, f"{wanted} rows to delete, of which the target has {found}")
    return int(deletes.num_rows)


def _run(connection: PostgresConnection, sql: str, source: Source) -> int:
    """Number of affected rows."""
    return psycopg.RawCursor(connection).execute(sql.encode(), source.parameters).rowcount


def _on_key(place: Place) -> str:
    """SQL condition: the row `t` has the key of `s` and exists on the source."""
    return " AND ".join(f"t.{place.quoted[i]} = s.k{j}" for j, i in enumerate(place.key)) + live(place.schema, "t")


def _require(place: Place, rows: Any, columns: Sequence[StagedColumn]) -> None:
    require_form(place.table, rows, [c.name for c in columns], [c.value for c in columns])


def _anomaly(place: Place, detail: str) -> EngineFault:
    return EngineFault(FaultKind.NET_CHANGE_ANOMALY, place.table, detail)
