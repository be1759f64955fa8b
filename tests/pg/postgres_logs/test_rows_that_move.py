"""A row is deleted on one node and then inserted on another one, by ordinary transactions, while the first one's log is late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica
from tests.fixtures.waiting import wait_until
from tests.pg.postgres_logs.test_nodes_replicated import catch_up, silent
from tests.pg.postgres_logs.test_rows_of_several_nodes import ROWS, follow, nodes, target_kind

__all__ = ["follow", "nodes", "target_kind"]
pytestmark = pytest.mark.pg
MOVED = [(key, "of n1" if key < 4 else "of n0") for key in range(1, 7)]
STATES = "SELECT id, state FROM orders ORDER BY id, state"


def move(databases: list[Database]) -> None:
    databases[0].execute("UPDATE orders SET state = 'last of n0' WHERE id < 4")
    databases[0].execute("DELETE FROM orders WHERE id < 4")
    databases[1].execute("INSERT INTO orders SELECT n, 'of n1', 'a' FROM generate_series(1, 3) AS n")


def assert_copied_once(replica: Replica) -> None:
    """The table was neither parked nor copied again."""
    states = replica.states_of("orders")
    assert states.count("copying") == 1
    assert not {"parked", "reloading"} & set(states)


@pytest.mark.parametrize("ends", ["nothing", "reader", "engine"])
def test_rows_that_have_moved_stay(follow: Callable[..., Replica], nodes: list[Database], ends: str) -> None:
    replica = follow()
    with silent(nodes[0]):
        move(nodes)
        wait_until(lambda: replica.query(STATES) == MOVED, 30, "rows of n1 in place of those of n0")
        if ends == "reader":
            replica.kill_reader()
    if ends == "engine":
        replica.restart()
        replica.wait_live()
    catch_up(replica)
    assert replica.query(STATES) == MOVED
    nodes[1].execute("UPDATE orders SET state = 'again' WHERE id = 1")
    nodes[1].execute("DELETE FROM orders WHERE id = 2")
    nodes[0].execute("INSERT INTO orders VALUES (2, 'back', 'b')")
    catch_up(replica)
    expected = sorted(row for database in nodes for row in database.execute(ROWS))
    assert replica.query(ROWS) == expected
    assert_copied_once(replica)


def test_rows_that_move_within_a_batch_stay(follow: Callable[..., Replica], nodes: list[Database]) -> None:
    """The engine gets the insert and then the late delete at once."""
    replica = follow()
    with silent(nodes[0]):
        move(nodes)
        ends = nodes[1].execute("SELECT pg_current_wal_flush_lsn()")
        assert ends
    catch_up(replica)
    assert replica.query(STATES) == MOVED


@pytest.mark.parametrize("moves", [3, 4])
def test_rows_that_move_again_and_again_stay(follow: Callable[..., Replica], nodes: list[Database], moves: int) -> None:
    """The log of a node is read after that of the one that has the rows in the end, although they were there in between."""
    replica = follow()
    expected = [(key, f"move {moves}" if key < 4 else "of n0") for key in range(1, 7)]
    with silent(nodes[1 - moves % 2]):
        for number in range(moves):
            one, other = nodes[number % 2], nodes[1 - number % 2]
            one.execute("UPDATE orders SET state = 'last there' WHERE id < 4")
            one.execute("DELETE FROM orders WHERE id < 4")
            sql = "INSERT INTO orders SELECT n, %s, 'a' FROM generate_series(1, 3) AS n"
            other.execute(sql, [f"move {number + 1}"])
        wait_until(lambda: replica.query(STATES) == expected, 30, "rows of the node that has them")
    catch_up(replica)
    assert replica.query(STATES) == expected
    assert not {"parked", "copying", "reloading"} & set(replica.states_of("public.orders")[3:])
