"""The kinds of transaction that the workload runs. Each is one call on a connection in autocommit mode."""

from __future__ import annotations

import itertools
import random
import threading
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from server.demo.schema import CUSTOMERS, PRODUCTS

Connection = psycopg.Connection[Any]

_REMEMBERED = 20_000


class Shop:
    """State shared by the workload's threads: the next ids, and orders that can still be changed."""

    def __init__(self, next_order: int, next_card: int = 1) -> None:
        self._orders = itertools.count(next_order)
        self._cards = itertools.count(next_card)
        self._open: deque[int] = deque(maxlen=_REMEMBERED)
        self._lock = threading.Lock()

    @classmethod
    def read_from(cls, connection: Connection) -> Shop:
        """Continue with the ids and orders of the database."""
        row = connection.execute(
            "SELECT coalesce(max(id), 0) + 1,"
            " (SELECT coalesce(max(split_part(card_no, '-', 2)::bigint), 0) + 1 FROM loyalty_cards) FROM orders"
        ).fetchone()
        if row is None:
            raise AssertionError("an aggregate returns a row")
        return cls(int(row[0]), int(row[1]))

    def new_order(self) -> int:
        return next(self._orders)

    def new_card(self, customer: int) -> str:
        return f"L{customer:08d}-{next(self._cards)}"

    def add_order(self, order: int) -> None:
        with self._lock:
            self._open.append(order)

    def some_order(self, rng: random.Random) -> int | None:
        """An order placed in this run; None if there is none yet."""
        with self._lock:
            return self._open[rng.randrange(len(self._open))] if self._open else None

    def take_order(self) -> int | None:
        """Take the oldest remembered order, which is then forgotten."""
        with self._lock:
            return self._open.popleft() if self._open else None


def _sku(number: int) -> str:
    return f"SKU-{number:05d}"


def _insert_order(connection: Connection, rng: random.Random, order: int) -> None:
    skus = sorted(rng.sample(range(1, PRODUCTS + 1), rng.randint(1, 4)))  # sorted: no deadlocks on stock
    prices = [Decimal(rng.randint(100, 40_000)).scaleb(-2) for _ in skus]
    quantities = [rng.randint(1, 5) for _ in skus]
    total = sum((price * quantity for price, quantity in zip(prices, quantities, strict=True)), Decimal(0))
    note = None if rng.random() < 0.7 else f"leave at door {rng.randint(1, 99)}"
    connection.execute(
        "INSERT INTO orders (id, customer_id, total, note) VALUES (%s, %s, %s, %s)",
        [order, rng.randint(1, CUSTOMERS), total, note],
    )
    connection.execute(
        "INSERT INTO order_lines (order_id, line_no, sku, quantity, price)"
        " SELECT %s, n, s, q, p FROM unnest(%s::text[], %s::int[], %s::numeric[]) WITH ORDINALITY AS u (s, q, p, n)",
        [order, [_sku(number) for number in skus], quantities, prices],
    )
    warehouse = rng.randint(1, 3)
    for number, quantity in zip(skus, quantities, strict=True):
        connection.execute(
            "UPDATE stock SET quantity = quantity - %s WHERE warehouse = %s AND sku = %s",
            [quantity, warehouse, _sku(number)],
        )
    connection.execute(
        "INSERT INTO order_events (order_id, kind, data) VALUES (%s, 'placed', %s)",
        [order, Jsonb({"lines": len(skus), "warehouse": warehouse})],
    )


def _roll_back(transaction: psycopg.Transaction) -> None:
    """Leave the block of `transaction`, which then rolls back."""
    raise psycopg.Rollback(transaction)


def place_order(connection: Connection, rng: random.Random, shop: Shop) -> None:
    order = shop.new_order()
    with connection.pipeline(), connection.transaction():
        _insert_order(connection, rng, order)
    shop.add_order(order)


