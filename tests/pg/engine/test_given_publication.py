"""A publication and a slot of others, followed by a user that owns nothing: used, never changed, and never trusted after a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from engine.link.messages import TableStateReport
from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.model.subscription_state import DesiredState
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

_FULL = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
_SHOP = f"""
CREATE TABLE orders (id bigint PRIMARY KEY, note text);
CREATE TABLE lines (order_id bigint, n int, PRIMARY KEY (order_id, n));
INSERT INTO orders SELECT i, 'note ' || i FROM generate_series(1, 1000) i;
INSERT INTO lines SELECT i, 1 FROM generate_series(1, 100) i;
CREATE PUBLICATION theirs FOR TABLE ONLY orders, ONLY lines WITH ({_FULL});
GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest;
"""
_GUEST = """
DO $$ BEGIN CREATE ROLE guest LOGIN REPLICATION; EXCEPTION WHEN duplicate_object THEN END $$
"""
_UNSEEN = "UPDATE orders SET note = 'unseen' WHERE id <= 500; DELETE FROM orders WHERE id > 900"
_ON_18 = pytest.mark.parametrize("pg", [18], indirect=True)
_PUBLISHED = "SELECT pubname::text FROM pg_publication ORDER BY 1"


@dataclass(frozen=True)
class Shop:
    """A source whose tables and publication the replicating user does not own."""

    database: Database

    def as_guest(self, **capture: str) -> ConnectionSpec:
        settings = {**self.database.settings, "user": "guest"}
        return ConnectionSpec("shop", "postgres", settings, capture=CaptureSpec("postgres_log", capture))

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.database.execute(statement)


@pytest.fixture
def shop(pg: Any, database_on: Callable[..., Database]) -> Shop:
    made = database_on(pg)
    made.execute(_GUEST)
    made.execute(_SHOP)
    return Shop(made)


@pytest.fixture
def replica(shop: Shop, replicate: Replicate) -> Replica:
    tables = [table("orders"), table("lines")]
    return replicate(shop.database, tables, source=shop.as_guest(publication="theirs"))


def why(replica: Replica, name: str, code: str) -> TableStateReport:
    found = replica.wait_table(name, "parked")
    assert found.code == code, found
    return found


def test_a_user_who_owns_nothing_follows_tables_and_leaves_no_trace(shop: Shop, replica: Replica) -> None:
    shop.execute("UPDATE orders SET note = 'new' WHERE id < 10; DELETE FROM lines WHERE order_id > 50")
    replica.satisfied()
    replica.assert_equal()
    shop.execute("TRUNCATE lines; INSERT INTO lines VALUES (7, 7)")
    replica.restart()
    replica.wait_state("running")
    shop.execute("INSERT INTO orders VALUES (5000, 'after the restart')")
    replica.satisfied()
    replica.assert_equal()
    assert replica.states_of("orders").count("copying") == 1
    assert replica.pipeline.forget() == []
    assert shop.execute(_PUBLISHED) == [("theirs",)]
    assert shop.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]


def test_a_membership_put_back_means_a_new_copy_of_this_table_alone(shop: Shop, replica: Replica) -> None:
    """In one transaction while it runs, then while it is paused."""
    change = [
        "ALTER PUBLICATION theirs DROP TABLE orders",
        _UNSEEN,
        "ALTER PUBLICATION theirs ADD TABLE ONLY orders",
    ]
    with shop.database.connect() as connection, connection.transaction():
        for statement in change:
            connection.execute(statement.encode())
    replica.satisfied()
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM orders WHERE note = 'unseen'") == [(500,)]
    codes = [r.code for r in replica.reports.all() if isinstance(r, TableStateReport) and r.name == "orders" and r.code]
    assert set(codes) == {"table_publication_changed"}
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    shop.execute("ALTER PUBLICATION theirs DROP TABLE orders")
    shop.execute("UPDATE orders SET note = 'unseen again' WHERE id <= 500")
    shop.execute("ALTER PUBLICATION theirs ADD TABLE ONLY orders")
    replica.restart()
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    replica.satisfied()
    assert replica.query("SELECT count(*) FROM orders WHERE note = 'unseen again'") == [(500,)]
    assert "reloading" not in replica.states_of("lines")


@_ON_18
def test_a_table_waits_until_the_publication_has_it(shop: Shop, replicate: Replicate) -> None:
    shop.execute("CREATE TABLE more (id int PRIMARY KEY); INSERT INTO more VALUES (1); GRANT SELECT ON more TO guest")
    orders, more = table("orders"), table("more")
    replica = replicate(shop.database, [orders, more], source=shop.as_guest(publication="theirs"), live=False)
    replica.wait_live("orders")
    assert "ADD" not in str(why(replica, "more", "table_not_published").reason)
    shop.execute("INSERT INTO more VALUES (2)")
    shop.execute("ALTER PUBLICATION theirs ADD TABLE ONLY more")
    replica.wait_live()
    shop.execute("INSERT INTO more VALUES (3)")
    replica.satisfied()
    replica.assert_equal()
    # One that is removed while it is live parks, and the others continue.
    shop.execute("ALTER PUBLICATION theirs DROP TABLE more")
    why(replica, "more", "table_not_published")
    shop.execute("INSERT INTO more VALUES (4); INSERT INTO orders VALUES (6000, 'goes on')")
    replica.catch_up()
    assert replica.query("SELECT note FROM orders WHERE id = 6000") == [("goes on",)]
    shop.execute("ALTER PUBLICATION theirs ADD TABLE ONLY more")
    replica.wait_live()
    replica.satisfied()
    replica.assert_equal()


def test_a_publication_put_back_fails_until_everything_is_copied(shop: Shop, replica: Replica) -> None:
    steps = ["ALTER PUBLICATION theirs SET (publish = 'insert')", _UNSEEN, f"ALTER PUBLICATION theirs SET ({_FULL})"]
    with shop.database.connect() as connection, connection.transaction():
        for statement in steps:
            connection.execute(statement.encode())
    assert replica.wait_state("failed").code == "publication_changed"
    replica.restart()
    assert replica.wait_state("failed").code == "publication_changed"
    replica.pipeline.reload("whole", None)
    replica.wait_state("running")
    replica.wait_reload("whole")
    replica.satisfied()
    replica.assert_equal()


@_ON_18
def test_a_publication_that_is_missing_is_waited_for(shop: Shop, replicate: Replicate) -> None:
    replica = replicate(shop.database, [table("orders")], source=shop.as_guest(publication="later"), live=False)
    assert replica.wait_state("failed").code == "publication_missing"
    shop.execute(f"CREATE PUBLICATION later FOR TABLE ONLY orders WITH ({_FULL})")
    replica.desire(DesiredState.RUNNING)
    replica.wait_live()
    replica.assert_equal()


@_ON_18
def test_two_subscriptions_share_a_publication_of_every_table(shop: Shop, replicate: Replicate) -> None:
    shop.execute(f"CREATE PUBLICATION everything FOR ALL TABLES WITH ({_FULL})")
    shop.execute("CREATE TYPE mood AS ENUM ('good'); CREATE TABLE unread (feels mood, at point, note varbit)")
    one = replicate(shop.database, [table("orders")], source=shop.as_guest(publication="everything"))
    other = replicate(shop.database, [table("orders"), table("lines")], source=shop.as_guest(publication="everything"))
    with shop.database.connect() as connection, connection.transaction():
        connection.execute("TRUNCATE lines, unread")
        connection.execute("INSERT INTO unread SELECT 'good', '(1,1)', NULL FROM generate_series(1, 20000)")
        connection.execute("INSERT INTO lines VALUES (1, 1)")
        connection.execute("UPDATE orders SET note = 'both' WHERE id = 1")
    for replica in (one, other):
        replica.satisfied()
        replica.assert_equal()
    assert "reloading" not in other.states_of("lines"), "a TRUNCATE is in the log"
    # Only its own entry would keep a table logged.
    shop.execute("DROP PUBLICATION theirs")
    with shop.database.connect() as connection, connection.transaction():
        for statement in ("ALTER TABLE orders SET UNLOGGED", _UNSEEN, "ALTER TABLE orders SET LOGGED"):
            connection.execute(statement.encode())
    for replica in (one, other):
        replica.satisfied()
        assert replica.query("SELECT count(*) FROM orders WHERE note = 'unseen'") == [(500,)]
        replica.assert_equal()
    assert one.pipeline.forget() == []
    shop.execute("INSERT INTO lines VALUES (2, 2)")
    other.satisfied()
    other.assert_equal()


def test_a_slot_of_others_is_read_and_kept(shop: Shop, replicate: Replicate) -> None:
    shop.execute("SELECT pg_create_logical_replication_slot('theirs_slot', 'pgoutput')")
    try:
        shop.execute(_UNSEEN)
        source = shop.as_guest(publication="theirs", slot="theirs_slot")
        replica = replicate(shop.database, [table("orders"), table("lines")], source=source)
        shop.execute("INSERT INTO orders VALUES (7000, 'new')")
        replica.satisfied()
        replica.assert_equal()
        replica.restart()
        replica.wait_state("running")
        shop.execute("DELETE FROM orders WHERE id = 7000")
        replica.satisfied()
        replica.assert_equal()
        assert shop.execute(
            "SELECT slot_name::text, active FROM pg_replication_slots WHERE database = current_database()"
        ) == [("theirs_slot", True)]
        # Changes that another client moves it past are gone.
        replica.desire(DesiredState.STOPPED)
        replica.wait_state("stopped")
        shop.execute("UPDATE orders SET note = 'passed over' WHERE id = 1")
        shop.execute("SELECT pg_replication_slot_advance('theirs_slot', pg_current_wal_lsn())")
        replica.desire(DesiredState.RUNNING)
        assert replica.wait_state("failed").code == "log_gap"
        replica.pipeline.reload("whole", None)
        replica.wait_reload("whole")
        replica.satisfied()
        replica.assert_equal()
        assert replica.pipeline.forget() == []
        assert shop.execute("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'theirs_slot'") == [(1,)]
    finally:
        shop.execute(
            "SELECT pg_drop_replication_slot('theirs_slot') FROM pg_replication_slots WHERE slot_name = 'theirs_slot'"
        )


@_ON_18
def test_a_slot_that_cannot_be_read_is_refused(shop: Shop, replicate: Replicate) -> None:
    shop.execute("SELECT pg_create_logical_replication_slot('prepared', 'pgoutput', false, true)")
    try:
        source = shop.as_guest(publication="theirs", slot="prepared")
        replica = replicate(shop.database, [table("orders")], source=source, live=False)
        failed = replica.wait_state("failed")
        assert failed.code == "slot_unfit"
        assert "two_phase" in str(failed.reason)
        replica.pipeline.update(replace(replica.spec, source=shop.as_guest(publication="theirs")))
        replica.wait_live()
        replica.assert_equal()
    finally:
        shop.execute("SELECT pg_drop_replication_slot('prepared')")
