"""Net changes of a copy that is not complete: only those of the rows that it holds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from engine.copy.chunk_task import Decode
from engine.model.batch import TableChanges
from engine.model.copies import KeyBound, compared_type
from engine.model.fault import EngineFault, FaultKind
from engine.model.schema import Column, TableSchema
from engine.model.values import Kind
from engine.targets.arrow_rows import rows_of

_INTEGERS = frozenset({Kind.INT16, Kind.INT32, Kind.INT64, Kind.UINT32})


class RowUnknown(Exception):
    """A row came into the range from outside of it, and the log left out columns that only the row there has."""


class KeyUnordered(Exception):
    """A key has a value that has no place in the order of the others: infinite, or not a number."""


def key_row(bound: KeyBound, schema: TableSchema, decode: Decode) -> Any:
    """A place of a table's key as a pyarrow.Table of one row with columns k0 … km, held as the table's columns are."""
    columns = schema.key_columns[: len(bound.values)]
    return decoded_rows([list(bound.values)], columns, schema, decode).rename_columns(
        [f"k{j}" for j in range(len(columns))]
    )


def decoded_rows(rows: Sequence[Sequence[str]], columns: Sequence[Column], schema: TableSchema, decode: Decode) -> Any:
    """Texts as the source prints them, held as these columns are: a pyarrow.Table."""
    lines = "".join("\t".join(map(_escaped, row)) + "\n" for row in rows)
    form = replace(schema, columns=tuple(columns), key=tuple(column.name for column in columns))
    return pa.Table.from_batches([decode(lines.encode(), form)])


def _escaped(text: str) -> str:
    for plain, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escape)
    return text


class KeyRange:
    """Keys of a table behind `lower`, up to and with `upper`; None = no bound."""

    whole = False

    def __init__(self, schema: TableSchema, lower: KeyBound | None, upper: KeyBound | None, decode: Decode) -> None:
        self._schema = schema
        self._decode = decode
        names = [column.name for column in schema.columns]
        self.key = tuple(names.index(name) for name in schema.key)
        """Positions of the key columns."""
        self._lower, self._upper = self._values(lower), self._values(upper)

    def holds(self, columns: Sequence[Any]) -> Any:
        """Which keys are in it, as a pyarrow.Array of bool. `columns`: the key's, as pyarrow.ChunkedArray. Raises KeyUnordered."""
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
        """Values of a key column so that they compare as they do on the source, as a pyarrow.Array."""
        return ordered_values(values, self._schema.key_columns[at], self._schema, self._decode, text=text)


def ordered_values(values: Any, column: Column, schema: TableSchema, decode: Decode, *, text: bool = False) -> Any:
    """A column's values as a pyarrow.Array that compares as they do on the source. `text`: they are given as the source prints them.

    Raises KeyUnordered where one has no place in the order of the others.
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
    """Texts as the source prints them, held as its type is by itself; where there is none, NULL."""
    plain = replace(column, map_as=None)
    valid = pc.is_valid(texts)
    given = [[value] for value in texts.filter(valid).to_pylist()]
    found = decoded_rows(given, [plain], schema, decode).column(0).combine_chunks()
    if len(given) == len(texts):
        return found
    places = pc.if_else(valid, pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1), None)
    return found.take(places)


class RowsHeld(Protocol):
    """Tells which rows are wanted, by some of their columns."""

    key: tuple[int, ...]
    """Positions of those columns: all of the key in key order, or any where whole rows are told apart."""
    whole: bool
    """Rows to delete come as whole rows, and not as keys."""

    def holds(self, columns: Sequence[Any]) -> Any:
        """Which rows, as a pyarrow.Array of bool. `columns`: those of `key`, as pyarrow.ChunkedArray. Raises KeyUnordered."""
        ...


def restrict_to_range(changes: TableChanges, keys: RowsHeld) -> TableChanges:
    """The part of a table's net changes that concerns the rows that are wanted, each row's old and new key judged for itself.

    Raises RowUnknown where a row that comes in cannot be completed.
    """
    deletes, inserts, partials, paired = changes.deletes, changes.inserts, changes.partials, 0
    if deletes is not None:
        rows = rows_of(deletes)
        kept = keys.holds([rows[f"c{i}" if keys.whole else f"k{j}"] for j, i in enumerate(keys.key)])
        # The same keys stand at the same places of the inserts.
        paired = int(pc.sum(kept.slice(0, changes.paired)).as_py() or 0)
        deletes = _chosen(rows, kept)
    if inserts is not None:
        rows = rows_of(inserts)
        inserts = _chosen(rows, keys.holds([rows[f"c{i}"] for i in keys.key]))
    if partials is not None:
        partials = _completed_within(rows_of(partials), keys)
    parts = {"delete": deletes, "insert": inserts, "complete": partials}
    staged = {name: rows.num_rows for name, rows in parts.items() if rows is not None}
    return replace(
        changes,
        deletes=deletes,
        inserts=inserts,
        partials=partials,
        paired=paired,
        net_rows=sum(staged.values()),
        staged=staged,
    )


def _completed_within(rows: Any, keys: RowsHeld) -> Any | None:
    old = [rows[f"k{j}"] for j in range(len(keys.key))]
    new = []
    for j, i in enumerate(keys.key):
        unset = f"u{i}"
        given = rows[f"c{i}"]
        new.append(pc.if_else(rows[unset], old[j], given) if unset in rows.schema.names else given)
    comes = keys.holds(new)
    if pc.any(pc.and_not(comes, keys.holds(old))).as_py():
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
    """Rows before or behind the bound in the order of the key; `last` compares its last column, `beyond` the ones before it."""
    at = len(bound) - 1
    found = last(columns[at], bound[at])
    for j in range(at - 1, -1, -1):
        found = pc.or_(beyond(columns[j], bound[j]), pc.and_(pc.equal(columns[j], bound[j]), found))
    return found
