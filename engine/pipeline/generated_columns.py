"""Generated columns that the log does not contain: the source computes their values for the rows that a batch writes to the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from engine.model.batch import TableChanges, TablePart
from engine.model.change_data import Operation
from engine.model.identity import TableId
from engine.model.schema import Column, KeyMode, TableSchema
from engine.model.target import ReadRows, TableCommit
from engine.model.values import Kind, ValueType, value_type
from engine.net.copy_text import decode_copy_text
from engine.net.decode import arrow_type
from engine.targets.arrow_rows import rows_of
from engine.targets.text import array_literal, as_text

MOST_ROWS, MOST_BYTES = 10_000, 16 * 1024 * 1024
"""Most rows, and bytes of inputs, of one request to the source. A single larger row is requested alone."""
_TEXT = ValueType(Kind.TEXT)
_UPDATE = 2
"""Operation code of an update in `TableChanges.in_order`. Only inserts have a lower code; after higher ones there is no row."""


class Ask(Protocol):
    """`model.source.ComputedColumns.compute`."""

    def __call__(self, table: TableId, columns: Sequence[Column], inputs: Mapping[int, str], rows: int) -> bytes: ...


def with_computed(commit: TableCommit, ask: Ask) -> TableCommit:
    """The commit with its computed columns, if it has changes and the table has such columns; otherwise unchanged.

    The values of changes in order are computed now. Those of net changes are computed by `TableCommit.compute` when the target writes
    them, because they may depend on rows of the target. Raises EngineFault if the source cannot compute them.
    """
    asked = any(column.expression is not None for column in commit.schema.columns)
    if not (asked and commit.changes):
        return commit
    if any(one.in_order is not None for one in commit.changes):
        row = _Row(ask, commit.table, commit.schema)
        return replace(commit, changes=tuple(replace(one, in_order=_each(row, one.in_order)) for one in commit.changes))
    return replace(commit, compute=partial(_compute, ask, commit.table, commit.schema))


def rows_needed(changes: Sequence[TableChanges], parts: Sequence[TablePart]) -> bool:
    """Whether an update in order lacks the value of a column that a computed column depends on.

    Only for net changes can such a value be read from the target.
    """
    asked = {part.table: _inputs(part.versions[-1]) for part in parts if part.versions[0].computed}
    return any(
        one.in_order is not None
        and any(rows_of(one.in_order).schema.get_field_index(f"u{i}") >= 0 for i in asked[one.table])
        for one in changes
        if one.table in asked
    )


def _compute(
    ask: Ask, table: TableId, schema: TableSchema, changes: Sequence[TableChanges], read: ReadRows
) -> list[TableChanges]:
    """The net changes with all computed values. Inputs that the log left out are read from the target's rows by `read`."""
    row = _Row(ask, table, schema)
    return [
        replace(
            one,
            inserts=_whole(row, one.inserts),
            # In a table without a key, rows are deleted by all their values.
            deletes=_whole(row, one.deletes) if schema.mode is KeyMode.BAG else one.deletes,
            partials=_completed(row, one.partials, read),
            tombstones=_of_rows_gone(row, one.tombstones, read),
            versions=_of_rows_gone(row, one.versions, read),
            change_data=_of_changes(row, one.change_data, read),
        )
        for one in changes
    ]


def _each(row: _Row, staged: Any | None) -> Any | None:
    """Changes in order with the computed values of inserted and updated rows."""
    if staged is None:
        return None
    rows = rows_of(staged)
    there = pc.less_equal(rows.column("op"), _UPDATE)
    filled = row.filled(rows.filter(there), {})
    gone = rows.filter(pc.invert(there)).select(filled.column_names)
    return pa.concat_tables([filled, gone]).sort_by("n")


def _whole(row: _Row, staged: Any | None) -> Any | None:
    return None if staged is None else row.filled(rows_of(staged), {})


def _completed(row: _Row, staged: Any | None, read: ReadRows) -> Any | None:
    if staged is None:
        return None
    rows = rows_of(staged)
    unset = [i for i in row.inputs if rows.schema.get_field_index(f"u{i}") >= 0]
    if not unset:
        return row.filled(rows, {})
    keys = rows.select([name for name in rows.column_names if name.startswith("k")])
    there = read(keys, unset)
    given = {}
    for i in unset:
        old, new = row.texts(there.column(f"c{i}"), i), row.texts(rows.column(f"c{i}"), i)
        given[i] = pc.if_else(rows.column(f"u{i}").combine_chunks(), old, new)
    return row.filled(rows, given)


