"""Tables, and partitions, whose changes do not get into the log: they are never shown as live."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.model.fault import FaultKind
from engine.model.patterns import TablePattern
from engine.model.position import ZERO
from engine.model.subscription import SchemaPolicy
from engine.model.subscription_state import DesiredState
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.pg.engine.test_tables_that_appear import declare, found, looked, wait_found

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]
NOT_LOGGED = FaultKind.TABLE_NOT_LOGGED.value


@pytest.fixture
def shop(database: Database) -> Database:
    """`days` has an unlogged partition, `orders` is a plain table."""
    for statement in (
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "INSERT INTO orders VALUES (1)",
        "CREATE TABLE days (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (10)",
        "CREATE UNLOGGED TABLE days_2 PARTITION OF days FOR VALUES FROM (10) TO (20)",
        "INSERT INTO days VALUES (1), (11)",
    ):
        database.execute(statement)
    return database


@pytest.mark.parametrize(
    ("mend", "insert_only"),
    [
        pytest.param("ALTER TABLE days_2 SET LOGGED", False, id="logged-followed"),
        pytest.param("ALTER TABLE days_2 SET LOGGED", True, marks=pytest.mark.chaos, id="logged-insert_only"),
        pytest.param(
            "ALTER TABLE days DETACH PARTITION days_2", False, marks=pytest.mark.chaos, id="detached-followed"
        ),
        pytest.param("ALTER TABLE days DETACH PARTITION days_2", True, id="detached-insert_only"),
    ],
)
def test_a_root_with_an_unlogged_partition_parks_from_the_start_and_is_copied_when_that_is_mended(
    shop: Database, replicate: Replicate, *, insert_only: bool, mend: str
) -> None:
    replica = replicate(shop, [table("orders"), table("days", insert_only=insert_only)], live=False)
    replica.wait_live("orders")
    parked = replica.wait_table("days", "parked")
    assert (parked.code, "days_2 is unlogged" in str(parked.reason)) == (NOT_LOGGED, True)
    assert "SET LOGGED" in str(parked.remedy)
    looked(replica)
    assert replica.states()["days"] == "parked"
    shop.execute(mend)
    replica.wait_live()
    shop.execute("INSERT INTO days VALUES (2)")
    replica.assert_equal()


@pytest.mark.parametrize("mended", ["looking", "stopped"])
def test_what_became_unlogged_while_nobody_looked_parks_until_it_is_mended(
    shop: Database, replicate: Replicate, mended: str
) -> None:
    shop.execute("ALTER TABLE days_2 SET LOGGED")
    replica = replicate(shop, [table("orders"), table("days")])

    def stopped(statement: str) -> None:
        replica.desire(DesiredState.STOPPED)
        replica.wait_state("stopped")
        shop.execute(statement)
        replica.desire(DesiredState.RUNNING)
        replica.wait_state("running")

    stopped("CREATE UNLOGGED TABLE days_3 PARTITION OF days FOR VALUES FROM (20) TO (30)")
    shop.execute("INSERT INTO days VALUES (21)")
    assert replica.wait_table("days", "parked").code == NOT_LOGGED
    if mended == "stopped":
        stopped("ALTER TABLE days_3 SET LOGGED")
    else:
        shop.execute("ALTER TABLE days_3 SET LOGGED")
    replica.wait_live()
    shop.execute("UPDATE days SET id = 22 WHERE id = 21")
    replica.assert_equal()


def test_a_table_made_again_without_a_log_is_not_copied(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    shop.execute("DROP TABLE orders; CREATE UNLOGGED TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (2)")
    replica.reports.wait(lambda _: replica.wait_table("orders", "parked").code == NOT_LOGGED, "parked")
    shop.execute("ALTER TABLE orders SET LOGGED")
    replica.wait_live()
    shop.execute("INSERT INTO orders VALUES (3)")
    replica.assert_equal()


def test_where_changes_wait_for_approval_it_stays_parked_until_it_is_copied_anew(
    shop: Database, replicate: Replicate
) -> None:
    days = table("days")
    replica = replicate(shop, [days], schema_changes=SchemaPolicy.ASK, live=False)
    assert replica.wait_table("days", "parked").code == NOT_LOGGED
    replica.wait_state("running")
    shop.execute("ALTER TABLE days_2 SET LOGGED")
    looked(replica)
    looked(replica)
    assert replica.states()["days"] == "parked"
    replica.pipeline.reload("r1", [days.table])
    replica.wait_live()
    replica.assert_equal()


def test_what_was_seen_before_a_reload_is_not_held_against_it(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = table("days")
    replica = replicate(shop, [days], schema_changes=SchemaPolicy.ASK, live=False)
    assert replica.wait_table("days", "parked").code == NOT_LOGGED
    replica.wait_state("running")
    assert replica.pipeline.run is not None
    with monkeypatch.context() as slow:  # the log is read too slowly to tell whether the root was truncated
        slow.setattr(replica.pipeline.run._monitor, "_captured", lambda: ZERO)
        shop.execute("ALTER TABLE days_2 SET LOGGED")
        looked(replica)
        replica.pipeline.reload("r1", [days.table])
        replica.wait_live()
    looked(replica)
    assert replica.states()["days"] == "live"
    replica.assert_equal()


def test_a_table_that_appears_with_an_unlogged_partition_needs_no_consent_to_inserts_only(
    shop: Database, replicate: Replicate
) -> None:
    replica = replicate(shop, [table("orders")], patterns=[TablePattern("public")])
    wait_found(replica, "days")
    assert found(replica) == [("days", True)]
    declare(replica, table("days"))
    assert replica.wait_table("days", "parked").code == NOT_LOGGED


def test_a_table_renamed_while_stopped_whose_name_a_view_took_is_followed(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")])
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    shop.execute("ALTER TABLE orders RENAME TO purchases; CREATE VIEW orders AS SELECT * FROM purchases")
    shop.execute("INSERT INTO purchases VALUES (2)")
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    replica.wait_live()
    replica.catch_up()
    assert replica.query("SELECT id FROM orders ORDER BY id") == [(1,), (2,)]
