"""Very many prepared transactions: open for long over many tables, more of them than the queue may hold, and then decided."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.open_transactions import OpenTransactions, ending, statements
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

_COUNT, _TABLES = 150, 10
_BUDGET = 256 * 1024
"""Of the queue. What the transactions write takes more than twice as much."""
_STREAMED = "SELECT coalesce(sum(stream_txns), 0), coalesce(sum(stream_bytes), 0) FROM pg_stat_replication_slots"


@pytest.fixture
def ledgers(private_cluster: Callable[..., object], database_on: Callable[..., Database]) -> Database:
    settings = {"logical_decoding_work_mem": "'64kB'", "max_prepared_transactions": "200", "autovacuum": "off"}
    made = database_on(private_cluster(18, **settings))
    with made.connect() as connection:
        OpenTransactions().create(connection, _TABLES)
    return made


def streamed(database: Database) -> tuple[int, int]:
    """Transactions that were sent before their end, and their bytes."""
    ((transactions, size),) = database.execute(_STREAMED)
    return int(transactions), int(size)


def test_they_fill_the_queue_and_small_ones_go_on_and_nothing_shows_before_its_commit(
    ledgers: Database, replicate: Callable[..., Replica]
) -> None:
    tables = [table(one.name) for one in OpenTransactions().followed(_TABLES)]
    replica = replicate(ledgers, tables, queue_budget_bytes=_BUDGET)
    (before,) = replica.query("select count(*) from ledger_1")
    with ledgers.connect() as connection:
        for number in range(_COUNT):
            connection.execute(statements(number, _TABLES).encode())
    wait_until(lambda: streamed(ledgers)[0] > _COUNT * 0.9)
    assert streamed(ledgers)[1] > 2 * _BUDGET
    for number in range(3):
        ledgers.execute(f"UPDATE ledger_1 SET note = 'small {number}' WHERE id = 600")
        replica.catch_up()
        assert replica.query("select note from ledger_1 where id = 600") == [(f"small {number}",)]
    assert replica.query("select count(*) from ledger_1") == [before]
    assert replica.query("select count(*) from ledger_2 where note like '%open%'") == [(0,)]
    for number in range(_COUNT):
        ledgers.execute(ending(number))
    replica.assert_equal()
    assert replica.query("select count(*) from ledger_1 where note like '%open%'") != [(0,)]
    assert replica.query("select count(*) from ledger_1 where note like '%open 10'") == [(0,)]
