"""Kernels over row changes: locate keys and row images, and compute the net effect of the changes of each key.

Values stay in the log's buffer; a value is referenced by its place (offset and length). Keys and images are compared by all
their bytes, never by hash alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.platform.compiled import NULL, UNSET, Array, inlined_kernel, kernel

OK, ALREADY_THERE, NOT_THERE, NO_OLD_IMAGE, KEY_NULL, VALUE_UNKNOWN, OTHER_COLUMNS, TWO_ROWS, NOT_AN_INSERT = range(9)
MOVED_VALUE_UNKNOWN = NOT_AN_INSERT + 1

_INSERT, _UPDATE, _DELETE, _TRUNCATE = 1, 2, 3, 4
"""Codes of `ScannedChanges.op`."""
MOVING, PARTED, KEEPING = range(3)
"""What a change of a row's key is; see `net_keyed`."""
_TEXT, _MISSING = ord("t"), ord("n")
_KEY_ONLY = 1
"""`ScannedChanges.old_kind`: the old image has only the key."""
_SEED, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x9E3779B97F4A7C15)
_MIX, _SHIFT = np.uint64(0xFF51AFD7ED558CCD), np.uint64(32)


class Changes(NamedTuple):
    """The row changes of one table in order; fields as in `model.source.ScannedChanges`."""

    op: Array
    version: Array
    new: Array
    old: Array
    old_kind: Array


class Layout(NamedTuple):
    """Maps the tuples of each schema version to the columns of the last version.

    `width[v]`: number of values in a tuple of version v. `target[v, j]`: column of the last version for value j, -1 if it
    was dropped. `key[v, j]`: index of the key column, -1 if none; `key_stop[v]`: index after the last key column.
    `lacks[v, c]`: version v does not have column c; its value for inserted rows is at `fill_off[c]`, `fill_len[c]`.
    """

    width: Array
    target: Array
    key: Array
    key_stop: Array
    lacks: Array
    fill_off: Array
    fill_len: Array


class Refs(NamedTuple):
    """Keys or images, one per row: places of the values by (row, column), and a hash."""

    off: Array
    len: Array
    hash: Array


class Rows(NamedTuple):
    """Places of values by (column, row)."""

    off: Array
    len: Array


@kernel
def _be16(data: Array, at: int) -> int:
    return int(np.int64(data[at])) << 8 | int(np.int64(data[at + 1]))


@kernel
def _be32(data: Array, at: int) -> int:
    return _be16(data, at) << 16 | _be16(data, at + 2)


@inlined_kernel
def _hash_ref(data: Array, refs: Refs, ref: int) -> None:
    h = _SEED
    for c in range(refs.off.shape[1]):
        at, length = refs.off[ref, c], refs.len[ref, c]
        h = (h ^ np.uint64(length + 3)) * _PRIME
        for p in range(at, at + max(length, 0)):
            h = (h ^ np.uint64(data[p])) * _PRIME
        h ^= h >> _SHIFT
    h *= _MIX
    refs.hash[ref] = h ^ (h >> _SHIFT)


@inlined_kernel
def _same_ref(data: Array, refs: Refs, a: int, b: int) -> bool:
    for c in range(refs.off.shape[1]):
        length = refs.len[a, c]
        if length != refs.len[b, c]:
            return False
        p, q = refs.off[a, c], refs.off[b, c]
        for k in range(length):
            if data[p + k] != data[q + k]:
                return False
    return True


@inlined_kernel
def _read_key(data: Array, at: int, version: int, layout: Layout, refs: Refs, ref: int) -> bool:
    """Record the places of the key columns of the tuple at `at`; False if the tuple has another number of columns."""
    if _be16(data, at) != layout.width[version]:
        return False
    at += 2
    for j in range(layout.key_stop[version]):
        column = layout.key[version, j]
        length = NULL if data[at] == _MISSING else UNSET
        start = at + 5
        if data[at] == _TEXT:
            length = _be32(data, at + 1)
            at = start + length
        else:
            at += 1
        if column >= 0:
            refs.off[ref, column] = start
            refs.len[ref, column] = length
    return True


