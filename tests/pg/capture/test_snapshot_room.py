"""A slot's snapshot names every transaction that is open or rolled back since the oldest open one began; there may be too many."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from engine.capture.postgres_log.source import PostgresSource
from engine.model.fault import EngineFault, FaultKind
from engine.model.subscription import ConnectionSpec
from engine.runtime.fault_policy import Action, policy
from tests.fixtures.postgres import Database

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
_WAITED_FOR = (
    "SELECT count(*) > 0 FROM pg_locks w JOIN pg_locks h ON h.transactionid = w.transactionid AND h.granted"
    " WHERE NOT w.granted AND w.locktype = 'transactionid' AND h.pid = %s"
)


def _until(done: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(300):
        if done():
            return
        pause.wait(0.1)
    raise AssertionError("not within 30 s")


def _writing(db: Database) -> psycopg.Connection[tuple[Any, ...]]:
    """A session in the middle of a transaction that has written."""
    connection = db.connect()
    connection.execute("BEGIN")
    connection.execute("INSERT INTO t VALUES (0)")
    return connection


def test_too_many_rolled_back_savepoints_are_told_as_what_they_are(database: Database) -> None:
    db = database
    db.execute("CREATE TABLE t (id int)")
    source = PostgresSource(ConnectionSpec("source", "postgres", db.settings, {}))

    def snapshot() -> None:
        with source.snapshot(60):
            pass

    def waited_for(connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
        return db.execute(_WAITED_FOR, [connection.info.backend_pid]) == [(True,)]

    # A slot waits for all transactions that it meets, twice; those that begin after that are what its snapshot must know.
    with ThreadPoolExecutor(1) as pool, _writing(db) as first:
        made = pool.submit(snapshot)
        _until(lambda: waited_for(first))
        with _writing(db) as second:
            first.execute("COMMIT")
            _until(lambda: waited_for(second))
            with _writing(db) as third:
                db.execute(_ROLLED_BACK)
                db.execute("INSERT INTO t VALUES (1)")  # a snapshot reaches up to the last commit
                second.execute("COMMIT")
                with pytest.raises(EngineFault) as raised:
                    made.result(60)
                assert f"pid {third.info.backend_pid}" in raised.value.detail
    source.close()
    assert raised.value.kind is FaultKind.SOURCE_SNAPSHOT_TOO_LARGE
    assert policy(raised.value.kind).action is Action.RETRY
    assert db.execute("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'penstock_tmp%%'") == [(0,)]
