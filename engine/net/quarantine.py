"""Finds rows with a value that its column cannot hold, and keeps them as texts, as the source sent them, for the quarantine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from engine.net.change_kernels import Rows
from engine.net.decode import ValueOutOfDomain, decode_column
from engine.net.plan import ColumnPlan
from engine.platform.compiled import UNSET, Array


def bad_rows(data: Array, off: Array, length: Array, columns: Sequence[ColumnPlan]) -> dict[int, str]:
    """Row index and cause of each row with a value that its column cannot hold; places by (column, row). Causes contain no values."""
    found: dict[int, str] = {}
    for c, plan in enumerate(columns):
        ranges = [(0, off.shape[1])]
        while ranges:
            low, high = ranges.pop()
            try:
                decode_column(data, off[c, low:high], length[c, low:high], plan)
            except ValueOutOfDomain as error:
                if high - low == 1:
                    found.setdefault(low, str(error))
                    continue
                middle = (low + high) // 2
                ranges += [(low, middle), (middle, high)]
    return found


def refused_table(data: Array, keys: Rows, values: Rows, causes: Sequence[str], gone: Array) -> pa.Table:
    """Build TableChanges.refused from keys, values, causes and `gone`; columns in the order given there."""
    columns: dict[str, pa.Array] = {}
    for k in range(len(keys.off)):
        columns[f"k{k}"] = _texts(data, keys, k)
    for c in range(len(values.off)):
        columns[f"c{c}"] = _texts(data, values, c)
        unset = values.len[c] == UNSET
        if np.any(unset & ~gone):
            columns[f"u{c}"] = pa.array(unset & ~gone)
    columns["gone"] = pa.array(gone, pa.bool_())
    columns["cause"] = pa.array(causes, pa.string())
    return pa.table(columns)


def _texts(data: Array, rows: Rows, column: int) -> pa.Array:
    texts = [
        None if size < 0 else bytes(data[at : at + size]).decode("utf-8", "backslashreplace")
        for at, size in zip(rows.off[column].tolist(), rows.len[column].tolist(), strict=True)
    ]
    return pa.array(texts, pa.string())
