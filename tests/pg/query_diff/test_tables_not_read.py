"""A subscription of which one table cannot be read: it parks, the others continue, and so does it without a copy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.model.fault import FaultKind
from engine.model.subscription import CaptureSpec, ConnectionSpec
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.pg.query_diff.meddled import READER, end_sessions, reader_of

pytestmark = pytest.mark.pg
NOT_READ = FaultKind.TABLE_NOT_READ.value
_TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, note text);
CREATE TABLE lines (id int PRIMARY KEY, note text);
INSERT INTO orders SELECT i, 'order' FROM generate_series(1, 50) i;
INSERT INTO lines SELECT i, 'line' FROM generate_series(1, 50) i;
"""


@pytest.fixture
def shop(pg18: EmbeddedPostgres, database_on: Callable[..., Database]) -> Database:
    made = database_on(pg18)
    made.execute(_TABLES)
    return made


@pytest.fixture
def replica(shop: Database, replicate: Callable[..., Replica], method: str) -> Replica:
    given = reader_of(shop)
    capture = CaptureSpec("query_diff", {"every_seconds": 3600, "method": method, "snapshot_seconds": 1})
    source = ConnectionSpec(given.name, given.kind, given.settings, capture=capture)
    return replicate(shop, [table("orders"), table("lines")], source=source)


@pytest.fixture(params=["incremental", "range_checksum"])
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def notes(replica: Replica, name: str) -> dict[int, str]:
    return dict(replica.query(f"SELECT id, note FROM public.{name}"))  # type: ignore[arg-type]


def held(shop: Database, name: str) -> dict[int, str]:
    return dict(shop.execute(f"SELECT id, note FROM {name}"))  # type: ignore[arg-type]


def test_a_table_without_its_right_waits_and_goes_on_without_a_copy(shop: Database, replica: Replica) -> None:
    before = notes(replica, "lines")
    shop.execute("UPDATE lines SET note = 'seen' WHERE id < 5")
    replica.catch_up()
    shop.execute(f"REVOKE SELECT ON lines FROM {READER}")
    shop.execute("UPDATE orders SET note = 'changed' WHERE id < 9; DELETE FROM lines WHERE id = 7")
    shop.execute("UPDATE lines SET note = 'later' WHERE id < 3")
    replica.catch_up()
    parked = replica.wait_table("lines", "parked")
    assert (parked.code, "permission denied" in str(parked.reason)) == (NOT_READ, True)
    assert notes(replica, "orders") == held(shop, "orders")
    assert notes(replica, "lines") == before | dict.fromkeys(range(1, 5), "seen")
    assert replica.states()["orders"] == "live"
    # It stays so over a restart, and over cycles of others' copies and comparisons.
    replica.restart()
    replica.wait_live("orders")
    assert replica.wait_table("lines", "parked").code == NOT_READ
    assert [verdict.equal for verdict in replica.verify()] == [True]
    shop.execute("UPDATE orders SET note = 'again'; INSERT INTO lines VALUES (99, 'new')")
    replica.catch_up()
    assert notes(replica, "orders") == held(shop, "orders")
    seen = len(replica.states_of("lines"))
    shop.execute(f"GRANT SELECT ON lines TO {READER}")
    replica.catch_up()
    replica.wait_live()
    assert notes(replica, "lines") == held(shop, "lines")
    assert {"copying", "reloading", "registered"}.isdisjoint(replica.states_of("lines")[seen:])
    shop.execute("DELETE FROM lines WHERE id > 40; UPDATE lines SET note = NULL WHERE id = 1")
    replica.assert_equal()


def test_a_table_that_changed_nothing_meanwhile_goes_on_too(shop: Database, replica: Replica) -> None:
    shop.execute(f"REVOKE SELECT ON lines FROM {READER}")
    replica.catch_up()
    replica.wait_table("lines", "parked")
    shop.execute(f"GRANT SELECT ON lines TO {READER}")
    replica.catch_up()
    replica.wait_live()
    replica.assert_equal()


def test_a_reload_of_a_table_that_cannot_be_read_fails_and_the_next_one_works(shop: Database, replica: Replica) -> None:
    shop.execute(f"REVOKE SELECT ON lines FROM {READER}")
    replica.catch_up()
    replica.wait_table("lines", "parked")
    replica.pipeline.reload("r1", [replica.table_id("lines")])
    assert replica.wait_reload("r1").state == "failed"
    assert replica.wait_table("lines", "parked").code == FaultKind.SOURCE_PRIVILEGE.value
    shop.execute("UPDATE lines SET note = 'later' WHERE id < 3")
    shop.execute(f"GRANT SELECT ON lines TO {READER}")
    replica.catch_up()
    # Its changes were dropped since: it does not continue by itself.
    assert replica.wait_table("lines", "parked").code == FaultKind.SOURCE_PRIVILEGE.value
    replica.pipeline.reload("r2", [replica.table_id("lines")])
    assert replica.wait_reload("r2").state == "succeeded"
    replica.assert_equal()


def test_a_lost_connection_stops_nothing_for_good(shop: Database, replica: Replica) -> None:
    for _ in range(3):
        shop.execute("UPDATE orders SET note = note || '.' WHERE id < 9; DELETE FROM lines WHERE id % 11 = 3")
        end_sessions(shop)
        replica.assert_equal()