def _of_rows_gone(row: _Row, staged: Any | None, read: ReadRows) -> Any | None:
    """As `_completed`, for deleted rows or versions; one without unset columns need not be on the target."""
    if staged is None:
        return None
    rows = rows_of(staged)
    unset = pa.array([False] * rows.num_rows, pa.bool_())
    for name in (f"u{i}" for i in row.inputs):
        if name in rows.column_names:
            unset = pc.or_(unset, pc.fill_null(rows.column(name).combine_chunks(), False))
    part, whole = rows.filter(unset), rows.filter(pc.invert(unset))
    filled = [_completed(row, some, read) for some in (part, whole) if some.num_rows]
    return pa.concat_tables(filled)


def _of_changes(row: _Row, staged: Any | None, read: ReadRows) -> Any | None:
    """Change data with the computed values of rows that are inserted, updated, or deleted as a whole."""
    if staged is None:
        return None
    rows = rows_of(staged)
    whole = (Operation.INSERT, Operation.UPDATE, *([Operation.DELETE] if row.without_key else ()))
    there = pc.is_in(rows.column("op"), pa.array(list(map(str, whole))))
    filled = _of_rows_gone(row, rows.filter(there), read) if pc.any(there).as_py() else None
    rest = rows.filter(pc.invert(there))
    if filled is None:
        return rest
    return pa.concat_tables([filled, rest.select(filled.column_names)]) if rest.num_rows else filled


class _Row:
    """Computes the columns of one table's rows."""

    def __init__(self, ask: Ask, table: TableId, schema: TableSchema) -> None:
        self._ask = ask
        self._table = table
        self._schema = schema
        self._asked = [(i, c) for i, c in enumerate(schema.columns) if c.expression is not None]
        self._form = replace(schema, columns=tuple(column for _, column in self._asked), key=())
        self.inputs = _inputs(schema)
        """Positions of the columns that expressions read."""
        self.without_key = schema.mode is KeyMode.BAG

    def texts(self, values: Any, i: int) -> Any:
        """The values of column `i` in PostgreSQL's text form, as an Arrow array of strings."""
        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if pa.types.is_string(whole.type) or pa.types.is_large_string(whole.type):
            return whole.cast(pa.string())
        held = value_type(self._schema.columns[i])
        return as_text(whole.cast(arrow_type(held)), held)

    def filled(self, rows: Any, given: Mapping[int, Any]) -> Any:
        """The rows (an Arrow table with c0 … cn) with the computed columns set. `given`: inputs that are not in the rows, as texts."""
        texts = {i: given[i] if i in given else self.texts(rows.column(f"c{i}"), i) for i in self.inputs}
        batches = [self._asked_for(texts, start, stop) for start, stop in _spans(texts, rows.num_rows)]
        found = pa.Table.from_batches(batches)
        for place, (i, _) in enumerate(self._asked):
            rows = rows.set_column(rows.schema.get_field_index(f"c{i}"), f"c{i}", found.column(place))
        # Netting marks computed columns as unchanged by an update (u0 … un); now they have values.
        return rows.drop_columns([f"u{i}" for i, _ in self._asked if f"u{i}" in rows.column_names])

    def _asked_for(self, texts: Mapping[int, Any], start: int, stop: int) -> Any:
        inputs = {
            int(self._schema.columns[i].attnum): array_literal(
                pa.chunked_array([text.slice(start, stop - start)]), _TEXT
            )
            for i, text in texts.items()
        }
        columns = [column for _, column in self._asked]
        return decode_copy_text(self._ask(self._table, columns, inputs, stop - start), self._form)


def _inputs(schema: TableSchema) -> list[int]:
    """Positions of the columns that expressions read."""
    asked = [column.expression for column in schema.columns if column.expression is not None]
    read = {one.attnum for expression in asked for one in expression.inputs}
    return [i for i, column in enumerate(schema.columns) if column.attnum in read]


def _spans(texts: Mapping[int, Any], rows: int) -> list[tuple[int, int]]:
    """Consecutive ranges of rows within MOST_ROWS and, on average, MOST_BYTES."""
    size = sum(text.nbytes for text in texts.values())
    step = max(1, min(MOST_ROWS, MOST_BYTES * rows // max(size, 1)))
    return [(start, min(start + step, rows)) for start in range(0, rows, step)]
