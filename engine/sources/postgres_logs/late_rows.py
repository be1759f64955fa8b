"""Changes of rows that have moved to another node since: late ones, which are left out of the merged log.

An application moves a row by a delete on one node and then an insert with the same key on another one. If these are ordinary
transactions, nothing but the key relates them, and the insert may be merged first. The changes of the earlier row that follow would then
be taken for ones of the new row. So the nodes on which rows arrived are kept by key, and what a node does to a row that is on another one
by then is late.

A key is needed until every other node is merged up to an end of its log that was taken after the row had arrived: what was committed there
before is merged then. Up to there nodes keep their logs, and a session that begins again reads from there, so that it knows these keys.
From then on the row has settled: if one with its key arrives on another node, that is the later one. Before that, what was read and is not
merged yet says which of two rows stays: of one that is removed there, the other node has the key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.platform.compiled import Array, kernel
from engine.sources.postgres_logs.moved_rows import RowKeys

KEPT, LATE, DOUBTFUL = range(3)
"""Verdicts: the change is written; it is left out; which row it is of is not known, so its table has to be copied again."""
_UNDECIDED = -1
"""In place of a verdict."""
_KEYS = 500_000
"""Keys of arrived rows after which the older ones are forgotten, if they are not needed. A few minutes of inserts protect applications that
insert a moved row before they delete the old one. 20 MiB. Not measured."""
_MOST_KEYS = 8_000_000
"""Keys that are kept at most while a node is not merged: 320 MiB. Not measured."""
_NEXT = np.uint32(1)
"""From the number of a round to that of the next one."""
_Columns = tuple[Array, Array, Array]
"""Keys, nodes and rounds of a table, by slot."""
_LEAST_SLOTS = 1 << 12
"""Slots of an empty table: 80 KiB. Not measured."""


class _Keys:
    """By key (a hash, uint64), the nodes that have a row with it: bits; and the round of ends by whose completion its last arrival has
    settled. An open-addressing table, at most half full."""

    def __init__(self) -> None:
        self.count = np.zeros(1, np.int64)
        self.keys = np.zeros(_LEAST_SLOTS, np.uint64)
        self.nodes = np.zeros(_LEAST_SLOTS, np.uint64)
        self.rounds = np.zeros(_LEAST_SLOTS, np.uint32)

    @property
    def columns(self) -> tuple[Array, Array, Array]:
        return self.keys, self.nodes, self.rounds

    def make_room(self, more: int) -> None:
        """For so many further keys."""
        slots = len(self.keys)
        while slots < 2 * (int(self.count[0]) + more):
            slots *= 2
        if slots > len(self.keys):
            earlier = self.columns
            self.keys, self.nodes = np.zeros(slots, np.uint64), np.zeros(slots, np.uint64)
            self.rounds = np.zeros(slots, np.uint32)
            self.count[0] = 0
            _put_all(earlier, self.columns, self.count)


class LateRows:
    """The keys of rows of tables on several nodes that arrived lately. Used by one thread."""

    def __init__(self, nodes: int, keys: int = _KEYS, most: int = _MOST_KEYS) -> None:
        """`nodes`: their number; `keys`, `most`: see _KEYS and _MOST_KEYS."""
        self._limit, self._most = keys, most
        self._new, self._old = _Keys(), _Keys()
        self._old_needed = False
        """Whether a key of `_old` may be needed still."""
        self._old_asked = False
        """Whether the round of ends that is being taken, or waited for, was asked for after `_old` had got its last key."""
        self._arrived = False
        """Whether rows have arrived since the last round was asked for."""
        self._round, self._settled = np.zeros(2, np.uint32)
        """The numbers of the last round that was asked for, and of the last one that is complete, by which rows have settled that arrived
        before it was asked for."""
        self._starts: list[int] = []
        """By node, up to where it was merged when the current round was asked for; empty: there is none."""
        self._ends: Sequence[int] | None = None
        self._covered = [0] * nodes
        self._doubtful = np.zeros(nodes, np.bool_)
        """Nodes whose changes may be late, while keys that are needed were forgotten."""

    def judge(
        self, keys: RowKeys, first: Array, stop: Array, nodes: Array, following: Callable[[], Sequence[Array]] = tuple
    ) -> Array | None:
        """Process changes in their order in the merged log.

        Args:
            keys: of all records. first, stop, nodes: by transaction, its records `[first, stop)`, and its node. following: gives by
                node the keys (uint64) of rows that it removes by what was read of it and follows these records.

        Returns: a verdict for each record (uint8), or None if all are KEPT.
        """
        if not (keys.before.any() or keys.after.any()):
            return None
        self._make_room(len(keys.after))
        found, arrived = np.zeros(len(keys.after), np.uint8), np.zeros(2, np.uint64)
        counts = stop - first
        order = np.repeat(stop - np.cumsum(counts), counts) + np.arange(counts.sum())
        who = np.repeat(nodes.astype(np.uint64), counts)
        coming: Sequence[Array] | None = None
        at, verdict = 0, _UNDECIDED
        while True:
            at = _judge(
                *keys, order, who, at, verdict, self._doubtful, self._round + _NEXT, self._settled,
                self._new.columns, self._new.count, self._old.columns, found, arrived,
            )  # fmt: skip
            if at < 0:
                break
            coming = following() if coming is None else coming
            verdict = _verdict(keys, order[at:], who[at:], int(arrived[1]), coming)
        self._arrived |= bool(arrived[0])
        return found if found.any() else None

    def note(self, node: int, keys: RowKeys) -> None:
        """Process changes of a node that are in the merged log already: of a session that reads them again."""
        self._make_room(len(keys.after))
        new, old, due = self._new, self._old, self._round + _NEXT
        _note(keys.before, keys.after, np.uint64(node), due, new.columns, new.count, old.columns)
        self._arrived = True

    def are_elsewhere(self, node: int, removed: Array) -> bool:
        """Whether a row has arrived on another node that this one is about to remove. `removed`: keys (uint64) of rows that it removes by
        what is not merged yet."""
        found = _elsewhere(removed, np.uint64(node), self._new.columns, self._old.columns)
        return bool(found) or bool(len(removed) and self._doubtful[node])

    def wants_ends(self) -> bool:
        """Whether the ends of the nodes' logs should be taken, to forget keys."""
        return not self._starts and (self._arrived or (self._old_needed and not self._old_asked))

    def ask(self, merged: Sequence[int]) -> None:
        """The ends of all logs are taken from here on. `merged`: by node, up to where it is merged."""
        if not self._starts:
            self._starts, self._ends = list(merged), None
            self._arrived, self._old_asked = False, True
            self._round += _NEXT

    def give(self, ends: Sequence[int]) -> None:
        """The ends, each taken after the last `ask`."""
        if self._starts and self._ends is None:
            self._ends = ends

    def advance(self, merged: Sequence[int]) -> None:
        """The nodes are merged up to these positions."""
        if self._ends is None or any(now < end for now, end in zip(merged, self._ends, strict=True)):
            return
        self._covered = [max(pair) for pair in zip(self._covered, self._starts, strict=True)]
        self._starts, self._ends = [], None
        self._settled = self._round
        self._old_needed &= not self._old_asked
        self._doubtful[:] = False

    def held(self, positions: Sequence[int]) -> list[int]:
        """Of positions up to which nodes may release their logs, those that leave what a further session has to read again. Not before any
        that it has returned: a session would miss what was released since."""
        if not (self._arrived or self._starts):
            self._covered = [max(pair) for pair in zip(positions, self._covered, strict=True)]
            return list(positions)
        return [min(pair) for pair in zip(positions, self._covered, strict=True)]

    def cover(self, merged: Sequence[int]) -> None:
        """No row that arrived up to these positions is known or needed: a session begins."""
        self._covered = list(merged)

    def _make_room(self, more: int) -> None:
        count = int(self._new.count[0])
        if count >= self._limit and not self._old_needed:
            self._old, self._new = self._new, _Keys()
            self._old_needed, self._old_asked = True, False
        elif count + int(self._old.count[0]) >= self._most:
            self._old, self._new = self._new, _Keys()
            self._old_needed, self._old_asked = True, False
            # A round that began before does not say when the keys that are forgotten here are not needed any more; they arrived before it.
            self._starts, self._ends, self._arrived = [], None, True
            self._doubtful[:] = True
        self._new.make_room(more)


