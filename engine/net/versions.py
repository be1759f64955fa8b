"""Versions of the rows of a table with history: what each transaction left, without netting.

Several changes of a row in one transaction make one version. The result does not depend on where batches end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.model.batch import OPTIONAL, TableChanges, TablePart
from engine.net import change_kernels as kernels
from engine.net.change_kernels import Changes, Net, Outcomes, Refs
from engine.net.decode import ValueOutOfDomain
from engine.net.plan import DecodePlan
from engine.net.table import (
    TRUNCATE,
    Bucket,
    TableTrouble,
    check,
    checked_plan,
    decode_keys,
    decode_with_keys,
    empty_net,
    has_full_images,
    is_replacing,
    key_places,
    keys_around_truncates,
    places_met,
    read_rows,
    with_unset,
)
from engine.platform.compiled import UNSET, Array, empty_places


class Commits(NamedTuple):
    """Per change: `end`, the end LSN of its transaction, and `time_us`, its commit time in microseconds since 1970 UTC."""

    end: Array
    time_us: Array


def with_versions(
    net: TableChanges, part: TablePart, data: Array, fills_at: int, changes: Changes, bucket: Bucket, commits: Commits
) -> TableChanges:
    """The net changes with the versions of the same bucket, computed from the same changes (arguments as in `net_table`)."""
    if net.fault is not None:
        return net
    try:
        versions, ended = _versions(data, changes, checked_plan(part, changes, fills_at), bucket, commits)
    except (TableTrouble, ValueOutOfDomain) as error:
        return TableChanges(part.table, net.truncated, fault=error.fault)
    truncates = np.flatnonzero(changes.op == TRUNCATE)
    first = int(truncates[0]) if truncates.size else -1
    counted = {name: rows.num_rows for name, rows in (("begin", versions), ("end", ended)) if rows is not None}
    if ended is not None and OPTIONAL in ended.schema.names:
        counted["end"] -= pc.sum(ended[OPTIONAL]).as_py()
    return replace(
        net,
        versions=versions,
        ended=ended,
        staged={**net.staged, **counted},
        truncated_us=int(commits.time_us[first]) if first >= 0 else 0,
        truncated_end=int(commits.end[first]) if first >= 0 else 0,
    )


class Walk(NamedTuple):
    """The outcomes in order of places, then of transactions, with the rows that they refer to. `following`: index of the next outcome of
    the same place, -1 = none; `first`: whether it is the first one; `commit`: index of a change of the transaction. `existed`: whether a
    row from before was there; `met`: whether it is not known, and the transaction ended such a row.
    `mine`: mask of the bucket's changes."""

    refs: Refs
    net: Net
    place: Array
    row: Array
    last: Array
    following: Array
    first: Array
    existed: Array
    met: Array
    commit: Array
    mine: Array


def _versions(
    data: Array, changes: Changes, plan: DecodePlan, bucket: Bucket, commits: Commits
) -> tuple[pa.Table | None, pa.Table | None]:
    walk = walk_of(data, changes, plan, bucket, commits.end)
    began = np.flatnonzero(walk.row >= 0)
    versions = _decode_versions(data, changes, plan, walk, began, commits) if began.size else None
    over = np.flatnonzero(walk.first & (walk.existed | walk.met))
    ended = decode_keys(data, plan, walk.refs, walk.net.ref[walk.place[over]])
    if ended is not None:
        ended = _with_commits(ended, "to", commits, walk.commit[over])
        if walk.met.any():
            ended = ended.append_column(OPTIONAL, pa.array(walk.met[over]))
    return versions, ended


def walk_of(data: Array, changes: Changes, plan: DecodePlan, bucket: Bucket, end: Array) -> Walk:
    """The outcomes of the bucket's changes. `end`: per change, the end LSN of its transaction."""
    refs, before, after, mine = keys_around_truncates(data, changes, plan, bucket)
    own = np.flatnonzero(mine).astype(np.int32)
    replacing = is_replacing(plan.schema)
    net = empty_net(own, before, after, replacing=replacing)
    numbers = np.cumsum(np.diff(end, prepend=end[:1]) != 0).astype(np.int32)
    outcomes = _empty_outcomes(4 * len(own), len(net.ref))
    resolved = not replacing and has_full_images(changes)
    pair = kernels.Rows(*empty_places(len(plan.columns) if resolved else 0, 2))
    args = (data, changes, plan.layout, refs, before, after, own, numbers, net, pair, outcomes)
    check(kernels.find_outcomes(*args)[0])
    count = int(outcomes.used[0])
    order = np.argsort(outcomes.place[:count], kind="stable")
    place = outcomes.place[:count][order]
    same = place[1:] == place[:-1]
    following = np.full(count, -1, np.int64)
    following[:-1][same] = np.flatnonzero(same) + 1
    first = np.ones(count, np.bool_)
    first[1:] = ~same
    commit = np.searchsorted(numbers, outcomes.number[:count][order])
    row, last = outcomes.row[:count][order], outcomes.last[:count][order]
    met = np.zeros(len(net.ref), np.bool_)
    met[places_met(net)] = True
    return Walk(refs, net, place, row, last, following, first, outcomes.existed[place], met[place], commit, mine)


def _empty_outcomes(most: int, places: int) -> Outcomes:
    """`most`: a change touches at most two places, and a TRUNCATE those to which changes brought or found a row."""
    return Outcomes(
        place=np.empty(most, np.int32),
        number=np.empty(most, np.int32),
        row=np.empty(most, np.int32),
        last=np.empty(most, np.int32),
        used=np.zeros(2, np.int64),
        touched=np.empty(places, np.int32),
        mark=np.full(places, -1, np.int32),
        existed=np.zeros(places, np.bool_),
    )


def _decode_versions(
    data: Array, changes: Changes, plan: DecodePlan, walk: Walk, began: Array, commits: Commits
) -> pa.Table:
    key, source = walk.net.ref[walk.place[began]], walk.net.source[walk.row[began]]
    rows, _ = read_rows(data, changes, plan, walk.last[began], walk.net.prev)
    for k, c in enumerate(plan.key):
        rows.off[c], rows.len[c] = walk.refs.off[key, k], walk.refs.len[key, k]
    if np.any((rows.len == UNSET).any(axis=0) & (source < 0)):
        check(kernels.VALUE_UNKNOWN)
    keys = key_places(walk.refs, np.where(source >= 0, source, key))
    table = with_unset(decode_with_keys(data, plan, plan.key, keys, rows), rows)
    table = _with_commits(table, "from", commits, walk.commit[began])
    following = walk.following[began]
    until = np.where(following >= 0, walk.commit[following], 0)
    return _with_commits(table, "to", commits, until, following < 0)


def _with_commits(rows: pa.Table, name: str, commits: Commits, at: Array, none: Array | None = None) -> pa.Table:
    """The rows with the position and the time of the changes `at`; NULL where `none`."""
    rows = rows.append_column(f"{name}_end", pa.array(commits.end[at], pa.uint64(), mask=none))
    return rows.append_column(f"{name}_us", pa.array(commits.time_us[at], pa.int64(), mask=none))
