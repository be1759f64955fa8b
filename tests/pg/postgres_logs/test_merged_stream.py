"""The merged log of several databases: transfers between them arrive whole, whatever is decided when, and however often it begins again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.sort.merge import Order
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.pg.postgres_logs.nodes import Copy, nodes_on

STEPS = 60
"""Of one history."""


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
