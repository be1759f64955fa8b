"""Changes of structure that are rolled back to a savepoint inside transactions that the source streams while they are open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from engine.link.messages import SchemaVersion, TableStateReport
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE orders (id int PRIMARY KEY, note text, n int);
CREATE TABLE lines (id int PRIMARY KEY);
INSERT INTO orders SELECT i, 'note ' || i, i FROM generate_series(1, 500) i;
"""
ROLLED_BACK = {
    "drop": ("ALTER TABLE orders DROP COLUMN note", "INSERT INTO orders (id, n) VALUES (1001, 1)"),
    "add": ("ALTER TABLE orders ADD COLUMN more int DEFAULT 7", "INSERT INTO orders VALUES (1001, 'x', 1, 2)"),
    "rename": ("ALTER TABLE orders RENAME note TO memo", "UPDATE orders SET memo = 'y' WHERE id = 3"),
    "swap": (
        "ALTER TABLE orders RENAME note TO x; ALTER TABLE orders DROP COLUMN n; ALTER TABLE orders RENAME x TO n",
        "UPDATE orders SET n = 'z' WHERE id = 3",
    ),
    "type": ("ALTER TABLE orders ALTER n TYPE text USING n || 'x'", "INSERT INTO orders VALUES (1001, 'x', 'y')"),
    "key": (
        "ALTER TABLE orders DROP CONSTRAINT orders_pkey, ALTER n SET NOT NULL, ADD PRIMARY KEY (n)",
        "UPDATE orders SET note = 'y' WHERE id = 3",
    ),
    "identity": ("ALTER TABLE orders REPLICA IDENTITY FULL", "UPDATE orders SET note = 'y' WHERE id = 3"),
    "truncate": ("TRUNCATE orders", "INSERT INTO orders VALUES (1, 'x', 1)"),
    "another": (
        "DROP TABLE orders; CREATE TABLE orders (id int PRIMARY KEY, other text)",
        "INSERT INTO orders VALUES (1, 'x')",
    ),
}
LATER = "UPDATE orders SET note = 'later' WHERE id > 490; DELETE FROM orders WHERE id < 3"
ALONE = ("drop", "truncate")
"""With every test run also without rows of the old structure in the same transaction."""


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    database.execute(f'ALTER DATABASE "{database.name}" SET debug_logical_replication_streaming = immediate')
    return database


def chunks(shop: Database) -> int:
    """How often the source has streamed a part of an open transaction of this database."""
    count = (
        "SELECT coalesce(sum(stream_count), 0) FROM pg_stat_replication_slots s JOIN pg_replication_slots USING (slot_name)"
        " WHERE database = current_database()"
    )
    return int(shop.execute(count)[0][0])


def streamed(shop: Database, before: int) -> None:
    """Return when more of an open transaction has been streamed than `before`."""
    # A commit writes the log out that is read from there; an idle log writer may take ten seconds over it.
    shop.execute("SELECT pg_current_xact_id()")
    wait_until(lambda: chunks(shop) > before, 30.0)


def look_twice(replica: Replica) -> None:
    """Return when the catalog was read twice since this call began."""
    run = replica.pipeline.run
    assert run is not None
    for _ in range(2):
        run.check_source()


def of_orders(replica: Replica, kind: type[Any]) -> list[Any]:
    return [r for r in replica.reports.all() if isinstance(r, kind) and r.table == replica.table_id("orders")]


def roll_back(shop: Database, replica: Replica, statements: tuple[str, str], later: str | None) -> None:
    """In one transaction: rows that are streamed, the structure and rows of it that are streamed and rolled back, and `later`."""
    ddl, rows = statements
    with psycopg.connect(shop.dsn) as connection:
        before = chunks(shop)
        connection.execute("INSERT INTO lines SELECT generate_series(1, 10)")
        streamed(shop, before)
        connection.execute("SAVEPOINT a")
        before = chunks(shop)
        connection.execute(ddl)
        connection.execute(rows)
        streamed(shop, before)
        look_twice(replica) if "DROP TABLE" not in ddl else None
        connection.execute("ROLLBACK TO a")
        if later is not None:
            connection.execute(later)


@pytest.mark.parametrize(
    ("what", "later"),
    [
        pytest.param(what, later, id=f"{what}-{words}", marks=[] if later or what in ALONE else pytest.mark.chaos)
        for what in ROLLED_BACK
        for later, words in ((None, "alone"), (LATER, "rows later"))
    ],
)
def test_nothing_of_it_is_on_the_target(shop: Database, replicate: Replicate, what: str, later: str | None) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    wait_until(lambda: bool(of_orders(replica, SchemaVersion)), 20.0)  # It is reported after the table is live.
    versions = len(of_orders(replica, SchemaVersion))
    roll_back(shop, replica, ROLLED_BACK[what], later)
    replica.catch_up()
    look_twice(replica)
    shop.execute("UPDATE orders SET note = 'at last' WHERE id = 100")
    replica.catch_up()
    replica.wait_live()
    replica.assert_equal()
    assert len(of_orders(replica, SchemaVersion)) == versions
    assert "reloading" not in {report.state for report in of_orders(replica, TableStateReport)}


def test_a_structure_that_stays_and_is_first_announced_in_a_part_that_is_rolled_back(
    shop: Database, replicate: Replicate
) -> None:
    """The source announces it once: the rows that count come after a record of the part that was rolled back."""
    replica = replicate(shop, [table("orders"), table("lines")])
    with psycopg.connect(shop.dsn) as connection:
        before = chunks(shop)
        connection.execute("INSERT INTO lines SELECT generate_series(1, 10)")
        streamed(shop, before)
        connection.execute("ALTER TABLE orders DROP COLUMN note, ADD COLUMN more text DEFAULT 'all'")
        connection.execute("SAVEPOINT a")
        before = chunks(shop)
        connection.execute("INSERT INTO orders VALUES (1001, 1, 'gone')")
        streamed(shop, before)
        connection.execute("ROLLBACK TO a")
        connection.execute("INSERT INTO orders VALUES (1002, 2, 'stays')")
    replica.catch_up()
    look_twice(replica)
    replica.catch_up()
    replica.wait_live()
    replica.assert_equal()
    assert replica.query("SELECT id, n, more FROM orders WHERE id IN (1, 1002) ORDER BY 1") == [
        (1, 1, "all"),
        (1002, 2, "stays"),
    ]


@pytest.mark.parametrize("server", ["pg15", "pg16"])
def test_older_servers_stream_only_what_is_large(
    replicate: Replicate,
    database_on: Callable[[EmbeddedPostgres], Database],
    request: pytest.FixtureRequest,
    server: str,
) -> None:
    shop = database_on(request.getfixturevalue(server))
    shop.execute(SHOP)
    replica = replicate(shop, [table("orders"), table("lines")])
    large = "INSERT INTO orders SELECT i, repeat('x', 1000), i FROM generate_series(2000, 21000) i"
    with psycopg.connect(shop.dsn) as connection:
        before = chunks(shop)
        connection.execute(large)
        streamed(shop, before)
        connection.execute("SAVEPOINT a")
        before = chunks(shop)
        connection.execute("ALTER TABLE orders DROP COLUMN note")
        connection.execute("INSERT INTO orders SELECT i, i FROM generate_series(30000, 300000) i")
        streamed(shop, before)
        look_twice(replica)
        connection.execute("ROLLBACK TO a")
    replica.catch_up()
    look_twice(replica)
    replica.catch_up()
    replica.wait_live()
    replica.assert_equal()
    assert replica.query("SELECT count(note), min(length(note)) FROM orders WHERE id >= 2000") == [(19001, 1000)]
