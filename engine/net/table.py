"""Nets the changes of one table in one key bucket to Arrow tables. Errors become the table's fault, never an exception."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.model.batch import TableChanges, TableFault, TablePart
from engine.model.fault import FaultKind
from engine.model.ledger import NetTally
from engine.model.quarantine import SET_ASIDE_LIMIT
from engine.model.schema import KeyMode, TableSchema
from engine.net import change_kernels as kernels
from engine.net.change_kernels import Changes, Net, Refs, Rows
from engine.net.decode import ValueOutOfDomain, decode_batches
from engine.net.plan import ColumnPlan, DecodePlan, plan_for
from engine.net.quarantine import bad_rows, refused_table
from engine.platform.compiled import NULL, UNSET, Array, empty_places

_OPERATIONS = {1: "insert", 2: "update", 3: "delete", 4: "truncate"}
_INSERT, _UPDATE, TRUNCATE = 1, 2, 4
"""Codes of `ScannedChanges.op`."""
_FULL_ROW = 2
"""`ScannedChanges.old_kind`: the old image has all columns."""
_DETAILS = {
    kernels.ALREADY_THERE: "a row gets a key that another row has",
    kernels.NOT_THERE: "an update or delete of a missing row",
    kernels.NO_OLD_IMAGE: "the old image of an updated or deleted row is missing",
    kernels.KEY_NULL: "a key column is NULL",
    kernels.VALUE_UNKNOWN: "a value that the log left out is unknown",
    kernels.MOVED_VALUE_UNKNOWN: "the key of a row changed, which makes it a new one as not all operations are followed, and the log leaves"
    " out a large value of it; set REPLICA IDENTITY FULL on the source, and reload the table",
    kernels.TWO_ROWS: "two rows have the same key",
    kernels.NOT_AN_INSERT: "an update or delete in an insert-only table",
}


class TableTrouble(Exception):
    """The table's changes cannot be processed; carries the fault."""

    def __init__(self, fault: TableFault) -> None:
        super().__init__(fault.detail)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Bucket:
    """The keys that a task owns: those whose hash maps to bucket `number` of `count`."""

    number: int
    count: int


_Outcome = tuple[Array, TableChanges]
"""The mask of the changes in this bucket, and the table's net rows."""


def net_table(
    part: TablePart, data: Array, fills_at: int, changes: Changes, bucket: Bucket, times: Array | None = None
) -> TableChanges:
    """Net and decode the changes of one table.

    Args:
        data: the log's buffer, writable. fills_at: offset of the plan's fills in it.
        changes: of this table only, TRUNCATE (op 4) included, in commit order.
        times: of a table with soft delete, the commit time of each change in microseconds since 1970 UTC; 0 = unknown.

    Returns: the bucket's share. A fault may occur in one bucket only; it voids the table's changes in all buckets.
        Changes before the last TRUNCATE belong to no bucket, and are counted in bucket 0. With soft delete, only TRUNCATEs are.
        Changes whose operation is not followed, except updates by key, are counted there too.
    """
    truncates = np.flatnonzero(changes.op == TRUNCATE)
    if times is not None:
        return _net_soft(part, data, fills_at, changes, bucket, times, truncates)
    changes, unwanted = _followed(changes, part.versions[-1])
    if unwanted.size:
        truncates = np.flatnonzero(changes.op == TRUNCATE)
    if bucket.number:
        unwanted = unwanted[:0]
    begin = int(truncates[-1]) + 1 if truncates.size else 0
    nothing = TableChanges(part.table, truncated=begin > 0)
    live = Changes(*(values[begin:] for values in changes))
    try:
        plan = checked_plan(part, changes, fills_at)
        mine, net = _NETTING[plan.schema.mode](data, live, plan, bucket, nothing)
    except (TableTrouble, ValueOutOfDomain) as error:
        return replace(nothing, fault=error.fault)
    before = changes.op[:begin] if bucket.number == 0 else changes.op[:0]
    counts = counts_of(np.concatenate([before, live.op[mine], unwanted]))
    tally = _whole_tally(net, counts_of(before))
    if tally is not None and unwanted.size:
        tally = replace(tally, unwanted={**tally.unwanted, **counts_of(unwanted)})
    return replace(net, counts=counts, staged=_staged(net), tally=tally)


