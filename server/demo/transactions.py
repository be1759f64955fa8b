"""The kinds of transaction that the load consists of, as scripts for pgbench.

New ids are those of the tables' identity columns, and every statement finds its rows by an index. Payments and cancellations take
one of the newest orders that are committed: the first one from a random distance before the newest id on.
"""

from __future__ import annotations

from dataclasses import dataclass

from server.demo.schema import CUSTOMERS, PRODUCTS

_LINES = 4
"""Lines of an order, at most."""
_STEP = 100
"""Distance of the products of neighbouring lines, at most. All orders take stock in the order of products, so they do not deadlock."""
_UNSETTLED = 10
"""Newest ids that payments and cancellations leave out, as other clients may not have committed them. More than there are clients."""
_RECENT = 2_000
"""Ids that payments and cancellations choose from: 10 s of new orders at 500 transactions a second. Not measured."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of transaction. `share`: in percent; `rolls_back`: none of its rows may ever be visible."""

    name: str
    share: int
    script: str
    rolls_back: bool = False


def _each_line(text: str, joined_by: str = "") -> str:
    """`text` for each line of an order, with the number of the line in place of `#`."""
    return joined_by.join(text.replace("#", str(number)) for number in range(1, _LINES + 1))


# A quantity of 0: the order does not have this line.
_QUANTITIES = _each_line("\\set quantity# CASE WHEN :lines >= # THEN random(1, 5) ELSE 0 END\n")
_PRICES = _each_line("\\set cents# random(100, 40000)\n")
_TOTAL = _each_line(":quantity# * :cents#", " + ")
_VALUES = _each_line("(#, :quantity#::int, :cents#::int)", ", ")

_CHOOSE_ORDER = f"""\
\\set customer random(1, {CUSTOMERS})
\\set warehouse random(1, 3)
\\set door random(1, 330)
\\set lines random(1, {_LINES})
\\set product random(1, {PRODUCTS - (_LINES - 1) * _STEP})
\\set step random(1, {_STEP})
{_QUANTITIES}{_PRICES}\\set total {_TOTAL}
"""
_INSERT_ORDER = f"""\
INSERT INTO orders (customer_id, total, note)
    VALUES (:customer, :total * 0.01, CASE WHEN :door < 100 THEN 'leave at door ' || :door END);
INSERT INTO order_lines (order_id, line_no, sku, quantity, price)
    SELECT currval('orders_id_seq'), n, 'SKU-' || lpad((:product + (n - 1) * :step)::text, 5, '0'), quantity, cents * 0.01
    FROM (VALUES {_VALUES}) AS line (n, quantity, cents)
    WHERE quantity > 0;
UPDATE stock SET quantity = stock.quantity - line.quantity
    FROM (SELECT sku, quantity FROM order_lines WHERE order_id = (SELECT currval('orders_id_seq')) ORDER BY line_no) AS line
    WHERE stock.warehouse = :warehouse AND stock.sku = line.sku;
INSERT INTO order_events (order_id, kind, data)
    VALUES (currval('orders_id_seq'), 'placed', jsonb_build_object('lines', :lines::int, 'warehouse', :warehouse::int));
"""
_CHOOSE_DISTANCE = f"\\set distance random({_UNSETTLED}, {_UNSETTLED + _RECENT})\n"
_RECENT_ORDER = """\
(SELECT id FROM orders
        WHERE id BETWEEN (SELECT last_value FROM orders_id_seq) - :distance AND (SELECT last_value FROM orders_id_seq)
        ORDER BY id LIMIT 1)"""

_PLACE_ORDER = f"""\
{_CHOOSE_ORDER}\\startpipeline
BEGIN;
{_INSERT_ORDER}COMMIT;
\\endpipeline
"""

_PAY_ORDER = f"""\
{_CHOOSE_DISTANCE}\\set cents random(100, 99999)
\\set method random(1, 3)
\\set attempt random(1, 3)
WITH paid AS (
    UPDATE orders SET status = 'paid' WHERE id = {_RECENT_ORDER} RETURNING id, customer_id
), payment AS (
    INSERT INTO payments (order_id, method, amount, details)
    SELECT id, (ARRAY['card', 'transfer', 'voucher'])[:method], :cents * 0.01, jsonb_build_object('attempt', :attempt::int)
    FROM paid
), event AS (
    INSERT INTO order_events (order_id, kind) SELECT id, 'paid' FROM paid
)
UPDATE customers SET credit = credit + :cents * 0.0001 WHERE id = (SELECT customer_id FROM paid);
"""

_EDIT_CUSTOMER = f"""\
\\set customer random(1, {CUSTOMERS})
\\set visits random(1, 900)
\\set tag random(1, 3)
UPDATE customers SET profile = profile || jsonb_build_object('visits', :visits::int),
        tags = ARRAY[(ARRAY['regular', 'gold', 'it''s'])[:tag]]
    WHERE id = :customer;
"""

# The large description stays as it is: the log then marks it as "unchanged" instead of containing it.
_CHANGE_PRICE = f"""\
\\set product random(1, {PRODUCTS})
\\set cents random(100, 40000)
UPDATE products SET price = :cents * 0.01 WHERE sku = 'SKU-' || lpad(:product, 5, '0');
"""

# Changes a primary key. The number of a card ends with how many the customer had before.
_REPLACE_CARD = f"""\
\\set customer random(1, {CUSTOMERS})
UPDATE loyalty_cards SET card_no = split_part(card_no, '-', 1) || '-' || split_part(card_no, '-', 2)::bigint + 1,
        points = points + 10
    WHERE customer_id = :customer;
"""

# The lines and payments of the order are deleted by cascade.
_CANCEL_ORDER = f"""\
{_CHOOSE_DISTANCE}WITH cancelled AS (DELETE FROM orders WHERE id = {_RECENT_ORDER} RETURNING id)
INSERT INTO order_events (order_id, kind) SELECT id, 'cancelled' FROM cancelled;
"""

_ABANDON_ORDER = f"""\
{_CHOOSE_ORDER}\\startpipeline
BEGIN;
{_INSERT_ORDER}ROLLBACK;
\\endpipeline
"""

# Commits an order after another one is rolled back to a savepoint.
_PLACE_WITH_SECOND_THOUGHTS = f"""\
{_CHOOSE_ORDER}\\startpipeline
BEGIN;
SAVEPOINT first_thoughts;
{_INSERT_ORDER}ROLLBACK TO first_thoughts;
INSERT INTO orders (customer_id, total) VALUES (:customer, 0);
SAVEPOINT second_thoughts;
UPDATE orders SET total = 1, note = 'reconsidered' WHERE id = (SELECT currval('orders_id_seq'));
RELEASE second_thoughts;
COMMIT;
\\endpipeline
"""

KINDS: tuple[Kind, ...] = (
    Kind("place_order", 40, _PLACE_ORDER),
    Kind("pay_order", 24, _PAY_ORDER),
    Kind("edit_customer", 10, _EDIT_CUSTOMER),
    Kind("change_price", 8, _CHANGE_PRICE),
    Kind("replace_card", 6, _REPLACE_CARD),
    Kind("cancel_order", 5, _CANCEL_ORDER),
    Kind("abandon_order", 4, _ABANDON_ORDER, rolls_back=True),
    Kind("place_with_second_thoughts", 3, _PLACE_WITH_SECOND_THOUGHTS),
)
"""All kinds. Their shares add up to 100."""
