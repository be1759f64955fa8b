"""Decodes printed values, given by their places, to Arrow columns by column type. A value that does not fit raises ValueOutOfDomain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from engine.model.batch import TableFault
from engine.model.fault import FaultKind
from engine.model.values import Kind, ValueType
from engine.net import value_kernels as kernels
from engine.net.plan import ColumnPlan
from engine.platform.compiled import Array

MAX_TEXT_BYTES = 1 << 30
"""Most bytes of text in one column of a record batch. Arrow's string offsets have 31 bits; a PostgreSQL value is below 2**30 bytes."""

_INTS: dict[Kind, tuple[type[np.generic], int, int]] = {
    Kind.INT16: (np.int16, -(2**15), 2**15 - 1),
    Kind.INT32: (np.int32, -(2**31), 2**31 - 1),
    Kind.INT64: (np.int64, -(2**63), 2**63 - 1),
    Kind.UINT32: (np.uint32, 0, 2**32 - 1),
}
_SIMPLE: dict[Kind, Callable[[], pa.DataType]] = {
    Kind.BOOL: pa.bool_,
    Kind.INT16: pa.int16,
    Kind.INT32: pa.int32,
    Kind.INT64: pa.int64,
    Kind.UINT32: pa.uint32,
    Kind.FLOAT32: pa.float32,
    Kind.FLOAT64: pa.float64,
    Kind.TEXT: pa.string,
    Kind.UUID: pa.string,
    Kind.BYTES: pa.binary,
    Kind.DATE: pa.date32,
    Kind.TIMESTAMP: lambda: pa.timestamp("us"),
    Kind.TIMESTAMPTZ: lambda: pa.timestamp("us", tz="UTC"),
    Kind.TIME: lambda: pa.time64("us"),
}


class ValueOutOfDomain(Exception):
    """A value that its column cannot hold exactly. The message names column and kind, never the value."""

    def __init__(self, column: str, kind: Kind) -> None:
        super().__init__(f"column {column}: a value cannot be represented exactly by a {kind.value} column")

    @property
    def fault(self) -> TableFault:
        return TableFault(FaultKind.VALUE_OUT_OF_DOMAIN, str(self))


class _Refused(Exception):
    """A value that its column cannot hold; `decode_column` adds the column's name."""


def arrow_type(held: ValueType) -> pa.DataType:
    """The Arrow type of columns with this value type."""
    if held.kind is Kind.DECIMAL:
        return pa.decimal128(held.precision, held.scale)
    if held.element is not None:
        return pa.list_(arrow_type(held.element))
    return _SIMPLE[held.kind]()


def decode_column(data: Array, off: Array, length: Array, column: ColumnPlan) -> pa.Array:
    """Decode the n printed values of one column. A negative length gives NULL. The texts must be below 2 GiB in total."""
    try:
        return _decode(data, off, length, column.type, column.delimiter)
    except (_Refused, pa.ArrowInvalid):
        raise ValueOutOfDomain(column.name, column.type.kind) from None


def decode_batches(
    data: Array, off: Array, length: Array, columns: Sequence[ColumnPlan], names: Sequence[str]
) -> list[pa.RecordBatch]:
    """Decode rows whose values are at `off`, `length`, indexed by (column, row), to as many batches as MAX_TEXT_BYTES requires."""
    schema = pa.schema([pa.field(n, arrow_type(c.type)) for n, c in zip(names, columns, strict=True)])
    batches = []
    for low, high in _slices(length):
        arrays = [decode_column(data, off[c, low:high], length[c, low:high], plan) for c, plan in enumerate(columns)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return batches


def _slices(length: Array) -> list[tuple[int, int]]:
    """Row ranges with texts of at most MAX_TEXT_BYTES per column, or of a single row."""
    rows = length.shape[1]
    ends = np.cumsum(np.maximum(length, 0).sum(axis=0, dtype=np.int64))
    slices: list[tuple[int, int]] = []
    low = 0
    while low < rows:
        done = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, done + MAX_TEXT_BYTES, side="right")))
        slices.append((low, min(high, rows)))
        low = high
    return slices or [(0, 0)]