def _followed(changes: Changes, schema: TableSchema) -> tuple[Changes, Array]:
    """The changes without those whose operations are not followed, and the operations of these. Updates of a table with a key stay: those
    that change a key are inserts."""
    dropped = [code for code, name in _OPERATIONS.items() if name in schema.skipped]
    if schema.mode is KeyMode.KEYED:
        dropped = [code for code in dropped if code != _UPDATE]
    if not dropped:
        return changes, changes.op[:0]
    kept = ~np.isin(changes.op, dropped)
    return Changes(*(np.ascontiguousarray(values[kept]) for values in changes)), changes.op[~kept]


def _staged(net: TableChanges) -> dict[str, int]:
    parts = {"delete": net.deletes, "insert": net.inserts, "complete": net.partials, "mark": net.tombstones}
    parts["replace"] = net.replaced
    return {name: rows.num_rows for name, rows in parts.items() if rows is not None}


def _whole_tally(net: TableChanges, cleared: Mapping[str, int]) -> NetTally | None:
    """The tally with what the decoder made of the rows, and the changes before the last TRUNCATE."""
    tally = net.tally
    if tally is None:
        return None
    removed = 0 if net.deletes is None else net.deletes.num_rows
    if net.deletes is not None and tally.mode is KeyMode.BAG:
        removed = int(pc.sum(net.deletes["n"]).as_py())
    refused = 0 if net.refused is None else net.refused.num_rows
    gone = 0 if net.refused is None else int(pc.sum(net.refused["gone"]).as_py() or 0)
    effective = tally.effective + ("truncate" in cleared)
    return replace(
        tally, removed=removed, refused=refused, withheld=refused - gone, effective=effective, cleared=cleared
    )


def checked_plan(part: TablePart, changes: Changes, fills_at: int) -> DecodePlan:
    """The plan for a buffer with its fills at this offset. Raises TableTrouble if it does not fit the changes."""
    plan = plan_for(part.versions)
    if plan.fault is not None:
        raise TableTrouble(plan.fault)
    if changes.version.size and int(changes.version.max()) >= len(part.versions):
        detail = (
            f"the log announced the schema {int(changes.version.max())} times, but {len(part.versions) - 1} are known"
        )
        raise TableTrouble(TableFault(FaultKind.INTERNAL, detail))
    void = [number for number, version in enumerate(part.versions) if version.void]
    if void and bool(np.isin(changes.version[changes.op != TRUNCATE], void).any()):
        detail = "rows have a schema that only a rolled-back part of their transaction announced"
        raise TableTrouble(TableFault(FaultKind.TABLE_STRUCTURE_CHANGED, detail))
    return plan.at(fills_at)


def counts_of(op: Array) -> Mapping[str, int]:
    found = np.bincount(op, minlength=len(_OPERATIONS) + 1)
    return {name: int(found[code]) for code, name in _OPERATIONS.items() if found[code]}


def check(fault: int) -> None:
    if fault == kernels.OTHER_COLUMNS:
        detail = "the number of columns of a row differs from the schema at its position"
        raise TableTrouble(TableFault(FaultKind.TABLE_STRUCTURE_CHANGED, detail))
    if fault != kernels.OK:
        raise TableTrouble(TableFault(FaultKind.NET_CHANGE_ANOMALY, _DETAILS[fault]))


def _hash_table(entries: int) -> Array:
    """An empty open-addressing table, at most half full with `entries` entries."""
    return np.full(1 << (2 * max(entries, 4) - 1).bit_length(), -1, np.int32)


# --- by key ---------------------------------------------------------------------------------------------------------


def _net_keyed(data: Array, changes: Changes, plan: DecodePlan, bucket: Bucket, nothing: TableChanges) -> _Outcome:
    refs, before, after = read_keys(data, changes, plan)
    mine = _own_keys(refs, before, after, bucket)
    return mine, _net_keys(data, changes, plan, (refs, before, after), mine, nothing)


