"""Assigns a stream's changes to lanes: units, changes that wait for their turn, changes that share a statement. Pure; vectorized."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.model.position import Lsn
from engine.targets.postgres.lanes.arrays import Int4Array, TextArray, int4_array, text_array
from engine.targets.postgres.lanes.procedure import DELETE, END, INSERT, TRUNCATE, TURN, UPDATE
from engine.targets.postgres.lanes.stream import Stream

CHANGES_AT_ONCE = 8_192
"""Limit of changes in one call of the procedure; a larger unit is a call of its own. It bounds the arrays of a call. Not measured."""
BYTES_AT_ONCE = 4 * 1024 * 1024
"""Limit of changes, or values, in one call of the procedure; a larger unit is a call of its own."""
TOGETHER_FROM = 4
"""At least this many changes of one kind in a unit, of different rows, share one statement."""

Array = npt.NDArray[Any]
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_FIRST = {DELETE: 0, UPDATE: 1, INSERT: 2}
"""Among statements of many rows, those that free keys come first."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the transactions `[first, stop)` of a stream are written: transactions per unit, number of lanes, and whether changes of
    rows that concurrent units also change wait for their unit's turn. `together`: rows that change once in a unit may share a
    statement, and for a row that is only updated in it the last update suffices."""

    first: int
    stop: int
    group: int = 1
    lanes: int = 1
    related_last: bool = True
    together: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """Parameters 1 to 6 and 12 of the procedure. `kind`: statements and marks, a statement of many rows by its kind's number plus the
    number of kinds; `counts`: the number of rows of each of those."""

    kind: Array
    values: TextArray
    before: TextArray
    behind: TextArray
    first: int
    counts: Int4Array
    lasts: TextArray

    def marks(self, numbers: Array) -> Int4Array:
        """`numbers[kind]`: the procedure's number of the kind."""
        return int4_array(numbers[self.kind])


@dataclass(frozen=True, slots=True)
class _Dealt:
    """A lane's changes (indices in the stream) in execution order. `run`: the statement of each; `late`: whether that follows the
    turn; `many`: whether its statement has many rows."""

    change: Array
    unit: Array
    late: Array
    run: Array
    many: Array


def calls(stream: Stream, cut: Cut, lane: int, after: Lsn) -> Iterator[Call]:
    """The calls of one lane, in order. `after`: start of the first transaction of the cut."""
    dealt = _deal(stream, cut, lane)
    if not dealt.change.size:
        return
    units, begins = np.unique(dealt.unit, return_index=True)
    ends = np.append(begins[1:], len(dealt.change))
    before, behind, lasts = _borders(stream, cut, units, after)
    for first, stop in _runs(stream, dealt.change, ends):
        mine = slice(int(begins[first]), int(ends[stop - 1]))
        part = _Dealt(*(getattr(dealt, name)[mine] for name in ("change", "unit", "late", "run", "many")))
        kind, counts = _marks(stream, part, cut)
        yield Call(
            kind,
            text_array(stream.pool.take(pa.array(_values(stream, part)))),
            text_array(before.slice(first, stop - first)),
            text_array(behind.slice(first, stop - first)),
            int(units[first]),
            int4_array(counts),
            text_array(lasts.slice(first, stop - first)),
        )


def _deal(stream: Stream, cut: Cut, lane: int) -> _Dealt:
    low, high = (int(at) for at in np.searchsorted(stream.of, [cut.first, cut.stop]))
    unit = (stream.of[low:high] - cut.first) // cut.group
    late = _late(stream, slice(low, high), unit, cut)
    free, superseded = _alone_in_unit(stream, slice(low, high), unit, cut)
    mine = np.flatnonzero((unit % cut.lanes == lane) & ~superseded)
    kind = stream.kind[low:high]
    rank = np.array([_FIRST.get(found.op, 0) for found in stream.kinds], np.int64)
    # In this order: changes that share statements, by kind, then all others in log order.
    together = np.where(free[mine], rank[kind[mine] - 1] * (len(stream.kinds) + 1) + kind[mine], 2**31)
    order = np.lexsort((together, late[mine], unit[mine]))
    mine = mine[order]
    together = together[order]
    same = (unit[mine][1:] == unit[mine][:-1]) & (late[mine][1:] == late[mine][:-1])
    same &= (together[1:] == together[:-1]) & (together[1:] < 2**31)
    run = np.cumsum(np.append(True, ~same)[: len(mine)]) - 1
    many = np.bincount(run, minlength=1)[run] >= TOGETHER_FROM if len(mine) else np.empty(0, np.bool_)
    many &= together < 2**31
    # Too few to share a statement: each gets a separate one.
    starts = np.append(True, (run[1:] != run[:-1]) | ~many[1:])[: len(mine)]
    return _Dealt(mine + low, unit[mine], late[mine], np.cumsum(starts) - 1, many)


