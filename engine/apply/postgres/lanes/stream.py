"""The changes of a batch in the order of the log, and how they are dealt out to lanes. Pure; no loop over changes or transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.apply.arrow_rows import joined, require_form
from engine.apply.postgres.changes import Place
from engine.apply.postgres.lanes.arrays import Int4Array, TextArray, int4_array, text_array
from engine.apply.postgres.lanes.procedure import END, TRUNCATE, TURN, Kind
from engine.apply.postgres.text import as_text
from engine.model.batch import TableChanges
from engine.model.position import Lsn

CHANGES_AT_ONCE = 8_192
BYTES_AT_ONCE = 4 * 1024 * 1024
"""A call of the procedure takes so many changes, or values, or one unit where that has more."""

Array = npt.NDArray[Any]

_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_MIX = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class TableStretch:
    """One table's changes. `apart`: its rows are tied together by more than the key (another unique key, foreign keys that are
    checked), so that a unit that touches it waits for its turn before anything else."""

    place: Place
    changes: Sequence[TableChanges]
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """How transactions `[first, stop)` of a stream are written: how many make a unit, by how many lanes, and whether changes of rows
    that units beside each other share wait for the unit's turn."""

    first: int
    stop: int
    group: int = 1
    lanes: int = 1
    related_last: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """Parameters 1 to 5 of the procedure. `kind`: changes by their number in the stream, and marks."""

    kind: Array
    values: TextArray
    before: TextArray
    behind: TextArray
    first: int

    def marks(self, numbers: Array) -> Int4Array:
        """`numbers[kind]` is what the procedure calls it."""
        return int4_array(numbers[self.kind])


@dataclass(frozen=True, slots=True)
class Stream:
    """Arrays have one entry per change, but `ends`, which has one per transaction: its end LSN.

    `kind`: its number in `kinds`, from 1 on. `of`: number of its transaction. `h`, `g`: hash of table and key after and before.
    The values of change i are `pool[flat[starts[i] : starts[i + 1]]]`.
    """

    kinds: tuple[Kind, ...]
    kind: Array
    of: Array
    h: Array
    g: Array
    apart: Array
    starts: Array
    flat: Array
    pool: Any
    ends: Array

    @property
    def transactions(self) -> int:
        return len(self.ends)

    def behind(self, position: Lsn) -> int:
        """The first transaction that ends behind a position."""
        return int(np.searchsorted(self.ends, np.uint64(position.value), side="right"))

    def end(self, stop: int) -> Lsn:
        """Where the transactions before `stop` end."""
        return Lsn(int(self.ends[stop - 1]))

    def stretch(self, first: int) -> tuple[int, bool]:
        """Up to where transactions from `first` on may be written beside each other. True: it is one that clears a table, by itself."""
        clears = np.array([kind.op == TRUNCATE for kind in self.kinds])
        if not clears.any():
            return self.transactions, False
        barriers = np.unique(self.of[clears[self.kind - 1]])
        at = int(np.searchsorted(barriers, first))
        if at == len(barriers):
            return self.transactions, False
        return (first + 1, True) if barriers[at] == first else (int(barriers[at]), False)

    def calls(self, cut: Cut, lane: int, after: Lsn) -> Iterator[Call]:
        """What one lane is to do, in order. `after`: where the first transaction of the cut begins."""
        low, high = (int(at) for at in np.searchsorted(self.of, [cut.first, cut.stop]))
        unit = (self.of[low:high] - cut.first) // cut.group
        late = self._late(slice(low, high), unit, cut)
        mine = np.flatnonzero(unit % cut.lanes == lane)
        mine = mine[np.lexsort((late[mine], unit[mine]))]
        if not mine.size:
            return
        units, begins = np.unique(unit[mine], return_index=True)
        ends = np.append(begins[1:], len(mine))
        early = np.add.reduceat(~late[mine], begins, dtype=np.int64)
        before, behind = self._borders(cut, units, after)
        widths = self.starts[low + mine + 1] - self.starts[low + mine]
        for first, stop in self._calls(low + mine, ends):
            part = mine[begins[first] : ends[stop - 1]]
            local = slice(begins[first], ends[stop - 1])
            marks = _with_marks(
                self.kind[low + part],
                ends[first:stop] - begins[first],
                (begins + early)[first:stop] - begins[first],
                cut,
            )
            yield Call(
                marks,
                text_array(self.pool.take(pa.array(_ranges(self.flat, self.starts[low + part], widths[local])))),
                text_array(before.slice(first, stop - first)),
                text_array(behind.slice(first, stop - first)),
                int(units[first]),
            )

    def _late(self, chosen: slice, unit: Array, cut: Cut) -> Array:
        """Which changes wait for their unit's turn: those of rows that a unit beside it changes, too."""
        late = np.zeros(len(unit), np.bool_)
        if cut.lanes == 1 or not cut.related_last:
            return late
        keys = np.concatenate([self.h[chosen], self.g[chosen]])
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
        whole = np.unique(unit[self.apart[chosen]])
        return late | np.isin(unit, whole) if whole.size else late

    def _borders(self, cut: Cut, units: Array, after: Lsn) -> tuple[Any, Any]:
        """Positions before and behind each unit, as texts."""
        lasts = np.minimum(cut.first + (units + 1) * cut.group, cut.stop) - 1
        firsts = cut.first + units * cut.group
        before = np.where(units == 0, np.uint64(after.value), self.ends[np.maximum(firsts - 1, 0)])
        return _positions(before), _positions(self.ends[lasts])

    def _calls(self, changes: Array, ends: Array) -> Iterator[tuple[int, int]]:
        """Units `[first, stop)` of each call."""
        sizes = _sizes(self.pool)
        per_change = np.zeros(len(changes), np.int64)
        widths = self.starts[changes + 1] - self.starts[changes]
        filled = np.flatnonzero(widths)
        if filled.size:
            taken = sizes[_ranges(self.flat, self.starts[changes], widths)]
            per_change[filled] = np.add.reduceat(taken, np.append(0, np.cumsum(widths[filled])[:-1]))
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


