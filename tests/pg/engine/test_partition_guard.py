"""Partitions that got new storage: a truncate of their root is in the log and fine, everything else parks the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.model.fault import FaultKind
from engine.model.subscription import SchemaPolicy
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

ROOTS = ("whole", "again", "leaf", "beside", "middle", "saved", "first_look", "second_look")


def make(database: Database) -> None:
    for root in ROOTS:
        database.execute(f"CREATE TABLE {root} (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        database.execute(f"CREATE TABLE {root}_1 PARTITION OF {root} FOR VALUES FROM (0) TO (10)")
        database.execute(
            f"CREATE TABLE {root}_2 PARTITION OF {root} FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)"
        )
        database.execute(f"CREATE TABLE {root}_21 PARTITION OF {root}_2 DEFAULT")
        database.execute(f"INSERT INTO {root} SELECT generate_series(0, 19)")


def after_a_look(database: Database, replica: Replica, root: str) -> None:
    """Return when the guard has looked after all that the source committed before."""
    database.execute(f"ALTER TABLE {root} DETACH PARTITION {root}_1")
    replica.wait_table(root, "parked")


def parked(replica: Replica) -> set[str]:
    return {name for name, state in replica.states().items() if state == "parked"} - {"first_look", "second_look"}


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_only_what_the_log_tells_of_is_fine(
    database: Database, replicate: Callable[..., Replica], *, streamed: bool
) -> None:
    if streamed:
        database.execute(f'ALTER DATABASE "{database.name}" SET debug_logical_replication_streaming = immediate')
    make(database)
    replica = replicate(database, [table(root) for root in ROOTS], schema_changes=SchemaPolicy.ASK)
    with database.connect() as session, session.transaction():
        session.execute("TRUNCATE whole, beside_1")
        session.execute("INSERT INTO whole VALUES (3), (13)")
    database.execute("TRUNCATE again")
    database.execute("TRUNCATE leaf")
    database.execute("TRUNCATE leaf_1")
    database.execute("TRUNCATE middle_2")
    with database.connect() as session, session.transaction(), session.transaction():
        session.execute("TRUNCATE saved")
    database.execute("TRUNCATE again")
    database.execute("INSERT INTO again VALUES (5)")
    after_a_look(database, replica, "first_look")
    replica.catch_up()
    after_a_look(database, replica, "second_look")
    # Outside streamed transactions the log does not tell which savepoint truncated.
    assert parked(replica) == {"leaf", "beside", "middle"} | (set() if streamed else {"saved"})
    assert replica.wait_table("leaf", "parked").code == FaultKind.TABLE_PARTITIONS_CHANGED.value
    assert replica.query("SELECT id FROM whole ORDER BY id") == [(3,), (13,)]
    assert replica.query("SELECT id FROM again") == [(5,)]
