"""Changes of structure that the source itself tells, by an event trigger, in the transaction that makes them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from engine.connectors import open_source
from engine.link.messages import EventReport, SchemaVersion, TableStateReport
from engine.model.position import Lsn
from server.demo.embedded import EmbeddedPostgres
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
def shop(pg: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database]) -> Database:
    database = database_on(pg)
    database.execute(SHOP)
    return database


def install(replica: Replica, database: Database) -> None:
    """Install it, and return when a later reading of the catalog is applied: every structure is certain from there on."""
    with closing(open_source(replica.spec.source)) as source:
        assert source.ddl.install().current
    for n in range(2):
        look(replica, database, f"p{n}")


def look(replica: Replica, database: Database, column: str) -> None:
    """Return when the catalog was read and its contents applied. At this isolation level, the trigger reports nothing as certain."""
    database.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ; ALTER TABLE probe ADD COLUMN {column} int; COMMIT")
    replica.reports.wait(
        lambda _: ("catalog", True, (f"column {column} was added",)) in read_structures(replica, "probe"), column
    )


def read_structures(replica: Replica, name: str) -> list[tuple[str, bool, tuple[str, ...]]]:
    """How each structure after the copy was learnt, whether that was certain, and what was different."""
    own = [r for r in replica.reports.all() if isinstance(r, SchemaVersion) and r.table == replica.table_id(name)]
    return [(r.learnt, r.certain, r.changes) for r in own if r.changes]


def copies(replica: Replica, name: str) -> int:
    own = [r for r in replica.reports.all() if isinstance(r, TableStateReport) and r.table == replica.table_id(name)]
    return [r.state for r in own].count("copying") + [r.state for r in own].count("reloading")


def warnings(replica: Replica) -> list[str]:
    return [r.code for r in replica.reports.all() if isinstance(r, EventReport) and r.severity != "info"]


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
    assert read_structures(replica, "orders") == [
        ("ddl_trigger", True, ("column note is named remark now",)),
        ("ddl_trigger", True, ("column note was added",)),
        ("ddl_trigger", True, ("column note was dropped",)),
        ("ddl_trigger", True, ("column note was added",)),
    ]
    assert copies(replica, "orders") == 1


def test_each_change_is_told_at_the_end_of_its_transaction(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("probe")])
    install(replica, shop)
    positions = []
    for command in ("ADD COLUMN n int DEFAULT 5", "RENAME note TO words", "ALTER id SET STATISTICS 9"):
        (begin,) = shop.execute("SELECT pg_current_wal_insert_lsn()::text")[0]
        shop.execute(f"ALTER TABLE orders {command}")
        (end,) = shop.execute("SELECT pg_current_wal_insert_lsn()::text")[0]
        positions.append((Lsn.parse(begin), Lsn.parse(end)))
    replica.catch_up()
    assert [changes for _, _, changes in read_structures(replica, "orders")] == [
        ("column n was added",),
        ("column note is named words now",),
    ]
    own = [r for r in replica.reports.all() if isinstance(r, SchemaVersion) and r.table == replica.table_id("orders")]
    assert all(begin < r.position <= end for r, (begin, end) in zip(own[-2:], positions, strict=False))
    look(replica, shop, "later")
    replica.assert_equal()
    assert (len(read_structures(replica, "orders")), copies(replica, "orders")) == (2, 1)
    assert replica.query("SELECT words, n FROM orders WHERE id = 7") == [("x", 5)]


def test_what_a_rewrite_leaves_as_it_was_is_not_copied_anew(shop: Database, replicate: Replicate) -> None:
    shop.execute(
        "ALTER TABLE orders ADD COLUMN n int DEFAULT 5; CREATE TABLE days (id int PRIMARY KEY, v int DEFAULT 3, w int DEFAULT 4)"
        " PARTITION BY RANGE (id); CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (10)"
    )
    replica = replicate(shop, [table("orders"), table("days"), table("probe")])
    install(replica, shop)
    shop.execute("VACUUM FULL orders")
    shop.execute("UPDATE orders SET n = 6 WHERE id = 3")
    shop.execute("ALTER TABLE orders ADD COLUMN m int")
    shop.execute("CLUSTER orders USING orders_pkey")
    shop.execute("CREATE TABLE days_2 PARTITION OF days (CHECK (v > 0)) FOR VALUES FROM (10) TO (20)")
    shop.execute("INSERT INTO days (id) VALUES (1), (11)")
    for column in ("a", "b", "c"):
        look(replica, shop, column)
    replica.assert_equal()
    assert (copies(replica, "orders"), copies(replica, "days")) == (1, 1)


def test_values_that_no_log_tells_of_are_copied(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines"), table("probe")])
    install(replica, shop)
    shop.execute("ALTER TABLE orders ADD COLUMN r double precision DEFAULT random()")
    shop.execute("ALTER TABLE lines ALTER n TYPE int USING n + 1000")
    replica.reports.wait(lambda _: copies(replica, "orders") > 1 and copies(replica, "lines") > 1, "both copied anew")
    replica.wait_live()
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM orders WHERE r IS NULL") == [(0,)]
    assert replica.query("SELECT min(n) FROM lines") == [(1001,)]


def test_what_was_rolled_back_is_not_followed(shop: Database, replicate: Replicate) -> None:
    shop.execute(f'ALTER DATABASE "{shop.name}" SET debug_logical_replication_streaming = immediate')
    replica = replicate(shop, [table("orders"), table("probe")])
    install(replica, shop)
    with shop.connect() as session:
        with session.transaction(force_rollback=True):
            session.execute("ALTER TABLE orders ADD COLUMN lost int")
            session.execute("INSERT INTO orders VALUES (99, 'lost')")
        with session.transaction():
            session.execute("INSERT INTO orders VALUES (100, 'before')")
            with session.transaction(force_rollback=True):
                session.execute("ALTER TABLE orders DROP COLUMN note, ADD COLUMN note int")
                session.execute("INSERT INTO orders VALUES (101, 1)")
            session.execute("INSERT INTO orders VALUES (102, 'between')")
            session.execute("ALTER TABLE orders ADD COLUMN kept int DEFAULT 1")
            session.execute("INSERT INTO orders VALUES (103, 'behind', 2)")
    replica.catch_up()
    replica.wait_live()
    replica.assert_equal()
    assert [changes for _, _, changes in read_structures(replica, "orders")] == [("column kept was added",)]


def test_where_messages_make_no_sense_or_are_missing_the_catalog_tells(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("probe")])
    install(replica, shop)
    for content in ("", "{}", "\x01", '{"v": 99}'):
        shop.execute("SELECT pg_logical_emit_message(true, 'penstock.ddl', %s)", [content])
    shop.execute("ALTER TABLE orders ADD COLUMN told int DEFAULT 4")
    replica.catch_up()
    shop.execute("ALTER EVENT TRIGGER penstock_ddl_end DISABLE")
    with shop.connect() as session, session.transaction():
        session.execute("INSERT INTO orders VALUES (100, 'first')")
        session.execute("ALTER TABLE orders DROP COLUMN note, ADD COLUMN note text DEFAULT 'new'")
        session.execute("INSERT INTO orders (id, note) VALUES (101, 'second')")
    shop.execute("ALTER EVENT TRIGGER penstock_ddl_end ENABLE ALWAYS")
    for column in ("a", "b"):
        look(replica, shop, column)
    replica.wait_live()
    replica.assert_equal()
    assert warnings(replica).count("ddl_message_unreadable") == 1
    assert read_structures(replica, "orders")[0] == ("ddl_trigger", True, ("column told was added",))
    with closing(open_source(replica.spec.source)) as source:
        assert not source.ddl.uninstall().installed
    shop.execute("ALTER TABLE orders ADD COLUMN untold int DEFAULT 6; INSERT INTO orders (id) VALUES (102)")
    replica.catch_up()
    replica.wait_live()
    replica.assert_equal()
    assert read_structures(replica, "orders")[-1] == ("log", True, ("column untold was added",))
