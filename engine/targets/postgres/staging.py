"""Passes rows to a statement: few as array parameters, many by COPY into a temporary table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import pyarrow as pa

from engine.model.values import ValueType
from engine.postgres.sessions import PostgresConnection
from engine.targets.identifiers import quoted
from engine.targets.text import array_literal, csv_blocks

COPY_ABOVE_ROWS = 2_000
"""Default number of rows above which a temporary table is worth its cost; also the most rows per array parameter."""
MOST_ARRAY_BYTES = 32 * 1024 * 1024
"""Rows with more bytes are never passed as arrays: both sides hold a parameter in memory, and its limit is 1 GB."""
LEAST_COPIED = SORTED_FROM_ROWS = 200
"""This many rows are always passed as arrays, in any order."""
_STAGE = "__penstock_stage"
_above: WeakKeyDictionary[PostgresConnection, int] = WeakKeyDictionary()
_unmeasured: WeakSet[PostgresConnection] = WeakSet()


@dataclass(frozen=True, slots=True)
class StagedColumn:
    """A column of staged rows: its name, how it is stored, and the type as which it is read."""

    name: str
    value: ValueType
    type: str

    @property
    def is_array(self) -> bool:
        return self.type.endswith("[]")


@dataclass(frozen=True, slots=True)
class Source:
    """Staged rows as the FROM item `s` of a statement, and its parameters `$1` … `$n`."""

    sql: str
    parameters: tuple[str, ...] = ()


def copy_above(connection: PostgresConnection) -> int:
    """Number of rows above which a temporary table is used on this connection."""
    found = _above.get(connection)
    if found is None:
        _unmeasured.add(connection)
    return COPY_ABOVE_ROWS if found is None else found


def needs_measurement(connection: PostgresConnection) -> bool:
    """Whether a statement had enough rows for the choice to matter, and the threshold was not measured on this connection."""
    return connection in _unmeasured


def set_copy_above(connection: PostgresConnection, rows: int) -> None:
    """Set the threshold of this connection."""
    _above[connection] = rows
    _unmeasured.discard(connection)


@contextmanager
def staged(
    connection: PostgresConnection, rows: Any, columns: Sequence[StagedColumn], key: Sequence[StagedColumn] = ()
) -> Iterator[Source]:
    """The columns of a pyarrow.Table, for the duration of the block. One at a time on a connection, within a transaction.

    All but few rows are ordered by `key`, so that neighbouring rows of the table are accessed one after the other, which halves the time
    of an update.
    """
    if (rows.num_rows < LEAST_COPIED or rows.num_rows <= copy_above(connection)) and rows.nbytes <= MOST_ARRAY_BYTES:
        yield as_arrays(in_key_order(rows, key) if rows.num_rows >= SORTED_FROM_ROWS else rows, columns)
        return
    yield in_table(connection, _STAGE, rows, columns, key)
    connection.execute(f"DROP TABLE pg_temp.{_STAGE}")


def in_key_order(rows: Any, key: Sequence[StagedColumn]) -> Any:
    """A pyarrow.Table in key order, as far as it can be determined here."""
    order = [(column.name, "ascending") for column in key if column.value.element is None]
    try:
        return rows.sort_by(order) if order else rows
    except pa.ArrowNotImplementedError:
        return rows


def in_table(
    connection: PostgresConnection,
    name: str,
    rows: Any,
    columns: Sequence[StagedColumn],
    key: Sequence[StagedColumn],
) -> Source:
    """The columns of a pyarrow.Table in a new temporary table, dropped at the end of the transaction; to be read in the order of
    `key`."""
    declared = ", ".join(f"{column.name} {column.type}" for column in columns)
    connection.execute(f"CREATE TEMPORARY TABLE {name} ({declared}) ON COMMIT DROP")
    copy_rows(connection, f"pg_temp.{name}", [c.name for c in columns], rows, columns)
    ordered = f" ORDER BY {', '.join(column.name for column in key)}" if key else ""
    return Source(f"(SELECT * FROM pg_temp.{name}{ordered}) AS s")


def copy_rows(
    connection: PostgresConnection, place: str, into: Sequence[str], rows: Any, columns: Sequence[StagedColumn]
) -> int:
    """COPY the columns of a pyarrow.Table into those of a table; returns the number of rows that the server reports."""
    listed = ", ".join(map(quoted, into))
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY {place} ({listed}) FROM STDIN (FORMAT csv)".encode()) as copy:
            for block in csv_blocks(rows, [c.name for c in columns], [c.value for c in columns]):
                copy.write(block)
        return cursor.rowcount


def as_arrays(rows: Any, columns: Sequence[StagedColumn]) -> Source:
    """Elements of array columns are passed as texts, since an array of arrays would be multidimensional."""
    types = ["pg_catalog.text" if column.is_array else column.type for column in columns]
    arrays = ", ".join(f"${number}::{name}[]" for number, name in enumerate(types, 1))
    names = ", ".join(column.name for column in columns)
    read = ", ".join(f"{c.name}::{c.type} AS {c.name}" if c.is_array else c.name for c in columns)
    sql = f"(SELECT {read} FROM ROWS FROM (unnest({arrays})) AS u({names})) AS s"
    return Source(sql, tuple(array_literal(rows[column.name], column.value) for column in columns))