def _decode(data: Array, off: Array, length: Array, held: ValueType, delimiter: int) -> pa.Array:
    kind = held.kind
    if held.element is not None:
        return _lists(data, off, length, held.element, delimiter)
    if kind in (Kind.TEXT, Kind.UUID):
        # The cast shares the buffers and validates UTF-8.
        return _texts(data, off, length).cast(pa.string())
    if kind in (Kind.FLOAT32, Kind.FLOAT64):
        return _texts(data, off, length).cast(pa.string()).cast(arrow_type(held))
    if kind is Kind.BYTES:
        return _bytes(data, off, length)
    values = np.empty((len(off), 2) if kind is Kind.DECIMAL else len(off), _storage(kind))
    if _parse(data, off, length, held, values) >= 0:
        raise _Refused
    buffer = np.packbits(values, bitorder="little") if kind is Kind.BOOL else values
    return _array(arrow_type(held), length, [pa.py_buffer(buffer)])


def _storage(kind: Kind) -> type[np.generic]:
    if kind in _INTS:
        return _INTS[kind][0]
    return {Kind.BOOL: np.bool_, Kind.DECIMAL: np.uint64, Kind.DATE: np.int32}.get(kind, np.int64)


def _parse(data: Array, off: Array, length: Array, held: ValueType, values: Array) -> int:
    """Fill `values`. Returns -1, or the index of a value that does not fit."""
    kind = held.kind
    if kind in _INTS:
        _, low, high = _INTS[kind]
        return kernels.parse_ints(data, off, length, low, high, values)
    if kind is Kind.BOOL:
        return kernels.parse_bools(data, off, length, values)
    if kind is Kind.DECIMAL:
        return kernels.parse_decimals(data, off, length, held.precision, held.scale, values)
    if kind is Kind.DATE:
        return kernels.parse_dates(data, off, length, values)
    if kind is Kind.TIME:
        return kernels.parse_times(data, off, length, values)
    return kernels.parse_timestamps(data, off, length, kind is Kind.TIMESTAMPTZ, values)


def _array(
    kind: pa.DataType, length: Array, buffers: list[pa.Buffer], children: list[pa.Array] | None = None
) -> pa.Array:
    present = length >= 0
    nulls = len(length) - int(np.count_nonzero(present))
    validity = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(kind, len(length), [validity, *buffers], null_count=nulls, children=children)


def _starts(sizes: Array) -> Array:
    start = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=start[1:])
    return start


def _texts(data: Array, off: Array, length: Array) -> pa.Array:
    start = _starts(np.maximum(length, 0))
    out = np.empty(int(start[-1]), np.uint8)
    kernels.gather(data, off, length, start, out)
    return _array(pa.binary(), length, [pa.py_buffer(start), pa.py_buffer(out)])


def _bytes(data: Array, off: Array, length: Array) -> pa.Array:
    start = _starts(np.maximum(length - 2, 0) // 2)
    out = np.empty(int(start[-1]), np.uint8)
    if kernels.parse_hex(data, off, length, start, out) >= 0:
        raise _Refused
    return _array(pa.binary(), length, [pa.py_buffer(start), pa.py_buffer(out)])


def _lists(data: Array, off: Array, length: Array, element: ValueType, delimiter: int) -> pa.Array:
    counts = np.empty(len(off), np.int64)
    kernels.count_elements(data, off, length, delimiter, counts)
    most = int(counts.sum())
    out = np.empty(int(np.maximum(length, 0).sum(dtype=np.int64)), np.uint8)
    start = np.zeros(len(off) + 1, np.int32)
    e_off, e_len = np.empty(most, np.int64), np.empty(most, np.int32)
    if kernels.split_arrays(data, off, length, delimiter, out, start, e_off, e_len) >= 0:
        raise _Refused
    found = int(start[-1])
    elements = _decode(out, e_off[:found], e_len[:found], element, delimiter)
    return _array(pa.list_(arrow_type(element)), length, [pa.py_buffer(start)], [elements])
