"""Restricts net changes to the rows that an unfinished copy contains. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from engine.copy.split_task import Decode
from engine.model.batch import TableChanges
from engine.model.copies import KeyBound, compared_type
from engine.model.fault import EngineFault, FaultKind
from engine.model.schema import Column, TableSchema
from engine.model.values import Kind
from engine.net.rows_of_texts import decoded_rows
from engine.targets.arrow_rows import rows_of

_INTEGERS = frozenset({Kind.INT16, Kind.INT32, Kind.INT64, Kind.UINT32})


class RowUnknown(Exception):
    """A row moved into the range, and the log left out columns whose values only the source's row has."""


class KeyUnordered(Exception):
    """A key value cannot be ordered among the others: infinity or NaN."""


def key_row(bound: KeyBound, schema: TableSchema, decode: Decode) -> Any:
    """A bound of a table's key as a pyarrow.Table of one row, with columns k0 … km of the key columns' staged types."""
    columns = schema.key_columns[: len(bound.values)]
    return decoded_rows([list(bound.values)], columns, schema, decode).rename_columns(
        [f"k{j}" for j in range(len(columns))]
    )


class KeyRange:
    """Filter for keys after `lower`, up to and including `upper`; None: unbounded. Implements RowsHeld."""

    whole = False

    def __init__(self, schema: TableSchema, lower: KeyBound | None, upper: KeyBound | None, decode: Decode) -> None:
        self._schema = schema
        self._decode = decode
        names = [column.name for column in schema.columns]
        self.key = tuple(names.index(name) for name in schema.key)
        """Positions of the key columns."""
        self._lower, self._upper = self._values(lower), self._values(upper)

    def holds(self, columns: Sequence[Any]) -> Any:
        """Which keys are in the range, as a pyarrow.Array of bool. `columns`: the key columns, as pyarrow.ChunkedArray. Raises
        KeyUnordered."""
        count = max(len(self._lower or ()), len(self._upper or ()))
        typed = [self._typed(values, at) for at, values in enumerate(columns[:count])]
        found = pa.array([True] * len(columns[0]), pa.bool_())
        if self._upper is not None:
            found = pc.and_(found, _compared(typed, self._upper, pc.less, pc.less_equal))
        if self._lower is not None:
            found = pc.and_(found, _compared(typed, self._lower, pc.greater, pc.greater))
        return found

    def _values(self, bound: KeyBound | None) -> list[Any] | None:
        if bound is None:
            return None
        return [self._typed(pa.chunked_array([[text]]), at, text=True)[0] for at, text in enumerate(bound.values)]

    def _typed(self, values: Any, at: int, *, text: bool = False) -> Any:
        """Values of a key column as a pyarrow.Array that compares as on the source. Raises KeyUnordered."""
        return ordered_values(values, self._schema.key_columns[at], self._schema, self._decode, text=text)


def ordered_values(values: Any, column: Column, schema: TableSchema, decode: Decode, *, text: bool = False) -> Any:
    """Values of a column as a pyarrow.Array that compares as on the source. `text`: they are text, as the source prints it.

    Raises KeyUnordered if a value cannot be ordered among the others.
    """
    held = compared_type(column, ordered=False)
    if held is None:
        raise KeyUnordered
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if held.kind in {Kind.TEXT, Kind.UUID}:
        return whole.cast(pa.large_string())
    if column.map_as is None and not text:
        return whole
    if held.kind in _INTEGERS:
        return whole.cast(pa.int64())
    try:
        return _plain(whole, column, schema, decode)
    except EngineFault as fault:
        raise KeyUnordered from fault


def _plain(texts: Any, column: Column, schema: TableSchema, decode: Decode) -> Any:
    """Decode texts, as the source prints them, by the column's own type without its override; NULL stays NULL."""
    plain = replace(column, map_as=None)
    valid = pc.is_valid(texts)
    given = [[value] for value in texts.filter(valid).to_pylist()]
    found = decoded_rows(given, [plain], schema, decode).column(0).combine_chunks()
    if len(given) == len(texts):
        return found
    places = pc.if_else(valid, pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1), None)
    return found.take(places)


