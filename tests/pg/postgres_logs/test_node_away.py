"""Sessions of nodes that end while the merged log is read: they are opened again, and each transaction comes once and whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.sort.merge_records import Order
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.waiting import wait_until
from tests.pg.postgres_logs.nodes import Copy, Nodes, nodes_on
from tests.pg.two_phase.node import Node

STEPS = 60
"""Of one history."""
END = "SELECT count(pg_terminate_backend(active_pid, 5000)) FROM pg_replication_slots WHERE slot_name = %s AND active"
LARGE = "INSERT INTO wide SELECT n, repeat(md5(n::text), 30) FROM generate_series({first}, {last}) AS n"


def end_session(node: Node) -> int:
    """End the session that sends the node's log; returns whether there was one."""
    return int(node.database.execute(END, [node.slot])[0][0])


def held(copy: Copy, node: int) -> int:
    """Bytes of a node's transactions that are kept."""
    assert copy.stream is not None
    log = copy.stream._logs[node]
    return log.held_bytes + log.spooled_bytes


def read_part(copy: Copy, node: int) -> None:
    """Follow until a part of a large transaction of this node is kept."""

    def is_read() -> bool:
        copy.follow(0.01)
        return held(copy, node) > 1_000_000

    wait_until(is_read, what="a part is read")


def wait_away(copy: Copy, node: int) -> None:
    def is_away() -> bool:
        copy.follow()
        return copy.stream is not None and f"n{node}" in copy.stream._away()

    wait_until(is_away, what=f"node {node} is away")


def with_table(nodes: Nodes, columns: str) -> None:
    for node in nodes.nodes:
        node.execute(f"CREATE TABLE wide ({columns})")


def inserted(copy: Copy, table: str) -> int:
    return sum(copy.inserted.get(table, []))


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_transaction_comes_once_however_often_sessions_end(
    pg: EmbeddedPostgres, database_on: Callable[..., Database], order: Order, seed: int
) -> None:
    with nodes_on([database_on(pg) for _ in range(3)], seed) as nodes:
        copy, chance = Copy(nodes, order), nodes.chance
        written = ended = 0
        with closing(copy):
            for _ in range(STEPS):
                what = chance.random()
                if what < 0.3:
                    nodes.local()
                elif what < 0.4:
                    chance.choice(nodes.nodes).insert_other()
                    written += 1
                elif what < 0.6 and not nodes.undecided and not nodes.left:
                    ends = chance.choice(["commit", "commit", "roll back", "wait", "half"])
                    nodes.spread(own=chance.random() < 0.5, ends=ends)
                elif what < 0.7:
                    nodes.decide()
                elif what < 0.85:
                    copy.follow()
                elif what < 0.9:
                    copy.confirm()
                else:
                    ended += end_session(chance.choice(nodes.nodes))
            nodes.decide()
            copy.reach()
            assert ended > 0
            assert copy.values == nodes.values()
            assert inserted(copy, "other") == written


def test_a_transaction_of_which_a_part_was_read_comes_as_a_whole(
    pg: EmbeddedPostgres, database_on: Callable[..., Database]
) -> None:
    with nodes_on([database_on(pg, logical_decoding_work_mem="'64kB'") for _ in range(2)], 1) as nodes:
        with_table(nodes, "id int PRIMARY KEY, v text")
        copy = Copy(nodes, Order.CAUSAL)
        with closing(copy):
            copy.reach()
            nodes.nodes[0].execute(LARGE.format(first=1, last=60_000))
            read_part(copy, 0)
            assert inserted(copy, "wide") == 0
            assert end_session(nodes.nodes[0]) == 1
            nodes.on(1)
            copy.reach()
            assert copy.inserted["wide"] == [60_000]
            assert copy.values == nodes.values()
            assert held(copy, 0) == 0