@kernel
def _slot(keys: Array, key: Any) -> int:
    """Where a key is, or would be."""
    mask = np.uint64(keys.size - 1)
    at = (key ^ (key >> np.uint64(32))) & mask
    while keys[at] != 0 and keys[at] != key:
        at = (at + np.uint64(1)) & mask
    return np.int64(at)  # type: ignore[return-value]


@kernel
def _put_all(earlier: _Columns, into: _Columns, count: Array) -> None:
    keys, nodes, rounds = earlier
    for at in range(keys.size):
        if keys[at] != 0:
            slot = _slot(into[0], keys[at])
            into[0][slot], into[1][slot], into[2][slot] = keys[at], nodes[at], rounds[at]
            count[0] += 1


@kernel
def _own_slot(newer: _Columns, count: Array, older: _Columns, key: Any, make: bool) -> int:
    """Where a key is in the newer table, to which it is moved; -1 if it is in none and is not to be made."""
    keys, on, rounds = newer
    at = _slot(keys, key)
    if keys[at] == key:
        return at
    earlier = _slot(older[0], key)
    known = older[0][earlier] == key
    if not (known or make):
        return -1
    keys[at] = key
    if known:
        on[at], rounds[at] = older[1][earlier], older[2][earlier]
    count[0] += 1
    return at


