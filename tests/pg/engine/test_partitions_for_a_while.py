"""A table of a subscription that is a partition of another one for a while: its changes come under that one's name meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE apart (id int PRIMARY KEY, v int);
INSERT INTO parts SELECT i, i FROM generate_series(0, 9) i;
INSERT INTO apart SELECT i, i FROM generate_series(20, 24) i;
"""
FOLLOWED = ("parts", "apart")
ATTACH = "ALTER TABLE parts ATTACH PARTITION apart FOR VALUES FROM (20) TO (30)"
DETACH = "ALTER TABLE parts DETACH PARTITION apart"
MEANWHILE = {
    "into it": "INSERT INTO apart VALUES (27, 1)",
    "through the root": "INSERT INTO parts VALUES (27, 1)",
    "of its rows": "UPDATE apart SET v = -v",
}


@pytest.fixture
def replica(database: Database, replicate: Replicate) -> Replica:
    database.execute(SHOP)
    replica = replicate(database, [table(name) for name in FOLLOWED], guard_interval_s=3600.0)
    replica.satisfied()
    return replica


def rows(replica: Replica, name: str) -> list[tuple[int, int]]:
    return sorted((row[0], row[1]) for row in replica.query(f"SELECT id, v FROM {name}"))


@pytest.mark.parametrize("what", MEANWHILE)
def test_both_tables_are_copied_anew(database: Database, replica: Replica, what: str) -> None:
    with database.connect() as connection, connection.transaction():
        for statement in (ATTACH, MEANWHILE[what], DETACH):
            connection.execute(statement)
    if what == "of its rows":  # The other one has none of these to be updated.
        assert replica.wait_table("parts", "parked").code == "net_change_anomaly"
    else:
        replica.satisfied()
        assert rows(replica, "parts") == [(i, i) for i in range(10)]
    replica.reports.wait(lambda _: "reloading" in replica.states_of("apart"), "apart is copied anew")
    replica.wait_live("apart")
    assert rows(replica, "apart") == sorted(database.execute("SELECT id, v FROM apart"))


def test_tables_that_are_truncated_together_go_on(database: Database, replica: Replica) -> None:
    database.execute("TRUNCATE parts, apart")
    database.execute("INSERT INTO apart VALUES (1, 1)")
    replica.satisfied()
    assert rows(replica, "apart") == [(1, 1)]
    assert rows(replica, "parts") == []
    assert "reloading" not in replica.states_of("apart") + replica.states_of("parts")


def test_a_partition_that_left_and_is_back_for_a_while_is_found(database: Database, replicate: Replicate) -> None:
    database.execute(SHOP)
    database.execute("CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20)")
    replica = replicate(database, [table(name) for name in FOLLOWED], guard_interval_s=3600.0)
    database.execute("ALTER TABLE parts DETACH PARTITION parts_2")
    replica.satisfied()
    before = len(replica.states_of("parts"))
    with database.connect() as connection, connection.transaction():
        connection.execute("ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10) TO (20)")
        connection.execute("INSERT INTO parts VALUES (15, 1)")
        connection.execute("ALTER TABLE parts DETACH PARTITION parts_2")
    replica.satisfied()
    assert "reloading" in replica.states_of("parts")[before:]
    assert rows(replica, "parts") == [(i, i) for i in range(10)]