@pytest.mark.parametrize("decision", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("when", ["before it ends", "before the decision", "after the decision"])
def test_prepared_parts_come_once_if_the_session_ends(
    pg: EmbeddedPostgres, database_on: Callable[..., Database], decision: str, when: str
) -> None:
    with nodes_on([database_on(pg, logical_decoding_work_mem="'64kB'") for _ in range(2)], 1) as nodes:
        with_table(nodes, "id int PRIMARY KEY, v text")
        first, second = nodes.nodes
        copy = Copy(nodes, Order.CAUSAL)
        with closing(copy):
            copy.reach()
            first.prepare("g@0", LARGE.format(first=1, last=40_000))
            second.prepare("g@1", LARGE.format(first=100_000, last=100_009))
            if when == "before it ends":
                read_part(copy, 0)
            else:
                copy.reach()
            if when == "after the decision":
                first.finish(decision, "g@0")
                end = first.now()
                wait_until(lambda: copy.follow(0.01) is None and copy.stream._merge.reads()[0] >= end.value)  # type: ignore[union-attr]
            assert end_session(first) == 1
            wait_away(copy, 0)
            if when != "after the decision":
                first.finish(decision, "g@0")
            second.finish(decision, "g@1")
            copy.reach()
            copy.confirm()
            assert copy.inserted.get("wide", []) == ([40_010] if decision == "COMMIT" else [])
            first.execute(LARGE.format(first=200_000, last=200_000))
            copy.reach()
            assert inserted(copy, "wide") == (40_011 if decision == "COMMIT" else 1)


def test_tables_that_were_announced_before_have_rows_afterwards(
    pg: EmbeddedPostgres, database_on: Callable[..., Database]
) -> None:
    """The session announces each table once, with a transaction that was read before."""
    with nodes_on([database_on(pg) for _ in range(2)], 1) as nodes:
        copy = Copy(nodes, Order.CAUSAL)
        with closing(copy):
            for _ in range(2):
                nodes.nodes[0].insert_other()
                copy.reach()
                assert end_session(nodes.nodes[0]) == 1
            nodes.nodes[0].insert_other()
            nodes.on(0)
            copy.reach()
            assert inserted(copy, "other") == 3
            assert copy.values == nodes.values()


def test_transactions_of_others_continue_and_marks_wait_while_a_node_is_away(
    pg: EmbeddedPostgres, database_on: Callable[..., Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    with nodes_on([database_on(pg) for _ in range(3)], 1) as nodes:
        copy = Copy(nodes, Order.CAUSAL)
        monkeypatch.setattr(nodes.nodes[0], "session_of", unreachable)
        with closing(copy):
            copy.reach()
            assert end_session(nodes.nodes[0]) == 1
            wait_away(copy, 0)
            assert copy.stream is not None
            nodes.on(1)
            mark = copy.stream.mark({"n1": nodes.nodes[1].now()})
            wait_until(lambda: copy.is_at(mark), what="the other node's mark is reached")
            assert copy.values[nodes_key(1)] == nodes.values()[nodes_key(1)]
            now = copy.stream.request_mark(flushed=True)
            nodes.on(0)
            nodes.on(2)
            mark = copy.stream.mark({"n2": nodes.nodes[2].now()})
            for _ in range(20):
                assert not copy.is_at(now)
            away = copy.stream._away()["n0"]
            assert (away.code, away.reason) == ("source_unreachable", "it is not there")
            monkeypatch.undo()
            wait_until(lambda: copy.is_at(now), what="the mark is reached")
            assert copy.stream._away() == {}
            assert copy.values == nodes.values()


def test_a_node_that_cannot_continue_ends_the_run(pg: EmbeddedPostgres, database_on: Callable[..., Database]) -> None:
    with nodes_on([database_on(pg) for _ in range(2)], 1) as nodes:
        copy = Copy(nodes, Order.CAUSAL)
        with closing(copy):
            copy.reach()
            node = nodes.nodes[0]
            node.database.execute(END, [node.slot])
            node.database.execute("SELECT pg_drop_replication_slot(%s)", [node.slot])
            with pytest.raises(EngineFault) as caught:
                wait_until(lambda: copy.follow() and None, what="the fault")
            assert caught.value.kind is FaultKind.LOG_GAP
            node.create_slot()


def nodes_key(node: int) -> int:
    """The key of the account that `Nodes.on` changes first."""
    return node * 5


def unreachable(*_: object) -> None:
    raise EngineFault(FaultKind.SOURCE_UNREACHABLE, "n0", "it is not there")