def _net_keys(
    data: Array,
    changes: Changes,
    plan: DecodePlan,
    keys: tuple[Refs, Array, Array],
    mine: Array,
    nothing: TableChanges,
    times: Array | None = None,
) -> TableChanges:
    """The net rows of the changes `mine`. `keys`: as from `read_keys`; `times`: as in `net_table`."""
    refs, before, after = keys
    manner, kept, replacing = _manner(plan.schema), mine, is_replacing(plan.schema)
    if "update" in plan.schema.skipped:
        kept = mine & ((changes.op != _UPDATE) | (before != after))
    own = np.flatnonzero(kept).astype(np.int32)
    net = empty_net(own, before, after, soft=times is not None, replacing=replacing)
    # Keys that collide until a commit are not resolved if changes are missing or rows replace others: `key` cannot be declared then.
    resolved = manner == kernels.MOVING and not replacing and has_full_images(changes)
    pair = Rows(*empty_places(len(plan.columns) if resolved else 0, 2))
    cleared = nothing.truncated and times is None
    check(kernels.net_keyed(data, changes, plan.layout, refs, before, after, own, cleared, net, pair, manner)[0])
    if times is not None:
        nothing = _with_tombstones(data, changes, plan, refs, net, times, nothing)
    outcome = _keyed_outcome(data, changes, plan, refs, after, net, nothing)
    if (manner == kernels.MOVING and not replacing) or outcome.tally is None:
        return outcome
    moved = _count_moves(before[own], after[own]) if manner == kernels.KEEPING else 0
    unwanted = counts_of(changes.op[mine & ~kept])
    # A change may end one row and begin another one.
    effective = min(outcome.tally.effective, int(np.count_nonzero(changes.op[own] != TRUNCATE)))
    return replace(outcome, tally=replace(outcome.tally, effective=effective, moved=moved, unwanted=unwanted))


def _manner(schema: TableSchema) -> int:
    """What a change of a row's key is, as in `kernels.net_keyed`."""
    if schema.keeps_rows:
        return kernels.KEEPING
    return kernels.PARTED if "update" in schema.skipped else kernels.MOVING


def is_replacing(schema: TableSchema) -> bool:
    """Whether a row that comes to a key replaces the one that has it. Without deletes every insert does so, and nothing else is to be
    known of the row that it replaces."""
    return schema.scattered and not schema.keeps_rows


def read_keys(data: Array, changes: Changes, plan: DecodePlan) -> tuple[Refs, Array, Array]:
    """Keys of the rows before and after each change, as `kernels.read_keys` finds them."""
    count = len(changes.op)
    images = int(np.count_nonzero(changes.new >= 0) + np.count_nonzero(changes.old >= 0))
    refs = Refs(*empty_places(images, len(plan.key)), np.empty(images, np.uint64))
    before, after = np.empty(count, np.int32), np.empty(count, np.int32)
    check(kernels.read_keys(data, changes, plan.layout, refs, before, after)[0])
    return refs, before, after


def keys_around_truncates(
    data: Array, changes: Changes, plan: DecodePlan, bucket: Bucket
) -> tuple[Refs, Array, Array, Array]:
    """As `read_keys`, with TRUNCATEs among the changes, which have no keys; and the mask of the bucket's changes, TRUNCATEs included."""
    rows = np.flatnonzero(changes.op != TRUNCATE)
    refs, *found = read_keys(data, Changes(*(np.ascontiguousarray(values[rows]) for values in changes)), plan)
    mine = np.ones(len(changes.op), np.bool_)
    mine[rows] = _own_keys(refs, found[0], found[1], bucket)
    before, after = np.full(len(mine), -1, np.int32), np.full(len(mine), -1, np.int32)
    before[rows], after[rows] = found
    return refs, before, after, mine


def _own_keys(refs: Refs, before: Array, after: Array, bucket: Bucket) -> Array:
    if bucket.count == 1:
        return np.ones(len(before), np.bool_)
    moves = _count_moves(before, after)
    chains = kernels.Chains(_hash_table(2 * moves), np.empty(2 * moves, np.uint64), np.empty(2 * moves, np.int32))
    of = np.empty(len(before), np.int32)
    kernels.assign_buckets(refs.hash, before, after, chains, bucket.count, of)
    return np.asarray(of == bucket.number)


def _count_moves(before: Array, after: Array) -> int:
    return int(np.count_nonzero((before >= 0) & (after >= 0) & (before != after)))


def has_full_images(changes: Changes) -> bool:
    """Whether every change carries its full old image. Only then can it be resolved that several rows share a key within a transaction
    (deferred constraint)."""
    return bool(np.all((changes.op == _INSERT) | (changes.op == TRUNCATE) | (changes.old_kind == _FULL_ROW)))