def stream_of(tables: Sequence[TableStretch]) -> Stream:
    """Put the changes of several tables into one order. Raises EngineFault(INTERNAL) where staged columns have another form."""
    tables = [table for table in tables if any(change.in_order is not None for change in table.changes)]
    parts = [_Part.of(table, number) for number, table in enumerate(tables)]
    order = np.lexsort((_all(parts, "n"), _all(parts, "piece")))
    kinds: list[Kind] = []
    numbers: list[Array] = []
    slots: list[Array] = []
    columns: list[Any] = []
    base = 0
    for part in parts:
        found, of = part.kinds()
        numbers.append(of + len(kinds) + 1)
        kinds += found
        texts = part.texts()
        places = {name: base + at * part.rows.num_rows for at, name in enumerate(texts)}
        slots += [np.array([places[name] for name in kind.reads], np.int64) for kind in found]
        columns += texts.values()
        base += len(texts) * part.rows.num_rows
    kind = (np.concatenate(numbers) if numbers else np.empty(0, np.int64))[order].astype(np.int32)
    row = _all(parts, "row")[order]
    starts, flat = _places(kind, row, slots)
    end = _all(parts, "end")[order].astype(np.uint64)
    begins = np.append(True, end[1:] != end[:-1])[: len(end)]
    return Stream(
        tuple(kinds),
        kind,
        np.cumsum(begins) - 1,
        _all(parts, "h")[order],
        _all(parts, "g")[order],
        _all(parts, "apart")[order].astype(np.bool_),
        starts,
        flat,
        pa.concat_arrays(columns) if columns else pa.array([], pa.large_string()),
        end[begins],
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """One table's rows, and per row: piece, place in it, end LSN, hashes, whether its unit waits before anything else."""

    place: Place
    rows: Any
    piece: Array
    n: Array
    end: Array
    h: Array
    g: Array
    apart: Array
    row: Array

    @staticmethod
    def of(table: TableStretch, number: int) -> _Part:
        found = [(change.piece, joined([change.in_order])) for change in table.changes]
        filled: list[tuple[int, Any]] = [(piece, rows) for piece, rows in found if rows is not None]
        rows: Any = joined([part for _, part in filled])
        named = [*table.place.columns, *table.place.row_columns]
        require_form(table.place.table, rows, [c.name for c in named], [c.value for c in named])
        read = {name: rows[name].to_numpy() for name in ("n", "end", "h", "g", "moved")}
        mixed = np.uint64((number + 1) * _MIX % 2**64)
        return _Part(
            table.place,
            rows,
            np.repeat([piece for piece, _ in filled], [part.num_rows for _, part in filled]),
            read["n"],
            read["end"],
            read["h"] ^ mixed,
            read["g"] ^ mixed,
            read["moved"] | table.apart,
            np.arange(rows.num_rows),
        )

    def kinds(self) -> tuple[list[Kind], Array]:
        """The kinds that occur, and the index of each row's."""
        unset = [i for i in range(len(self.place.columns)) if self.rows.schema.get_field_index(f"u{i}") >= 0]
        op, moved = self.rows["op"].to_numpy(), self.rows["moved"].to_numpy()
        masks = [pc.fill_null(self.rows[f"u{i}"], False).to_numpy() for i in unset]
        of = _numbered([op.astype(np.int64) * 2 + moved, *masks])
        example = np.empty(int(of.max(initial=-1)) + 1, np.int64)
        example[of] = self.row
        kinds = [
            Kind(
                self.place,
                int(op[row]),
                bool(moved[row]),
                frozenset(i for i, mask in zip(unset, masks, strict=True) if mask[row]),
            )
            for row in example.tolist()
        ]
        return kinds, of

    def texts(self) -> dict[str, Any]:
        """Every column as PostgreSQL reads it."""
        named = [*self.place.row_columns, *self.place.columns]
        return {
            column.name: pa.concat_arrays([as_text(c, column.value).cast(pa.large_string()) for c in chunks])
            for column in named
            if (chunks := self.rows[column.name].chunks)
        }


def _numbered(columns: Sequence[Array]) -> Array:
    """Numbers from 0 on, the same for rows that are the same in all columns: small ones first, truth values behind it."""
    of = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        of = of * 2 + column
        if int(of.max(initial=0)) >= 2**15:
            of = _dense(of)
    return _dense(of)


def _dense(numbers: Array) -> Array:
    if int(numbers.max(initial=0)) >= 2**24:
        return np.unique(numbers, return_inverse=True)[1].reshape(-1)
    used = np.bincount(numbers) > 0
    return np.asarray((np.cumsum(used) - 1)[numbers])


def _all(parts: Sequence[_Part], name: str) -> Array:
    return np.concatenate([getattr(part, name) for part in parts]) if parts else np.empty(0, np.int64)


def _places(kind: Array, row: Array, slots: Sequence[Array]) -> tuple[Array, Array]:
    """Where in the pool the values of each change lie: borders, and the places one behind the other."""
    width = np.array([len(slot) for slot in slots], np.int64)
    starts = np.zeros(len(kind) + 1, np.int64)
    if len(kind):
        np.cumsum(width[kind - 1], out=starts[1:])
    flat = np.empty(int(starts[-1]), np.int64)
    for number, slot in enumerate(slots, 1):
        chosen = np.flatnonzero(kind == number) if len(slot) else np.empty(0, np.int64)
        if chosen.size:
            flat[starts[chosen][:, None] + np.arange(len(slot))] = slot + row[chosen][:, None]
    return starts, flat


def _ranges(flat: Array, starts: Array, widths: Array) -> Array:
    """The stretches of `flat` that begin at `starts`, one behind the other."""
    total = int(widths.sum())
    if not total:
        return np.empty(0, np.int64)
    shifted = starts - np.append(0, np.cumsum(widths)[:-1])
    return np.asarray(flat[np.repeat(shifted, widths) + np.arange(total)])


def _with_marks(kind: Array, ends: Array, turns: Array, cut: Cut) -> Array:
    """Put the marks between changes: where each unit ends, and where it waits for its turn."""
    if cut.lanes == 1:
        return np.insert(kind, ends, END)
    places = np.stack([turns, ends], axis=1).reshape(-1)
    return np.insert(kind, places, np.tile([TURN, END], len(ends)))


def _sizes(texts: Any) -> Array:
    """Bytes of each text, 0 of NULL."""
    return np.asarray(pc.fill_null(pc.binary_length(texts), 0))


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