@inlined_kernel
def _complete_key(refs: Refs, ref: int, old: int) -> int:
    """Fill unset columns of the new key from the old key. Returns OK, or the fault if the key stays incomplete."""
    for c in range(refs.off.shape[1]):
        if refs.len[ref, c] == UNSET and old >= 0:
            refs.off[ref, c] = refs.off[old, c]
            refs.len[ref, c] = refs.len[old, c]
        if refs.len[ref, c] == UNSET:
            return VALUE_UNKNOWN
        if refs.len[ref, c] == NULL:
            return KEY_NULL
    return OK


@kernel
def read_keys(
    data: Array, changes: Changes, layout: Layout, refs: Refs, before: Array, after: Array
) -> tuple[int, int]:
    """Find the key of each change's row before and after it, as rows of `refs`; -1 if the row does not exist then.

    `before[i] == after[i]` exactly if an update does not change the key. Returns (fault, change) or (OK, -1).
    """
    free = 0
    for i in range(changes.op.size):
        version = changes.version[i]
        before[i] = after[i] = old = -1
        if changes.old[i] >= 0:
            old = free
            free += 1
            if not _read_key(data, changes.old[i], version, layout, refs, old):
                return OTHER_COLUMNS, i
            fault = _complete_key(refs, old, -1)
            if fault != OK:
                return fault, i
        if changes.op[i] == _DELETE:
            if old < 0:
                return NO_OLD_IMAGE, i
            _hash_ref(data, refs, old)
            before[i] = old
            continue
        new = free
        free += 1
        if not _read_key(data, changes.new[i], version, layout, refs, new):
            return OTHER_COLUMNS, i
        fault = _complete_key(refs, new, old)
        if fault != OK:
            return fault, i
        _hash_ref(data, refs, new)
        after[i] = new
        if changes.op[i] == _UPDATE:
            before[i] = new
            if old >= 0 and not _same_ref(data, refs, old, new):
                _hash_ref(data, refs, old)
                before[i] = old
    return OK, -1


@inlined_kernel
def _take_tuple(data: Array, at: int, target: Array, only_text: bool, rows: Rows, row: int) -> int:
    """Set the UNSET columns of `row` from the tuple at `at`; returns how many were set."""
    taken = 0
    columns = _be16(data, at)
    at += 2
    for j in range(columns):
        kind = data[at]
        start, length = at + 5, NULL
        if kind == _TEXT:
            length = _be32(data, at + 1)
            at = start + length
        else:
            at += 1
        c = target[j]
        known = kind == _TEXT or (kind == _MISSING and not only_text)
        if c >= 0 and known and rows.len[c, row] == UNSET:
            rows.off[c, row] = start
            rows.len[c, row] = length
            taken += 1
    return taken


@inlined_kernel
def _fill_lacking(layout: Layout, version: int, rows: Rows, row: int) -> int:
    taken = 0
    for c in range(rows.len.shape[0]):
        if layout.lacks[version, c] and rows.len[c, row] == UNSET:
            rows.off[c, row] = layout.fill_off[c]
            rows.len[c, row] = layout.fill_len[c]
            taken += 1
    return taken


@inlined_kernel
def _take_change(data: Array, changes: Changes, i: int, layout: Layout, rows: Rows, row: int, missing: int) -> int:
    """Complete `row` from the new image of change `i`; returns how many columns remain UNSET."""
    version = changes.version[i]
    target = layout.target[version]
    missing -= _take_tuple(data, changes.new[i], target, False, rows, row)
    if missing > 0 and changes.old[i] >= 0:
        missing -= _take_tuple(data, changes.old[i], target, changes.old_kind[i] == _KEY_ONLY, rows, row)
    if missing > 0 and changes.op[i] == _INSERT:
        missing -= _fill_lacking(layout, version, rows, row)
    return missing


@kernel
def read_rows(data: Array, changes: Changes, layout: Layout, last: Array, prev: Array, rows: Rows, part: Array) -> int:
    """Find the values of the rows whose last change is `last[r]`, and follow `prev` for values that a change leaves out.

    `part[r]`: set to true if columns remain UNSET. Returns -1, or a change whose tuple has another number of columns.
    """
    columns = rows.len.shape[0]
    for r in range(last.size):
        for c in range(columns):
            rows.len[c, r] = UNSET
            rows.off[c, r] = 0
        missing = columns
        i = last[r]
        while i >= 0 and missing > 0:
            if _be16(data, changes.new[i]) != layout.width[changes.version[i]]:
                return int(i)
            missing = _take_change(data, changes, i, layout, rows, r, missing)
            i = prev[i]
        part[r] = missing > 0
    return -1