def empty_net(own: Array, before: Array, after: Array, *, soft: bool = False, replacing: bool = False) -> Net:
    """Allocate for the changes `own`: one key and row each, and two for each that changes a key. `before`, `after`: the keys of all
    changes. `soft`: with soft delete. `replacing`: as `is_replacing`."""
    changes, mine = len(before), len(own)
    places = mine + _count_moves(before, after)
    left = places if soft else 0
    return Net(
        table=_hash_table(places),
        ref=np.empty(places, np.int32),
        head=np.empty(places, np.int32),
        vacant=np.empty(places, np.bool_),
        source=np.empty(places, np.int32),
        last=np.empty(places, np.int32),
        next=np.empty(places, np.int32),
        prev=np.empty(changes, np.int32),
        used=np.zeros(4, np.int64),
        left_row=np.empty(left, np.int32),
        left_last=np.empty(left, np.int32),
        left_at=np.empty(left, np.int32),
        met=np.empty(places if replacing else 0, np.bool_),
    )


def _keyed_outcome(
    data: Array, changes: Changes, plan: DecodePlan, refs: Refs, after: Array, net: Net, nothing: TableChanges
) -> TableChanges:
    found = int(net.used[1])
    source, last = net.source[:found], net.last[:found]
    staying = np.empty(found, np.bool_)
    kernels.find_staying(data, refs, source, last, after, staying)
    rows, part = read_rows(data, changes, plan, last[last >= 0], net.prev)
    if np.any(part & (source[last >= 0] < 0)):
        check(kernels.VALUE_UNKNOWN if not plan.schema.skipped else kernels.MOVED_VALUE_UNKNOWN)
    kept = _Kept(refs, source, last, staying, rows, part)
    met = places_met(net)
    emptied = int(np.count_nonzero(net.head[met] < 0))
    tally = NetTally(
        KeyMode.KEYED,
        taken=int(net.used[2]),
        alive=int(np.count_nonzero(last >= 0)),
        before=int(np.count_nonzero(source >= 0)),
        effective=int(np.count_nonzero((last >= 0) | (source >= 0))) + emptied + nothing.net_rows,
        swept=int(net.used[3]),
        marked=0 if nothing.tombstones is None else nothing.tombstones.num_rows,
    )
    rows_left = len(part) + kernels.count_gone(data, refs, net) + emptied
    replaced = decode_keys(data, plan, refs, net.ref[met])
    nothing = replace(nothing, net_rows=nothing.net_rows + rows_left, replaced=replaced, tally=tally)
    try:
        return _decode_kept(data, plan, kept, np.zeros(len(part), np.bool_), np.zeros(found, np.bool_), nothing)
    except ValueOutOfDomain as error:
        return _without_refused(data, plan, kept, error, nothing)


def places_met(net: Net) -> Array:
    """Places where a row came while one from before the batch may have been there."""
    return np.flatnonzero(net.met[: net.used[0]])


@dataclass(frozen=True, slots=True)
class _Kept:
    """Net result of a bucket. Per entry: key of the row before the batch (-1 = none) and last change (-1 = deleted). Per entry with a
    last change: the row's values."""

    refs: Refs
    source: Array
    last: Array
    staying: Array
    rows: Rows
    part: Array

    @property
    def alive(self) -> Array:
        return np.flatnonzero(self.last >= 0)


def _decode_kept(
    data: Array, plan: DecodePlan, kept: _Kept, bad: Array, bad_key: Array, nothing: TableChanges
) -> TableChanges:
    """Decode the entries. `bad`: rows to leave out, per entry with a last change; `bad_key`: old keys to leave out, per entry."""
    source, alive = kept.source, kept.alive
    paired = kept.staying[alive] & ~kept.part & ~bad
    leaving = (source >= 0) & ~bad_key
    leaving[alive[paired]] = False
    return replace(
        nothing,
        deletes=decode_keys(data, plan, kept.refs, np.concatenate([source[alive[paired]], source[leaving]])),
        inserts=_decode_rows(data, plan.columns, kept.rows, _first_those(paired, ~kept.part & ~bad)),
        partials=_decode_partials(data, plan, kept.rows, kept.part & ~bad, kept.refs, source[alive]),
        paired=int(np.count_nonzero(paired)),
    )


