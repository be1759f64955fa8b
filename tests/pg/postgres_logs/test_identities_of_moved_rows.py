"""Rows that move between nodes, in tables whose replica identity is more than the target's key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica
from tests.fixtures.waiting import wait_until
from tests.pg.postgres_logs.test_nodes_replicated import catch_up, silent
from tests.pg.postgres_logs.test_rows_of_several_nodes import ROWS, follow, nodes, target_kind
from tests.pg.postgres_logs.test_rows_that_move import MOVED, STATES, assert_copied_once, move

__all__ = ["follow", "nodes", "target_kind"]
pytestmark = pytest.mark.pg


@pytest.mark.parametrize("declared", [False, True], ids=["whole rows", "declared key"])
def test_rows_that_have_moved_stay_whatever_the_replica_identity_is(
    follow: Callable[..., Replica], nodes: list[Database], declared: bool
) -> None:
    for database in nodes:
        if declared:
            database.execute("CREATE UNIQUE INDEX wide ON orders (id, state)")
            database.execute("ALTER TABLE orders ALTER state SET NOT NULL, REPLICA IDENTITY USING INDEX wide")
        else:
            database.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    replica = follow(**({"key": ("id",)} if declared else {}))
    with silent(nodes[0]):
        move(nodes)
        wait_until(lambda: replica.query(STATES) == MOVED, 30, "rows of n1 in place of those of n0")
    catch_up(replica)
    assert replica.query(STATES) == MOVED
    assert_copied_once(replica)


def test_equal_rows_of_a_table_without_a_key_may_be_on_several_nodes(
    follow: Callable[..., Replica], nodes: list[Database]
) -> None:
    for database in nodes:
        database.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey, REPLICA IDENTITY FULL")
    replica = follow()
    nodes[1].execute("INSERT INTO orders SELECT n, 'of n0', repeat('x', 3000) FROM generate_series(1, 3) AS n")
    nodes[1].execute("INSERT INTO orders VALUES (7, 'new', 'a')")
    catch_up(replica)
    nodes[0].execute("INSERT INTO orders VALUES (7, 'new', 'a')")
    nodes[0].execute("DELETE FROM orders WHERE id IN (1, 2)")
    catch_up(replica)
    expected = sorted(row for database in nodes for row in database.execute(ROWS))
    assert replica.query(ROWS) == expected
    assert_copied_once(replica)
