"""Reads rows of tables that are held, as lines of COPY text. No row passes through Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from engine.duckdb.value_text import quoted
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.schema import TableSchema
from engine.model.source import TableSplit
from engine.records.served_snapshot import Request
from engine.sources.duckdb.catalog import HeldTables, LiveTable, Place, ReadStructure
from engine.sources.duckdb.types import line_of, printed

ERRORS = (duckdb.Error, pa.ArrowException, OSError)
"""What a read of DuckDB raises: through Arrow's stream its errors come as others."""
_BATCH_ROWS = 2_048
"""Rows of a piece, as many as DuckDB reads at once: values may be large."""
_ROW_BYTES, _FIELD_BYTES = 32, 8
"""Bytes that a row and a field are estimated to take in COPY text, where it is not known. Not measured."""


def cut_table(place: Place, schema: TableSchema, table: LiveTable, split_bytes: int) -> list[TableSplit]:
    """Splits of about so many bytes. Raises EngineFault(TABLE_STRUCTURE_CHANGED) if the table is not as the schema says: the statement
    prints values by their types."""
    structure = table.structure
    columns = tuple((int(column.attnum), column.on_source) for column in schema.columns)
    if not set(columns) <= structure.numbered:
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(schema.name), "the table was changed")
    by_name = {column.name: column for column in structure.columns}
    names = [name for _, name in columns]
    fields = [printed(f"t.{quoted(name)}", by_name[name].kind, key=name in structure.key) for name in names]
    masks = tuple((place, column.mask) for place, column in enumerate(schema.columns) if column.mask is not None)
    size = max(table.bytes, table.rows * (_ROW_BYTES + _FIELD_BYTES * len(names)))
    wanted = max(1, -(-size // max(1, split_bytes)))
    conditions = place.parts_of(table, wanted)
    return [
        TableSplit(
            RelationId(schema.relation),
            line_of(fields, f"FROM {place.rows_of(structure)} AS t{f' WHERE {condition}' if condition else ''}"),
            size // len(conditions),
            table.rows // len(conditions),
            reads=schema.name,
            columns=columns,
            masks=masks,
        )
        for condition in conditions
    ]


def held_lines(place: Place, held: HeldTables, request: Request) -> Iterator[bytes]:
    """The lines of a split of tables that are held, in pieces of whole lines.

    Raises EngineFault: TABLE_MISSING, TABLE_STRUCTURE_CHANGED if the table is another one than the split was cut of, TABLE_KEY_NOT_UNIQUE
    before the first line, COPY_LOST, and others.
    """
    table = held.table(TableName(request.schema, request.table))
    if table is None:
        raise EngineFault(FaultKind.TABLE_MISSING, request.subject, "the table is gone")
    if table.problem is not None:
        held.check(table, request.subject)
        raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, request.subject, table.problem)
    if not set(request.columns) <= table.structure.numbered:
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, request.subject, "the table was changed")
    try:
        held.provide(table)
        if table.structure.declared:
            _check_key(place, held, table.structure, request.subject)
        reader = held.connection.sql(request.sql).to_arrow_reader(_BATCH_ROWS)
        for batch in reader:
            if batch.num_rows:
                yield _text(batch.column(0))
    except ERRORS as error:
        held.check(table, request.subject)
        raise held.fault(error, request.subject) from error
    held.check(table, request.subject)


def _check_key(place: Place, held: HeldTables, structure: ReadStructure, subject: str) -> None:
    """Raise EngineFault(TABLE_KEY_NOT_UNIQUE) if the declared key does not identify rows by its text."""
    kinds = {column.name: column.kind for column in structure.columns}
    names = [f"t.{quoted(name)}" for name in structure.key]
    fields = ", ".join(printed(x, kinds[name], key=True) for x, name in zip(names, structure.key, strict=True))
    missing = " OR ".join(f"{x} IS NULL" for x in names)
    rows = f"FROM {place.rows_of(structure)} AS t"
    query = (
        f"SELECT (SELECT count(*) {rows} WHERE {missing}),"
        f" (SELECT count(*) FROM (SELECT 1 {rows} GROUP BY {fields} HAVING count(*) > 1))"
    )
    without, twice = held.connection.execute(query).fetchall()[0]
    key = ", ".join(structure.key)
    if twice:
        raise EngineFault(
            FaultKind.TABLE_KEY_NOT_UNIQUE, subject, f"several rows have the same {key}: {twice} values of it"
        )
    if without:
        raise EngineFault(FaultKind.TABLE_KEY_NOT_UNIQUE, subject, f"{key} is NULL in {without} rows")


def _text(lines: Any) -> bytes:
    """The lines of an Arrow array of blobs."""
    _, borders, data = lines.buffers()
    width = np.int64 if pa.types.is_large_binary(lines.type) else np.int32
    offsets = np.frombuffer(borders, width)[lines.offset : lines.offset + len(lines) + 1]
    return bytes(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
