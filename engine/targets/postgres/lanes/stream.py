"""The changes of a batch in the order of the log. Pure; vectorized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.model.batch import TableChanges
from engine.model.last_commit import CommitTimes
from engine.model.position import Lsn
from engine.model.schema import KeyMode
from engine.model.subscription import OriginFilter
from engine.targets.arrow_rows import joined, require_form
from engine.targets.postgres.changes import Place
from engine.targets.postgres.lanes.procedure import TRUNCATE, Kind
from engine.targets.text import as_text

Array = npt.NDArray[Any]

_MIX = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, the multiplier of Fibonacci hashing: it spreads consecutive table numbers over 64 bits."""


@dataclass(frozen=True, slots=True)
class OrderedTable:
    """One table's changes. `apart`: its rows depend on each other by more than the key (another unique key, checked foreign keys), so
    that a unit that changes it waits for its turn at its start."""

    place: Place
    changes: Sequence[TableChanges]
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Stream:
    """Arrays with one entry per change, except `ends` and `times_us`, with one per transaction: its end LSN and commit time (as `origin`,
    like LastCommit).

    `kind`: its number in `kinds`, from 1 on. `of`: number of its transaction. `h`, `g`: hash of table and key after and before. `key`:
    number of the row across all tables, equal exactly if table and key are equal; -1 if no other change is of that row. `other`: the
    row's number after a change of its key, else -1.

    The values of change i are `pool[flat[starts[i] : starts[i + 1]]]`; `sizes`: bytes of each text of the pool.
    """

    kinds: tuple[Kind, ...]
    kind: Array
    of: Array
    h: Array
    g: Array
    key: Array
    other: Array
    apart: Array
    starts: Array
    flat: Array
    pool: Any
    sizes: Array
    ends: Array
    times_us: Array
    origin: OriginFilter = OriginFilter.ANY

    @property
    def transactions(self) -> int:
        return len(self.ends)

    def behind(self, position: Lsn) -> int:
        """The first transaction that ends after a position."""
        return int(np.searchsorted(self.ends, np.uint64(position.value), side="right"))

    def end(self, stop: int) -> Lsn:
        """End of the transactions before `stop`."""
        return Lsn(int(self.ends[stop - 1]))

    def stretch(self, first: int) -> tuple[int, bool]:
        """The end of the transactions from `first` on that may be written concurrently. True: it is a single one that clears a table."""
        clears = np.array([kind.op == TRUNCATE for kind in self.kinds])
        if not clears.any():
            return self.transactions, False
        barriers = np.unique(self.of[clears[self.kind - 1]])
        at = int(np.searchsorted(barriers, first))
        if at == len(barriers):
            return self.transactions, False
        return (first + 1, True) if barriers[at] == first else (int(barriers[at]), False)


def stream_of(
    tables: Sequence[OrderedTable], times: CommitTimes | None = None, origin: OriginFilter = OriginFilter.ANY
) -> Stream:
    """Merge the changes of several tables into log order. `times`: of their transactions, as far as known.

    Raises EngineFault(INTERNAL) if staged columns have an unexpected form.
    """
    tables = [table for table in tables if any(change.in_order is not None for change in table.changes)]
    parts = [_Part.from_table(table, number) for number, table in enumerate(tables)]
    order = np.lexsort((_all(parts, "n"), _all(parts, "piece")))
    kinds: list[Kind] = []
    numbers: list[Array] = []
    slots: list[Array] = []
    columns: list[Any] = []
    keys: list[tuple[Array, Array]] = []
    base = rows = 0
    for part in parts:
        found, of = part.kinds()
        numbers.append(of + len(kinds) + 1)
        kinds += found
        texts = part.texts()
        keys.append(part.keys(texts, rows))
        rows += 2 * part.rows.num_rows
        places = {name: base + at * part.rows.num_rows for at, name in enumerate(texts)}
        slots += [np.array([places[name] for name in kind.reads], np.int64) for kind in found]
        columns += texts.values()
        base += len(texts) * part.rows.num_rows
    kind = (np.concatenate(numbers) if numbers else np.empty(0, np.int64))[order].astype(np.int32)
    row = _all(parts, "row")[order]
    starts, flat = _places(kind, row, slots)
    end = _all(parts, "end")[order].astype(np.uint64)
    begins = np.append(True, end[1:] != end[:-1])[: len(end)]
    pool = pa.concat_arrays(columns) if columns else pa.array([], pa.large_string())
    return Stream(
        tuple(kinds),
        kind,
        np.cumsum(begins) - 1,
        _all(parts, "h")[order],
        _all(parts, "g")[order],
        (np.concatenate([key for key, _ in keys]) if keys else np.empty(0, np.int64))[order],
        (np.concatenate([other for _, other in keys]) if keys else np.empty(0, np.int64))[order],
        _all(parts, "apart")[order].astype(np.bool_),
        starts,
        flat,
        pool,
        np.asarray(pc.fill_null(pc.binary_length(pool), 0)),
        end[begins],
        _times(end[begins], times),
        origin,
    )


def _times(ends: Array, times: CommitTimes | None) -> Array:
    if times is None or not len(times.ends):
        return np.zeros(len(ends), np.int64)
    at = np.minimum(np.searchsorted(times.ends, ends), len(times.ends) - 1)
    return np.where(times.ends[at] == ends, times.times_us[at], 0)


@dataclass(frozen=True, slots=True)
class _Part:
    """One table's rows; per row: slice, index in it, end LSN, hashes, whether its unit waits at its start."""

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
    def from_table(table: OrderedTable, number: int) -> _Part:
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
        """The kinds that occur, and the index of each row's kind."""
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

    def keys(self, texts: Mapping[str, Any], first: int) -> tuple[Array, Array]:
        """`key` and `other` of each row; numbers from `first` on, fewer than two per row."""
        moved = np.flatnonzero(self.rows["moved"].to_numpy())
        other = np.full(len(self.row), -1, np.int64)
        if self.place.schema.mode is not KeyMode.KEYED:
            return np.full(len(self.row), -1, np.int64), other
        taken = pa.array(moved)
        of = np.zeros(len(self.row) + len(moved), np.int64)
        for column, at in zip(self.place.row_columns, self.place.key, strict=True):
            values = pa.concat_arrays([texts[column.name], texts[f"c{at}"].take(taken)])
            codes = np.asarray(pc.fill_null(values.dictionary_encode().indices, -1), np.int64) + 1
            of = _dense(of * (int(codes.max(initial=0)) + 1) + codes)
        other[moved] = of[len(self.row) :] + first
        return of[: len(self.row)] + first, other

    def texts(self) -> dict[str, Any]:
        """Every column as text that PostgreSQL reads."""
        named = [*self.place.row_columns, *self.place.columns]
        return {
            column.name: pa.concat_arrays([as_text(c, column.value).cast(pa.large_string()) for c in chunks])
            for column in named
            if (chunks := self.rows[column.name].chunks)
        }


def _numbered(columns: Sequence[Array]) -> Array:
    """Numbers from 0 on, equal for rows that are equal in all columns: small integers first, boolean values after them."""
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
    """Indices in the pool of each change's values: offsets, and the concatenated indices."""
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
