"""Decodes the changes of one table, without netting, to an Arrow table in log order. Errors become the table's fault."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from engine.model.batch import TableChanges, TableFault, TablePart
from engine.model.fault import FaultKind
from engine.model.schema import KeyMode
from engine.net import change_kernels as kernels
from engine.net.change_kernels import Changes, Refs, Rows
from engine.net.compiled import NULL, UNSET, Array, empty_places
from engine.net.decode import ValueOutOfDomain, decode_batches
from engine.net.plan import DecodePlan
from engine.net.table import (
    TRUNCATE,
    Bucket,
    TableTrouble,
    check,
    checked_plan,
    counts_of,
    read_rows,
)

_INSERT = 1


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
        plan = checked_plan(part, changes)
        rows = _decode(data, own, Places(*(values[mine] for values in places)), plan, fills_at)
    except TableTrouble as trouble:
        return TableChanges(part.table, False, None, None, None, fault=trouble.fault)
    except ValueOutOfDomain as trouble:
        fault = TableFault(FaultKind.VALUE_OUT_OF_DOMAIN, str(trouble))
        return TableChanges(part.table, False, None, None, None, fault=fault)
    counts = counts_of(own.op)
    return TableChanges(
        part.table,
        False,
        None,
        None,
        None,
        counts,
        len(own.op),
        in_order=rows if rows.num_rows else None,
        staged=counts,
    )


def _decode(data: Array, changes: Changes, places: Places, plan: DecodePlan, fills_at: int) -> pa.Table:
    count = len(changes.op)
    keys = _read_keys(data, changes, plan, fills_at)
    off, length = empty_places(len(plan.columns), count)
    off[:], length[:] = 0, NULL
    written = np.flatnonzero(changes.new >= 0).astype(np.int32)
    rows, part = read_rows(data, changes, plan.layout_at(fills_at), plan, written, np.full(count, -1, np.int32))
    off[:, written], length[:, written] = rows.off, rows.len
    of_key = range(len(plan.columns)) if plan.schema.mode is KeyMode.BAG else plan.key
    key_off, key_len = _key_places(keys, len(of_key))
    columns = [*(plan.columns[c] for c in of_key), *plan.columns]
    names = [*(f"k{k}" for k in range(len(of_key))), *(f"c{c}" for c in range(len(plan.columns)))]
    whole = (
        np.ascontiguousarray(np.concatenate([key_off, off])),
        np.ascontiguousarray(np.concatenate([key_len, length])),
    )
    table = pa.Table.from_batches(decode_batches(data, *whole, columns, names))
    moved = (keys.before >= 0) & (keys.after >= 0) & (keys.before != keys.after)
    given = [("n", places.at), ("end", places.end), ("op", changes.op), ("moved", moved)]
    for name, values in [*given, *_hashes(keys, places.at)]:
        table = table.append_column(name, pa.array(np.ascontiguousarray(values)))
    if part.any():
        for c in np.flatnonzero((length == UNSET).any(axis=1)):
            table = table.append_column(f"u{c}", pa.array(length[c] == UNSET))
    return table


def _read_keys(data: Array, changes: Changes, plan: DecodePlan, fills_at: int) -> _Keys:
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
        refs, sign, of = _read_images(data, own, plan, fills_at)
        before[live[of[sign < 0]]], after[live[of[sign > 0]]] = np.flatnonzero(sign < 0), np.flatnonzero(sign > 0)
        return _Keys(refs, before, after)
    images = int(np.count_nonzero(own.new >= 0) + np.count_nonzero(own.old >= 0))
    refs = Refs(*empty_places(images, len(plan.key)), np.empty(images, np.uint64))
    earlier, later = np.empty(len(live), np.int32), np.empty(len(live), np.int32)
    check(kernels.read_keys(data, own, plan.layout_at(fills_at), refs, earlier, later)[0])
    before[live], after[live] = earlier, later
    return _Keys(refs, before, after)


def _read_images(data: Array, changes: Changes, plan: DecodePlan, fills_at: int) -> tuple[Refs, Array, Array]:
    """Whole rows as keys: their places; -1 if the change removes the row, 1 if it adds it; and the index of the change."""
    most = 2 * len(changes.op)
    rows = Rows(*empty_places(len(plan.columns), most))
    sign, of = np.empty(most, np.int64), np.empty(most, np.int32)
    fault, _, found = kernels.read_images(data, changes, plan.layout_at(fills_at), rows, sign, of)
    check(fault)
    off, length = (np.ascontiguousarray(values[:, :found].T) for values in rows)
    refs = Refs(off, length, np.empty(found, np.uint64))
    kernels.hash_refs(data, refs)
    return refs, sign[:found], of[:found]


def _key_places(keys: _Keys, columns: int) -> tuple[Array, Array]:
    """Places of each change's key before it (for an insert, after it), by (column, change)."""
    chosen = np.where(keys.before >= 0, keys.before, keys.after)
    off, length = np.zeros((columns, len(chosen)), np.int64), np.full((columns, len(chosen)), NULL, np.int32)
    there = chosen >= 0
    if columns and there.any():
        off[:, there], length[:, there] = keys.refs.off[chosen[there]].T, keys.refs.len[chosen[there]].T
    return off, length


def _hashes(keys: _Keys, at: Array) -> list[tuple[str, Array]]:
    """Columns `h` and `g` (see TableChanges.in_order). A change without a key gets its own number as hash."""
    h = np.where(keys.after >= 0, keys.after, keys.before)
    g = np.where(keys.before >= 0, keys.before, keys.after)
    if not keys.refs.hash.size:
        own = at.astype(np.uint64)
        return [("h", own), ("g", own)]
    return [(name, np.where(of >= 0, keys.refs.hash[of], at.astype(np.uint64))) for name, of in (("h", h), ("g", g))]
