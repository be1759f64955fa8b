"""Lag and position are reported also without a batch: an idle subscription still reports, and the age of waiting changes grows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.model.subscription import BatchPolicy
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table, wait_progress

pytestmark = pytest.mark.pg

LATE = BatchPolicy(max_age_ms=600_000)
"""Batches that nothing but a demand closes."""


def test_it_reports_while_nothing_happens_and_what_waits_grows_older(
    database: Database, replicate: Callable[..., Replica]
) -> None:
    database.execute("CREATE TABLE orders (id bigint PRIMARY KEY)")
    replica = replicate(database, [table("orders")], batch=LATE)
    replica.wait_live()
    database.execute("INSERT INTO orders VALUES (0)")
    replica.catch_up()  # No change waits any more.
    idle = wait_progress(replica, lambda r: r.lag_seconds == 0.0, number=3)
    assert None not in (idle.lag_bytes, idle.retained_bytes)
    assert idle.committed_at is None

    database.execute("INSERT INTO orders VALUES (1)")
    young = wait_progress(replica, lambda r: (r.lag_seconds or 0.0) > 0.0 and r.committed_at is None)
    older = wait_progress(replica, lambda r: (r.lag_seconds or 0.0) > (young.lag_seconds or 0.0) + 0.4)
    assert (older.lag_bytes or 0) > 0
    assert older.applied == young.applied >= idle.applied

    replica.catch_up()
    assert wait_progress(replica, lambda r: r.lag_seconds == 0.0).applied > older.applied