class Net(NamedTuple):
    """Working state and result of netting: one place per key, found by a hash table, and the rows at each place.

    `table`: open addressing; a place or -1. Per place: `ref` (its key), `head` (the row there now, -1 none), `vacant`
    (no row from before the batch is there, or it is one of the rows already). Per row: `source` (key under which it existed
    before the batch, -1 if inserted in it), `last` (its last change, -1 = deleted), `next` (another row at the same place).
    `prev`: per change, the previous change of the same row. `used`: number of places, of rows, of changes that took effect, and of rows
    that a TRUNCATE removed or that an insert replaced.

    For soft delete, else empty: per place, the last row that left it (`left_row`), that row's last change before (`left_last`, -1 = none),
    and the change with which it left (`left_at`, -1 = no row left).
    If rows replace those that have their keys, else empty: `met`, per place, whether a row came while one from before may have been there.
    """

    table: Array
    ref: Array
    head: Array
    vacant: Array
    source: Array
    last: Array
    next: Array
    prev: Array
    used: Array
    left_row: Array
    left_last: Array
    left_at: Array
    met: Array


@inlined_kernel
def _place(data: Array, refs: Refs, ref: int, net: Net, cleared: bool) -> int:
    """The place of a key; created if the key is new."""
    mask = net.table.size - 1
    at = np.int64(refs.hash[ref] & np.uint64(mask))
    while net.table[at] >= 0:
        place = net.table[at]
        other = net.ref[place]
        if refs.hash[other] == refs.hash[ref] and _same_ref(data, refs, other, ref):
            return int(place)
        at = (at + 1) & mask
    place = net.used[0]
    net.used[0] += 1
    net.table[at] = place
    net.ref[place] = ref
    net.head[place] = -1
    net.vacant[place] = cleared
    if net.left_at.size > 0:
        net.left_at[place] = -1
    if net.met.size > 0:
        net.met[place] = False
    return int(place)


@inlined_kernel
def _put(net: Net, place: int, row: int) -> None:
    net.next[row] = net.head[place]
    net.head[place] = row


@inlined_kernel
def _new_row(net: Net, source: int) -> int:
    row = net.used[1]
    net.used[1] += 1
    net.source[row] = source
    net.last[row] = -1
    return int(row)


@inlined_kernel
def _note_leaving(net: Net, place: int, row: int, i: int) -> None:
    """For soft delete, note that the row leaves the place with change `i`. Call it before `last` is changed."""
    if net.left_at.size > 0:
        net.left_row[place] = row
        net.left_last[place] = net.last[row]
        net.left_at[place] = i


@inlined_kernel
def _clear(net: Net, i: int) -> None:
    """Remove the rows of all places: change `i` is a TRUNCATE."""
    for place in range(net.used[0]):
        row = net.head[place]
        while row >= 0:
            _note_leaving(net, place, row, i)
            net.last[row] = -1
            net.used[3] += 1
            row = net.next[row]
        net.head[place] = -1
        net.vacant[place] = True


@inlined_kernel
def _leave(net: Net, place: int, row: int) -> None:
    if net.head[place] == row:
        net.head[place] = net.next[row]
        return
    at = net.head[place]
    while net.next[at] != row:
        at = net.next[at]
    net.next[at] = net.next[row]


@kernel
def _same_image(data: Array, changes: Changes, i: int, last: int, layout: Layout, pair: Rows) -> bool:
    """Whether the old image of change `i` equals the new image of change `last`, in the columns of both versions."""
    pair.len[:] = UNSET
    _take_tuple(data, changes.old[i], layout.target[changes.version[i]], False, pair, 0)
    _take_tuple(data, changes.new[last], layout.target[changes.version[last]], False, pair, 1)
    if changes.old[last] >= 0:
        _take_tuple(data, changes.old[last], layout.target[changes.version[last]], False, pair, 1)
    for c in range(pair.len.shape[0]):
        length = pair.len[c, 0]
        if length == UNSET or pair.len[c, 1] == UNSET:
            continue
        if length != pair.len[c, 1]:
            return False
        p, q = pair.off[c, 0], pair.off[c, 1]
        for k in range(length):
            if data[p + k] != data[q + k]:
                return False
    return True


