"""Reads staged rows from their files, combines them, and checks that their types are exact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from engine.model.batch import StagedRows, TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.values import Kind, ValueType
from engine.net.decode import arrow_type

_ROWS_AT_ONCE = 65_536
"""Rows from which collected batches are handed on, so that each insert is worth its fixed cost. Not measured."""
_BYTES_AT_ONCE = 64 * 1024 * 1024
"""The same in bytes: it bounds the memory for large rows. Not measured."""
_TEXTS = (pa.large_string(), pa.string_view())
_ALSO = {Kind.TEXT: _TEXTS, Kind.UUID: _TEXTS, Kind.BYTES: (pa.large_binary(), pa.binary_view())}
"""Forms of the same values that a target takes as well."""


def joined(tables: Sequence[Any | None]) -> Any | None:
    """All buckets' rows as one table, without copying them; None if there are none. Missing `u` columns become NULL."""
    filled = [rows for table in tables if table is not None and (rows := rows_of(table)).num_rows > 0]
    if not filled:
        return None
    return filled[0] if len(filled) == 1 else pa.concat_tables(filled, promote_options="default")


def split(changes: Sequence[TableChanges]) -> tuple[Any | None, Any | None, Any | None]:
    """Keys to delete, rows to replace under an unchanged key, and rows to insert; each like `joined`."""
    deletes, updates, inserts = [], [], []
    for one in changes:
        if one.deletes is not None:
            deletes.append(rows_of(one.deletes).slice(one.paired))
        if one.inserts is not None:
            rows = rows_of(one.inserts)
            updates.append(rows.slice(0, one.paired))
            inserts.append(rows.slice(one.paired))
    return joined(deletes), joined(updates), joined(inserts)


def in_chunks(batches: Iterable[Any]) -> Iterator[Any]:
    """Combines small record batches, so that each insert is worth its fixed cost."""
    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(waiting)


def refuse_faults(table: TableId, changes: Sequence[TableChanges]) -> None:
    """Raise the fault that was found when a table's changes were netted."""
    for bucket in changes:
        if bucket.fault is not None:
            raise EngineFault(FaultKind(bucket.fault.code), table, bucket.fault.detail)


def require_form(table: TableId, rows: Any, names: Sequence[str], values: Sequence[ValueType]) -> None:
    """Check that staged columns have exactly the form of their type; otherwise the target would convert them silently."""
    for name, value in zip(names, values, strict=True):
        at = rows.schema.get_field_index(name)
        if at < 0 or not _fits(rows.schema.field(at).type, value):
            found = "is missing" if at < 0 else f"is staged as {rows.schema.field(at).type}"
            raise EngineFault(FaultKind.INTERNAL, table, f"column {name} {found}, where {value.kind} is expected")


def rows_of(table: Any) -> Any:
    """The rows themselves, or mapped from their file, whose pages stay in memory only as long as the rows are used."""
    if not isinstance(table, StagedRows):
        return table
    try:
        with pa.memory_map(table.path, "r") as file:
            file.seek(table.offset)
            return pa.ipc.open_stream(file.read_buffer(table.size)).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise EngineFault(FaultKind.SPARK_FAILED, table.path, "a staged result cannot be read") from error


def _fits(arrow: Any, value: ValueType) -> bool:
    if value.element is not None:
        is_list = pa.types.is_list(arrow) or pa.types.is_large_list(arrow)
        return is_list and _fits(arrow.value_type, value.element)
    return arrow == arrow_type(value) or arrow in _ALSO.get(value.kind, ())
