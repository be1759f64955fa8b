"""Selects the rows of partitions among net changes, by the partition bounds of the source. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.copy.key_range_filter import ordered_values
from engine.copy.split_task import Decode
from engine.model.partitions import (
    Bound,
    Edge,
    Limit,
    ListBound,
    PartitionRows,
    RangeBound,
    Region,
    columns_of,
    limits_of,
)
from engine.model.schema import KeyMode, TableSchema
from engine.net.rows_of_texts import decoded_rows


def partition_rows(regions: Sequence[Region], schema: TableSchema, decode: Decode) -> PartitionRows:
    """The bounds of these partitions, with values of the staged types of the table's columns.

    Raises EngineFault(VALUE_OUT_OF_DOMAIN) if a column cannot hold a value.
    """
    limits = [limit for region in regions for bound in region for limit in limits_of(bound)]
    names = [column.name for column in schema.columns]
    columns = [replace(schema.column(column), name=f"v{i}") for i, (column, _) in enumerate(limits)]
    rows = pa.table({"n": pa.array([0], pa.int64())})
    if limits:
        values = decoded_rows([[text for _, text in limits]], columns, schema, decode)
        for i in range(len(limits)):
            rows = rows.append_column(f"v{i}", values.column(i))
    return PartitionRows(tuple(regions), rows, tuple(names.index(column) for column, _ in limits))


class PartitionFilter:
    """Filter for rows of any of some partitions, for `restrict_to_range`. Implements RowsHeld."""

    def __init__(self, regions: Sequence[Region], schema: TableSchema, decode: Decode) -> None:
        self._regions = regions
        self._schema = schema
        self._decode = decode
        names = [column.name for column in schema.columns]
        self.whole = schema.mode is not KeyMode.KEYED
        used = sorted(columns_of(regions), key=names.index) if self.whole else schema.key
        self.key = tuple(names.index(name) for name in used)

    def holds(self, columns: Sequence[Any]) -> Any:
        """Which rows are in the partitions, as a pyarrow.Array of bool. `columns`: those of `key`, as pyarrow.ChunkedArray. Raises
        KeyUnordered."""
        count = len(columns[0])
        wanted = columns_of(self._regions)
        names = [self._schema.columns[i].name for i in self.key]
        held = {name: self._typed(name, values) for name, values in zip(names, columns, strict=True) if name in wanted}
        found = _all(count, value=False)
        for region in self._regions:
            inside = _all(count, value=True)
            for bound in region:
                inside = pc.and_(inside, self._within(bound, held, count))
            found = pc.or_(found, inside)
        return found

    def _typed(self, name: str, values: Any) -> Any:
        return ordered_values(values, self._schema.column(name), self._schema, self._decode)

    def _value(self, name: str, text: str) -> Any:
        values = pa.chunked_array([[text]])
        return ordered_values(values, self._schema.column(name), self._schema, self._decode, text=True)[0]

    def _within(self, bound: Bound, held: Mapping[str, Any], count: int) -> Any:
        if isinstance(bound, ListBound):
            values = held[bound.column]
            found = pc.is_null(values) if bound.null else _all(count, value=False)
            for text in bound.values:
                found = pc.or_(found, pc.fill_null(pc.equal(values, self._value(bound.column, text)), False))
            return found
        if isinstance(bound, RangeBound):
            found = _all(count, value=True)
            for name in bound.columns:
                found = pc.and_(found, pc.is_valid(held[name]))
            for limits, behind in ((bound.lower, True), (bound.upper, False)):
                found = pc.and_(found, self._beyond(bound.columns, limits, held, count, behind=behind))
            return pc.fill_null(found, False)
        found = _all(count, value=False)
        for other in bound.others:
            found = pc.or_(found, self._within(other, held, count))
        return pc.invert(found)

    def _beyond(
        self, names: Sequence[str], limits: Sequence[Limit], held: Mapping[str, Any], count: int, *, behind: bool
    ) -> Any:
        """Which rows are at or after the limits in their order (`behind`), or before them, as a pyarrow.Array of bool."""
        found = _all(count, value=behind)
        for name, limit in _from_last(names, limits):
            if isinstance(limit, Edge):
                found = _all(count, value=(limit is Edge.LOWEST) is behind)
                continue
            value, values = self._value(name, limit), held[name]
            further = pc.greater(values, value) if behind else pc.less(values, value)
            same = pc.and_(pc.equal(values, value), found)
            found = pc.fill_null(pc.or_(further, same), False)
        return found


def _from_last(names: Sequence[str], limits: Sequence[Limit]) -> Iterator[tuple[str, Limit]]:
    return reversed(list(zip(names, limits, strict=True)))


def _all(count: int, *, value: bool) -> Any:
    return pa.array([value] * count, pa.bool_())
