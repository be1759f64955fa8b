"""Slots that decode prepared transactions: their creation, their check, and sessions that start with them.

As seen on PostgreSQL 16.14 and 18.4:

- Creation waits for transactions that are prepared already, as for all that are open. One that began later, and was prepared before
  creation ended, does not come at its PREPARE. It comes as `b`, rows, `P` just before its `K`, with the positions of its PREPARE, which
  are before the slot's first position; that holds whatever is confirmed later, up to the start of `K`. Rolled back, it comes as `r` alone.
- START_REPLICATION with `two_phase` turns it on for a slot that has it off.
- What is prepared holds the slot's restart position, and with it the source's log, whatever is confirmed.
- From 18, slots are created with both TWO_PHASE and FAILOVER, and ALTER_REPLICATION_SLOT can turn either off and on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import psycopg
import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.sources.postgres_log import slots
from engine.sources.postgres_log.stream import open_stream
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.waiting import wait_until
from tests.pg.two_phase.node import LOCKS, MESSAGE, Node, insert, node_on, only, words

pytestmark = pytest.mark.pg


@pytest.fixture
def cluster(private_cluster: Callable[..., EmbeddedPostgres], version: int) -> EmbeddedPostgres:
    """A server without transactions of other tests: the creation of a slot waits for all that are open."""
    return private_cluster(version)


def test_a_slot_decodes_prepared_transactions_and_is_kept_at_a_failover_where_the_version_can(
    node: Node, version: int
) -> None:
    assert node.slot_column("two_phase") == "true"
    assert node.slot_column("failover") == ("true" if version >= 18 else None)
    assert node.confirmed() == node.begin


def test_creation_waits_for_what_is_prepared_and_names_it(
    cluster: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node_on(Database(cluster, "postgres")) as node:
        slots.drop(node.connector, node.slot)
        node.prepare("before", insert(1))
        monkeypatch.setattr(slots, "CREATE_TIMEOUT_S", 1.0)
        with pytest.raises(EngineFault, match="prepared transaction of postgres") as refused:
            node.create_slot()
        assert refused.value.kind is FaultKind.SOURCE_TIMEOUT
        wait_until(lambda: not node.database.execute("SELECT 1 FROM pg_replication_slots"), what="no slot is left")
        node.finish("COMMIT", "before")
        node.create_slot()
        assert words(node.read()) == []


def test_what_is_prepared_during_creation_comes_when_it_is_committed(cluster: EmbeddedPostgres) -> None:
    with node_on(Database(cluster, "postgres")) as node:
        slots.drop(node.connector, node.slot)
        _create_around(node)
        assert words(node.read()) == []
        node.insert(5)
        node.finish("COMMIT", "meanwhile")
        node.finish("ROLLBACK", "meanwhile, undone")
        node.insert(6)
        found = node.read()
        assert words(found) == [
            *("B", "R", "I", "C", "b meanwhile", "I", "P meanwhile", "K meanwhile"),
            *("r meanwhile, undone", "B", "I", "C"),
        ]
        prepared, committed = only(found, "P meanwhile"), only(found, "K meanwhile")
        assert prepared.end <= node.begin < committed.lsn
        # It is sent so whatever is confirmed meanwhile, as long as its commit is.
        node.read(confirm=committed.lsn)
        node.begin = committed.lsn
        assert words(node.read())[:5] == ["b meanwhile", "R", "I", "P meanwhile", "K meanwhile"]


def _create_around(node: Node) -> None:
    """Create the slot while transactions are prepared that began after it waited only for others that were open by then."""
    node.prepare("before", insert(1))
    creation = threading.Thread(target=node.create_slot)
    creation.start()
    try:
        wait_until(lambda: node.database.execute(_WAITING), 30.0, "the creation waits")
        with node.database.connect() as session:
            session.execute("BEGIN")
            session.execute(insert(2).encode())
            ((first,),) = node.database.execute(_WAITING)
            node.finish("COMMIT", "before")
            wait_until(
                lambda: node.database.execute(_WAITING) not in ([], [(first,)]), 30.0, "it waits for the open one"
            )
            node.prepare("meanwhile", insert(3))
            node.prepare("meanwhile, undone", insert(4))
            session.execute("COMMIT")
    finally:
        with suppress(psycopg.Error):
            node.finish("ROLLBACK", "before")
        creation.join(60.0)
    assert not creation.is_alive()


_WAITING = """
SELECT DISTINCT transactionid::text FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE backend_type = 'walsender' AND locktype = 'transactionid' AND NOT granted
"""
"""The transaction that the creation of a slot waits for."""


def assert_gap(node: Node, start: Lsn, text: str, *, two_phase: bool = True) -> None:
    """A session from `start` is refused, with a reason that names this."""
    with pytest.raises(EngineFault, match=text) as refused:
        open_stream(node.connector, node.slot, start, "penstock-node-1", ("p",), two_phase=two_phase)
    assert refused.value.kind is FaultKind.LOG_GAP


def test_a_slot_that_does_not_decode_prepared_transactions_is_refused_and_stays_so(node: Node) -> None:
    slots.drop(node.connector, node.slot)
    with slots.lasting(node.connector, node.slot) as snapshot:
        start = snapshot.position
    assert_gap(node, start, "two_phase is off")
    with pytest.raises(EngineFault, match="two_phase is off"):
        slots.check_position(node.connector, node.slot, start, two_phase=True)
    assert slots.check_position(node.connector, node.slot, start) == start
    assert node.slot_column("two_phase") == "false"


def test_a_slot_that_decodes_them_is_refused_by_a_session_that_does_not(node: Node) -> None:
    assert slots.check_position(node.connector, node.slot, node.begin, two_phase=True) == node.begin
    assert_gap(node, node.begin, "was changed to decode prepared transactions", two_phase=False)


def test_a_slot_that_is_gone_or_ahead_is_refused(node: Node) -> None:
    held = node.begin
    node.insert(1)
    node.skip()
    assert_gap(node, Lsn(node.confirmed().value - 1), "was confirmed up to")
    slots.drop(node.connector, node.slot)
    assert_gap(node, held, "is gone")
    node.create_slot()
    assert_gap(node, held, "was confirmed up to")


def test_a_slot_that_was_changed_is_refused(node: Node, version: int) -> None:
    if version < 18:
        pytest.skip("16 cannot change it")
    with psycopg.connect(node.database.dsn + " replication=database", autocommit=True) as session:
        session.execute(f'ALTER_REPLICATION_SLOT "{node.slot}" (TWO_PHASE false)'.encode())
    assert_gap(node, node.begin, "two_phase is off")


def test_a_slot_in_use_is_reported_as_such(node: Node) -> None:
    held = node.begin
    node.insert(1)
    node.skip()
    with node.session(), pytest.raises(EngineFault) as refused:
        open_stream(node.connector, node.slot, held, "penstock-node-1", ("p",), two_phase=True)
    assert refused.value.kind is FaultKind.SLOT_IN_USE


def test_the_source_keeps_its_log_of_what_is_prepared_whatever_is_confirmed(cluster: EmbeddedPostgres) -> None:
    with node_on(Database(cluster, "postgres")) as node:
        node.prepare("one", insert(1))
        prepared = only(node.read(), "P one")
        assert _restart_after_all_is_confirmed(node) < prepared.lsn
        node.finish("COMMIT", "one")
        assert _restart_after_all_is_confirmed(node) > prepared.end


@pytest.mark.parametrize("shape", ["INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)", LOCKS, MESSAGE])
def test_each_session_sends_a_commit_whose_prepare_was_confirmed(cluster: EmbeddedPostgres, shape: str) -> None:
    with node_on(Database(cluster, "postgres")) as node:
        node.insert(100)
        node.prepare("one", shape)
        _restart_after_all_is_confirmed(node)
        node.finish("COMMIT", "one")
        assert [words(node.read()) for _ in range(2)] == [["K one"]] * 2
        cluster.restart("immediate")
        assert words(node.read())[-1:] == ["K one"]


def _restart_after_all_is_confirmed(node: Node) -> Lsn:
    """The position from which the slot keeps the log, with several occasions to move it."""
    for _ in range(3):
        node.execute("SELECT pg_log_standby_snapshot()")
        node.skip()
    return Lsn.parse(str(node.slot_column("restart_lsn")))


@pytest.mark.parametrize("certain", [True, False])
def test_a_session_is_verified_by_the_commit_of_a_prepared_transaction(node: Node, certain: bool) -> None:
    node.insert(1)
    node.prepare("one", insert(2))
    node.insert(3)
    node.finish("COMMIT", "one")
    found = node.read()
    committed = only(found, "K one")
    last = LastCommit(committed.lsn, committed.end, committed.time_us, certain=certain)
    # The slot is not confirmed past the first transaction, so the session sends again what comes before `last`.
    node.insert(4)
    again = node.read(start=committed.end, last=last)
    assert words(again)[: len(found)] == words(found)
    other = replace(last, time_us=last.time_us + 1)
    with pytest.raises(EngineFault, match="is another one") as refused:
        node.read(start=committed.end, last=other)
    assert refused.value.kind is FaultKind.LOG_GAP


def test_a_commit_of_a_prepared_transaction_that_was_not_held_is_a_gap(node: Node) -> None:
    node.insert(1)
    first = next(one for one in node.read() if one.letter == "C")
    node.prepare("one", insert(2))
    node.finish("COMMIT", "one")
    committed = only(node.read(), "K one")
    with pytest.raises(EngineFault, match="where there was none"):
        node.read(start=committed.end, last=LastCommit(first.lsn, first.end, first.time_us))


def test_the_clock_and_the_position_are_the_servers(node: Node) -> None:
    with node.session() as stream:
        node.prepare("one", insert(1))
        before_us = _clock_us(node)
        end = node.now()
        while stream.read_to < end:
            stream.ask_position()
            stream.read(0.05)
        assert before_us <= stream.clock_us <= _clock_us(node)
        earlier = stream.clock_us
        while stream.clock_us == earlier:
            stream.ask_position()
            stream.read(0.05)
        assert earlier < stream.clock_us <= _clock_us(node)


def _clock_us(node: Node) -> int:
    return int(node.database.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0][0])