@inlined_kernel
def _find_row(data: Array, changes: Changes, i: int, layout: Layout, net: Net, place: int, ref: int, pair: Rows) -> int:
    """The row at `place` that change `i` affects, -1 if there is none.

    With full old images (`pair` has columns) several rows may share a key until a deferred constraint is checked at commit;
    the old image then identifies the row.
    """
    row = net.head[place]
    if row >= 0 and pair.len.shape[0] > 0 and not (net.vacant[place] and net.next[row] < 0):
        while row >= 0 and not _same_image(data, changes, i, net.last[row], layout, pair):
            row = net.next[row]
    if row >= 0 or net.vacant[place]:
        return int(row)
    net.vacant[place] = True
    row = _new_row(net, ref)
    _put(net, place, row)
    return int(row)


@inlined_kernel
def _make_room(net: Net, place: int) -> None:
    """Remove the row at `place`, if there is one: another one comes there. No place has several rows."""
    if net.met.size > 0 and not net.vacant[place]:
        net.met[place] = True
    row = net.head[place]
    if row >= 0:
        net.head[place] = -1
        net.last[row] = -1
        net.used[3] += 1


@inlined_kernel
def _arrive(net: Net, place: int, row: int, several: bool) -> bool:
    """Add a row to `place`; False if another row is there and `several` is false."""
    if not several:
        if net.head[place] >= 0:
            return False
        net.vacant[place] = True
    _put(net, place, row)
    return True


class Outcomes(NamedTuple):
    """What each transaction left at each place that it touched, in order of transactions.

    `place`, `number` of the transaction, `row` there at its end (-1 = none), and that row's last change (`last`). `used`: number of
    outcomes, and of `touched`, the places that the current transaction has touched. `mark`: per place, the transaction that touched it
    last. `existed`: per place, whether a row from before the changes was there.
    """

    place: Array
    number: Array
    row: Array
    last: Array
    used: Array
    touched: Array
    mark: Array
    existed: Array


@inlined_kernel
def _touch(outcomes: Outcomes, place: int, number: int) -> None:
    if outcomes.mark[place] != number:
        outcomes.mark[place] = number
        outcomes.touched[outcomes.used[1]] = place
        outcomes.used[1] += 1


@kernel
def _end_transaction(net: Net, outcomes: Outcomes, number: int) -> None:
    for n in range(outcomes.used[1]):
        place = outcomes.touched[n]
        row = net.head[place]
        if row < 0 and not net.vacant[place]:
            continue  # Rows that came to this key have left it again; the one from before, if there is one, is as it was.
        net.vacant[place] = True  # At the end of a transaction a key has one row at most: none from before.
        at = outcomes.used[0]
        outcomes.place[at] = place
        outcomes.number[at] = number
        outcomes.row[at] = row
        outcomes.last[at] = net.last[row] if row >= 0 else -1
        outcomes.used[0] += 1
    outcomes.used[1] = 0


@kernel
def _touch_rows(net: Net, outcomes: Outcomes, number: int) -> None:
    """Touch the places with a row."""
    for place in range(net.used[0]):
        if net.head[place] >= 0:
            _touch(outcomes, place, number)


