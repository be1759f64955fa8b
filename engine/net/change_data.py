"""Change data of one table: what each transaction changed, for the CD table. Errors become the table's fault."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from engine.model.batch import OPTIONAL, TableChanges, TablePart
from engine.model.change_data import Operation
from engine.model.schema import KeyMode
from engine.net import change_kernels as kernels
from engine.net.change_kernels import Changes, Rows
from engine.net.decode import ValueOutOfDomain
from engine.net.in_order import Places
from engine.net.plan import DecodePlan
from engine.net.table import (
    TRUNCATE,
    Bucket,
    TableTrouble,
    check,
    checked_plan,
    decode_with_keys,
    key_places,
    read_images,
    read_rows,
    with_unset,
)
from engine.net.versions import Walk, walk_of
from engine.platform.compiled import NULL, UNSET, Array

_NOTHING, _INSERT, _UPDATE, _DELETE, _TRUNCATE = range(5)
_TEXTS = pa.array([None, *map(str, (Operation.INSERT, Operation.UPDATE, Operation.DELETE, Operation.TRUNCATE))])
"""The texts of these numbers. `_NOTHING`: only that the transaction changed the table."""


class _Found(NamedTuple):
    """Change data. `op`: a number of `_TEXTS`; `optional`: see TableChanges; `at`: a change of the transaction; `place`: its order; `keys`,
    `rows`: places of k0 … km and c0 … cn."""

    op: Array
    optional: Array
    at: Array
    place: Array
    keys: Rows
    rows: Rows


def with_change_data(
    net: TableChanges, part: TablePart, data: Array, fills_at: int, changes: Changes, places: Places, bucket: Bucket
) -> TableChanges:
    """The net changes with the change data of the same bucket, computed from the same changes (arguments as in `net_table`).

    With a key the result has, for each transaction and key, at most one row: what the transaction left. After a TRUNCATE it has those
    rows only that were inserted since. Without a key it has a row for each image that a change removes or adds.
    """
    if net.fault is not None:
        return net
    try:
        plan = checked_plan(part, changes, fills_at)
        find = _keyed if plan.schema.mode is KeyMode.KEYED else _images
        found, mine = find(data, changes, plan, places, bucket)
        found = _completed(found, changes, places, mine, bucket)
        if not found.op.size:
            return net
        rows = _decode(data, plan, found, places)
    except (TableTrouble, ValueOutOfDomain) as error:
        return TableChanges(part.table, net.truncated, fault=error.fault)
    perhaps = np.count_nonzero(found.optional & (found.op == _DELETE))
    count = rows.num_rows - rows.column("op").null_count - int(perhaps)
    return replace(net, change_data=rows, staged={**net.staged, "change": count})


def _keyed(data: Array, changes: Changes, plan: DecodePlan, places: Places, bucket: Bucket) -> tuple[_Found, Array]:
    """What each transaction left at each key that it touched; and the bucket's changes."""
    walk = walk_of(data, changes, plan, bucket, places.end)
    alive = walk.row >= 0
    before = np.where(walk.first, walk.existed | walk.met, np.roll(alive, 1))
    cleared = np.isin(places.end[walk.commit], places.end[changes.op == TRUNCATE])
    op = np.where(alive, np.where(before & ~cleared, _UPDATE, _INSERT), np.where(before & ~cleared, _DELETE, _NOTHING))
    chosen = np.flatnonzero(op)
    optional = (walk.first & walk.met & ~walk.existed & ~cleared)[chosen]
    op, alive, at = op[chosen], alive[chosen], walk.commit[chosen]
    keys, rows = _keyed_rows(data, changes, plan, walk, chosen)
    # Keys are vacated before others are filled. `commit` is the transaction's first change.
    place = np.where(alive, 2 * places.at[walk.last[chosen]] + 1, 2 * places.at[at])
    return _Found(op, optional, at, place, keys, rows), walk.mine