def _alone_in_unit(stream: Stream, chosen: slice, unit: Array, cut: Cut) -> tuple[Array, Array]:
    """The changes that may share a statement, and those that are superseded: later changes in their unit set the same columns."""
    nothing = np.zeros(len(unit), np.bool_)
    if not cut.together or not len(unit):
        return nothing, nothing
    kind = stream.kind[chosen] - 1
    plain = np.array([k.shareable for k in stream.kinds])
    updates = np.array([k.op == UPDATE and not k.moved for k in stream.kinds])
    whole = updates & np.array([not k.unset for k in stream.kinds])
    key, other = stream.key[chosen], stream.other[chosen]
    moves = np.flatnonzero(other >= 0)
    owner = np.concatenate([np.arange(len(unit)), moves])
    keys = np.concatenate([key, other[moves]])
    order = np.lexsort((owner, keys, unit[owner]))
    owner, keys = owner[order], keys[order]
    # Rows without a number are all different.
    begins = np.append(True, (keys[1:] != keys[:-1]) | (keys[1:] < 0) | (unit[owner][1:] != unit[owner][:-1]))
    group = np.cumsum(begins) - 1
    last = owner[np.append(np.flatnonzero(begins)[1:], len(owner)) - 1]
    merged = (np.bincount(group, ~updates[kind[owner]]) == 0) & whole[kind[last]]
    superseded = nothing.copy()
    superseded[owner[merged[group] & (owner != last[group])]] = True
    single = np.ones(len(unit), np.bool_)
    single[owner[((np.bincount(group) > 1) & ~merged)[group]]] = False
    cleared = np.unique(unit[np.array([k.op == TRUNCATE for k in stream.kinds])[kind]])
    return single & plain[kind] & ~stream.apart[chosen] & ~np.isin(unit, cleared), superseded


