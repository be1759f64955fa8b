"""Rows on their way into a statement: as array parameters where they are few, through COPY into a temporary table where many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import pyarrow as pa

from engine.model.values import ValueType
from engine.postgres.sessions import PostgresConnection
from engine.targets.postgres.identifiers import quoted
from engine.targets.text import array_literal, csv_blocks

COPY_ABOVE_ROWS = 2_000
"""Rows above which a temporary table is worth its cost, where that was not measured; and so many travel as arrays at a time."""
MOST_ARRAY_BYTES = 32 * 1024 * 1024
"""Rows of more bytes never travel as arrays: a parameter is held whole by both sides, and may have 1 GB."""
LEAST_COPIED = SORTED_FROM_ROWS = 200
"""So few rows travel as arrays, in any order, whatever was measured."""
_STAGE = "__penstock_stage"
_above: WeakKeyDictionary[PostgresConnection, int] = WeakKeyDictionary()
_wondering: WeakSet[PostgresConnection] = WeakSet()


@dataclass(frozen=True, slots=True)
class StagedColumn:
    """A column of staged rows: its name there, how it is held, and the type it is read as."""

    name: str
    value: ValueType
    type: str

    @property
    def is_array(self) -> bool:
        return self.type.endswith("[]")


@dataclass(frozen=True, slots=True)
class Source:
    """Staged rows as the FROM item `s` of a statement, and the statement's parameters `$1` … `$n`."""

    sql: str
    parameters: tuple[str, ...] = ()


def copy_above(connection: PostgresConnection) -> int:
    """Rows above which they go through a temporary table on this connection."""
    found = _above.get(connection)
    if found is None:
        _wondering.add(connection)
    return COPY_ABOVE_ROWS if found is None else found


def wonders(connection: PostgresConnection) -> bool:
    """Whether a statement had rows enough to ask, and nobody has said what is best on this connection."""
    return connection in _wondering


def set_copy_above(connection: PostgresConnection, rows: int) -> None:
    """From now on, on this connection."""
    _above[connection] = rows
    _wondering.discard(connection)


@contextmanager
def staged(
    connection: PostgresConnection, rows: Any, columns: Sequence[StagedColumn], key: Sequence[StagedColumn] = ()
) -> Iterator[Source]:
    """The columns of a pyarrow.Table for the length of the block. One at a time on a connection, inside a transaction.

    All but few rows come in the order of `key`, so that neighbours in the table are met one behind the other: half the time of an
    update.
    """
    if (rows.num_rows < LEAST_COPIED or rows.num_rows <= copy_above(connection)) and rows.nbytes <= MOST_ARRAY_BYTES:
        yield as_arrays(in_key_order(rows, key) if rows.num_rows >= SORTED_FROM_ROWS else rows, columns)
        return
    yield in_table(connection, _STAGE, rows, columns, key)
    connection.execute(f"DROP TABLE pg_temp.{_STAGE}")


def in_key_order(rows: Any, key: Sequence[StagedColumn]) -> Any:
    """A pyarrow.Table in the order of the key, as far as that can be told here."""
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
    """The columns of a pyarrow.Table in a new temporary table, which is gone when the transaction ends; read in the order of `key`."""
    declared = ", ".join(f"{column.name} {column.type}" for column in columns)
    connection.execute(f"CREATE TEMPORARY TABLE {name} ({declared}) ON COMMIT DROP")
    copy_rows(connection, f"pg_temp.{name}", [c.name for c in columns], rows, columns)
    ordered = f" ORDER BY {', '.join(column.name for column in key)}" if key else ""
    return Source(f"(SELECT * FROM pg_temp.{name}{ordered}) AS s")


def copy_rows(
    connection: PostgresConnection, place: str, into: Sequence[str], rows: Any, columns: Sequence[StagedColumn]
) -> int:
    """COPY the columns of a pyarrow.Table into those of a table; returns the number of rows."""
    listed = ", ".join(map(quoted, into))
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {place} ({listed}) FROM STDIN (FORMAT csv)".encode()) as copy,
    ):
        for block in csv_blocks(rows, [c.name for c in columns], [c.value for c in columns]):
            copy.write(block)
    return int(rows.num_rows)


def as_arrays(rows: Any, columns: Sequence[StagedColumn]) -> Source:
    """An array of arrays would be one of more dimensions, so elements of array columns travel as texts."""
    types = ["pg_catalog.text" if column.is_array else column.type for column in columns]
    arrays = ", ".join(f"${number}::{name}[]" for number, name in enumerate(types, 1))
    names = ", ".join(column.name for column in columns)
    read = ", ".join(f"{c.name}::{c.type} AS {c.name}" if c.is_array else c.name for c in columns)
    sql = f"(SELECT {read} FROM ROWS FROM (unnest({arrays})) AS u({names})) AS s"
    return Source(sql, tuple(array_literal(rows[column.name], column.value) for column in columns))
