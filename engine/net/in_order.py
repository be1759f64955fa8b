"""Decodes the changes of one table, without netting, to an Arrow table in log order. Errors become the table's fault."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from engine.model.batch import TableChanges, TablePart
from engine.model.ledger import NetTally
from engine.model.schema import KeyMode
from engine.net import change_kernels as kernels
from engine.net.change_kernels import Changes, Refs, Rows
from engine.net.decode import ValueOutOfDomain
from engine.net.plan import DecodePlan
from engine.net.table import (
    TRUNCATE,
    Bucket,
    TableTrouble,
    check,
    checked_plan,
    counts_of,
    decode_with_keys,
    read_images,
    read_keys,
    read_rows,
    with_unset,
)
from engine.platform.compiled import NULL, Array, empty_places

_INSERT = 1
"""`ScannedChanges.op`: insert."""


class Places(NamedTuple):
    """Per change: `at`, its number among the changes of all tables, and `end`, the end LSN of its transaction."""

    at: Array
    end: Array


class _Keys(NamedTuple):
    """Keys of changes; `before`, `after`: index of the key of each change's row before and after it, -1 = none."""

    refs: Refs
    before: Array
    after: Array


def changes_in_order(
    part: TablePart, data: Array, fills_at: int, changes: Changes, places: Places, bucket: Bucket
) -> TableChanges:
    """Decode the bucket's share of a table's changes, a contiguous range. Arguments as in `net_table`.

    For KeyMode.BAG all columns are the key; for APPEND there is none.
    """
    count = len(changes.op)
    mine = slice(count * bucket.number // bucket.count, count * (bucket.number + 1) // bucket.count)
    own = Changes(*(values[mine] for values in changes))
    try:
        rows = _decode(data, own, Places(*(values[mine] for values in places)), checked_plan(part, changes, fills_at))
    except (TableTrouble, ValueOutOfDomain) as error:
        return TableChanges(part.table, truncated=False, fault=error.fault)
    counts = counts_of(own.op)
    in_order = rows if rows.num_rows else None
    tally = NetTally(None, taken=rows.num_rows, effective=rows.num_rows)
    return TableChanges(
        part.table, False, counts=counts, net_rows=len(own.op), in_order=in_order, staged=counts, tally=tally
    )


def _decode(data: Array, changes: Changes, places: Places, plan: DecodePlan) -> pa.Table:
    count = len(changes.op)
    keys = _read_keys(data, changes, plan)
    images = _nulls(len(plan.columns), count)
    written = np.flatnonzero(changes.new >= 0).astype(np.int32)
    rows, part = read_rows(data, changes, plan, written, np.full(count, -1, np.int32))
    images.off[:, written], images.len[:, written] = rows
    of_key = range(len(plan.columns)) if plan.schema.mode is KeyMode.BAG else plan.key
    table = decode_with_keys(data, plan, of_key, _key_rows(keys, len(of_key)), images)
    moved = (keys.before >= 0) & (keys.after >= 0) & (keys.before != keys.after)
    given = [("n", places.at), ("end", places.end), ("op", changes.op), ("moved", moved)]
    for name, values in [*given, *_hashes(keys, places.at)]:
        table = table.append_column(name, pa.array(np.ascontiguousarray(values)))
    return with_unset(table, images) if part.any() else table


def _read_keys(data: Array, changes: Changes, plan: DecodePlan) -> _Keys:
    """Keys of all changes except TRUNCATE."""
    count = len(changes.op)
    before, after = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    if plan.schema.mode is KeyMode.APPEND:
        if not np.all((changes.op == _INSERT) | (changes.op == TRUNCATE)):
            check(kernels.NOT_AN_INSERT)
        return _Keys(Refs(*empty_places(0, 0), np.empty(0, np.uint64)), before, after)
    live = np.flatnonzero(changes.op != TRUNCATE)
    own = Changes(*(np.ascontiguousarray(values[live]) for values in changes))
    if plan.schema.mode is KeyMode.BAG:
        refs, sign, of = read_images(data, own, plan)
        before[live[of[sign < 0]]], after[live[of[sign > 0]]] = np.flatnonzero(sign < 0), np.flatnonzero(sign > 0)
        return _Keys(refs, before, after)
    refs, before[live], after[live] = read_keys(data, own, plan)
    return _Keys(refs, before, after)


def _key_rows(keys: _Keys, columns: int) -> Rows:
    """Places of each change's key before it (for an insert, after it)."""
    chosen = np.where(keys.before >= 0, keys.before, keys.after)
    found = _nulls(columns, len(chosen))
    there = chosen >= 0
    if columns and there.any():
        found.off[:, there], found.len[:, there] = keys.refs.off[chosen[there]].T, keys.refs.len[chosen[there]].T
    return found


def _nulls(columns: int, rows: int) -> Rows:
    return Rows(np.zeros((columns, rows), np.int64), np.full((columns, rows), NULL, np.int32))


def _hashes(keys: _Keys, at: Array) -> list[tuple[str, Array]]:
    """Columns `h` and `g` (see TableChanges.in_order). A change without a key gets its own number as hash."""
    h = np.where(keys.after >= 0, keys.after, keys.before)
    g = np.where(keys.before >= 0, keys.before, keys.after)
    if not keys.refs.hash.size:
        own = at.astype(np.uint64)
        return [("h", own), ("g", own)]
    return [(name, np.where(of >= 0, keys.refs.hash[of], at.astype(np.uint64))) for name, of in (("h", h), ("g", g))]
