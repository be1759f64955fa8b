"""The effect of each kind of transaction of the load on a real PostgreSQL."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.demo import schema
from server.demo.embedded import EmbeddedPostgres
from server.demo.pgbench import command
from server.demo.transactions import KINDS, Kind
from tests.fixtures.postgres import Database, standing_database

pytestmark = pytest.mark.pg

BY_NAME = {kind.name: kind for kind in KINDS}
ORDERS = 50
TRIES = 40
ROWS = " UNION ALL ".join(f"SELECT {name!r} || {name}::text AS t FROM {name}" for name in schema.TABLES)
DIGEST = f"SELECT md5(string_agg(t, '' ORDER BY t)) FROM ({ROWS})"


@pytest.fixture
def shop(database: Database) -> Database:
    with database.connect() as connection:
        schema.create(connection, orders=ORDERS)
    return database


@pytest.fixture(scope="module")
def large_shop(pg18: EmbeddedPostgres) -> Iterator[Database]:
    """With as many orders as the demonstration has, so that the planner has the same choices."""
    with standing_database(pg18, "large_shop") as database:
        with database.connect() as connection:
            schema.create(connection)
        yield database


def run(shop: Database, name: str, folder: Path, times: int = 1) -> None:
    """Run transactions of one kind, in one session."""
    script = folder / f"{name}.sql"
    script.write_text(BY_NAME[name].script)
    options = ["-M", "prepared", "-t", str(times), "--random-seed=7", "-f", str(script)]
    environment = shop.cluster.client_environment()
    subprocess.run(command(shop.cluster, shop.name, *options), env=environment, check=True, capture_output=True)


def statements(kind: Kind) -> list[str]:
    """Those that have a plan, with numbered parameters."""
    text = "\n".join(line for line in kind.script.splitlines() if not line.startswith("\\"))
    found = [part.strip() for part in text.split(";\n")]
    planned = [part for part in found if part.startswith(("INSERT", "UPDATE", "DELETE", "WITH"))]
    return [_numbered(part) for part in planned]


def _numbered(statement: str) -> str:
    numbers = iter(range(1, 100))
    return re.sub(r"(?<![:\w]):[a-z]\w*", lambda _: f"${next(numbers)}", statement)


def test_shares_are_in_percent() -> None:
    assert sum(kind.share for kind in KINDS) == 100


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_commits_or_leaves_no_trace(shop: Database, kind: Kind, tmp_path: Path) -> None:
    before = shop.execute(DIGEST)
    run(shop, kind.name, tmp_path)
    assert (shop.execute(DIGEST) == before) == kind.rolls_back


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_statement_finds_its_rows_by_an_index(large_shop: Database, kind: Kind) -> None:
    planned = statements(kind)
    assert planned
    for statement in planned:
        plan = [line for (line,) in large_shop.execute(f"EXPLAIN (GENERIC_PLAN) {statement}")]
        # A sequence is a table with one row.
        scans = [line for line in plan if "Seq Scan on" in line and "Seq Scan on orders_id_seq " not in line]
        assert not scans, "\n".join(plan)


def test_an_order_has_what_its_lines_say(shop: Database, tmp_path: Path) -> None:
    run(shop, "place_order", tmp_path, TRIES)
    placed = f"SELECT * FROM orders WHERE id > {ORDERS}"
    totals = shop.execute(
        f"SELECT o.total, sum(l.quantity * l.price), count(*), max(l.line_no), array_agg(l.sku ORDER BY line_no), e.data"
        f" FROM ({placed}) AS o JOIN order_lines AS l ON o.id = l.order_id JOIN order_events AS e ON o.id = e.order_id"
        " WHERE e.kind = 'placed' GROUP BY o.id, o.total, e.data"
    )
    assert len(totals) == TRIES
    for total, of_lines, lines, last, products, data in totals:
        assert total == of_lines
        assert lines == last == data["lines"]
        assert products == sorted(set(products))
    assert {lines for _, _, lines, *_ in totals} == {1, 2, 3, 4}
    assert {data["warehouse"] for *_, data in totals} == {1, 2, 3}
    known = shop.execute(
        "SELECT count(*) FROM order_lines AS l JOIN products USING (sku) WHERE l.order_id > %s", [ORDERS]
    )
    assert known == [(sum(lines for _, _, lines, *_ in totals),)]
    wrong_stock = shop.execute(
        "SELECT warehouse, sku FROM stock LEFT JOIN (SELECT (e.data ->> 'warehouse')::smallint AS warehouse, sku, sum(quantity) AS sold"
        " FROM order_events AS e JOIN order_lines USING (order_id) WHERE e.data IS NOT NULL GROUP BY 1, 2) AS s USING (warehouse, sku)"
        " WHERE quantity <> 100000 - coalesce(sold, 0)"
    )
    assert wrong_stock == []
    notes = shop.execute(f"SELECT count(*), count(note), count(DISTINCT reference) FROM ({placed}) AS o")
    assert notes[0][0] == notes[0][2] == TRIES
    assert 0 < notes[0][1] < TRIES / 2
    assert shop.execute(f"SELECT 1 FROM ({placed}) AS o WHERE note !~ '^leave at door [1-9][0-9]?$'") == []


def test_a_payment_is_for_an_order_and_its_customer(shop: Database, tmp_path: Path) -> None:
    before = dict(shop.execute("SELECT id, credit FROM customers"))
    old = shop.execute("SELECT max(id) FROM payments")[0][0]
    run(shop, "pay_order", tmp_path, TRIES)
    payments = shop.execute(
        "SELECT o.status, o.customer_id, p.method, p.amount, p.details FROM payments AS p JOIN orders AS o ON o.id = order_id"
        " WHERE p.id > %s",
        [old],
    )
    assert len(payments) == TRIES
    assert {status for status, *_ in payments} == {"paid"}
    assert {method for _, _, method, _, _ in payments} == {"card", "transfer", "voucher"}
    assert {details["attempt"] for *_, details in payments} == {1, 2, 3}
    assert all(1 <= amount < 1000 for _, _, _, amount, _ in payments)
    after = dict(shop.execute("SELECT id, credit FROM customers"))
    assert {customer for customer in after if after[customer] != before[customer]} == {row[1] for row in payments}
    paid = sum(float(amount) for _, _, _, amount, _ in payments)
    assert sum(float(after[customer] - before[customer]) for customer in after) == pytest.approx(paid / 100, abs=0.3)
    assert shop.execute("SELECT count(*) FROM order_events WHERE kind = 'paid'") == [(TRIES,)]


def test_payments_and_cancellations_take_recent_orders(large_shop: Database, tmp_path: Path) -> None:
    run(large_shop, "pay_order", tmp_path, TRIES)
    run(large_shop, "cancel_order", tmp_path, TRIES)
    chosen = large_shop.execute("SELECT order_id FROM order_events WHERE kind IN ('paid', 'cancelled')")
    assert len(chosen) == 2 * TRIES
    assert schema.ORDERS - 2_010 <= min(chosen)[0] < max(chosen)[0] <= schema.ORDERS - 10


def test_orders_with_ids_of_other_sessions_are_left_alone(shop: Database, tmp_path: Path) -> None:
    shop.execute("INSERT INTO orders (id, customer_id, total, note) VALUES (1000000000, 1, 7.50, 'mine')")
    run(shop, "cancel_order", tmp_path, ORDERS + 1)
    run(shop, "pay_order", tmp_path, TRIES)
    assert shop.execute("SELECT id, status, note FROM orders WHERE id >= 1000000000") == [
        (1000000000, "placed", "mine")
    ]


def test_edited_customers_keep_the_rest_of_their_profile(shop: Database, tmp_path: Path) -> None:
    run(shop, "edit_customer", tmp_path, TRIES)
    edited = shop.execute(
        "SELECT tags, profile ->> 'language' FROM customers WHERE cardinality(tags) = 1 AND xmin::text <> %s",
        [shop.execute("SELECT xmin::text FROM products LIMIT 1")[0][0]],
    )
    assert {tuple(tags) for tags, _ in edited} == {("regular",), ("gold",), ("it's",)}
    assert {language for _, language in edited} == {"de", "en", "fr"}


def test_a_price_changes_without_the_description(shop: Database, tmp_path: Path) -> None:
    shop.execute("CREATE PUBLICATION prices FOR TABLE products")
    shop.execute("SELECT pg_create_logical_replication_slot('prices_' || current_database(), 'pgoutput')")
    descriptions = shop.execute("SELECT sku, md5(description) FROM products ORDER BY sku")
    run(shop, "change_price", tmp_path)
    messages = shop.execute(
        "SELECT data FROM pg_logical_slot_get_binary_changes('prices_' || current_database(), NULL, NULL,"
        " 'proto_version', '1', 'publication_names', 'prices')"
    )
    (update,) = [data for (data,) in messages if data.startswith(b"U")]
    assert update.endswith(b"u"), "the last column, description, is unchanged"
    assert shop.execute("SELECT sku, md5(description) FROM products ORDER BY sku") == descriptions


def test_replaced_cards_have_other_keys(shop: Database, tmp_path: Path) -> None:
    run(shop, "replace_card", tmp_path, TRIES)
    shop.execute(
        "UPDATE loyalty_cards SET card_no = card_no || '9' WHERE customer_id % 2 = 0"
    )  # numbers with two digits
    run(shop, "replace_card", tmp_path, TRIES)
    replaced = shop.execute(
        "SELECT card_no, customer_id, points - customer_id % 500 FROM loyalty_cards WHERE card_no !~ '-0?[09]$'"
    )
    assert replaced
    for card, customer, points in replaced:
        prefix, number = card.split("-")
        assert prefix == f"L{customer:08d}"
        assert points > 0
        assert int(number) > 0
    assert (
        sum(points for _, _, points in shop.execute("SELECT 1, 1, points - customer_id % 500 FROM loyalty_cards"))
        == 20 * TRIES
    )
    assert shop.execute("SELECT count(*) FROM loyalty_cards") == [(schema.CUSTOMERS,)]


def test_a_cancelled_order_takes_its_lines_and_payments_along(shop: Database, tmp_path: Path) -> None:
    run(shop, "cancel_order", tmp_path, 3)
    for table, column in {"orders": "id", "order_lines": "order_id", "payments": "order_id"}.items():
        assert shop.execute(f"SELECT count(DISTINCT {column}) FROM {table}") == [(ORDERS - 3,)]
    gone = "SELECT count(*) FROM order_events WHERE kind = 'cancelled' AND order_id NOT IN (SELECT id FROM orders)"
    assert shop.execute(gone) == [(3,)]


def test_savepoint_rolled_back_leaves_only_the_other_order(shop: Database, tmp_path: Path) -> None:
    run(shop, "place_with_second_thoughts", tmp_path)
    run(shop, "abandon_order", tmp_path)
    rows = shop.execute("SELECT id, total, note FROM orders WHERE id > %s", [ORDERS])
    assert rows == [(ORDERS + 2, 1, "reconsidered")]
    assert shop.execute("SELECT count(*) FROM order_lines WHERE order_id > %s", [ORDERS]) == [(0,)]
    assert shop.execute("SELECT count(*) FROM stock WHERE quantity <> 100000") == [(0,)]
