"""Rows that a global transaction moves from one node to another: they are deleted on one before they are inserted on the other.

The parts of a global transaction are written one after another. Of a key with records in several parts, those of a part that leaves the row
deleted come first, or the row would be deleted after the other node has inserted it. Two rows may move in opposite directions, so it is
records that are put first, and not parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine.model.fault import EngineFault, FaultKind
from engine.platform.compiled import Array, kernel
from engine.sources.postgres_logs.relations import View

_T_INSERT, _T_UPDATE, _T_DELETE = (ord(letter) for letter in "IUD")
_T_KEY, _T_OLD, _V_TEXT, _V_UNCHANGED = (ord(letter) for letter in "KOtu")
_NONE = np.uint64(0)
"""In place of a key: there is none."""
_SEED, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
"""FNV-1a with 64 bits. Equal hashes of different keys only put records first that need not be."""


class RowKeys(NamedTuple):
    """By record: hashes (uint64) of the keys of the row before and after it; 0 = there is no such row, or the record changes none."""

    before: Array
    after: Array


def may_remove(data: Array, offsets: Array) -> bool:
    """Whether one of these records may leave no row with the key that its row had: it deletes a row, or has a row's old values."""
    return bool(_may_remove(data, offsets))


def keys_of(data: Array, offsets: Array, view: View) -> RowKeys:
    """The keys of row changes.

    Args:
        data, offsets: records and their borders (count + 1). view: their structures and keys. Rows of tables that only one node has
            count as none, and those of tables without a key.
    """
    count = len(offsets) - 1
    found = RowKeys(np.zeros(count, np.uint64), np.zeros(count, np.uint64))
    owns, numbers = view.numbers
    seeds = (_SEED ^ numbers.astype(np.uint64)) * _PRIME
    _hash_all(data, offsets, owns, seeds, view.keys, _PRIME, found.before, found.after)
    return found


def put_first(parts: Sequence[RowKeys]) -> list[Array] | None:
    """Which records of each part come before all others: bool, by record. None: none need to.

    Raises EngineFault(LOG_UNREADABLE) if no such order leaves the rows that the parts leave: nodes give rows each other's keys.
    """
    if not any(_leaves(part).any() for part in parts):
        return None
    touched = [np.unique(np.concatenate(part)) for part in parts]
    keys, times = np.unique(np.concatenate(touched), return_counts=True)
    common = {int(key) for key in keys[times > 1].tolist()} - {0}
    if not common:
        return None
    left = [_left(part, common) for part in parts]
    firsts = []
    for at, part in enumerate(parts):
        set_elsewhere = {
            key for other, each in enumerate(left) if other != at for key, is_there in each.items() if is_there
        }
        moving = {key for key, is_there in left[at].items() if not is_there and key in set_elsewhere}
        moving = _with_chained(part, moving)
        wanted = np.array(sorted(moving), np.uint64)
        firsts.append(np.isin(part.before, wanted) | np.isin(part.after, wanted))
    found = firsts if any(first.any() for first in firsts) else None
    _check(parts, found, common, {key for each in left for key, is_there in each.items() if is_there})
    return found


def removed(keys: RowKeys) -> Array:
    """The keys (uint64) with which rows are not there any more after a record."""
    found: Array = keys.before[_leaves(keys)]
    return found


def _leaves(part: RowKeys) -> Array:
    """Which records leave no row with the key that the row had: bool."""
    found: Array = (part.before != _NONE) & (part.before != part.after)
    return found


def _check(parts: Sequence[RowKeys], firsts: Sequence[Array] | None, keys: set[int], there: set[int]) -> None:
    """Check that of `keys` exactly those of `there` have a row at the end."""
    present: set[int] = set()
    passes = [[np.ones(len(part.before), np.bool_) for part in parts]]
    if firsts is not None:
        passes = [list(firsts), [~first for first in firsts]]
    for masks in passes:
        for part, mask in zip(parts, masks, strict=True):
            for at in np.flatnonzero(mask).tolist():
                present.discard(int(part.before[at]))
                present.add(int(part.after[at]))
    if present & keys != there & keys:
        detail = "a transaction gives rows of several nodes each other's keys, which no order of its changes can show"
        raise EngineFault(FaultKind.LOG_UNREADABLE, "merge", detail)


