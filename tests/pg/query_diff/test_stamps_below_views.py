"""Rows of views are found by the stamps of the tables below them: each one that changed, and no other is read."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from psycopg.pq import TransactionStatus

from engine.model.identity import TableName
from engine.model.source import Severity, TableSplit
from engine.model.subscription import ConnectionSpec, OriginFilter
from engine.sources.postgres import splits
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff import table_reading
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.cycle_files import TableFound
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import StampBelow, TableDetection
from engine.sources.query_diff.folder import Folder, Follow
from engine.sources.query_diff.given import Given
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.replication import table
from tests.pg.query_diff.meddled import READER, Meddled, once, reader_of
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy, held_by

pytestmark = pytest.mark.pg

MAKE = """
CREATE TABLE customers (id int PRIMARY KEY, name text, at timestamptz);
CREATE TABLE orders (id text PRIMARY KEY, customer int, state text, amount int, at timestamp);
CREATE TABLE lines (order_id text, no smallint, item text, at timestamptz, PRIMARY KEY (order_id, no));
CREATE INDEX ON orders (customer);
CREATE VIEW listed AS SELECT o.id, o.amount, o.state, c.id AS customer, c.name FROM orders o JOIN customers c ON c.id = o.customer
 WHERE o.state IS DISTINCT FROM 'gone';
CREATE VIEW totals AS SELECT c.id AS customer, c.name, sum(o.amount) AS amount, count(o.id) AS orders FROM customers c
 LEFT JOIN orders o ON o.customer = c.id AND o.state <> 'gone' GROUP BY c.id;