@kernel
def _net_rows(
    data: Array, changes: Changes, layout: Layout, refs: Refs, before: Array, after: Array,
    mine: Array, cleared: bool, net: Net, pair: Rows, manner: int, numbers: Array, outcomes: Outcomes | None,
) -> tuple[int, int]:  # fmt: skip
    """`net_keyed`, or `find_outcomes` if `outcomes` is not None.

    One loop for both, compiled once for each: a function that is called for each change would cost 200 ns. numba leaves out what depends on
    the type of `outcomes` only where the condition says nothing else.
    """
    several = pair.len.shape[0] > 0
    number = -1
    for i in mine:
        place = -1
        row = -1
        if outcomes is not None:  # noqa: SIM102 - see above
            if numbers[i] != number:
                _end_transaction(net, outcomes, number)
                number = numbers[i]
        if changes.op[i] == _TRUNCATE:
            if outcomes is not None:
                _touch_rows(net, outcomes, number)
            _clear(net, i)
            cleared = True
            continue
        if outcomes is not None:
            for ref in (before[i], after[i]):
                if ref >= 0:
                    _touch(outcomes, _place(data, refs, ref, net, cleared), number)
        moves = manner != MOVING and before[i] >= 0 and after[i] >= 0 and before[i] != after[i]
        if before[i] >= 0 and not (moves and manner == KEEPING):
            place = _place(data, refs, before[i], net, cleared)
            row = _find_row(data, changes, i, layout, net, place, before[i], pair)
            if row < 0:
                return NOT_THERE, i
        net.used[2] += 1
        if row >= 0 and before[i] != after[i]:
            _note_leaving(net, place, row, i)
        if changes.op[i] == _DELETE or (moves and row >= 0):
            _leave(net, place, row)
            net.last[row] = -1
        if changes.op[i] == _DELETE:
            continue
        if changes.op[i] == _INSERT or moves:
            row = _new_row(net, -1)
        net.prev[i] = net.last[row]
        net.last[row] = i
        if before[i] != after[i]:
            if before[i] >= 0 and not moves:
                _leave(net, place, row)
            place = _place(data, refs, after[i], net, cleared)
            if manner == KEEPING or net.met.size > 0:
                _make_room(net, place)
            if not _arrive(net, place, row, several):
                return ALREADY_THERE, i
    if outcomes is not None:
        _end_transaction(net, outcomes, number)
        for row in range(net.used[1]):
            if net.source[row] >= 0:
                outcomes.existed[_place(data, refs, net.source[row], net, cleared)] = True
    for place in range(net.used[0]):
        if net.head[place] >= 0 and net.next[net.head[place]] >= 0:
            return TWO_ROWS, -1
    return OK, -1


@kernel
def net_keyed(
    data: Array, changes: Changes, layout: Layout, refs: Refs, before: Array, after: Array,
    mine: Array, cleared: bool, net: Net, pair: Rows, manner: int = MOVING,
) -> tuple[int, int]:  # fmt: skip
    """Net the changes `mine` (indices in order) by key. Returns (fault, change), or (OK, -1) with `net` filled.

    `cleared`: the table was truncated before the first change, so only rows that the changes insert exist. A TRUNCATE may be among the
    changes with soft delete only.
    `pair`: scratch space for two images if every change carries its full old image, else without columns.
    `manner`: MOVING: an update may change a row's key. PARTED: that is a delete and an insert, whose row has nothing of the other one's.
    KEEPING: only the insert, and an insert replaces the row that has its key; no delete is among the changes. With `net.met` every row that
    comes to a key does so. `pair` has no columns then, nor unless MOVING.
    """
    return _net_rows(data, changes, layout, refs, before, after, mine, cleared, net, pair, manner, mine, None)


@kernel
def find_outcomes(
    data: Array, changes: Changes, layout: Layout, refs: Refs, before: Array, after: Array,
    mine: Array, numbers: Array, net: Net, pair: Rows, outcomes: Outcomes,
) -> tuple[int, int]:  # fmt: skip
    """As `net_keyed`, with TRUNCATEs among the changes; also fills `outcomes`. `numbers`: of the changes' transactions, ascending."""
    return _net_rows(data, changes, layout, refs, before, after, mine, False, net, pair, MOVING, numbers, outcomes)


@kernel
def find_staying(data: Array, refs: Refs, source: Array, last: Array, after: Array, staying: Array) -> None:
    """Mark the rows that existed before the batch and exist after it under the same key; `source` and `last` as in `Net`."""
    for row in range(source.size):
        staying[row] = source[row] >= 0 and last[row] >= 0
        if staying[row]:
            now = after[last[row]]
            staying[row] = refs.hash[now] == refs.hash[source[row]] and _same_ref(data, refs, now, source[row])


@kernel
def count_gone(data: Array, refs: Refs, net: Net) -> int:
    """Number of rows from before the batch that were deleted and whose key no other row has now."""
    gone = 0
    for row in range(net.used[1]):
        if net.last[row] < 0 and net.source[row] >= 0:
            gone += net.head[_place(data, refs, net.source[row], net, True)] < 0
    return gone