def _late(stream: Stream, chosen: slice, unit: Array, cut: Cut) -> Array:
    """The changes that wait for their unit's turn: those of rows that a concurrent unit changes too."""
    late = np.zeros(len(unit), np.bool_)
    if cut.lanes == 1 or not cut.related_last:
        return late
    keys = np.concatenate([stream.h[chosen], stream.g[chosen]])
    units = np.concatenate([unit, unit])
    order = np.lexsort((units, keys))
    sorted_keys, sorted_units = keys[order], units[order]
    same = sorted_keys[1:] == sorted_keys[:-1]
    distance = sorted_units[1:] - sorted_units[:-1]
    begins = np.append(True, ~same | (distance > 0))
    shared = np.append(False, same & (distance > 0) & (distance < cut.lanes))
    flags = np.empty(len(keys), np.bool_)
    flags[order] = shared[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    late = flags[: len(unit)] | flags[len(unit) :]
    whole = np.unique(unit[stream.apart[chosen]])
    return late | np.isin(unit, whole) if whole.size else late


def _runs(stream: Stream, changes: Array, ends: Array) -> Iterator[tuple[int, int]]:
    """Units `[first, stop)` of each call."""
    widths = stream.starts[changes + 1] - stream.starts[changes]
    per_change = np.zeros(len(changes), np.int64)
    filled = np.flatnonzero(widths)
    if filled.size:
        places = stream.flat[_spread(stream.starts[changes], widths)]
        per_change[filled] = np.add.reduceat(stream.sizes[places], np.append(0, np.cumsum(widths[filled])[:-1]))
    bytes_behind = np.cumsum(per_change)[ends - 1]
    first = 0
    while first < len(ends):
        done = int(ends[first - 1]) if first else 0
        size = int(bytes_behind[first - 1]) if first else 0
        stop = min(
            int(np.searchsorted(ends, done + CHANGES_AT_ONCE, side="right")),
            int(np.searchsorted(bytes_behind, size + BYTES_AT_ONCE, side="right")),
        )
        stop = max(first + 1, stop)
        yield first, stop
        first = stop


def _spread(starts: Array, widths: Array) -> Array:
    """The indices of the ranges that begin at `starts`, concatenated."""
    total = int(widths.sum())
    shifted = starts - np.append(0, np.cumsum(widths)[:-1])
    return np.asarray(np.repeat(shifted, widths) + np.arange(total))


def _values(stream: Stream, part: _Dealt) -> Array:
    """Indices in the pool of a call's values: by statement, and by column for statements of many rows."""
    widths = stream.starts[part.change + 1] - stream.starts[part.change]
    run = part.run - part.run[0]
    count = np.bincount(run)
    first_of = np.append(0, np.cumsum(count)[:-1])
    sizes = np.bincount(run, widths).astype(np.int64)
    begin = np.append(0, np.cumsum(sizes)[:-1])
    owner = np.repeat(np.arange(len(part.change)), widths)
    column = _spread(np.zeros(len(widths), np.int64), widths)
    of = run[owner]
    out = np.empty(len(owner), np.int64)
    out[begin[of] + column * count[of] + owner - first_of[of]] = stream.flat[stream.starts[part.change][owner] + column]
    return out


def _marks(stream: Stream, part: _Dealt, cut: Cut) -> tuple[Array, Array]:
    """Statements with the marks between them, and the row counts of statements of many rows."""
    first = np.append(True, part.run[1:] != part.run[:-1])
    many, unit, late = part.many[first], part.unit[first], part.late[first]
    kind = stream.kind[part.change[first]].astype(np.int64) + len(stream.kinds) * many
    counts = np.bincount(part.run - part.run[0])[many]
    begins = np.flatnonzero(np.append(True, unit[1:] != unit[:-1]))
    ends = np.append(begins[1:], len(kind))
    if cut.lanes == 1:
        return np.insert(kind, ends, END), counts
    turns = begins + np.add.reduceat(~late, begins, dtype=np.int64)
    places = np.stack([turns, ends], axis=1).reshape(-1)
    return np.insert(kind, places, np.tile([TURN, END], len(ends))), counts


def _borders(stream: Stream, cut: Cut, units: Array, after: Lsn) -> tuple[Any, Any, Any]:
    """Positions before and after each unit as texts, and the rest of LastCommit's text for its last transaction."""
    lasts = np.minimum(cut.first + (units + 1) * cut.group, cut.stop) - 1
    firsts = cut.first + units * cut.group
    before = np.where(units == 0, np.uint64(after.value), stream.ends[np.maximum(firsts - 1, 0)])
    times = pa.array(stream.times_us[lasts]).cast(pa.large_string())
    filters = pa.scalar(stream.origin.value, pa.large_string())
    endings = pc.binary_join_element_wise(times, filters, pa.scalar(" ", pa.large_string()))
    return _positions(before), _positions(stream.ends[lasts]), endings


def _positions(values: Array) -> Any:
    """Texts of positions."""
    low = values.astype(np.uint64) & np.uint64(0xFFFFFFFF)
    high = values.astype(np.uint64) >> np.uint64(32)
    return pc.binary_join_element_wise(_hex(high), _hex(low), pa.scalar("/", pa.large_string()))


def _hex(values: Array) -> Any:
    """32-bit numbers in hexadecimal, without leading zeros."""
    octets = values.astype(">u4").view(np.uint8)
    digits = np.stack([_HEX[octets >> 4], _HEX[octets & 15]], axis=1).reshape(-1)
    borders = np.arange(0, len(digits) + 1, 8, dtype=np.int64)
    texts = pa.LargeStringArray.from_buffers(len(values), pa.py_buffer(borders), pa.py_buffer(digits.copy()))
    trimmed = pc.utf8_ltrim(texts, "0")
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar("0", pa.large_string()), trimmed)