def _without_refused(
    data: Array, plan: DecodePlan, kept: _Kept, error: ValueOutOfDomain, nothing: TableChanges
) -> TableChanges:
    """Decode the valid rows; the rejected rows are kept as texts, with the fault for them."""
    before = np.flatnonzero(kept.source >= 0)
    keys = key_places(kept.refs, kept.source[before])
    of_keys = {int(before[i]): why for i, why in bad_rows(data, *keys, [plan.columns[c] for c in plan.key]).items()}
    of_rows = bad_rows(data, *kept.rows, plan.columns)
    if max(len(of_keys), len(of_rows)) > SET_ASIDE_LIMIT:
        raise error
    alive = kept.alive
    bad_key, bad = np.zeros(len(kept.source), np.bool_), np.zeros(len(alive), np.bool_)
    bad_key[list(of_keys)] = True
    bad[list(of_rows)] = True
    bad |= bad_key[alive] & kept.part
    refused = alive[bad]
    gone = np.setdiff1d(np.flatnonzero(bad_key), refused)
    causes = [of_rows.get(int(i), str(error)) for i in np.flatnonzero(bad)] + [of_keys[int(i)] for i in gone]
    entries = np.concatenate([refused, gone])
    return replace(
        _decode_kept(data, plan, kept, bad, bad_key, nothing),
        refused=refused_table(
            data,
            _source_keys(kept, entries),
            _padded(kept.rows, np.flatnonzero(bad), len(gone)),
            causes,
            np.arange(len(entries)) >= len(refused),
        ),
        fault=error.fault,
    )


def _source_keys(kept: _Kept, entries: Array) -> Rows:
    """Places of the old keys of these entries; NULL if there was no row before."""
    source = kept.source[entries]
    off, length = key_places(kept.refs, np.maximum(source, 0))
    return Rows(off, np.where(source < 0, NULL, length))


def _padded(rows: Rows, chosen: Array, more: int) -> Rows:
    """Places of the chosen rows, followed by `more` rows of NULLs."""
    off = np.pad(rows.off[:, chosen], ((0, 0), (0, more)))
    return Rows(off, np.pad(rows.len[:, chosen], ((0, 0), (0, more)), constant_values=NULL))


def _first_those(first: Array, chosen: Array) -> Array:
    """Indices of the chosen rows, with `first` (a subset of them) at the front."""
    return np.concatenate([np.flatnonzero(first), np.flatnonzero(chosen & ~first)])


def read_rows(data: Array, changes: Changes, plan: DecodePlan, last: Array, prev: Array) -> tuple[Rows, Array]:
    rows, part = Rows(*empty_places(len(plan.columns), len(last))), np.empty(len(last), np.bool_)
    if kernels.read_rows(data, changes, plan.layout, last, prev, rows, part) >= 0:
        check(kernels.OTHER_COLUMNS)
    return rows, part


def key_places(refs: Refs, chosen: Array) -> Rows:
    """Places of the chosen keys, as rows."""
    return Rows(*(np.ascontiguousarray(values[chosen].T) for values in (refs.off, refs.len)))


def decode_keys(data: Array, plan: DecodePlan, refs: Refs, chosen: Array) -> pa.Table | None:
    """The chosen keys as k0 … km; None if there are none."""
    if not chosen.size:
        return None
    names = [f"k{k}" for k in range(len(plan.key))]
    columns = [plan.columns[c] for c in plan.key]
    return pa.Table.from_batches(decode_batches(data, *key_places(refs, chosen), columns, names))


def _decode_rows(
    data: Array, columns: Sequence[ColumnPlan], rows: Rows, chosen: Array | None = None
) -> pa.Table | None:
    """Decode the chosen rows (indices) in that order; all rows if `chosen` is None."""
    if rows.off.shape[1] == 0 or (chosen is not None and not chosen.size):
        return None
    if chosen is not None and not _is_all(chosen, rows):
        rows = Rows(np.ascontiguousarray(rows.off[:, chosen]), np.ascontiguousarray(rows.len[:, chosen]))
    names = [f"c{c}" for c in range(len(columns))]
    return pa.Table.from_batches(decode_batches(data, *rows, columns, names))