class Chains(NamedTuple):
    """Union-find over hashes of keys that key changes connect: open-addressing `table` of nodes; per node its hash and parent."""

    table: Array
    hash: Array
    parent: Array


@kernel
def _node(chains: Chains, h: int, used: int, make: bool) -> int:
    """Node of a hash. If there is none, create node `used` for it (`make`), or return -1."""
    mask = np.uint64(chains.table.size - 1)
    at = h & mask
    while chains.table[at] >= 0:
        if chains.hash[chains.table[at]] == h:
            return int(chains.table[at])
        at = (at + np.uint64(1)) & mask
    if not make:
        return -1
    chains.table[at] = used
    chains.hash[used] = h
    chains.parent[used] = used
    return used


@kernel
def _root(chains: Chains, node: int) -> int:
    while chains.parent[node] != node:
        chains.parent[node] = chains.parent[chains.parent[node]]
        node = chains.parent[node]
    return node


@kernel
def assign_buckets(hashes: Array, before: Array, after: Array, chains: Chains, buckets: int, bucket: Array) -> None:
    """Assign a bucket to every change: by the hash of its key, or of the first key of the chain that the key belongs to.

    Deterministic: all tasks over the same changes get the same result. Keys with equal hashes share a bucket, which is harmless.
    """
    used = 0
    for i in range(before.size):
        if before[i] >= 0 and after[i] >= 0 and before[i] != after[i]:
            a = _node(chains, hashes[before[i]], used, True)
            used += a == used
            b = _node(chains, hashes[after[i]], used, True)
            used += b == used
            a, b = _root(chains, a), _root(chains, b)
            # Nodes are numbered in order of appearance: the smaller one is the chain's first key.
            chains.parent[max(a, b)] = min(a, b)
    for i in range(before.size):
        h = hashes[before[i] if before[i] >= 0 else after[i]]
        if used > 0:
            node = _node(chains, h, used, False)
            if node >= 0:
                h = chains.hash[_root(chains, node)]
        bucket[i] = h % np.uint64(buckets)


@kernel
def read_images(
    data: Array, changes: Changes, layout: Layout, rows: Rows, sign: Array, of: Array
) -> tuple[int, int, int]:
    """Find every complete image that the changes remove (`sign` -1) or add (+1); `of`: the change of each image.

    Returns (fault, change, number of images).
    """
    free = 0
    columns = rows.len.shape[0]
    for i in range(changes.op.size):
        version = changes.version[i]
        if changes.op[i] != _INSERT:
            if changes.old_kind[i] == _KEY_ONLY or changes.old[i] < 0:
                return NO_OLD_IMAGE, i, free
            if _be16(data, changes.old[i]) != layout.width[version]:
                return OTHER_COLUMNS, i, free
            rows.len[:, free] = UNSET
            missing = columns - _take_tuple(data, changes.old[i], layout.target[version], False, rows, free)
            missing -= _fill_lacking(layout, version, rows, free)
            if missing > 0:
                return VALUE_UNKNOWN, i, free
            sign[free] = -1
            of[free] = i
            free += 1
        if changes.op[i] != _DELETE:
            if _be16(data, changes.new[i]) != layout.width[version]:
                return OTHER_COLUMNS, i, free
            rows.len[:, free] = UNSET
            missing = _take_change(data, changes, i, layout, rows, free, columns)
            if missing - _fill_lacking(layout, version, rows, free) > 0:
                return VALUE_UNKNOWN, i, free
            sign[free] = 1
            of[free] = i
            free += 1
    return OK, -1, free


@kernel
def hash_refs(data: Array, refs: Refs) -> None:
    for ref in range(refs.hash.size):
        _hash_ref(data, refs, ref)


@kernel
def net_bag(data: Array, refs: Refs, sign: Array, mine: Array, table: Array, count: Array) -> int:
    """Sum `sign` over equal images in `mine`: `count` of the first of them is set to the sum, of the others to 0. Returns their number."""
    taken = 0
    mask = table.size - 1
    for ref in mine:
        at = np.int64(refs.hash[ref] & np.uint64(mask))
        while table[at] >= 0:
            other = table[at]
            if refs.hash[other] == refs.hash[ref] and _same_ref(data, refs, other, ref):
                break
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = ref
        count[table[at]] += sign[ref]
        taken += 1
    return taken