def _verdict(keys: RowKeys, order: Array, who: Array, others: int, coming: Sequence[Array]) -> int:
    """Of the first of these records, which inserts a row or gives it another key, while other nodes (bits) have one with this key.

    A node that removes its row later on has it no longer in the end. `order`, `who`: the records and their nodes, to the last one.
    """
    node, key = int(who[0]), keys.after[order[0]]
    removes = (keys.before[order[1:]] == key) & (keys.after[order[1:]] != key)
    left = set(who[1:][removes].tolist()) | {number for number, each in enumerate(coming) if (each == key).any()}
    if not others & ~sum(1 << number for number in left):
        return KEPT
    return LATE if node in left and keys.before[order[0]] == 0 else DOUBTFUL


@kernel
def _judge(
    before: Array, after: Array, order: Array, who: Array, begin: int, verdict: int, doubtful: Array, due: Any, settled: Any,
    newer: _Columns, count: Array, older: _Columns, found: Array, arrived: Array,
) -> int:  # fmt: skip
    """Fill the verdicts from the place `begin` of `order` on, in which `verdict` is the one of its row's arrival. Returns a place in which
    that is not decided, with the other nodes that have a row with the key in `arrived[1]`; -1 at the end. `arrived[0]`: whether a row has
    arrived anywhere. `due`: the round by which that has settled."""
    _, on, rounds = newer
    for place in range(begin, order.size):
        i, bit = order[place], np.uint64(1) << who[place]
        decided = place == begin and verdict != _UNDECIDED
        if before[i] != 0 and not decided:
            at = _own_slot(newer, count, older, before[i], False)
            if at < 0 and doubtful[who[place]]:
                found[i] = DOUBTFUL
            if at >= 0 and on[at] != bit:
                late = (on[at] & bit) == 0 and (after[i] == 0 or after[i] == before[i])
                found[i] = LATE if late else DOUBTFUL
            if at >= 0 and after[i] != before[i]:
                on[at] &= ~bit
        if after[i] != 0 and after[i] != before[i] and found[i] != LATE:
            at = _own_slot(newer, count, older, after[i], True)
            if (on[at] & ~bit) != 0 and rounds[at] > settled and not decided:
                arrived[1] = on[at] & ~bit
                return place
            if decided and verdict == LATE:
                found[i] = LATE
                continue
            if decided and verdict == DOUBTFUL:
                found[i] = DOUBTFUL
            else:
                on[at] &= bit  # What others do to the row from here on was done before.
            on[at] |= bit
            rounds[at] = due
            arrived[0] = 1
    return -1


@kernel
def _note(before: Array, after: Array, node: Any, due: Any, newer: _Columns, count: Array, older: _Columns) -> None:
    bit = np.uint64(1) << node
    _, on, rounds = newer
    for i in range(before.size):
        if before[i] != 0 and after[i] != before[i]:
            at = _own_slot(newer, count, older, before[i], False)
            if at >= 0:
                on[at] &= ~bit
        if after[i] != 0 and after[i] != before[i]:
            at = _own_slot(newer, count, older, after[i], True)
            on[at] |= bit
            rounds[at] = due


@kernel
def _elsewhere(removed: Array, node: Any, newer: _Columns, older: _Columns) -> bool:
    others = ~(np.uint64(1) << node)
    for key in removed:
        at = _slot(newer[0], key)
        if newer[0][at] == key:
            if (newer[1][at] & others) != 0:
                return True
            continue
        at = _slot(older[0], key)
        if older[0][at] == key and (older[1][at] & others) != 0:
            return True
    return False


def warm() -> None:
    """Compile the kernels."""
    late = LateRows(1)
    one = np.ones(1, np.uint64)
    late.note(0, RowKeys(one, one))
    late.judge(RowKeys(one, one), np.zeros(1, np.int64), np.ones(1, np.int64), np.zeros(1, np.uint8))
    late.are_elsewhere(0, one)
    keys = _Keys()
    keys.make_room(_LEAST_SLOTS)