def _is_all(chosen: Array, rows: Rows) -> bool:
    return len(chosen) == rows.off.shape[1] and bool(np.all(chosen[1:] > chosen[:-1]))


def _decode_partials(
    data: Array, plan: DecodePlan, rows: Rows, chosen: Array, refs: Refs, source: Array
) -> pa.Table | None:
    if not chosen.any():
        return None
    values = Rows(rows.off[:, chosen], rows.len[:, chosen])
    return with_unset(decode_with_keys(data, plan, plan.key, key_places(refs, source[chosen]), values), values)


def decode_with_keys(data: Array, plan: DecodePlan, key: Sequence[int], keys: Rows, rows: Rows) -> pa.Table:
    """Decode the key columns (positions `key`) of some rows, k0 … km, and all columns, c0 … cn."""
    off, length = (np.ascontiguousarray(np.concatenate(both)) for both in zip(keys, rows, strict=True))
    columns = [*(plan.columns[c] for c in key), *plan.columns]
    names = [*(f"k{k}" for k in range(len(key))), *(f"c{c}" for c in range(len(plan.columns)))]
    return pa.Table.from_batches(decode_batches(data, off, length, columns, names))


def with_unset(table: pa.Table, rows: Rows) -> pa.Table:
    """The table with a column `u<i>` (true = unset) for every column unset in some row."""
    unset = rows.len == UNSET
    for c in np.flatnonzero(unset.any(axis=1)):
        table = table.append_column(f"u{c}", pa.array(unset[c]))
    return table


# --- soft delete ----------------------------------------------------------------------------------------------------


def _net_soft(
    part: TablePart,
    data: Array,
    fills_at: int,
    changes: Changes,
    bucket: Bucket,
    times: Array,
    truncates: Array,
) -> TableChanges:
    """As `net_table`, with the rows that were deleted. A TRUNCATE deletes rows: the changes before it matter."""
    first = int(times[truncates[0]]) if truncates.size else 0
    nothing = TableChanges(part.table, truncated=bool(truncates.size), truncated_us=first)
    rows = np.flatnonzero(changes.op != TRUNCATE)
    try:
        plan = checked_plan(part, changes, fills_at)
        refs, before, after, mine = keys_around_truncates(data, changes, plan, bucket)
        net = _net_keys(data, changes, plan, (refs, before, after), mine, nothing, times)
    except (TableTrouble, ValueOutOfDomain) as error:
        return replace(nothing, fault=error.fault)
    cleared = counts_of(changes.op[truncates] if bucket.number == 0 else changes.op[:0])
    counts = {**counts_of(changes.op[rows][mine[rows]]), **cleared}
    return replace(net, counts=counts, staged=_staged(net), tally=_whole_tally(net, cleared))


def _with_tombstones(
    data: Array, changes: Changes, plan: DecodePlan, refs: Refs, net: Net, times: Array, nothing: TableChanges
) -> TableChanges:
    """The rows that left a key which no row has now, as they were before. `net_rows` is the number of those among them that are not the end
    of a row from before the batch under its own key."""
    places = np.flatnonzero((net.head[: net.used[0]] < 0) & (net.left_at[: net.used[0]] >= 0))
    if not places.size:
        return nothing
    key, source = net.ref[places], net.source[net.left_row[places]]
    rows, _ = read_rows(data, changes, plan, net.left_last[places], net.prev)
    for k, c in enumerate(plan.key):
        rows.off[c], rows.len[c] = refs.off[key, k], refs.len[key, k]
    if np.any((rows.len == UNSET).any(axis=0) & (source < 0)):
        check(kernels.VALUE_UNKNOWN)
    origin = np.where(source >= 0, source, key)
    table = with_unset(decode_with_keys(data, plan, plan.key, key_places(refs, origin), rows), rows)
    at = times[net.left_at[places]]
    table = table.append_column("at", pa.array(at, pa.int64(), mask=at == 0).cast(pa.timestamp("us", "UTC")))
    table = table.append_column("n", pa.array(net.left_at[places], pa.int64()))
    table = table.append_column("doubtful", pa.array(~net.vacant[places]))
    own = np.empty(len(key), np.bool_)
    kernels.find_staying(data, refs, source, np.arange(len(key), dtype=np.int32), key, own)
    return replace(nothing, tombstones=table, net_rows=int(np.count_nonzero(~own)))


