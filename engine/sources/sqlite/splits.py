"""Cuts a table into splits for parallel tasks, ranges of its rowid, and reads their rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId
from engine.model.schema import TableSchema
from engine.model.source import TableSplit
from engine.sources.sqlite.catalog import Structure, quoted
from engine.sources.sqlite.types import printed

_PIECE_BYTES = 256 * 1024
"""Least bytes of whole lines that are handed on at once, as for other sources. Not measured."""
_ROW_BYTES = 32
"""Bytes that a row is estimated to take besides its values."""
_SAMPLE = 200
"""Rows from whose sizes the size of a table is estimated. Not measured."""


def read_lines(connection: sqlite3.Connection, query: str) -> Iterator[bytes]:
    """The lines of a split, in pieces of whole lines."""
    lines: list[bytes] = []
    size = 0
    for (line,) in connection.execute(query):
        lines.append(line)
        size += len(line)
        if size >= _PIECE_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    if lines:
        yield b"".join(lines)


def select_lines(schema: TableSchema, table: Structure) -> str:
    """A query for lines of the table `t`, without conditions. Raises EngineFault(TABLE_STRUCTURE_CHANGED) if a column is gone."""
    by_name = {column.name: column for column in table.columns}
    names = [name for _, name in columns_read(schema)]
    if not set(names) <= by_name.keys():
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(schema.name), "a column is gone")
    fields = " || char(9) || ".join(
        printed(f"t.{quoted(column.on_source)}", by_name[column.on_source].kind, key=column.on_source in table.key)
        for column in schema.columns
    )
    return f"SELECT CAST({fields} || char(10) AS BLOB) FROM {quoted(table.name)} AS t"


def columns_read(schema: TableSchema) -> tuple[tuple[int, str], ...]:
    """The columns of the lines, and then those that the row filter reads besides, by number and name."""
    read = [(int(column.attnum), column.on_source) for column in schema.columns]
    filtered = schema.row_filter.columns if schema.row_filter is not None else ()
    return (*read, *(column for column in filtered if column not in read))


def condition(schema: TableSchema) -> str:
    """The row filter in SQL."""
    return f"({schema.row_filter.text})" if schema.row_filter is not None else "(1)"


def cut_table(
    connection: sqlite3.Connection, schema: TableSchema, table: Structure, split_bytes: int
) -> list[TableSplit]:
    """Splits of about so many bytes. Raises EngineFault(TABLE_STRUCTURE_CHANGED) if a column of the schema is gone."""
    query = select_lines(schema, table)
    conditions = [condition(schema)] if schema.row_filter is not None else []
    columns = columns_read(schema)
    masks = tuple((place, column.mask) for place, column in enumerate(schema.columns) if column.mask is not None)
    row_bytes, rows, low, high = estimate(connection, table)
    parts = max(1, -(-rows * row_bytes // max(1, split_bytes))) if table.rowid is not None else 1
    parts = min(parts, max(1, high - low + 1))
    found = []
    for part in range(parts):
        bounds = list(conditions)
        if part:
            bounds.append(f"t.{table.rowid} >= {low + part * (high - low + 1) // parts}")
        if part < parts - 1:
            bounds.append(f"t.{table.rowid} < {low + (part + 1) * (high - low + 1) // parts}")
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
        found.append(
            TableSplit(
                RelationId(schema.relation),
                query + where,
                rows * row_bytes // parts,
                rows // parts,
                reads=schema.name,
                columns=columns,
                masks=masks,
            )
        )
    return found


def estimate(connection: sqlite3.Connection, table: Structure) -> tuple[int, int, int, int]:
    """Bytes of a row, rows, the lowest and the highest rowid. Estimated by the rowids, and by the size of the file."""
    name = quoted(table.name)
    size = " + ".join(f"coalesce(length(CAST({quoted(column.name)} AS BLOB)), 0)" for column in table.columns)
    sampled = connection.execute(f"SELECT avg({size}) FROM (SELECT * FROM {name} LIMIT {_SAMPLE})").fetchone()[0]
    row_bytes = int(sampled or 0) + _ROW_BYTES
    pages = connection.execute("PRAGMA page_count").fetchone()[0] * connection.execute("PRAGMA page_size").fetchone()[0]
    most = 1 + pages // max(1, row_bytes - _ROW_BYTES + 4)
    if table.rowid is None:
        return row_bytes, most if sampled is not None else 0, 0, 0
    low, high = (
        connection.execute(f"SELECT {which}({table.rowid}) FROM {name}").fetchone()[0] or 0 for which in ("min", "max")
    )
    return row_bytes, min(most, high - low + 1) if sampled is not None else 0, low, high
