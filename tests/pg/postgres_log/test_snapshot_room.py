"""A slot waits for older transactions; what others write meanwhile, and roll back, must neither be too much for it nor end the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.subscription import ConnectionSpec
from engine.platform.fault_policy import Action, policy
from engine.sources.postgres_log.source import PostgresSource
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

_ROOM = 1000
"""More than there is, with the connections that the cluster allows."""
_ROLLED_BACK = f"""
DO $$ BEGIN
    FOR i IN 1..{_ROOM} LOOP
        BEGIN INSERT INTO t VALUES (i); RAISE 'back'; EXCEPTION WHEN raise_exception THEN NULL; END;
    END LOOP;
END $$
"""
_DECODING_MEMORY = "'64kB'"
_ROWS_BEYOND = "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 40) AS i"
"""Twice that is more than the decoding memory, once is not."""
_WAITED_FOR = (
    "SELECT count(*) > 0 FROM pg_locks w JOIN pg_locks h ON h.transactionid = w.transactionid AND h.granted"
    " WHERE NOT w.granted AND w.locktype = 'transactionid' AND h.pid = %s"
)


def _writing(db: Database) -> psycopg.Connection[tuple[Any, ...]]:
    """A session in the middle of a transaction that has written."""
    connection = db.connect()
    connection.execute("BEGIN")
    connection.execute("INSERT INTO t VALUES (0)")
    return connection


@contextmanager
def _snapshot_that_waits(db: Database, source: PostgresSource) -> Iterator[Future[None]]:
    """A snapshot that is being made, and knows of what begins in the block; what it waits for ends with the block's end.

    A slot waits for all transactions that it meets, twice; those that begin after that are what its snapshot must know.
    """

    def snapshot() -> None:
        with source.copies.snapshot(60):
            pass

    def waited_for(connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
        return db.execute(_WAITED_FOR, [connection.info.backend_pid]) == [(True,)]

    with ThreadPoolExecutor(1) as pool, _writing(db) as first:
        made = pool.submit(snapshot)
        wait_until(lambda: waited_for(first), 30.0)
        with _writing(db) as second:
            first.execute("COMMIT")
            wait_until(lambda: waited_for(second), 30.0)
            yield made
            second.execute("COMMIT")


def test_too_many_rolled_back_savepoints_are_told_as_what_they_are(database: Database) -> None:
    db = database
    db.execute("CREATE TABLE t (id int)")
    source = PostgresSource(ConnectionSpec("source", "postgres", db.settings, {}))
    with ExitStack() as open_transactions:
        with _snapshot_that_waits(db, source) as made:
            third = open_transactions.enter_context(_writing(db))
            db.execute(_ROLLED_BACK)
            db.execute("INSERT INTO t VALUES (1)")  # a snapshot reaches up to the last commit
        with pytest.raises(EngineFault) as raised:
            made.result(60)
        assert f"pid {third.info.backend_pid}" in raised.value.detail
    source.close()
    assert raised.value.kind is FaultKind.SOURCE_SNAPSHOT_TOO_LARGE
    assert policy(raised.value.kind).action is Action.RETRY
    assert db.execute("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'penstock_tmp%%'") == [(0,)]


def test_a_large_rollback_meanwhile_does_not_end_the_server(
    private_cluster: Callable[..., EmbeddedPostgres], database_on: Callable[[EmbeddedPostgres], Database]
) -> None:
    # PostgreSQL 18.4 ended with a segmentation fault.
    db = database_on(private_cluster(18, logical_decoding_work_mem=_DECODING_MEMORY))
    db.execute("CREATE TABLE t (id int, filler text)")
    source = PostgresSource(ConnectionSpec("source", "postgres", db.settings, {}))
    with _snapshot_that_waits(db, source) as made, db.connect() as undone:
        undone.execute("BEGIN")
        undone.execute(_ROWS_BEYOND)
        undone.execute("SAVEPOINT within")
        undone.execute(_ROWS_BEYOND)
        undone.execute("ROLLBACK")
    assert made.result(60) is None
    source.close()