def _left(part: RowKeys, keys: set[int]) -> dict[int, bool]:
    """Of these keys, those that the part changes, and whether it leaves a row with the key."""
    wanted = np.array(sorted(keys), np.uint64)
    found: dict[int, bool] = {}
    for at in np.flatnonzero(np.isin(part.before, wanted) | np.isin(part.after, wanted)).tolist():
        for key, is_there in ((int(part.before[at]), False), (int(part.after[at]), True)):
            if key in keys:
                found[key] = is_there
    return found


def _with_chained(part: RowKeys, keys: Iterable[int]) -> set[int]:
    """The keys, and those that changes of keys connect with them: the order of their records among each other has to stay."""
    found = set(keys)
    changes = np.flatnonzero((part.before != part.after) & (part.before != _NONE) & (part.after != _NONE))
    links = [(int(part.before[at]), int(part.after[at])) for at in changes.tolist()] if found else []
    while more := {key for link in links if found & set(link) for key in link} - found:
        found |= more
    return found


@kernel
def _be32(data: Array, at: int) -> int:
    value = 0
    for place in range(4):
        value = value << 8 | int(np.int64(data[at + place]))
    return value


@kernel
def _text_of(data: Array, at: int, column: int) -> tuple[int, int]:
    """Where the text of a column begins in the row at `at`, and its size; 0 if it has none."""
    at += 2
    for _ in range(column):
        at += 5 + _be32(data, at + 1) if data[at] == _V_TEXT else 1
    return (at + 5, _be32(data, at + 1)) if data[at] == _V_TEXT else (at, 0)


@kernel
def _hash_tuple(data: Array, at: int, old: int, table: int, flags: Array, seed: Any, prime: Any) -> tuple[Any, int]:
    """The hash of a row's key, and where the row ends. A key has no NULL. `old`: where the row's old values are, which have those
    that are unchanged and not sent again; -1: nowhere."""
    value = np.uint64(seed)
    columns = int(np.int64(data[at])) << 8 | int(np.int64(data[at + 1]))
    at += 2
    for column in range(columns):
        kind = data[at]
        at += 1
        size = 0
        if kind == _V_TEXT:
            size = _be32(data, at)
            at += 4
        text, length = at, size
        at += size
        if column >= flags.shape[1] or not flags[table, column]:
            continue
        if kind == _V_UNCHANGED and old >= 0:
            text, length = _text_of(data, old, column)
        elif kind != _V_TEXT:
            continue
        value = (value ^ np.uint64(column + 256)) * prime
        for place in range(length):
            value = (value ^ np.uint64(data[text + place])) * prime
    return value, at


@kernel
def _hash_all(
    data: Array, offsets: Array, owns: Array, seeds: Array, flags: Array, prime: Any, before: Array, after: Array
) -> None:
    for i in range(offsets.size - 1):
        p, stop = offsets[i], offsets[i + 1]
        kind = data[p]
        if kind not in (_T_INSERT, _T_UPDATE, _T_DELETE):
            continue
        oid = _be32(data, p + 1)
        table = int(np.searchsorted(owns, oid))
        if table >= owns.size or owns[table] != oid or not flags[table].any():
            continue
        at, old = p + 5, -1
        if kind != _T_INSERT and data[at] in (_T_KEY, _T_OLD):
            old = at + 1
            before[i], at = _hash_tuple(data, old, -1, table, flags, seeds[table], prime)
        if kind != _T_DELETE and at < stop:
            after[i], at = _hash_tuple(data, at + 1, old, table, flags, seeds[table], prime)
            if kind == _T_UPDATE and before[i] == 0:
                before[i] = after[i]


@kernel
def _may_remove(data: Array, offsets: Array) -> bool:
    for i in range(offsets.size - 1):
        kind = data[offsets[i]]
        if kind == _T_DELETE or (kind == _T_UPDATE and data[offsets[i] + 5] in (_T_KEY, _T_OLD)):
            return True
    return False
