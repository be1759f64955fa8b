"""The twelve consistency conditions of the specification's clause 3.3.2, each as a query for the number of violations.

Every query holds at any transaction boundary, and its text means the same to PostgreSQL and DuckDB: no division of
integers, which gives a fraction in DuckDB, and no functions except aggregates and coalesce.
"""

from __future__ import annotations

_YTD_DISTRICTS = """
SELECT count(*) FROM tpcc.warehouse
FULL JOIN (SELECT d_w_id, sum(d_ytd) AS ytd FROM tpcc.district GROUP BY d_w_id) AS d ON d_w_id = w_id
WHERE w_ytd IS DISTINCT FROM ytd
"""

# A district whose orders are all delivered has no newest undelivered order to compare.
_NEWEST_ORDER = """
SELECT count(*) FROM tpcc.district
FULL JOIN (SELECT o_w_id, o_d_id, max(o_id) AS newest FROM tpcc.orders GROUP BY o_w_id, o_d_id) AS o
    ON o_w_id = d_w_id AND o_d_id = d_id
FULL JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS waiting FROM tpcc.new_order GROUP BY no_w_id, no_d_id) AS n
    ON no_w_id = d_w_id AND no_d_id = d_id
WHERE d_next_o_id - 1 IS DISTINCT FROM newest OR waiting <> newest
"""

_NO_GAPS = """
SELECT count(*) FROM (
    SELECT max(no_o_id) - min(no_o_id) + 1 AS span, count(*) AS held FROM tpcc.new_order GROUP BY no_w_id, no_d_id
) AS n
WHERE span <> held
"""

_LINES_OF_DISTRICT = """
SELECT count(*) FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS said FROM tpcc.orders GROUP BY o_w_id, o_d_id) AS o
FULL JOIN (SELECT ol_w_id, ol_d_id, count(*) AS held FROM tpcc.order_line GROUP BY ol_w_id, ol_d_id) AS l
    ON ol_w_id = o_w_id AND ol_d_id = o_d_id
WHERE said IS DISTINCT FROM held
"""

_CARRIER = """
SELECT count(*) FROM tpcc.orders
FULL JOIN tpcc.new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
WHERE o_id IS NULL OR (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)
"""

_LINES_OF_ORDER = """
SELECT count(*) FROM tpcc.orders
FULL JOIN (
    SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS held FROM tpcc.order_line GROUP BY ol_w_id, ol_d_id, ol_o_id
) AS l ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
WHERE o_ol_cnt IS DISTINCT FROM held
"""

_DELIVERED_LINES = """
SELECT count(*) FROM tpcc.order_line
LEFT JOIN tpcc.orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)
"""

_YTD_WAREHOUSE_PAID = """
SELECT count(*) FROM tpcc.warehouse
FULL JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM tpcc.history GROUP BY h_w_id) AS h ON h_w_id = w_id
WHERE w_ytd IS DISTINCT FROM paid
"""

_YTD_DISTRICT_PAID = """
SELECT count(*) FROM tpcc.district
FULL JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM tpcc.history GROUP BY h_w_id, h_d_id) AS h
    ON h_w_id = d_w_id AND h_d_id = d_id
WHERE d_ytd IS DISTINCT FROM paid
"""

_OWED = """(
    SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS amount FROM tpcc.orders
    JOIN tpcc.order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
    WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id
) AS owed ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id"""

_BALANCE = f"""
SELECT count(*) FROM tpcc.customer
LEFT JOIN {_OWED}
FULL JOIN (
    SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM tpcc.history GROUP BY h_c_w_id, h_c_d_id, h_c_id
) AS h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
WHERE c_balance IS DISTINCT FROM coalesce(amount, 0) - coalesce(paid, 0)
"""

# The specification's number, 2100, is that of a newly loaded database: seven of ten orders, one order for each
# customer. Every delivery since adds one, and is counted at a customer.
_DELIVERED_ORDERS = """
SELECT count(*) FROM (
    SELECT c_w_id, c_d_id, count(*) AS customers, sum(c_delivery_cnt) AS deliveries FROM tpcc.customer
    GROUP BY c_w_id, c_d_id
) AS c
FULL JOIN (SELECT o_w_id, o_d_id, count(*) AS placed FROM tpcc.orders GROUP BY o_w_id, o_d_id) AS o
    ON o_w_id = c_w_id AND o_d_id = c_d_id
LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS waiting FROM tpcc.new_order GROUP BY no_w_id, no_d_id) AS n
    ON no_w_id = c_w_id AND no_d_id = c_d_id
WHERE 10 * (placed - coalesce(waiting, 0)) IS DISTINCT FROM 7 * customers + 10 * deliveries
"""

_BALANCE_AND_PAYMENTS = f"""
SELECT count(*) FROM tpcc.customer
LEFT JOIN {_OWED}
WHERE c_balance + c_ytd_payment IS DISTINCT FROM coalesce(amount, 0)
"""

CONDITIONS: dict[str, str] = {
    "c01_warehouse_ytd_is_that_of_its_districts": _YTD_DISTRICTS,
    "c02_next_order_follows_the_newest": _NEWEST_ORDER,
    "c03_new_orders_have_no_gaps": _NO_GAPS,
    "c04_district_has_the_lines_its_orders_say": _LINES_OF_DISTRICT,
    "c05_orders_without_carrier_are_new_orders": _CARRIER,
    "c06_order_has_the_lines_it_says": _LINES_OF_ORDER,
    "c07_lines_are_delivered_with_their_order": _DELIVERED_LINES,
    "c08_warehouse_ytd_is_what_history_says": _YTD_WAREHOUSE_PAID,
    "c09_district_ytd_is_what_history_says": _YTD_DISTRICT_PAID,
    "c10_balance_is_deliveries_less_history": _BALANCE,
    "c11_delivered_orders_are_those_no_longer_new": _DELIVERED_ORDERS,
    "c12_balance_is_deliveries_less_payments": _BALANCE_AND_PAYMENTS,
}
"""Queries by name; each returns one row with one number, 0 if the condition holds."""