# --- without a key --------------------------------------------------------------------------------------------------


def _net_bag(data: Array, changes: Changes, plan: DecodePlan, bucket: Bucket, nothing: TableChanges) -> _Outcome:
    """Net counts of equal images. A truncate before needs no special case: after it, each delete has its insert among the changes."""
    refs, sign, of = read_images(data, changes, plan)
    images = len(sign)
    own = np.flatnonzero(refs.hash % np.uint64(bucket.count) == bucket.number).astype(np.int32)
    count = np.zeros(images, np.int64)
    taken = kernels.net_bag(data, refs, sign, own, _hash_table(len(own)), count)
    if nothing.truncated and np.any(count < 0):
        check(kernels.NOT_THERE)
    mine = np.zeros(len(changes.op), np.bool_)
    first_images = own[np.searchsorted(of, of[own], side="left") == own]
    mine[of[first_images]] = True
    deletes = _decode_images(data, plan, refs, np.flatnonzero(count < 0))
    if deletes is not None:
        deletes = deletes.append_column("n", pa.array(-count[count < 0]))
    inserts = _decode_images(data, plan, refs, np.repeat(np.arange(images), np.maximum(count, 0)))
    alive, before = int(np.maximum(count, 0).sum()), int(np.maximum(-count, 0).sum())
    tally = NetTally(KeyMode.BAG, int(taken), alive, before)
    return mine, replace(nothing, deletes=deletes, inserts=inserts, net_rows=alive + before, tally=tally)


def read_images(data: Array, changes: Changes, plan: DecodePlan) -> tuple[Refs, Array, Array]:
    """Whole rows as keys, with their hashes; -1 if the change removes the row, 1 if it adds it; and the index of the change."""
    most = len(changes.op) + int(np.count_nonzero(changes.op == _UPDATE))
    rows = Rows(*empty_places(len(plan.columns), most))
    sign, of = np.empty(most, np.int64), np.empty(most, np.int32)
    fault, _, found = kernels.read_images(data, changes, plan.layout, rows, sign, of)
    check(fault)
    off, length = (np.ascontiguousarray(values[:, :found].T) for values in rows)
    refs = Refs(off, length, np.empty(found, np.uint64))
    kernels.hash_refs(data, refs)
    return refs, sign[:found], of[:found]


def _decode_images(data: Array, plan: DecodePlan, refs: Refs, chosen: Array) -> pa.Table | None:
    return _decode_rows(data, plan.columns, key_places(refs, chosen))


def _net_append(data: Array, changes: Changes, plan: DecodePlan, bucket: Bucket, nothing: TableChanges) -> _Outcome:
    """Inserts without netting, assigned to the buckets round-robin. A truncate before needs no special case."""
    if np.any(changes.op != _INSERT):
        check(kernels.NOT_AN_INSERT)
    mine = np.arange(len(changes.op)) % bucket.count == bucket.number
    own = np.flatnonzero(mine).astype(np.int32)
    rows, part = read_rows(data, changes, plan, own, np.full(len(mine), -1, np.int32))
    if part.any():
        check(kernels.VALUE_UNKNOWN)
    count = len(part)
    nothing = replace(nothing, net_rows=len(own), tally=NetTally(KeyMode.APPEND, count, alive=count, effective=count))
    try:
        return mine, replace(nothing, inserts=_decode_rows(data, plan.columns, rows))
    except ValueOutOfDomain as error:
        of_rows = bad_rows(data, *rows, plan.columns)
        if len(of_rows) > SET_ASIDE_LIMIT:
            raise
        chosen = np.array(sorted(of_rows), np.int64)
        refused = refused_table(
            data, _NO_KEYS, _padded(rows, chosen, 0), [of_rows[int(i)] for i in chosen], np.zeros(len(chosen), np.bool_)
        )
        inserts = _decode_rows(data, plan.columns, rows, np.setdiff1d(np.arange(len(own)), chosen))
        return mine, replace(nothing, inserts=inserts, refused=refused, fault=error.fault)


_NO_KEYS = Rows(np.empty((0, 0), np.int64), np.empty((0, 0), np.int32))
_NETTING = {KeyMode.KEYED: _net_keyed, KeyMode.BAG: _net_bag, KeyMode.APPEND: _net_append}
