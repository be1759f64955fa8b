"""Changes of structure that the source itself tells, by an event trigger, in the transaction that makes them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from engine.link.messages import SchemaVersion, TableStateReport
from engine.runtime.catalog import open_source
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE orders (id int PRIMARY KEY, note text);
CREATE TABLE probe (id int PRIMARY KEY);
CREATE TABLE lines (n int PRIMARY KEY, sku text);
INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 50) i;
INSERT INTO lines SELECT i, 'x' FROM generate_series(1, 50) i;
"""


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def install(replica: Replica, database: Database) -> None:
    """Install it, and return when a look at the catalog behind that was applied: everything is vouched for from there on."""
    with closing(open_source(replica.spec.source)) as source:
        assert source.install_ddl_capture().current
    for n in range(2):
        look(replica, database, f"p{n}")


def look(replica: Replica, database: Database, column: str) -> None:
    """Return when the catalog was looked at and what it shows applied. In this isolation, the trigger tells nothing for certain."""
    database.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ; ALTER TABLE probe ADD COLUMN {column} int; COMMIT")
    replica.reports.wait(lambda _: ("catalog", True, (f"column {column} was added",)) in told(replica, "probe"), column)


def told(replica: Replica, name: str) -> list[tuple[str, bool, tuple[str, ...]]]:
    """How each structure behind the copy was learnt, whether that was certain, and what was different."""
    own = [r for r in replica.reports.all() if isinstance(r, SchemaVersion) and r.table == replica.table_id(name)]
    return [(r.learnt, r.certain, r.changes) for r in own if r.changes]


def copies(replica: Replica, name: str) -> int:
    own = [r for r in replica.reports.all() if isinstance(r, TableStateReport) and r.table == replica.table_id(name)]
    return [r.state for r in own].count("copying") + [r.state for r in own].count("reloading")


def test_data_before_and_behind_each_change_in_one_transaction(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("probe")])
    install(replica, shop)
    with shop.connect() as session, session.transaction():
        session.execute("INSERT INTO orders VALUES (100, 'old')")
        session.execute("ALTER TABLE orders RENAME note TO remark")
        session.execute("INSERT INTO orders VALUES (101, 'renamed')")
        session.execute("ALTER TABLE orders ADD COLUMN note text DEFAULT 'd'")
        session.execute("INSERT INTO orders VALUES (102, 'both', 'new')")
        session.execute("ALTER TABLE orders DROP COLUMN note")
        session.execute("ALTER TABLE orders ADD COLUMN note text")
        session.execute("INSERT INTO orders VALUES (103, 'last', 'again')")
    replica.catch_up()
    print(replica.query("SELECT * FROM orders WHERE id>=100 ORDER BY 1"))
    replica.assert_equal()
    assert told(replica, "orders") == [
        ("ddl_trigger", True, ("column note is named remark now",)),
        ("ddl_trigger", True, ("column note was added",)),
        ("ddl_trigger", True, ("column note was dropped",)),
        ("ddl_trigger", True, ("column note was added",)),
    ]
    assert copies(replica, "orders") == 1
