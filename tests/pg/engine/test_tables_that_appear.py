"""Tables that appear on the source while a subscription runs whose patterns take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.link.messages import TablesFound
from engine.model.patterns import TablePattern
from engine.model.subscription import TableSpec
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = [
    pytest.mark.pg,
    pytest.mark.parametrize("target_kind", ["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)]),
]

Replicate = Callable[..., Replica]
EVERY = TablePattern("public", exclude=("*_old",))


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text); INSERT INTO orders VALUES (1, 'o')")
    return database


def found(replica: Replica) -> list[tuple[str, bool]]:
    """Every table that was reported, each time it was, and whether it has an identity."""
    return [(t.name, t.identity) for r in replica.reports.all() if isinstance(r, TablesFound) for t in r.tables]


def wait_found(replica: Replica, *names: str) -> None:
    replica.reports.wait(lambda _: set(names) <= {name for name, _ in found(replica)}, f"{names} found", 20)


def looked(replica: Replica) -> None:
    """Return when the guard has checked everything that is on the source by now."""
    run = replica.pipeline.run
    assert run is not None
    run.check_source()


def declare(replica: Replica, *added: TableSpec) -> None:
    """As the server does with what it takes in."""
    tables = (*replica.spec.tables, *added)
    replica.spec = replace(replica.spec, tables=tables)
    replica.pipeline.update(replace(replica.pipeline.spec, tables=tables))


def test_tables_that_appear_are_found_once_and_copied_like_any(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")], patterns=[EVERY])
    shop.execute(
        "CREATE TABLE later (id int PRIMARY KEY); INSERT INTO later SELECT generate_series(1, 50); CREATE TABLE later_old (a int);"
        "CREATE SCHEMA other; CREATE TABLE other.x (a int PRIMARY KEY); CREATE UNLOGGED TABLE fleeting (a int PRIMARY KEY);"
        "CREATE TABLE __penstock_copy_t0 (a int PRIMARY KEY);"
        "CREATE TABLE days (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (100); INSERT INTO days VALUES (1, 'a')"
    )
    wait_found(replica, "later", "days")
    declare(replica, table("later"), table("days"))
    shop.execute(
        "INSERT INTO later SELECT generate_series(51, 60); UPDATE days SET v = 'b'; UPDATE orders SET note = 'x'"
    )
    replica.wait_live()
    shop.execute(
        "DELETE FROM later WHERE id < 10; CREATE TABLE days_2 PARTITION OF days FOR VALUES FROM (100) TO (200)"
    )
    shop.execute("INSERT INTO days VALUES (150, 'c')")
    replica.assert_equal()
    looked(replica)
    assert sorted(found(replica)) == [("days", True), ("later", True)]


def test_a_table_without_identity_parks_alone_and_its_owner_may_update_it(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders")], patterns=[EVERY])
    shop.execute("CREATE TABLE bare (a int, b int); INSERT INTO bare VALUES (1, 1)")
    wait_found(replica, "bare")
    assert found(replica) == [("bare", False)]
    bare = table("bare")
    declare(replica, bare)
    report = replica.wait_table("bare", "parked")
    assert report.code == "table_no_identity"
    assert "REPLICA IDENTITY" in str(report.remedy)
    shop.execute("UPDATE bare SET b = b + 1; DELETE FROM bare WHERE a = 2; UPDATE orders SET note = 'x'")
    replica.catch_up()
    assert replica.query("SELECT note FROM orders") == [("x",)]
    shop.execute("ALTER TABLE bare ADD PRIMARY KEY (a)")
    replica.pipeline.reload("r1", [bare.table])
    replica.wait_live()
    replica.assert_equal()


def test_what_is_renamed_or_removed_is_none_that_appeared(shop: Database, replicate: Replicate) -> None:
    shop.execute("CREATE TABLE more (id int PRIMARY KEY)")
    orders, more = table("orders"), table("more")
    replica = replicate(shop, [orders, more], patterns=[EVERY])
    shop.execute("ALTER TABLE orders RENAME TO purchases")
    looked(replica)
    looked(replica)
    assert found(replica) == []
    spec = replica.pipeline.spec
    replica.pipeline.update(replace(spec, tables=tuple(t for t in spec.tables if t.table != more.table)))
    wait_found(replica, "more")  # The server knows that it was removed.
    assert found(replica) == [("more", True)]


def test_patterns_that_change_hold_from_the_next_look_on(shop: Database, replicate: Replicate) -> None:
    shop.execute("CREATE TABLE lines (id int PRIMARY KEY); CREATE TABLE notes (id int PRIMARY KEY)")
    replica = replicate(shop, [table("orders")])
    looked(replica)
    assert found(replica) == []
    replica.pipeline.update(replace(replica.pipeline.spec, patterns=(TablePattern("public", "li*"),)))
    wait_found(replica, "lines")
    replica.pipeline.update(replace(replica.pipeline.spec, patterns=(EVERY,)))
    wait_found(replica, "notes")
    replica.assert_equal()


def test_a_table_that_becomes_a_partition_of_another_says_so(shop: Database, replicate: Replicate) -> None:
    shop.execute(
        "CREATE TABLE days (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); CREATE TABLE days_1 (id int PRIMARY KEY, v text);"
        "INSERT INTO days_1 VALUES (1, 'a')"
    )
    replica = replicate(shop, [table("orders"), table("days"), table("days_1")], patterns=[EVERY])
    shop.execute("ALTER TABLE days ATTACH PARTITION days_1 FOR VALUES FROM (0) TO (100)")
    report = replica.wait_table("days_1", "parked")
    assert report.code == "table_is_partition"
    assert "partition of public.days now" in str(report.reason)
    replica.reports.wait(
        lambda _: "reloading" in replica.states_of("days"), "days copied anew, with its new partition", 20
    )
    shop.execute("UPDATE days SET v = 'b'")
    replica.wait_live("days", "orders")
    replica.catch_up()
    assert replica.query("SELECT v FROM days") == [("b",)]
    shop.execute("ALTER TABLE days DETACH PARTITION days_1")
    replica.pipeline.reload("r1", [replica.table_id("days_1")])
    replica.wait_live()
    replica.assert_equal()
