"""What keeps a subscription from starting is reported with its remedy; once the remedy is followed, it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.model.subscription import SubscriptionSpec
from engine.model.subscription_state import DesiredState
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.pg.bad_days.conftest import SHOP, BadDay, BadDays

pytestmark = pytest.mark.pg


def corrected(replica: BadDay, **secrets: str) -> SubscriptionSpec:
    source = replace(replica.spec.source, settings=replica.database.settings, secrets=secrets)
    return replace(replica.spec, source=source)


@pytest.mark.parametrize(
    "wrong", [{"host": "no-such-host.invalid"}, {"port": 1}, {"database": "nowhere"}], ids=["host", "port", "database"]
)
def test_unreachable_source(shop: Database, bad_day: BadDays, wrong: dict[str, str | int]) -> None:
    replica = bad_day(shop, live=False, source=wrong)
    replica.wait_code("starting", "source_unreachable")
    replica.respec(corrected(replica))
    replica.wait_live()
    replica.assert_nothing_lost()


def test_wrong_password(tmp_path: object, bad_day: BadDays) -> None:
    from server.demo.embedded import server_folder

    cluster = EmbeddedPostgres(server_folder("penstock-test-pg-"), password="right")
    try:
        cluster.start()
        shop = Database(cluster, "postgres")
        shop.execute(SHOP)
        replica = bad_day(shop, live=False, secrets={"password": "wrong"})
        failed = replica.wait_code("failed", "source_authentication")
        assert "wrong" not in (failed.reason or "")
        assert "PATCH /connections" in (failed.remedy or "")
        replica.respec(corrected(replica, password="right"))
        replica.wait_live()
        replica.assert_nothing_lost()
        replica.close()
    finally:
        cluster.destroy()


def test_wal_level_is_not_logical(private_shop: Callable[..., Database], bad_day: BadDays) -> None:
    shop = private_shop(wal_level="replica")
    replica = bad_day(shop, live=False)
    assert "wal_level" in (replica.wait_code("failed", "source_wal_level").remedy or "")
    shop.cluster.restart(settings={"wal_level": "logical"})
    replica.desire(DesiredState.RUNNING)
    replica.wait_live()
    replica.assert_nothing_lost()


def test_missing_replication_privilege(shop: Database, bad_day: BadDays, role: Callable[[str], str]) -> None:
    user = role("")
    shop.execute(f"ALTER TABLE orders OWNER TO {user}; ALTER TABLE lines OWNER TO {user}")
    replica = bad_day(shop, live=False, source={"user": user})
    assert "REPLICATION" in (replica.wait_code("failed", "source_privilege").remedy or "")
    shop.execute(f"ALTER ROLE {user} REPLICATION")
    replica.desire(DesiredState.RUNNING)
    replica.wait_live()
    replica.assert_nothing_lost()
    replica.close()


def test_missing_select_parks_only_that_table(shop: Database, bad_day: BadDays, role: Callable[[str], str]) -> None:
    user = role("REPLICATION")
    shop.execute(f"ALTER TABLE orders OWNER TO {user}; ALTER TABLE lines OWNER TO {user}")
    shop.execute(f"REVOKE SELECT ON lines FROM {user}")
    replica = bad_day(shop, live=False, source={"user": user})
    parked = replica.wait_table("lines", "parked")
    assert parked.code == "source_privilege"
    assert "SELECT" in (parked.remedy or "")
    assert "reload" in (parked.remedy or "")
    replica.wait_live("orders")
    replica.touch("meanwhile")
    replica.catch_up()
    assert replica.query("select count(*) from orders where note = 'meanwhile'") == [(100,)]
    shop.execute(f"GRANT SELECT ON lines TO {user}")
    replica.reload_table("lines")
    replica.assert_nothing_lost()
    replica.close()


def test_no_free_slots(private_shop: Callable[..., Database], bad_day: BadDays) -> None:
    shop = private_shop(max_replication_slots="2")
    for slot in ("one", "two"):
        shop.execute(f"SELECT pg_create_physical_replication_slot('{slot}')")
    replica = bad_day(shop, live=False)
    assert "slot" in (replica.wait_code("failed", "source_no_slots").remedy or "")
    for slot in ("one", "two"):
        shop.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    replica.desire(DesiredState.RUNNING)
    replica.wait_live()
    replica.assert_nothing_lost()


def test_no_free_slot_for_a_copy_leaves_live_tables_alone(
    private_shop: Callable[..., Database], bad_day: BadDays
) -> None:
    shop = private_shop(max_replication_slots="2")
    replica = bad_day(shop)
    shop.execute("SELECT pg_create_physical_replication_slot('other')")
    replica.pipeline.reload("r", [replica.table_id("lines")])
    replica.wait_event("source_no_slots")
    replica.touch("meanwhile")
    replica.catch_up()
    assert replica.query("select count(*) from orders where note = 'meanwhile'") == [(100,)]
    shop.execute("SELECT pg_drop_replication_slot('other')")
    replica.wait_table("lines", "live")
    replica.assert_nothing_lost()


def test_no_free_senders(private_shop: Callable[..., Database], bad_day: BadDays) -> None:
    shop = private_shop(max_wal_senders="0")
    replica = bad_day(shop, live=False)
    assert "max_wal_senders" in (replica.wait_code("starting", "source_no_senders").remedy or "")
    shop.cluster.restart(settings={"max_wal_senders": "5"})
    replica.wait_live()
    replica.assert_nothing_lost()


def test_table_without_identity_parks_and_consent_or_a_key_heals(shop: Database, bad_day: BadDays) -> None:
    shop.execute("CREATE TABLE history (at int, what text); INSERT INTO history VALUES (1, 'a')")
    replica = bad_day(shop, [table("orders"), table("lines"), table("history")], live=False)
    parked = replica.wait_table("history", "parked")
    assert parked.code == "table_no_identity"
    assert "insert_only" in (parked.remedy or "")
    replica.wait_live("orders", "lines")
    shop.execute("UPDATE history SET what = 'b'")
    shop.execute("ALTER TABLE history ADD PRIMARY KEY (at)")
    replica.reload_table("history")
    shop.execute("UPDATE history SET what = 'c'; INSERT INTO history VALUES (2, 'd')")
    replica.assert_nothing_lost()
    assert replica.query("select what from history order by what") == [("c",), ("d",)]


def test_table_missing_at_the_start_is_taken_up_when_it_comes(shop: Database, bad_day: BadDays) -> None:
    replica = bad_day(shop, [table("orders"), table("lines"), table("coming")], live=False)
    parked = replica.wait_table("coming", "parked")
    assert parked.code == "table_missing"
    assert parked.remedy
    replica.wait_live("orders", "lines")
    shop.execute("CREATE TABLE coming (id int PRIMARY KEY); INSERT INTO coming VALUES (1)")
    # Its creation on the source fails nothing: the others continue, and a reload adds it.
    for _ in range(3):
        replica.touch("meanwhile")
        replica.catch_up()
    replica.reload_table("coming")
    shop.execute("INSERT INTO coming VALUES (2)")
    replica.assert_nothing_lost()
    assert replica.query("select id from coming order by id") == [(1,), (2,)]
    assert "publication_changed" not in replica.codes()