def _keyed_rows(data: Array, changes: Changes, plan: DecodePlan, walk: Walk, chosen: Array) -> tuple[Rows, Rows]:
    """Places of keys and rows of the chosen outcomes: of the row's key before the changes, and of its values; for a deleted row, of its
    key only."""
    key, row = walk.net.ref[walk.place[chosen]], walk.row[chosen]
    there = np.flatnonzero(row >= 0)
    source = np.full(len(chosen), -1, np.int64)
    source[there] = walk.net.source[row[there]]
    rows = _nulls(len(plan.columns), len(chosen))
    values, _ = read_rows(data, changes, plan, walk.last[chosen][there], walk.net.prev)
    rows.off[:, there], rows.len[:, there] = values
    for k, c in enumerate(plan.key):
        rows.off[c], rows.len[c] = walk.refs.off[key, k], walk.refs.len[key, k]
    if np.any((rows.len == UNSET).any(axis=0) & (source < 0)):
        check(kernels.VALUE_UNKNOWN)
    return key_places(walk.refs, np.where(source >= 0, source, key)), rows


def _images(data: Array, changes: Changes, plan: DecodePlan, places: Places, bucket: Bucket) -> tuple[_Found, Array]:
    """Every image that the changes remove or add; and the bucket's changes, a contiguous range."""
    count = len(changes.op)
    mine = np.zeros(count, np.bool_)
    mine[count * bucket.number // bucket.count : count * (bucket.number + 1) // bucket.count] = True
    live = np.flatnonzero(mine & (changes.op != TRUNCATE))
    own = Changes(*(np.ascontiguousarray(values[live]) for values in changes))
    if plan.schema.mode is KeyMode.APPEND:
        written = np.arange(len(live), dtype=np.int32)
        rows, part = read_rows(data, own, plan, written, np.full(len(live), -1, np.int32))
        if part.any():
            check(kernels.VALUE_UNKNOWN)
        sign, of = np.ones(len(live), np.int64), written
    else:
        refs, sign, of = read_images(data, own, plan)
        rows = key_places(refs, np.arange(len(sign)))
    at = live[of]
    op = np.where(sign > 0, _INSERT, _DELETE)
    certain = np.zeros(len(at), np.bool_)
    return _Found(op, certain, at, 2 * places.at[at] + (sign > 0), _nulls(0, len(at)), rows), mine


def _completed(found: _Found, changes: Changes, places: Places, mine: Array, bucket: Bucket) -> _Found:
    """With the last TRUNCATE of each transaction, and a row for each transaction that has no other one."""
    truncates = np.flatnonzero(changes.op == TRUNCATE)[::-1]
    if bucket.number:
        truncates = truncates[:0]
    truncates = truncates[np.unique(places.end[truncates], return_index=True)[1]]
    known = np.concatenate([places.end[found.at], places.end[truncates]])
    ends, first = np.unique(places.end[mine], return_index=True)
    others = np.flatnonzero(mine)[first[~np.isin(ends, known)]]
    more = len(truncates) + len(others)
    return _Found(
        np.concatenate([found.op, np.full(len(truncates), _TRUNCATE), np.full(len(others), _NOTHING)]),
        np.pad(found.optional, (0, more)),
        np.concatenate([found.at, truncates, others]),
        np.concatenate([found.place, 2 * places.at[truncates], 2 * places.at[others]]),
        _with_nulls(found.keys, more),
        _with_nulls(found.rows, more),
    )


def _decode(data: Array, plan: DecodePlan, found: _Found, places: Places) -> pa.Table:
    table = decode_with_keys(data, plan, plan.key if len(found.keys.off) else (), found.keys, found.rows)
    table = table.append_column("end", pa.array(np.ascontiguousarray(places.end[found.at]), pa.uint64()))
    table = table.append_column("place", pa.array(found.place, pa.int64()))
    table = table.append_column("op", _TEXTS.take(pa.array(found.op, pa.int64())))
    if found.optional.any():
        table = table.append_column(OPTIONAL, pa.array(found.optional))
    return with_unset(table, found.rows)


def _nulls(columns: int, rows: int) -> Rows:
    return Rows(np.zeros((columns, rows), np.int64), np.full((columns, rows), NULL, np.int32))


def _with_nulls(rows: Rows, more: int) -> Rows:
    """The rows, followed by `more` rows of NULLs."""
    off = np.pad(rows.off, ((0, 0), (0, more)))
    return Rows(off, np.pad(rows.len, ((0, 0), (0, more)), constant_values=NULL))