class RowsHeld(Protocol):
    """A filter for rows that reads some of their columns only."""

    key: tuple[int, ...]
    """Positions of these columns: all key columns in key order, or any columns if rows are identified as a whole (`whole`)."""
    whole: bool
    """Deleted rows are given as whole rows, not as keys."""

    def holds(self, columns: Sequence[Any]) -> Any:
        """Which rows pass the filter, as a pyarrow.Array of bool. `columns`: those of `key`, as pyarrow.ChunkedArray. Raises
        KeyUnordered."""
        ...


def restrict_to_range(changes: TableChanges, keys: RowsHeld) -> TableChanges:
    """The part of a table's net changes whose rows pass the filter. The old and the new key of an updated row are tested separately.

    Raises RowUnknown if a row moves into the range and the log left out some of its columns; KeyUnordered as `keys`.
    """
    deletes, inserts, partials, paired = changes.deletes, changes.inserts, changes.partials, 0
    if deletes is not None:
        rows = rows_of(deletes)
        kept = keys.holds([rows[f"c{i}" if keys.whole else f"k{j}"] for j, i in enumerate(keys.key)])
        # Paired inserts have the same keys in the same order, so the same number of them is kept.
        paired = int(pc.sum(kept.slice(0, changes.paired)).as_py() or 0)
        deletes = _chosen(rows, kept)
    if inserts is not None:
        rows = rows_of(inserts)
        inserts = _chosen(rows, keys.holds([rows[f"c{i}"] for i in keys.key]))
    replaced = changes.replaced
    if replaced is not None:
        rows = rows_of(replaced)
        replaced = _chosen(rows, keys.holds([rows[f"k{j}"] for j in range(len(keys.key))]))
    if partials is not None:
        partials = _completed_within(rows_of(partials), keys)
    tombstones = None if changes.tombstones is None else _completed_within(rows_of(changes.tombstones), keys)
    parts = {"delete": deletes, "insert": inserts, "complete": partials, "replace": replaced, "mark": tombstones}
    staged = {name: rows.num_rows for name, rows in parts.items() if rows is not None}
    return replace(
        changes,
        deletes=deletes,
        inserts=inserts,
        partials=partials,
        replaced=replaced,
        tombstones=tombstones,
        versions=None,  # The history of a copy begins when it is complete.
        ended=None,
        change_data=None,
        paired=paired,
        net_rows=sum(staged.values()),
        staged=staged,
    )


def _completed_within(rows: Any, keys: RowsHeld) -> Any | None:
    """The completed rows whose key passes the filter. Raises RowUnknown if one has unset columns and its old key does not pass."""
    old = [rows[f"k{j}"] for j in range(len(keys.key))]
    new = []
    for j, i in enumerate(keys.key):
        unset = f"u{i}"
        given = rows[f"c{i}"]
        new.append(pc.if_else(rows[unset], old[j], given) if unset in rows.schema.names else given)
    comes = keys.holds(new)
    needs = pa.array([False] * rows.num_rows, pa.bool_())
    for name in rows.schema.names:
        if name.startswith("u"):
            needs = pc.or_(needs, pc.fill_null(rows[name].combine_chunks(), False))
    if pc.any(pc.and_(needs, pc.and_not(comes, keys.holds(old)))).as_py():
        raise RowUnknown
    return _chosen(rows, comes)


def _chosen(rows: Any, kept: Any) -> Any | None:
    if kept.null_count:
        raise EngineFault(FaultKind.NET_CHANGE_ANOMALY, "copy", "a key column is NULL")
    found = rows.filter(kept)
    return found if found.num_rows else None


def _compared(
    columns: Sequence[Any], bound: Sequence[Any], beyond: Callable[..., Any], last: Callable[..., Any]
) -> Any:
    """Which rows are on one side of the bound in key order, as a pyarrow.Array of bool. `last` compares the bound's last column, `beyond`
    the columns before it."""
    at = len(bound) - 1
    found = last(columns[at], bound[at])
    for j in range(at - 1, -1, -1):
        found = pc.or_(beyond(columns[j], bound[j]), pc.and_(pc.equal(columns[j], bound[j]), found))
    return found
