"""Rows that ordinary transactions move between nodes, against a model: in whatever order their logs are merged, the copy has the rows that
are there, or its table is to be copied again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sources.postgres_logs.late_rows import DOUBTFUL, KEPT, LATE, LateRows
from engine.sources.postgres_logs.moved_rows import RowKeys

KEYS = 4


@dataclass(frozen=True)
class Change:
    """A change of the row with the key `before` to one with `after`; 0: there is none."""

    before: int
    after: int
    value: int


@dataclass
class Nodes:
    """Nodes of which each row is on one at a time, the logs that they have written, and a copy that is merged from them."""

    count: int
    moves_again: bool
    """Whether a row may move before its last move has settled."""
    keys: int = 100
    logs: list[list[Change]] = field(init=False)
    merged: list[int] = field(init=False)
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By key, node and value."""
    free: set[int] = field(default_factory=set)
    """Keys of rows that were deleted, which may arrive on another node."""
    moved: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By key, node and end of the last insert that has not settled: after it was merged, ends were taken, up to which all is merged."""
    settling: list[int] = field(default_factory=list)
    """Keys that settle when all is merged up to the ends that were taken last."""
    ends: list[int] = field(default_factory=list)
    copy: dict[int, int] = field(default_factory=dict)
    doubtful: bool = False
    values: int = 0
    held: list[int] = field(init=False)
    ahead: int = 0
    """How many changes of each node are read and not merged, at most."""

    def __post_init__(self) -> None:
        self.logs = [[] for _ in range(self.count)]
        self.merged = [0] * self.count
        self.held = [0] * self.count
        for key in range(1, KEYS + 1):
            self.rows[key] = key % self.count, 0
            self.copy[key] = 0
        self.late = self._session()

    def _session(self) -> LateRows:
        late = LateRows(self.count, keys=self.keys, most=10**6)
        late.cover(self.merged)
        return late

    def write(self, key: int, chance: random.Random) -> None:
        """Delete the row with this key, change it, or insert it on some node."""
        if key not in self.rows:
            if not self.moves_again and key in self.moved:
                return
            self._insert(key, chance.randrange(self.count))
            return
        node, _ = self.rows[key]
        self.values += 1
        if chance.random() < 0.5:
            self.rows[key] = node, self.values
            self.logs[node].append(Change(key, key, self.values))
        else:
            del self.rows[key]
            self.logs[node].append(Change(key, 0, 0))

    def _insert(self, key: int, node: int) -> None:
        self.values += 1
        self.rows[key] = node, self.values
        self.logs[node].append(Change(0, key, self.values))
        self.moved[key] = node, len(self.logs[node])
        self.settling = [each for each in self.settling if each != key]

    def merge(self, node: int, count: int) -> None:
        """Merge the next changes of a node."""
        changes = self.logs[node][self.merged[node] : self.merged[node] + count]
        if not changes:
            return
        self.merged[node] += len(changes)
        ends = np.arange(len(changes))
        verdicts = self.late.judge(
            keys_of(changes),
            ends,
            ends + 1,
            np.full(len(changes), node),
            lambda: [*map(self._removed, range(self.count))],
        )
        for change, verdict in zip(changes, [KEPT] * len(changes) if verdicts is None else verdicts, strict=True):
            self.doubtful |= bool(verdict == DOUBTFUL)
            if verdict != KEPT:
                continue
            if change.before:
                del self.copy[change.before]
            if change.after:
                self.copy[change.after] = change.value

    def _removed(self, node: int) -> np.ndarray[Any, Any]:
        """The keys that a node leaves by what is read and not merged."""
        begin = self.merged[node]
        read = self.logs[node][begin : begin + self.ahead]
        return np.array([change.before for change in read if change.after == 0], np.uint64)

    def take_ends(self) -> None:
        if self.ends and not self._settle():
            return
        self.ends = [len(log) for log in self.logs]
        self.settling = [key for key, (node, end) in self.moved.items() if end <= self.merged[node]]
        self.late.ask(self.merged)
        self.late.give(self.ends)

    def _settle(self) -> bool:
        """Whether all is merged up to the ends that were taken last."""
        if any(now < end for now, end in zip(self.merged, self.ends, strict=False)):
            return False
        for key in self.settling:
            self.moved.pop(key, None)
        self.settling, self.ends = [], []
        return True

    def restart(self) -> None:
        """Another session reads what the nodes have kept, of which it knows what is merged."""
        begins = self.late.held(self.merged)
        self.late = self._session()
        self.late.cover(begins)
        for node, (begin, end) in enumerate(zip(begins, self.merged, strict=True)):
            again = self.logs[node][begin:end]
            self.late.note(node, keys_of(again))
            self.moved |= {change.after: (node, end) for change in again if change.before == 0}
        self.settling, self.ends = [], []

    def step(self, kind: str, chance: random.Random) -> None:
        if kind == "write":
            self.write(chance.randint(1, KEYS), chance)
        elif kind == "merge":
            self.merge(chance.randrange(self.count), chance.randint(1, 3))
        elif kind == "ends" and self.late.wants_ends():
            self.take_ends()
        elif kind == "restart":
            self.restart()
        self.late.advance(self.merged)
        self._settle()
        held, self.held = self.held, self.late.held(self.merged)
        assert all(now >= before for now, before in zip(self.held, held, strict=True)), "nodes have released more"


def keys_of(changes: list[Change]) -> RowKeys:
    return RowKeys(
        np.array([change.before for change in changes], np.uint64),
        np.array([change.after for change in changes], np.uint64),
    )


def assert_copied(nodes: Nodes) -> None:
    for node in range(nodes.count):
        nodes.merge(node, 10**6)
    assert nodes.copy == {key: value for key, (_, value) in nodes.rows.items()}


kinds = st.lists(st.sampled_from(["write", "write", "write", "merge", "merge", "ends", "restart"]), max_size=60)


@settings(deadline=None)
@given(kinds, st.integers(2, 3), st.sampled_from([1, 2, 100]), st.integers(0, 10**6))
def test_rows_that_move_again_once_they_have_settled_are_where_they_are(
    steps: list[str], count: int, keys: int, seed: int
) -> None:
    nodes, chance = Nodes(count, moves_again=False, keys=keys), random.Random(seed)
    for kind in steps:
        nodes.step(kind, chance)
    assert_copied(nodes)
    assert not nodes.doubtful


@settings(deadline=None)
@given(kinds, st.integers(2, 4), st.sampled_from([1, 2, 100]), st.integers(0, 10**6), st.sampled_from([0, 1, 2, 100]))
def test_rows_that_move_again_and_again_are_where_they_are_or_doubtful(
    steps: list[str], count: int, keys: int, seed: int, ahead: int
) -> None:
    """None is doubtful if all that was written is read, but after a restart: what is merged already is not judged again."""
    nodes, chance = Nodes(count, moves_again=True, keys=keys, ahead=ahead), random.Random(seed)
    try:
        for kind in steps:
            nodes.step(kind, chance)
        assert_copied(nodes)
    except (KeyError, AssertionError):
        if not nodes.doubtful:
            raise
    assert not nodes.doubtful or ahead < 100 or "restart" in steps


def judged(late: LateRows, node: int, *changes: Change) -> list[int]:
    ends = np.arange(len(changes))
    found = late.judge(keys_of(list(changes)), ends, ends + 1, np.full(len(changes), node))
    return [KEPT] * len(changes) if found is None else found.tolist()


def test_what_a_node_did_to_a_row_before_it_left_is_late_once_it_has_arrived_elsewhere() -> None:
    late = LateRows(2)
    assert judged(late, 1, Change(0, 7, 1), Change(7, 7, 2)) == [KEPT, KEPT]
    assert judged(late, 0, Change(7, 7, 3), Change(7, 0, 0), Change(8, 0, 0)) == [LATE, LATE, KEPT]
    assert judged(late, 1, Change(7, 7, 4), Change(7, 0, 0)) == [KEPT, KEPT]
    assert judged(late, 0, Change(7, 0, 0)) == [LATE]
    assert judged(late, 0, Change(0, 7, 5)) == [KEPT]


def coming(*removed: list[int]) -> Callable[[], list[np.ndarray[Any, Any]]]:
    return lambda: [np.array(keys, np.uint64) for keys in removed]


@pytest.mark.parametrize(
    ("of_0", "of_1", "arrives", "stays"),
    [([], [7], KEPT, 0), ([7], [], LATE, 1), ([7], [7], KEPT, 0), ([8], [9], DOUBTFUL, None)],
)
def test_of_two_rows_with_one_key_that_stays_which_is_not_removed_later(
    of_0: list[int], of_1: list[int], arrives: int, stays: int | None
) -> None:
    late = LateRows(2)
    assert judged(late, 1, Change(0, 7, 1)) == [KEPT]
    change, one = keys_of([Change(0, 7, 2)]), np.ones(1, np.int64)
    found = late.judge(change, one - 1, one, one - 1, coming(of_0, of_1))
    assert (KEPT if found is None else found[0]) == arrives
    if stays is not None:
        assert judged(late, 1 - stays, Change(7, 7, 3), Change(7, 0, 0)) == [LATE, LATE]
        assert judged(late, stays, Change(7, 7, 4), Change(7, 0, 0)) == [KEPT, KEPT]


def test_what_follows_within_one_run_says_which_row_stays() -> None:
    """The log of the first node is merged to its end before that of the other one, although its row had been there in between."""
    late = LateRows(2)
    changes = [Change(7, 0, 0), Change(0, 7, 2), Change(0, 7, 1), Change(7, 0, 0), Change(7, 7, 3)]
    ends = np.arange(5)
    found = late.judge(keys_of(changes), ends, ends + 1, np.array([0, 0, 1, 1, 0]))
    assert found is not None
    assert found.tolist() == [KEPT, KEPT, LATE, LATE, KEPT]


def settled(late: LateRows, *ends: int) -> None:
    """All that was merged settles."""
    late.ask(ends)
    late.give(ends)
    late.advance(ends)


def test_a_row_that_has_settled_comes_back_although_the_log_that_it_leaves_is_late() -> None:
    late = LateRows(3)
    assert judged(late, 1, Change(0, 7, 1)) == [KEPT]
    settled(late, 5, 5, 5)
    assert judged(late, 0, Change(0, 7, 2), Change(7, 7, 3)) == [KEPT, KEPT]
    assert judged(late, 1, Change(7, 7, 4), Change(7, 0, 0)) == [LATE, LATE]
    settled(late, 7, 7, 7)
    assert judged(late, 0, Change(7, 7, 5), Change(7, 0, 0)) == [KEPT, KEPT]
    assert judged(late, 2, Change(0, 7, 6)) == [KEPT]
    assert judged(late, 1, Change(0, 7, 7)) == [DOUBTFUL]


def test_rows_that_a_node_is_about_to_remove_are_elsewhere_if_they_have_arrived_there() -> None:
    late = LateRows(2, keys=1)
    judged(late, 1, Change(0, 7, 1))
    judged(late, 0, Change(0, 8, 1))
    removed = np.array([7, 8, 9], np.uint64)
    assert late.are_elsewhere(0, removed)
    assert late.are_elsewhere(0, removed[:1])
    assert not late.are_elsewhere(0, removed[1:])
    assert not late.are_elsewhere(1, removed[:1])
    assert not late.are_elsewhere(0, removed[:0])
    judged(late, 1, Change(7, 0, 0))
    assert not late.are_elsewhere(0, removed)


@pytest.mark.parametrize(
    "change", [Change(0, 7, 1), Change(7, 9, 1)], ids=["inserted on two nodes", "late, to a new key"]
)
def test_a_change_of_which_the_row_is_not_known_is_doubtful(change: Change) -> None:
    late = LateRows(2)
    assert judged(late, 1, Change(0, 7, 1)) == [KEPT]
    assert judged(late, 0, change) == [DOUBTFUL]


def test_keys_that_are_needed_are_kept_beyond_the_limit_and_others_are_forgotten() -> None:
    late = LateRows(2, keys=10)
    for key in range(1, 50):
        judged(late, 1, Change(0, key, 1))
    assert judged(late, 0, *(Change(key, 0, 0) for key in range(1, 50))) == [LATE] * 49
    late.ask([0, 49])
    late.give([60, 49])
    late.advance([59, 49])
    assert late.held([59, 49]) == [0, 0]
    late.advance([60, 49])
    assert late.held([60, 49]) == [60, 49]
    for key in range(100, 130):
        judged(late, 1, Change(0, key, 1))
        late.ask([60, key])
        late.give([60, key])
        late.advance([60, key])
    assert judged(late, 0, Change(1, 0, 0), Change(129, 0, 0)) == [KEPT, LATE]


def test_what_may_be_late_is_doubtful_once_needed_keys_are_forgotten() -> None:
    late = LateRows(2, keys=5, most=20)
    for key in range(1, 40):
        judged(late, 1, Change(0, key, 1))
    assert judged(late, 0, Change(1, 0, 0), Change(99, 99, 1), Change(39, 0, 0)) == [DOUBTFUL, DOUBTFUL, LATE]
    assert late.wants_ends()
    late.ask([1, 40])
    late.give([5, 40])
    late.advance([5, 40])
    assert judged(late, 0, Change(1, 0, 0)) == [KEPT]


def test_logs_are_kept_for_keys_that_are_needed_when_the_round_of_ends_is_given_up() -> None:
    """Too many keys are needed, and nothing has arrived since: a session that begins again has to know them, or that they are too many."""
    late = LateRows(2, keys=5, most=20)
    for key in range(1, 21):
        judged(late, 1, Change(0, key, 1))
    late.ask([0, 20])
    late.give([9, 20])
    judged(late, 1, Change(90, 90, 1))
    assert late.held([1, 21]) == [0, 0]


def test_a_round_that_began_before_a_key_arrived_does_not_make_it_forgotten() -> None:
    late = LateRows(2, keys=1)
    late.ask([0, 0])
    late.give([5, 0])
    judged(late, 1, Change(0, 1, 1))
    judged(late, 1, Change(0, 2, 1))
    late.advance([5, 2])
    judged(late, 1, Change(0, 3, 1))
    assert judged(late, 0, Change(1, 0, 0)) == [LATE]


def test_many_keys_do_not_take_each_others_place() -> None:
    chance = random.Random(1)
    keys = list({chance.getrandbits(64) | 1 for _ in range(20_000)})
    late = LateRows(2)
    for at in range(0, len(keys), 100):
        judged(late, 0, *(Change(0, key, 1) for key in keys[at : at + 50]))
    expected = [LATE if at % 100 < 50 else KEPT for at in range(len(keys))]
    assert judged(late, 1, *(Change(key, 0, 0) for key in keys)) == expected
