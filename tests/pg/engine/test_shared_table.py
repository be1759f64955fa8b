"""One table on the target fed by two sources, each by a subscription of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.model.identity import TableName
from engine.model.shared import SharedInto
from engine.model.subscription import ApplyMode, ApplyPolicy, ConnectionSpec, QueueMode, TableSpec
from engine.platform.failpoints import Failpoint
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, duckdb_target, subscription_spec, table
from tests.pg.bad_days.conftest import BadDay, Circumstances
from tests.pg.engine.killed_engines import arm, engine, wait_for

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]
Row = tuple[object, ...]
SHOP = "CREATE TABLE orders (id int PRIMARY KEY, n int); INSERT INTO orders SELECT i, 0 FROM generate_series(1, 200) i"
TRANSACTIONS = 40
RELATION = TableName("marts", "orders")


def orders(source: str, **options: object) -> TableSpec:
    into = SharedInto(RELATION, "source", source)
    return table("orders", target=TableName("marts", f"orders__{source}"), shared=into, **options)


def work(shop: Database) -> None:
    """Small transactions over the same keys in every shop."""
    with shop.connect() as connection:
        for i in range(TRANSACTIONS):
            connection.execute("UPDATE orders SET n = n + 1 WHERE id %% 3 = %s", [i % 3])
            connection.execute("DELETE FROM orders WHERE id = %s", [i + 1])
            connection.execute("INSERT INTO orders VALUES (%s, 0), (%s, 1)", [i + 1, 1000 + i])


def sources_rows(shops: dict[str, Database], columns: str = "id, n") -> list[Row]:
    """What the shared table is to show."""
    found = [(source, *row) for source, shop in shops.items() for row in shop.execute(f"SELECT {columns} FROM orders")]
    return sorted(found, key=str)


def shown(replica: Replica, columns: str = "id, n") -> list[Row]:
    return sorted(replica.query(f"SELECT source, {columns} FROM marts.orders"), key=str)


@contextmanager
def counting(replica: Replica) -> Iterator[set[tuple[Row, ...]]]:
    """Every answer that a reader gets meanwhile to how many rows each source has."""
    answers: set[tuple[Row, ...]] = set()
    done = threading.Event()

    def read() -> None:
        while not done.wait(0.005):
            counted = replica.query("SELECT source, count(*) FROM marts.orders GROUP BY source ORDER BY source")
            answers.add(tuple(counted))

    with ThreadPoolExecutor(1) as one:
        reading = one.submit(read)
        try:
            yield answers
        finally:
            done.set()
            reading.result()


@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"])
def test_each_source_has_its_rows_in_it_whatever_becomes_of_the_others(
    database: Database,
    database_on: Callable[[EmbeddedPostgres], Database],
    pg18: EmbeddedPostgres,
    replicate: Replicate,
    target_kind: str,
) -> None:
    """A DuckDB file belongs to one engine; into a PostgreSQL target each subscription has an engine of its own."""
    shops = {"eu": database, "us": database_on(pg18)}
    for shop in shops.values():
        shop.execute(SHOP)
    eu = replicate(shops["eu"], [orders("eu")])
    one_engine = eu if target_kind == "duckdb" else None
    kept = ApplyPolicy(ApplyMode.TRANSACTIONAL) if target_kind == "postgres" else ApplyPolicy()
    us = replicate(shops["us"], [orders("eu")], target=eu.spec.target, beside=one_engine, live=False, apply=kept)
    taken = us.wait_table("orders", "parked")
    assert taken.code in {"table_name_collision", "shared_table_conflict"}
    us.replace(orders("us"))
    us.wait_live()
    with ThreadPoolExecutor(2) as both:
        for each in [both.submit(work, shop) for shop in shops.values()]:
            each.result()
    for replica in (eu, us):
        replica.assert_equal()
    assert shown(eu) == sources_rows(shops)

    before = len(us.reports.all())
    with counting(eu) as answers:
        for number in range(3):
            us.pipeline.reload(f"r{number}", [us.spec.tables[0].table])
            us.reports.wait(
                lambda reports, n=number: sum(getattr(r, "state", "") == "live" for r in reports[before:]) > n,
                "reloaded",
            )
    assert answers == {(("eu", 240), ("us", 240))}

    shops["us"].execute("TRUNCATE orders")
    shops["us"].execute("INSERT INTO orders VALUES (7, 7)")
    us.catch_up()
    assert shown(us) == sources_rows(shops)
    shops["us"].execute(
        "ALTER TABLE orders ADD COLUMN vat numeric(10,2) DEFAULT 1.5; INSERT INTO orders VALUES (8, 8, 2)"
    )
    us.catch_up()
    us.wait_live()
    assert eu.query(
        "SELECT source, id, vat IS NULL FROM marts.orders WHERE source = 'us' OR id = 1 ORDER BY source, id"
    ) == [
        ("eu", 1, True),
        ("us", 7, False),
        ("us", 8, False),
    ]
    shops["eu"].execute("ALTER TABLE orders ADD COLUMN vat text; INSERT INTO orders VALUES (5000, 0, 'x')")
    assert eu.wait_table("orders", "parked").code == "shared_table_conflict"
    us.assert_equal()
    us.replace()
    us.catch_up()
    assert len(shown(us)) == 242


@pytest.fixture
def target_of_two(tmp_path: Path, target_kind: str, request: pytest.FixtureRequest) -> ConnectionSpec:
    if target_kind == "duckdb":
        return duckdb_target(tmp_path)
    made = request.getfixturevalue("database_on")(request.getfixturevalue("pg16"))
    return ConnectionSpec("mart", "postgres", made.settings)


@pytest.mark.chaos
@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"])
def test_an_engine_that_dies_leaves_all_of_it_as_it_was_or_as_it_is_to_be(
    database: Database,
    database_on: Callable[[EmbeddedPostgres], Database],
    pg18: EmbeddedPostgres,
    target_of_two: ConnectionSpec,
    tmp_path: Path,
) -> None:
    shops = {"eu": database, "us": database_on(pg18)}
    days = {}
    for source, shop in shops.items():
        shop.execute(SHOP)
        spec = subscription_spec(shop, target_of_two, (orders(source),))
        folder = tmp_path / source
        folder.mkdir()
        days[source] = BadDay(shop, folder, [], Circumstances(spec=spec))
        if source == "eu":
            days[source].wait_live()
        else:
            days[source].pipeline.forget()
        days[source].close()
    eu, us = days["eu"], days["us"]
    armed = tmp_path / "armed"
    armed.mkdir()

    def seen(columns: str = "id, n") -> list[Row]:
        eu.again()
        eu.wait_live()
        found = shown(eu, columns)
        eu.close()
        return found

    try:
        arm(armed, Failpoint.HANDOVER_AFTER, 1)
        with engine(us, QueueMode.MEMORY, armed) as process:
            process.wait(60)
        assert seen() == sources_rows(shops)
        with engine(us, QueueMode.MEMORY, armed) as process:
            wait_for(process, "orders live")
            arm(armed, Failpoint.COMMIT_BEFORE, 1)
            shops["us"].execute("ALTER TABLE orders ADD COLUMN m int; INSERT INTO orders VALUES (900, 1, 2)")
            process.wait(60)
        assert len(seen()) == 400
        us.again()
        us.wait_live()
        us.assert_equal()
        us.close()
        assert seen("id, n, m") == sorted(
            [*sources_rows({"eu": shops["eu"]}, "id, n, NULL"), *sources_rows({"us": shops["us"]}, "id, n, m")], key=str
        )
    finally:
        for day in days.values():
            day.release()
