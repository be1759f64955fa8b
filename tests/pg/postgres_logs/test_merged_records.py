"""What the merged log of several databases holds, and what it leaves to the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.sort.merge_records import Order
from engine.sources.postgres_logs.merged_numbers import MergedNumbers, clock_number
from engine.sources.postgres_logs.relations import Why
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.waiting import wait_until
from tests.pg.postgres_logs import nodes as accounts
from tests.pg.postgres_logs.nodes import ACCOUNTS, Copy, Nodes, nodes_on


@pytest.fixture
def nodes(pg: EmbeddedPostgres, database_on: Callable[..., Database]) -> Iterator[Nodes]:
    with nodes_on([database_on(pg, logical_decoding_work_mem="'64kB'") for _ in range(2)], 5) as nodes:
        yield nodes


@pytest.fixture
def copy(nodes: Nodes) -> Iterator[Copy]:
    copy = Copy(nodes, Order.STRICT)
    try:
        yield copy
    finally:
        copy.close()


def test_a_transaction_of_many_records_arrives_whole(nodes: Nodes, copy: Copy) -> None:
    """Prepared on one node, and the coordinator's own part on the other: each is larger than a chunk."""
    rows = 40_000
    for node in nodes.nodes:
        node.execute("CREATE TABLE wide (id int PRIMARY KEY, v text)")
    for number, session in enumerate(nodes.sessions):
        session.execute("BEGIN")
        session.execute(
            "INSERT INTO wide SELECT n, repeat('x', 300) FROM generate_series(%s::int, %s) AS n",
            [number * rows, number * rows + rows - 1],
        )
    nodes.sessions[1].execute("PREPARE TRANSACTION 'big@1'")
    nodes.sessions[0].execute("SELECT pg_logical_emit_message(true, 'shop.gtid', 'big')")
    nodes.sessions[0].execute("COMMIT")
    nodes.sessions[1].execute("COMMIT PREPARED 'big@1'")
    copy.reach()
    assert copy.inserted["wide"] == [2 * rows]


def test_rows_of_an_earlier_structure_after_those_of_the_new_one_have_their_table_copied_again(
    nodes: Nodes, copy: Copy
) -> None:
    """If they were announced as what they are, the new column would be dropped, with the values that it has."""
    for _ in range(10):
        nodes.local()
    nodes.nodes[1].execute("ALTER TABLE accounts ADD COLUMN note text")
    nodes.on(1)
    copy.reach()
    assert copy.reloads == []
    copy.restart(0)
    nodes.on(0)
    copy.reach()
    assert [name for name, _ in copy.reloads] == ["accounts"]
    nodes.nodes[0].execute("ALTER TABLE accounts ADD COLUMN note text")
    for node in (0, 1, 0):
        nodes.on(node)
    copy.reach()
    assert len(copy.reloads) == 1
    assert copy.values == nodes.values()


def test_a_change_that_reaches_all_nodes_before_their_rows_is_one_change(nodes: Nodes, copy: Copy) -> None:
    for change in ("ADD COLUMN note text", "DROP COLUMN note", "ADD COLUMN other text"):
        for node in (0, 1):
            nodes.on(node)
        for node in nodes.nodes:
            node.execute(f"ALTER TABLE accounts {change}")
        for node in (1, 0):
            nodes.on(node)
        copy.reach()
    assert copy.reloads == []
    assert copy.values == nodes.values()


def test_a_table_of_several_nodes_that_one_truncates_is_copied_again(nodes: Nodes, copy: Copy) -> None:
    """Its rows of the other nodes are still there. A table of one node is truncated."""
    copy.shared.append("other")
    copy.restart(0)
    nodes.nodes[0].insert_other()
    nodes.nodes[1].execute("CREATE TABLE alone (id int PRIMARY KEY)", "INSERT INTO alone VALUES (1)")
    copy.reach()
    nodes.nodes[0].execute("TRUNCATE other")
    nodes.nodes[1].execute("INSERT INTO alone VALUES (2)", "TRUNCATE alone, other")
    copy.reach()
    assert copy.truncated == {"alone": 1}
    why = Why(FaultKind.TABLE_STRUCTURE_CHANGED, "it was truncated on one of its nodes")
    assert copy.reloads == [("other", why)]


def test_rows_that_change_places_between_nodes_are_there_at_every_moment(nodes: Nodes, copy: Copy) -> None:
    """Both are deleted and inserted by one global transaction; the coordinator has an ordinary part."""
    here, there = 0, ACCOUNTS
    for _ in range(3):
        for number, (gone, come) in enumerate(((here, there), (there, here))):
            session = nodes.sessions[number]
            session.execute("BEGIN")
            session.execute("DELETE FROM accounts WHERE id = %s", [gone])
            session.execute("INSERT INTO accounts VALUES (%s, 100)", [come])
        nodes.sessions[1].execute(f"PREPARE TRANSACTION 'swap {here}@1'".encode())
        nodes.sessions[0].execute("SELECT pg_logical_emit_message(true, 'shop.gtid', %s)", [f"swap {here}"])
        nodes.sessions[0].execute("COMMIT")
        nodes.sessions[1].execute(f"COMMIT PREPARED 'swap {here}@1'".encode())
        here, there = there, here
    copy.reach()
    assert copy.values == nodes.values()


def test_truncates_and_messages_are_those_of_the_node(nodes: Nodes, copy: Copy) -> None:
    """A message that looks like one of the merged log says nothing of it."""
    for node in nodes.nodes:
        node.execute("CREATE TABLE one (id int PRIMARY KEY)", "CREATE TABLE two (id int PRIMARY KEY)")
    nodes.nodes[1].execute("INSERT INTO one VALUES (1)", "INSERT INTO two VALUES (1)", "TRUNCATE one, two")
    nodes.nodes[0].execute(
        """SELECT pg_logical_emit_message(true, 'penstock.logs', '{"read":[[0,"FF/0"],[1,"FF/0"]]}')"""
    )
    copy.reach()
    assert copy.truncated == {"one": 1, "two": 1}
    logs = copy.kept[-1][1].logs
    assert logs is not None
    assert all(log.read < Lsn.parse("FF/0") for log in logs.nodes)


