"""The merged log of several databases: transfers between them arrive whole, whatever is decided when, and however often it begins again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from engine.sort.merge_records import Order
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.pg.postgres_logs.nodes import Copy, nodes_on

STEPS = 60
"""Of one history."""
MOVING = -1
"""Key of an account without an amount, which ordinary transactions move."""


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("seed", [1, 2])
def test_snapshots_of_all_nodes_are_the_copy_at_their_position(
    pg: EmbeddedPostgres, database_on: Callable[..., Database], order: Order, seed: int
) -> None:
    """Transactions continue while the snapshots are taken, between any two of them, and before they are read."""
    with nodes_on([database_on(pg) for _ in range(3)], seed) as nodes:
        copy, chance = Copy(nodes, order), nodes.chance
        results: Counter[bool] = Counter()

        def write() -> None:
            for _ in range(chance.randrange(3)):
                if chance.random() < 0.5:
                    nodes.local()
                elif not nodes.left and not nodes.undecided:
                    nodes.spread(own=chance.random() < 0.5, ends=chance.choice(["commit", "commit", "half", "wait"]))
                else:
                    nodes.decide()

        try:
            for _ in range(STEPS // 3):
                write()
                copy.follow(0.0)
                found = copy.cut(write if chance.random() < 0.5 else lambda: None)
                results[found is not None] += 1
                if found is not None:
                    expected, values = found
                    assert values == expected
            nodes.decide()
            copy.reach()
            assert copy.values == nodes.values()
            assert results[True] > 0
            assert results[False] > 0
        finally:
            copy.close()


@pytest.mark.parametrize("order", Order)
def test_snapshots_between_which_a_row_has_moved_are_not_of_one_moment(
    pg18: EmbeddedPostgres, database_on: Callable[..., Database], order: Order
) -> None:
    """Nothing but its key relates the delete on one node and the insert on another one. A row that is in no snapshot is between them."""
    with nodes_on([database_on(pg18) for _ in range(2)], 1) as nodes:
        nodes.sessions[0].execute("INSERT INTO accounts VALUES (%s, 0)", [MOVING])
        copy = Copy(nodes, order)
        copy.shared = ["accounts"]
        copy.restart(0)

        def move(one: int, other: int) -> Callable[[], None]:
            """Moves it when it is called first: after the snapshot of the first node."""
            left = [(one, other)]

            def moved() -> None:
                while left:
                    one, other = left.pop()
                    nodes.sessions[one].execute("DELETE FROM accounts WHERE id = %s", [MOVING])
                    nodes.sessions[other].execute("INSERT INTO accounts VALUES (%s, 0)", [MOVING])

            return moved

        try:
            copy.reach()
            assert copy.cut(move(0, 1)) is None
            assert copy.cut(lambda: None) == (nodes.values(), nodes.values())
            found = copy.cut(move(1, 0))
            assert found is not None
            assert MOVING not in found[0]
            assert found[0] == found[1]
            copy.reach()
            assert copy.values == nodes.values()
        finally:
            copy.close()


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_amounts_are_moved_between_nodes_at_once_in_the_copy(
    pg: EmbeddedPostgres, database_on: Callable[..., Database], order: Order, seed: int
) -> None:
    with nodes_on([database_on(pg) for _ in range(3)], seed) as nodes:
        copy, chance = Copy(nodes, order), nodes.chance
        try:
            for _ in range(STEPS):
                what = chance.random()
                if what < 0.35:
                    nodes.local()
                elif what < 0.65 and not nodes.undecided and not nodes.left:
                    ends = chance.choice(["commit", "commit", "roll back", "wait", "half"])
                    nodes.spread(own=chance.random() < 0.5, ends=ends)
                elif what < 0.75:
                    nodes.decide()
                elif what < 0.9:
                    copy.follow()
                elif what < 0.95:
                    copy.confirm()
                else:
                    copy.restart(chance.randrange(4))
            nodes.decide()
            copy.reach()
            assert copy.values == nodes.values()
            assert copy.transactions > 0
        finally:
            copy.close()
