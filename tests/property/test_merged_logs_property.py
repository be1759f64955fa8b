"""The merge of several logs, against a model: each transaction once and whole, whatever is read when, however clocks differ."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sort.merge_records import EntryKind, Order
from tests.property.node_logs import Reader, World

CASES = 2_000
"""Histories that Hypothesis generates."""
SEEDS = 12_000
"""Random histories of mostly useful actions: some defects showed in one of ten thousand only."""
_ACTION = st.tuples(st.integers(0, 14), st.integers(0, 3), st.integers(0, 5), st.integers(0, 7))
_HISTORY = st.tuples(st.integers(1, 4), st.sampled_from(Order), st.lists(_ACTION, min_size=5, max_size=90))


def act(world: World, reader: Reader, action: tuple[int, int, int, int]) -> None:
    what, node, one, other = action
    node %= len(world.logs)
    if what == 0:
        world.transfer(node, one, other, 1 + one)
    elif what in {1, 2}:
        members = [(node + each) % len(world.logs) for each in range(1 + one % len(world.logs))]
        world.begin(members, other, 1 + other, own=bool(one % 2), named=other == 7, again=other in {0, 1})
    elif what in {3, 4, 5}:
        world.advance(one)
    elif what == 6 and other < 3:
        world.abort(one)
    elif what == 7:
        reader.read(node, 1 + 3 * one)
        if other % 2:
            reader.hear(node, clock=False)
    elif what == 8:
        pump(reader, without=node if other < 2 else None)
    elif what == 9:
        reader.hear(node, clock=bool(other % 2))
    elif what == 10:
        reader.ask()
    elif what == 11:
        reader.answer(lost=other == 0)
    elif what == 12:
        reader.release()
        if other > 2:
            reader.ask()
            reader.answer()
            reader.release()
    elif what == 13 and other < 5:
        reader.restart(one if other < 3 else 0)
    elif what == 14:
        reader.cut(one % 3)
    elif what == 13:
        world.offsets[node] = (one - 2) * 10_000


def pump(reader: Reader, without: int | None) -> None:
    """Read everything, except of one node, and take what is released."""
    for node, log in enumerate(reader.world.logs):
        if node != without:
            reader.read(node, len(log))
            reader.hear(node, clock=False)
    reader.release()
    reader.ask()
    reader.answer()
    reader.release()


def assert_played(nodes: int, order: Order, actions: Sequence[tuple[int, int, int, int]]) -> None:
    world = World(nodes)
    reader = Reader(world, order)
    for action in actions:
        act(world, reader, action)
    reader.finish()
    assert_merged(world, reader.history[-1].units)


def assert_merged(world: World, units: tuple[str, ...]) -> None:
    """Every transaction is among the units, after those that it depends on; and the sum never changes."""
    assert Counter(units) == Counter(world.committed.keys())
    values = dict(world.start)
    whole = sum(values.values())
    for name in units:
        values.update(world.committed[name])
        assert sum(values.values()) == whole
    assert values == world.values
    places = {name: place for place, name in enumerate(units)}
    for log in world.logs:
        commits = [record for record in log if record.kind in (None, EntryKind.OWN_COMMIT)]
        order = [places[record.name] for record in commits]
        assert order == sorted(order)
        for at, record in enumerate(log):
            if record.kind is EntryKind.COMMIT_PREPARED:
                later = [each.name for each in log[at + 1 :] if each.kind in (None, EntryKind.OWN_COMMIT)]
                assert all(places[record.name] < places[name] for name in later)


@settings(max_examples=CASES, deadline=None)
@given(_HISTORY)
def test_each_transaction_comes_once_and_whole(history: tuple[int, Order, list[tuple[int, int, int, int]]]) -> None:
    nodes, order, actions = history
    assert_played(nodes, order, actions)


@pytest.mark.parametrize("order", Order)
def test_each_transaction_comes_once_and_whole_in_random_histories(order: Order) -> None:
    chance = random.Random(29)
    for _ in range(SEEDS // len(Order)):
        actions = [
            (chance.randint(0, 14), chance.randint(0, 3), chance.randint(0, 5), chance.randint(0, 7))
            for _ in range(chance.randint(5, 90))
        ]
        assert_played(chance.randint(1, 4), order, actions)