def pay_order(connection: Connection, rng: random.Random, shop: Shop) -> None:
    order = shop.some_order(rng)
    if order is None:
        return place_order(connection, rng, shop)
    amount = Decimal(rng.randint(100, 99_999)).scaleb(-2)
    with connection.pipeline(), connection.transaction():
        connection.execute("UPDATE orders SET status = 'paid' WHERE id = %s", [order])
        connection.execute(
            "INSERT INTO payments (order_id, method, amount, details) SELECT id, %s, %s, %s FROM orders WHERE id = %s",
            [rng.choice(["card", "transfer", "voucher"]), amount, Jsonb({"attempt": rng.randint(1, 3)}), order],
        )
        connection.execute(
            "UPDATE customers SET credit = credit + %s WHERE id = (SELECT customer_id FROM orders WHERE id = %s)",
            [amount / 100, order],
        )
        connection.execute("INSERT INTO order_events (order_id, kind) VALUES (%s, 'paid')", [order])
    return None


def edit_customer(connection: Connection, rng: random.Random, shop: Shop) -> None:
    connection.execute(
        "UPDATE customers SET profile = profile || %s, tags = %s WHERE id = %s",
        [Jsonb({"visits": rng.randint(1, 900)}), [rng.choice(["regular", "gold", "it's"])], rng.randint(1, CUSTOMERS)],
    )


def change_price(connection: Connection, rng: random.Random, shop: Shop) -> None:
    """Leaves the large description unchanged: the log then marks it as "unchanged" instead of containing it."""
    price = Decimal(rng.randint(100, 40_000)).scaleb(-2)
    connection.execute("UPDATE products SET price = %s WHERE sku = %s", [price, _sku(rng.randint(1, PRODUCTS))])


def replace_card(connection: Connection, rng: random.Random, shop: Shop) -> None:
    """Changes a primary key."""
    customer = rng.randint(1, CUSTOMERS)
    connection.execute(
        "UPDATE loyalty_cards SET card_no = %s, points = points + 10 WHERE customer_id = %s",
        [shop.new_card(customer), customer],
    )


def cancel_order(connection: Connection, rng: random.Random, shop: Shop) -> None:
    """Deletes an order; its lines and payments are deleted by cascade."""
    order = shop.take_order()
    if order is None:
        return place_order(connection, rng, shop)
    with connection.pipeline(), connection.transaction():
        connection.execute("DELETE FROM orders WHERE id = %s", [order])
        connection.execute("INSERT INTO order_events (order_id, kind) VALUES (%s, 'cancelled')", [order])
    return None


def abandon_order(connection: Connection, rng: random.Random, shop: Shop) -> None:
    """Rolled back: none of its rows may ever be visible."""
    with connection.pipeline(), connection.transaction() as transaction:
        _insert_order(connection, rng, shop.new_order())
        _roll_back(transaction)


def place_with_second_thoughts(connection: Connection, rng: random.Random, shop: Shop) -> None:
    """Commits an order after rolling back another one to a savepoint."""
    order = shop.new_order()
    with connection.pipeline(), connection.transaction():
        with connection.transaction() as savepoint:
            _insert_order(connection, rng, shop.new_order())
            _roll_back(savepoint)
        connection.execute(
            "INSERT INTO orders (id, customer_id, total) VALUES (%s, %s, 0)", [order, rng.randint(1, CUSTOMERS)]
        )
        with connection.transaction():
            connection.execute("UPDATE orders SET total = 1, note = 'reconsidered' WHERE id = %s", [order])
    shop.add_order(order)


Kind = Callable[[Connection, random.Random, Shop], None]

MIX: tuple[tuple[Kind, int], ...] = (
    (place_order, 40),
    (pay_order, 24),
    (edit_customer, 10),
    (change_price, 8),
    (replace_card, 6),
    (cancel_order, 5),
    (abandon_order, 4),
    (place_with_second_thoughts, 3),
)
"""Transactions, with their share in percent."""

ROLLED_BACK: frozenset[Kind] = frozenset({abandon_order})
