"""The decode plan of a table: maps tuples of each schema version to the last version, and gives each column's value type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from engine.model.batch import TableFault
from engine.model.fault import FaultKind
from engine.model.schema import Column, TableSchema
from engine.model.values import ValueType, value_type
from engine.model.widening import widens
from engine.net.change_kernels import Layout
from engine.platform.compiled import NULL, Array


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """A column's name (for faults), its value type, and the delimiter of array elements as a character code."""

    name: str
    type: ValueType
    delimiter: int = ord(",")


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """What is needed to read changes of a table's schema versions.

    `fills`: texts of the values that columns missing in older versions have there; `layout.fill_off` is relative to its
    start. `fault`: why rows cannot be converted to the last version; the other fields are then undefined.
    """

    schema: TableSchema
    columns: tuple[ColumnPlan, ...]
    key: tuple[int, ...]
    layout: Layout
    fills: bytes
    fault: TableFault | None

    def at(self, start: int) -> DecodePlan:
        """The plan for a buffer that contains `fills` at offset `start`."""
        return replace(self, layout=self.layout._replace(fill_off=self.layout.fill_off + start))


def plan_for(versions: tuple[TableSchema, ...]) -> DecodePlan:
    """The plan for these versions, cached per process.

    A log announces the same schema repeatedly, so the plan is computed for the distinct versions only.
    """
    seen = {id(version): version for version in reversed(versions)}
    different = tuple(dict.fromkeys(seen.values()))[::-1]
    plan = _plan_of(different)
    if len(different) == len(versions):
        return plan
    places = {version: place for place, version in enumerate(different)}
    place_of = {key: places[version] for key, version in seen.items()}
    which = np.array([place_of[id(version)] for version in versions])
    layout = plan.layout
    return replace(
        plan,
        layout=layout._replace(
            width=layout.width[which],
            target=layout.target[which],
            key=layout.key[which],
            key_stop=layout.key_stop[which],
            lacks=layout.lacks[which],
        ),
    )


@lru_cache(maxsize=4096)
def _plan_of(versions: tuple[TableSchema, ...]) -> DecodePlan:
    last = versions[-1]
    order = {column.attnum: c for c, column in enumerate(last.columns)}
    key = tuple(order[column.attnum] for column in last.key_columns)
    layout, fills = _layout(versions, order, key)
    return DecodePlan(last, column_plans(last), key, layout, fills, _incompatible(versions))


def column_plans(schema: TableSchema) -> tuple[ColumnPlan, ...]:
    return tuple(ColumnPlan(c.name, value_type(c), _delimiter(c)) for c in schema.columns)


def _delimiter(column: Column) -> int:
    element = column.type.element
    if element is None:
        return ord(",")
    # A schema stored by a version that did not record delimiters has "," for box as well, whose texts contain commas.
    return ord(";" if element.name == "box" else element.delimiter)


def _layout(versions: tuple[TableSchema, ...], order: dict[int, int], key: tuple[int, ...]) -> tuple[Layout, bytes]:
    last = versions[-1]
    widest = max(len(version.columns) for version in versions)
    target = np.full((len(versions), widest), -1, np.int32)
    key_of = np.full((len(versions), widest), -1, np.int32)
    lacks = np.ones((len(versions), len(last.columns)), np.bool_)
    for v, version in enumerate(versions):
        for j, column in enumerate(version.columns):
            c = order.get(column.attnum, -1)
            target[v, j] = c
            if c >= 0:
                lacks[v, c] = False
            if c in key:
                key_of[v, j] = key.index(c)
    fill_off, fill_len, fills = _fills(last.columns, np.asarray(lacks.any(axis=0)))
    width = np.array([len(version.columns) for version in versions], np.int32)
    key_stop = np.where(key_of >= 0, np.arange(1, widest + 1, dtype=np.int32), 0).max(axis=1, initial=0)
    layout = Layout(width, target, key_of, key_stop.astype(np.int32), lacks, fill_off, fill_len)
    return layout, fills


def _fills(columns: tuple[Column, ...], lacking: Array) -> tuple[Array, Array, bytes]:
    off = np.zeros(len(columns), np.int64)
    length = np.full(len(columns), NULL, np.int32)
    texts = bytearray()
    for c, column in enumerate(columns):
        if lacking[c] and column.fill is not None:
            text = column.fill.encode()
            off[c], length[c] = len(texts), len(text)
            texts += text
    return off, length, bytes(texts)


def _incompatible(versions: tuple[TableSchema, ...]) -> TableFault | None:
    last = {column.attnum: column for column in versions[-1].columns}
    key = [column.attnum for column in versions[-1].key_columns]
    for version in versions[:-1]:
        for column in version.columns:
            now = last.get(column.attnum)
            if now is None:
                continue
            if not widens(column.type, now.type) or column.map_as != now.map_as:
                return _changed(f"column {now.name} changed its type")
        if [column.attnum for column in version.key_columns] != key or version.mode is not versions[-1].mode:
            return _changed("the key changed")
    return None


def _changed(detail: str) -> TableFault:
    return TableFault(FaultKind.TABLE_STRUCTURE_CHANGED, f"{detail} within the batch")