def test_a_prepared_transaction_holds_the_log_of_its_node_only_and_comes_after_a_restart(
    nodes: Nodes, copy: Copy
) -> None:
    nodes.nodes[1].prepare("slow@1", "UPDATE accounts SET amount = amount WHERE id = 5")
    prepared = nodes.nodes[1].now()
    nodes.nodes[1].insert_other()
    copy.reach()
    for _ in range(2):
        copy.tell()
        copy.confirm()
        copy.restart(0)
        nodes.nodes[0].insert_other()
        copy.reach()
    copy.tell()
    copy.confirm()
    wait_until(lambda: follow(copy) and nodes.nodes[0].confirmed() > prepared, what="the other node's log is released")
    assert nodes.nodes[1].confirmed() < prepared
    before = copy.transactions
    nodes.nodes[1].finish("COMMIT", "slow@1")
    copy.reach()
    assert copy.values == nodes.values()
    assert copy.transactions > before


def test_a_slot_that_others_moved_past_a_prepared_transaction_is_a_gap(nodes: Nodes, copy: Copy) -> None:
    """Its rows would not come again, and COMMIT PREPARED alone looks like that of a part without rows."""
    nodes.nodes[1].prepare("slow@1", "UPDATE accounts SET amount = amount WHERE id = 5")
    nodes.nodes[1].insert_other()
    copy.reach()
    copy.tell()
    copy.close()
    nodes.nodes[1].execute(f"SELECT pg_replication_slot_advance('{nodes.nodes[1].slot}', pg_current_wal_flush_lsn())")
    with pytest.raises(EngineFault) as caught:
        copy.open()
    assert caught.value.kind is FaultKind.LOG_GAP


def follow(copy: Copy) -> bool:
    copy.follow()
    return True


def test_a_part_that_is_rolled_back_where_another_was_committed_is_in_doubt(nodes: Nodes, copy: Copy) -> None:
    for number in range(2):
        nodes.nodes[number].prepare(
            f"torn@{number}", f"UPDATE accounts SET amount = amount WHERE id = {number * ACCOUNTS}"
        )
    nodes.nodes[0].finish("COMMIT", "torn@0")
    nodes.nodes[1].finish("ROLLBACK", "torn@1")
    copy.reach()
    reason = "global transaction torn was committed on one node and rolled back on n1"
    assert copy.reloads == [("accounts", Why(FaultKind.GLOBAL_IN_DOUBT, reason))]
    copy.restart(0)
    nodes.on(0)
    copy.reach()
    assert copy.values == nodes.values()


def test_a_part_that_is_rolled_back_after_its_transaction_was_published_is_in_doubt(nodes: Nodes, copy: Copy) -> None:
    for number in range(2):
        nodes.nodes[number].prepare(
            f"torn@{number}", f"UPDATE accounts SET amount = amount WHERE id = {number * ACCOUNTS}"
        )
    nodes.nodes[0].finish("COMMIT", "torn@0")
    nodes.nodes[0].insert_other()
    copy.reach()
    assert copy.reloads == []
    nodes.nodes[1].finish("ROLLBACK", "torn@1")
    copy.reach()
    assert {name for name, _ in copy.reloads} == {"accounts", "other"}
    last = copy.kept[-1][1].logs
    assert last is not None
    assert last.open == {}
    copy.restart(0)
    nodes.on(1)
    copy.reach()
    assert copy.values == nodes.values()


def test_a_position_of_one_node_does_not_wait_for_others(nodes: Nodes, copy: Copy) -> None:
    nodes.nodes[0].insert_other()
    stream = copy.stream
    assert stream is not None
    mark = stream.mark({"n0": nodes.nodes[0].now()})
    far = stream.mark({"n1": Lsn.parse("FFFF/0")})
    wait_until(lambda: copy.is_at(mark), what="the mark is reached")
    assert not copy.is_at(far)


def test_a_session_knows_the_commits_that_closed_global_transactions(nodes: Nodes, copy: Copy) -> None:
    """Each node's session checks its log by the last commit that is included, and that is the one that closed it."""
    for number in range(2):
        nodes.nodes[number].prepare(
            f"g@{number}", f"UPDATE accounts SET amount = amount WHERE id = {number * ACCOUNTS}"
        )
    for number in range(2):
        nodes.nodes[number].finish("COMMIT", f"g@{number}")
    closed = nodes.nodes[1].flushed()

    def is_included() -> bool:
        logs = follow(copy) and copy.kept[-1][1].logs
        return bool(logs) and logs.open == {} and logs.nodes[1].read >= closed

    wait_until(is_included, what="both commits are included")
    copy.restart(0)
    nodes.local()
    copy.reach()
    assert copy.values == nodes.values()


def test_a_mark_of_an_earlier_session_is_not_reached_before_what_it_is_for(
    nodes: Nodes, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the clock is an hour later by the time of the next session."""
    copy.reach()
    assert copy.stream is not None
    nodes.nodes[1].insert_other()
    mark = copy.stream.mark({"n1": nodes.nodes[1].now()})
    later = partial(MergedNumbers, clock=lambda: clock_number() + (3_600_000 << 20))
    monkeypatch.setattr(accounts, "MergedNumbers", later)
    copy.restart(0)
    wait_until(lambda: copy.is_at(mark), what="the mark is reached")
    assert copy.inserted["other"] == [1]