CREATE VIEW sold AS SELECT l.no, l.item, v.* FROM lines l JOIN listed v ON v.id = l.order_id
"""
CUSTOMERS = StampBelow(stamp_column="at", columns={"customer": "id"})
BELOW = {
    "listed": {"customers": CUSTOMERS, "orders": StampBelow(stamp_column="at", columns={"id": "id"})},
    "totals": {"customers": CUSTOMERS, "orders": StampBelow(stamp_column="at", columns={"customer": "customer"})},
    "sold": {
        "customers": CUSTOMERS,
        "orders": StampBelow(stamp_column="at", columns={"id": "id"}),
        "lines": StampBelow(stamp_column="at", columns={"id": "order_id", "no": "no"}),
    },
}
LISTED = TableName("public", "listed")
KEYS = {"listed": ["id"], "totals": ["customer"], "sold": ["no", "id"]}
IDS = ("'a'", "'A'", "''", r"E'\\'", r"E'a\tb'", r"E'\\N'", r"E'x\ny'", "'é€😀'", "'N'", "'{a,b}'", "'q\"'")


def detections(below: Mapping[str, Mapping[str, StampBelow]] = BELOW, **more: Any) -> dict[str, TableDetection]:
    return {
        f"public.{view}": TableDetection(
            method="timestamp",
            key=KEYS[view],
            stamps_below={f"public.{name}": one for name, one in stamps.items()},
            **{"sweep_every": 100_000, **more},
        )
        for view, stamps in below.items()
    }


@pytest.fixture(scope="module")
def standing(pg18: Any) -> Iterator[Database]:
    with standing_database(pg18, "stamps_below") as made:
        assert isinstance(made, Database)
        yield made


@pytest.fixture
def database(standing: Database) -> Database:
    standing.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC")
    for statement in MAKE.strip().split(";\n"):
        standing.execute(statement)
    return standing


class Cycles:
    """Cycles of the views, and the copy that they make."""

    def __init__(self, database: Database, path: Path, method: Method, chosen: Mapping[str, TableDetection]) -> None:
        connector = Connector(ConnectionSpec("shop", "postgres", database.settings))
        self.compared = PostgresDatabase(connector, Compared(chosen, method.value))
        self.folder = Folder(path)
        self.given = Given(0, method, 10.0, path, "shop", chosen)
        self.followed = {
            TableName("public", view.removeprefix("public.")): Follow(
                "state IS DISTINCT FROM 'kept'" if view == "public.sold" else None, ALL
            )
            for view in chosen
        }
        self.folder.make()
        self.folder.follow(self.followed)
        self.copy = Copy(self.folder)
        with run_cycle(self.compared, self.given) as (snapshot, number):
            self.copy.fill(held_by(self.compared, snapshot, self.followed), number)

    def run(self, *, complete: bool = False) -> dict[str, dict[bytes, bytes]]:
        """A cycle, whose changes are applied; what the views have in its snapshot."""
        with run_cycle(self.compared, self.given, complete=complete) as (snapshot, _):
            expected = held_by(self.compared, snapshot, self.followed)
        self.copy.follow()
        return expected

    def assert_equal(self, *, complete: bool = False) -> dict[str, TableFound]:
        """After a cycle the copy is like the source."""
        expected = self.run(complete=complete)
        assert self.copy.rows == expected
        return self.found()

    def found(self) -> dict[str, TableFound]:
        return {each.name: each for each in self.folder.files.reports(1)[0].tables}

    def close(self) -> None:
        self.compared.close()


def statement(rng: random.Random, moved: set[int], at: str) -> list[str]:
    """A change with its stamp. `moved`: gets customers that an order was taken away from."""
    order, customer, state = rng.choice(IDS), rng.randint(1, 6), rng.choice(["new", "gone", "kept", "paid"])
    found = [
        f"INSERT INTO customers VALUES ({customer}, 'c', {at}) ON CONFLICT (id) DO UPDATE SET name = customers.name || '+', at = {at}",
        f"UPDATE orders SET state = '{state}', at = {at} WHERE id = {order}",
        f"UPDATE orders SET amount = amount + 1, at = {at} WHERE customer = {customer}",
        f"INSERT INTO orders VALUES ({order}, {customer}, '{state}', 5, {at}) ON CONFLICT DO NOTHING",
        f"INSERT INTO lines VALUES ({order}, {customer}, 'i', {at})"
        f" ON CONFLICT (order_id, no) DO UPDATE SET item = lines.item || '+', at = {at}",
    ]
    if rng.random() < 0.2:
        moved |= set(range(1, 7))
        return [f"UPDATE orders SET customer = {customer}, at = {at} WHERE id = {order}"]
    return [rng.choice(found) for _ in range(rng.randint(1, 3))]


class Late:
    """A session with a transaction that stays open over cycles; its stamps are those of its beginning."""

    def __init__(self, database: Database, rng: random.Random, moved: set[int]) -> None:
        self.session = database.connect()
        self._rng, self._moved = rng, moved

    def go_on(self) -> None:
        session, rng = self.session, self._rng
        if session.info.transaction_status is TransactionStatus.IDLE:
            session.execute("BEGIN")
            session.execute("SELECT now()")
        elif rng.random() < 0.5:
            for each in statement(rng, self._moved, "now()"):
                session.execute(each.encode())
            # Others would wait for its rows.
            session.execute(rng.choice([b"COMMIT", b"COMMIT", b"ROLLBACK"]))


@pytest.mark.parametrize(
    ("seed", "few"),
    [(1, 3), (2, 20_000), *(pytest.param(n, n % 2 or 20_000, marks=pytest.mark.chaos) for n in range(3, 60))],
)
@pytest.mark.parametrize("method", [Method.INCREMENTAL, Method.ROW_CHECKSUM])
def test_each_change_of_a_table_below_is_found(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Method, seed: int, few: int
) -> None:
    monkeypatch.setattr(table_reading, "FEW_KEYS", few)
    monkeypatch.setattr(table_reading, "PIECE_BYTES", 60)
    for place, order in enumerate(IDS):
        database.execute(f"INSERT INTO orders VALUES ({order}, {1 + place % 6}, 'new', 1, now())")
        database.execute(f"INSERT INTO lines SELECT {order}, n, 'i', now() FROM generate_series(1, 3) AS n")
    database.execute("INSERT INTO customers SELECT i, 'c', now() FROM generate_series(1, 4) AS i")
    rng, moved = random.Random(f"{seed}/{method}/{few}"), set[int]()
    with closing(Cycles(database, tmp_path / "reader", method, detections())) as cycles:
        late = Late(database, rng, moved)
        with closing(late.session):
            for _ in range(10):
                for _ in range(rng.randint(0, 9)):
                    for each in statement(rng, moved, rng.choice(["now()", "clock_timestamp()", "NULL"])):
                        database.execute(each)
                late.go_on()
                complete = rng.random() < 0.1
                expected = cycles.run(complete=complete)
                by_stamps = [each.since_stamp for each in cycles.found().values()]
                assert by_stamps == [not complete] * 3 or few < 20_000
                if complete:
                    moved.clear()
                for customer in moved:
                    # Its sum lost an order, which says by its stamp only where it is now.
                    key = str(customer).encode()
                    if key in expected["totals"]:
                        expected["totals"][key] = cycles.copy.rows["totals"][key]
                assert cycles.copy.rows == expected
        cycles.assert_equal(complete=True)


PAID = """
INSERT INTO customers SELECT i, 'c', now() - interval '1 day' FROM generate_series(1, 6) AS i;
INSERT INTO orders SELECT i, 1 + i % 6, 'paid', 5, now() - interval '1 day' FROM generate_series(1, 60) AS i;
INSERT INTO lines SELECT i, n, 'i', now() - interval '1 day' FROM generate_series(1, 60) AS i, generate_series(1, 2) AS n;
INSERT INTO customers VALUES (9, 'c', now());
INSERT INTO orders VALUES ('recent', 9, 'paid', 5, now());
INSERT INTO lines VALUES ('recent', 1, 'i', now())
"""


@pytest.fixture(params=[Method.INCREMENTAL, Method.ROW_CHECKSUM])
def cycles(database: Database, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cycles]:
    database.execute(PAID)
    with closing(Cycles(database, tmp_path / "reader", request.param, detections())) as made:
        yield made


def test_only_rows_that_may_have_changed_are_read(database: Database, cycles: Cycles) -> None:
    still = cycles.assert_equal()
    # Rows with recent stamps are read again: one of each view.
    assert all(max(each.rows_read, each.rows_hashed) == 1 for each in still.values())
    database.execute("UPDATE orders SET amount = 6, at = clock_timestamp() WHERE id = '7'")
    found = cycles.assert_equal()
    assert all(each.since_stamp for each in found.values())
    assert {name: each.updated for name, each in found.items()} == {"listed": 1, "totals": 1, "sold": 2}
    assert all(max(each.rows_read, each.rows_hashed) <= each.updated + 1 for each in found.values())
    database.execute("UPDATE customers SET name = 'other', at = clock_timestamp() WHERE id = 4")
    found = cycles.assert_equal()
    assert {name: each.updated for name, each in found.items()} == {"listed": 10, "totals": 1, "sold": 20}
    assert all(max(each.rows_read, each.rows_hashed) <= each.updated + 3 for each in found.values())
    database.execute("UPDATE orders SET state = 'gone', at = clock_timestamp() WHERE id IN ('7', '8')")
    found = cycles.assert_equal()
    assert {name: each.deleted for name, each in found.items()} == {"listed": 2, "totals": 0, "sold": 4}


@pytest.mark.parametrize(
    ("change", "late"),
    [
        ("DELETE FROM orders WHERE id = '7'", {"listed", "totals", "sold"}),
        ("DELETE FROM customers WHERE id = 2", {"listed", "totals", "sold"}),
        ("DELETE FROM lines WHERE order_id = '7'", {"sold"}),
        ("UPDATE orders SET amount = 9 WHERE id = '7'", {"listed", "totals", "sold"}),
        ("UPDATE customers SET name = 'x', at = at - interval '1 day' WHERE id = 2", {"listed", "totals", "sold"}),
        ("UPDATE orders SET customer = 3, at = clock_timestamp() WHERE id = '7'", {"totals"}),
        ("UPDATE orders SET id = '700', at = clock_timestamp() WHERE id = '7'", {"listed", "sold"}),
    ],
)
def test_what_no_stamp_shows_is_found_by_the_next_complete_cycle(
    database: Database, cycles: Cycles, change: str, late: set[str]
) -> None:
    cycles.assert_equal()
    database.execute(change)
    expected = cycles.run()
    assert {name for name, rows in cycles.copy.rows.items() if rows != expected[name]} == late
    cycles.assert_equal(complete=True)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE OR REPLACE VIEW listed AS SELECT o.id, o.amount + 1 AS amount, o.state, c.id AS customer, c.name FROM orders o"
        " JOIN customers c ON c.id = o.customer",
        "TRUNCATE customers CASCADE",
        "VACUUM FULL orders",
        "ALTER TABLE orders RENAME TO others; ALTER TABLE customers ADD more int",
        "ALTER TABLE customers RENAME at TO changed",
        "ALTER VIEW listed RENAME COLUMN customer TO buyer",
    ],
)
def test_a_view_that_reads_something_else_is_compared_as_a_whole(
    database: Database, cycles: Cycles, change: str
) -> None:
    cycles.assert_equal()
    for each in change.split("; "):
        database.execute(each)
    database.execute("UPDATE orders SET amount = 9 WHERE id = '7'" if "others" not in change else "SELECT 1")
    cycles.run()
    listed = cycles.found()["listed"]
    assert not listed.since_stamp
    with run_cycle(cycles.compared, cycles.given, complete=True):
        pass
    assert (cycles.found()["listed"].updated, cycles.found()["listed"].deleted) == (0, 0)


def test_a_stamp_that_is_declared_later_is_not_used_before_all_rows_were_compared(
    database: Database, tmp_path: Path
) -> None:
    database.execute(PAID)
    path = tmp_path / "reader"
    fewer = detections({"listed": {"orders": BELOW["listed"]["orders"]}})
    with closing(Cycles(database, path, Method.ROW_CHECKSUM, fewer)) as cycles:
        cycles.assert_equal()
        database.execute("UPDATE customers SET name = 'x', at = clock_timestamp() WHERE id = 2")
        cycles.run()
        assert cycles.found()["listed"].updated == 0
        more = detections({"listed": BELOW["listed"]})
        cycles.given = Given(0, Method.ROW_CHECKSUM, 10.0, path, "shop", more)
        cycles.compared.close()
        cycles.compared = PostgresDatabase(
            Connector(ConnectionSpec("shop", "postgres", database.settings)), Compared(more)
        )
        assert cycles.assert_equal()["listed"].since_stamp is False
        assert cycles.assert_equal()["listed"].since_stamp is True


def test_rows_with_the_same_key_stop_the_view(database: Database, tmp_path: Path) -> None:
    database.execute(PAID)
    database.execute("ALTER TABLE customers DROP CONSTRAINT customers_pkey CASCADE")
    chosen = detections({"listed": BELOW["listed"]})
    with closing(Cycles(database, tmp_path / "reader", Method.ROW_CHECKSUM, chosen)) as cycles:
        database.execute("INSERT INTO customers VALUES (2, 'second', clock_timestamp())")
        with run_cycle(cycles.compared, cycles.given, complete=False):
            pass
        assert cycles.found()["listed"].keyless


MANY = """
INSERT INTO customers SELECT i, 'c', now() - interval '1 day' FROM generate_series(1, 4000) AS i;
INSERT INTO orders SELECT i, 1 + i % 4000, 'paid', 5, now() - interval '1 day' FROM generate_series(1, 40000) AS i;
INSERT INTO lines SELECT i, n, 'i', now() - interval '1 day' FROM generate_series(1, 40000) AS i, generate_series(1, 2) AS n;
CREATE INDEX ON customers (at, id);
CREATE INDEX ON orders (at);
CREATE INDEX ON lines (at)
"""


def pages(database: Database, query: str) -> int:
    """That the source gets from its cache or the disk."""
    plan = database.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}")[0][0][0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


@pytest.mark.parametrize("method", [Method.INCREMENTAL, Method.ROW_CHECKSUM])
def test_only_rows_that_may_have_changed_are_joined(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    for each in MANY.strip().split(";\n"):
        database.execute(each)
    for each in ("customers", "orders", "lines"):
        database.execute(f"VACUUM ANALYZE {each}")
    with closing(Cycles(database, tmp_path / "reader", method, detections())) as cycles:
        database.execute("UPDATE customers SET name = 'x', at = clock_timestamp() WHERE id = 5")
        database.execute("UPDATE orders SET amount = 6, at = clock_timestamp() WHERE id = '7'")
        cycles.run()
        database.execute("UPDATE customers SET name = 'y', at = clock_timestamp() WHERE id = 5")
        database.execute("UPDATE orders SET amount = 8, at = clock_timestamp() WHERE id = '7'")
        database.execute("UPDATE lines SET item = 'z', at = clock_timestamp() WHERE order_id = '9'")
        cycles.run()
        queries: list[str] = []
        read = splits.read_split

        def noted(connector: Connector, split: TableSplit, *rest: Any) -> Iterator[bytes]:
            queries.append(split.sql)
            return read(connector, split, *rest)

        monkeypatch.setattr(splits, "read_split", noted)
        with run_cycle(cycles.compared, cycles.given, complete=False):
            monkeypatch.undo()
        found = cycles.found()
        assert all(each.since_stamp for each in found.values())
        assert sum(max(each.rows_read, each.rows_hashed) for each in found.values()) < 60
        assert sum(each.bytes_read for each in found.values()) < 5_000
        whole = {view: pages(database, f"SELECT * FROM {view}") for view in KEYS}
        spent = sum(pages(database, query) for query in queries)
        print(f"{method}: {spent} pages by {len(queries)} queries; the views as a whole: {whole}")
        assert len(queries) >= 3 * 2
        assert spent < sum(whole.values()) / 2


WRONG: dict[str, tuple[str, dict[str, StampBelow]]] = {
    "is no table that it reads": ("", {"lines": BELOW["sold"]["lines"]}),
    "no table that it reads": ("", {"nothing": CUSTOMERS}),
    "is a materialized view": (
        "CREATE MATERIALIZED VIEW stored AS SELECT * FROM customers; CREATE OR REPLACE VIEW listed AS"
        " SELECT o.id, o.amount, o.state, c.id AS customer, c.name FROM orders o JOIN stored c ON c.id = o.customer",
        {"stored": CUSTOMERS},
    ),
    "is a view": (
        "CREATE VIEW shown AS SELECT * FROM customers; CREATE OR REPLACE VIEW listed AS"
        " SELECT o.id, o.amount, o.state, c.id AS customer, c.name FROM orders o JOIN shown c ON c.id = o.customer",
        {"shown": CUSTOMERS},
    ),
    "is a table with children": ("CREATE TABLE child () INHERITS (customers)", {"customers": CUSTOMERS}),
    "is partitioned": (
        "CREATE TABLE parted (id int, name text, at timestamptz) PARTITION BY LIST (id); CREATE OR REPLACE VIEW listed AS"
        " SELECT o.id, o.amount, o.state, c.id AS customer, c.name FROM orders o JOIN parted c ON c.id = o.customer",
        {"parted": CUSTOMERS},
    ),
    "stamp_column name": ("", {"customers": StampBelow(stamp_column="name", columns={"customer": "id"})}),
    "no column buyer": ("", {"customers": StampBelow(stamp_column="at", columns={"buyer": "id"})}),
    "no column number": ("", {"customers": StampBelow(stamp_column="at", columns={"customer": "number"})}),
    "of one type": ("", {"customers": StampBelow(stamp_column="at", columns={"id": "id"})}),
    "not of one type": (
        "ALTER TABLE lines ADD at2 timestamp(0); CREATE OR REPLACE VIEW listed AS SELECT o.id, o.amount, o.state, c.id AS customer,"
        " c.name, o.at::timestamp(0) AS day FROM orders o JOIN customers c ON c.id = o.customer",
        {"orders": StampBelow(stamp_column="at", columns={"day": "at"})},
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_stamps_that_do_not_show_all_changes_are_refused_and_not_used(
    database: Database, tmp_path: Path, what: str
) -> None:
    made, stamps = WRONG[what]
    for each in filter(None, made.split("; ")):
        database.execute(each)
    chosen = detections({"listed": stamps})
    with closing(Cycles(database, tmp_path / "reader", Method.ROW_CHECKSUM, chosen)) as cycles:
        found = cycles.compared.preflight([table("listed")], OriginFilter.ANY)
        (error,) = [finding for finding in found if finding.severity is Severity.ERROR]
        assert (error.code, what in error.what) == ("table_columns_unfit", True), error.what
        assert "stamps_below" in error.remedy
        assert cycles.assert_equal()["listed"].since_stamp is False


def test_a_materialized_view_and_a_stamp_of_the_view_are_refused(database: Database) -> None:
    database.execute("CREATE MATERIALIZED VIEW totals_stored AS SELECT * FROM totals")
    one = detections({"totals": BELOW["totals"]})["public.totals"]
    of_its_own = TableDetection(method="timestamp", stamp_column="at")
    chosen = {"public.totals_stored": one, "public.orders": one.model_copy(update={"key": None})}
    connector = Connector(ConnectionSpec("shop", "postgres", database.settings))
    with closing(PostgresDatabase(connector, Compared(chosen))) as compared:
        found = compared.preflight([table("totals_stored"), table("orders")], OriginFilter.ANY)
        assert [each.code for each in found if each.severity is Severity.ERROR] == ["table_columns_unfit"] * 2
    with closing(PostgresDatabase(connector, Compared({"public.totals": of_its_own}))) as compared:
        found = compared.preflight([table("totals")], OriginFilter.ANY)
        assert "table_no_identity" in [each.code for each in found if each.severity is Severity.ERROR]


def test_the_check_names_indexes_rights_and_what_has_no_stamps(database: Database) -> None:
    database.execute("DROP ROLE IF EXISTS below_reader; CREATE ROLE below_reader LOGIN")
    database.execute("GRANT USAGE ON SCHEMA public TO below_reader; GRANT SELECT ON listed TO below_reader")
    chosen = detections({"listed": {"customers": CUSTOMERS}})
    connector = Connector(ConnectionSpec("shop", "postgres", {**database.settings, "user": "below_reader"}))
    with closing(PostgresDatabase(connector, Compared(chosen))) as compared:
        found = {each.code: each for each in compared.preflight([table("listed")], OriginFilter.ANY)}
        assert {"source_privilege", "stamp_without_index", "changes_without_stamp"} <= found.keys()
        assert "public.orders" in found["changes_without_stamp"].what
        for code in ("source_privilege", "stamp_without_index"):
            for statement in found[code].sql:
                database.execute(statement)
        now = {each.code for each in compared.preflight([table("listed")], OriginFilter.ANY)}
        assert not {"source_privilege", "stamp_without_index"} & now
        with compared.snapshot(10.0) as snapshot:
            ((_, below),) = [(each, each.below) for each in compared.tables({LISTED: None}).values()]
            assert compared.newest_stamp(below[0].relation, snapshot, "at", 0.0) is None


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "change",
    [
        "TRUNCATE orders",
        "CREATE OR REPLACE VIEW listed AS SELECT o.id, 1 AS amount, o.state, c.id AS customer, c.name FROM orders o"
        " JOIN customers c ON c.id = o.customer",
        "ALTER TABLE customers RENAME TO others; CREATE TABLE customers AS SELECT id, name, 'infinity'::timestamptz AS at FROM others",
        "ALTER TABLE orders RENAME at TO changed",
        "UPDATE orders SET amount = 100, at = clock_timestamp(); DELETE FROM orders WHERE id = '8'",
    ],
)
def test_a_change_between_two_reads_of_a_cycle_is_found_by_it_or_a_later_one(
    database: Database, tmp_path: Path, at: int, change: str
) -> None:
    database.execute(PAID)
    chosen = detections({"listed": BELOW["listed"]})
    with closing(Cycles(database, tmp_path / "reader", Method.ROW_CHECKSUM, chosen)) as cycles:
        cycles.compared.close()
        meddled = Meddled(reader_of(database), compared=Compared(chosen))
        cycles.compared = meddled
        database.execute("UPDATE orders SET amount = 6, at = clock_timestamp() WHERE id = '7'")
        database.execute("UPDATE customers SET name = 'x', at = clock_timestamp() WHERE id = 3")
        meddled.before = once(lambda: [database.execute(each) for each in change.split("; ")], at)
        cycles.run()
        database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {READER}")
        expected = cycles.run()
        gone = b"8" in cycles.copy.rows["listed"] and b"8" not in expected["listed"]
        if gone and "DELETE" in change:
            del cycles.copy.rows["listed"][b"8"]
        assert cycles.copy.rows == expected
