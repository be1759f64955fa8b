"""The five transactions as functions in the source: one call, one round trip, one transaction.

The first result of each, `changes`, is the number of rows that it changed. All functions lock rows in the same order
(warehouse, district, stock by warehouse and item, customer), so that no deadlocks occur at READ COMMITTED.

`zone` is the number of a district: a variable with the name of the table would be taken for one of its rows.
"""

from __future__ import annotations

import psycopg

from bench.tpcc.inputs import Kind
from bench.tpcc.schema import Connection

UnknownItem = psycopg.errors.RaiseException
"""The error of a new order for an item that does not exist; no other function raises it."""

_NEW_ORDER = """
CREATE FUNCTION tpcc.place_order(
    home integer, zone integer, who integer, items integer[], suppliers integer[], quantities integer[],
    OUT changes integer, OUT total numeric
) LANGUAGE plpgsql AS $$
DECLARE
    lines CONSTANT integer := cardinality(items);
    number integer;
    taxes numeric;
    discount numeric;
    price numeric;
    sheet text;
BEGIN
    SELECT c_discount INTO STRICT discount FROM tpcc.customer
        WHERE c_w_id = home AND c_d_id = zone AND c_id = who;
    UPDATE tpcc.district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = home AND d_id = zone
        RETURNING d_next_o_id - 1, d_tax INTO STRICT number, taxes;
    SELECT taxes + w_tax INTO STRICT taxes FROM tpcc.warehouse WHERE w_id = home;
    INSERT INTO tpcc.orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
        VALUES (home, zone, number, who, now(), lines, (home = ALL (suppliers))::integer);
    INSERT INTO tpcc.new_order (no_w_id, no_d_id, no_o_id) VALUES (home, zone, number);
    total := 0;
    FOR line IN 1 .. lines LOOP
        SELECT i_price INTO price FROM tpcc.item WHERE i_id = items[line];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'no such item';
        END IF;
        UPDATE tpcc.stock SET
            s_quantity = s_quantity - quantities[line] + CASE WHEN s_quantity < quantities[line] + 10 THEN 91 ELSE 0 END,
            s_ytd = s_ytd + quantities[line],
            s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + (suppliers[line] <> home)::integer
        WHERE s_w_id = suppliers[line] AND s_i_id = items[line]
        RETURNING CASE zone WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04
            WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08
            WHEN 9 THEN s_dist_09 ELSE s_dist_10 END INTO STRICT sheet;
        INSERT INTO tpcc.order_line (
            ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info
        ) VALUES (
            home, zone, number, line, items[line], suppliers[line], quantities[line], quantities[line] * price, sheet
        );
        total := total + quantities[line] * price;
    END LOOP;
    total := total * (1 - discount) * (1 + taxes);
    changes := 3 + 2 * lines;
END $$;
"""

_CUSTOMER = """
CREATE FUNCTION tpcc.customer_named(home integer, zone integer, name text) RETURNS integer
LANGUAGE plpgsql STABLE AS $$
DECLARE
    ids CONSTANT integer[] := ARRAY(
        SELECT c_id FROM tpcc.customer WHERE c_w_id = home AND c_d_id = zone AND c_last = name ORDER BY c_first, c_id
    );
BEGIN
    RETURN ids[(cardinality(ids) + 1) / 2];
END $$;
"""

_PAYMENT = """
CREATE FUNCTION tpcc.pay(
    home integer, zone integer, theirs integer, their_zone integer, who integer, name text, amount numeric,
    OUT changes integer, OUT balance numeric
) LANGUAGE plpgsql AS $$
DECLARE
    payer CONSTANT integer := coalesce(who, tpcc.customer_named(theirs, their_zone, name));
    place text;
    part text;
BEGIN
    UPDATE tpcc.warehouse SET w_ytd = w_ytd + amount WHERE w_id = home RETURNING w_name INTO STRICT place;
    UPDATE tpcc.district SET d_ytd = d_ytd + amount WHERE d_w_id = home AND d_id = zone
        RETURNING d_name INTO STRICT part;
    UPDATE tpcc.customer SET
        c_balance = c_balance - amount,
        c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE c_credit WHEN 'BC' THEN
            left(concat_ws(' ', c_id, c_d_id, c_w_id, zone, home, amount) || '|' || c_data, 500)
            ELSE c_data END
    WHERE c_w_id = theirs AND c_d_id = their_zone AND c_id = payer
    RETURNING c_balance INTO STRICT balance;
    INSERT INTO tpcc.history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
        VALUES (payer, their_zone, theirs, zone, home, now(), amount, place || '    ' || part);
    changes := 4;
END $$;
"""

_ORDER_STATUS = """
CREATE FUNCTION tpcc.order_status(
    home integer, zone integer, who integer, name text, OUT changes integer, OUT lines integer
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    whose CONSTANT integer := coalesce(who, tpcc.customer_named(home, zone, name));
    newest integer;
BEGIN
    PERFORM c_balance, c_first, c_middle, c_last FROM tpcc.customer
        WHERE c_w_id = home AND c_d_id = zone AND c_id = whose;
    SELECT o_id INTO newest FROM tpcc.orders
        WHERE o_w_id = home AND o_d_id = zone AND o_c_id = whose ORDER BY o_id DESC LIMIT 1;
    PERFORM ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM tpcc.order_line
        WHERE ol_w_id = home AND ol_d_id = zone AND ol_o_id = newest;
    GET DIAGNOSTICS lines = ROW_COUNT;
    changes := 0;
END $$;
"""

# The oldest order is locked before it is deleted: a concurrent delivery of the same district waits and then takes the
# next order, so the remaining ones have no gap.
_DELIVERY = """
CREATE FUNCTION tpcc.deliver(home integer, carrier integer, OUT changes integer, OUT delivered integer)
LANGUAGE plpgsql AS $$
DECLARE
    oldest integer;
    buyer integer;
    lines integer;
    amount numeric;
BEGIN
    changes := 0;
    delivered := 0;
    FOR zone IN 1 .. 10 LOOP
        SELECT no_o_id INTO oldest FROM tpcc.new_order WHERE no_w_id = home AND no_d_id = zone
            ORDER BY no_o_id LIMIT 1 FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM tpcc.new_order WHERE no_w_id = home AND no_d_id = zone AND no_o_id = oldest;
        UPDATE tpcc.orders SET o_carrier_id = carrier WHERE o_w_id = home AND o_d_id = zone AND o_id = oldest
            RETURNING o_c_id INTO STRICT buyer;
        WITH line AS (
            UPDATE tpcc.order_line SET ol_delivery_d = now()
            WHERE ol_w_id = home AND ol_d_id = zone AND ol_o_id = oldest RETURNING ol_amount
        )
        SELECT count(*), sum(ol_amount) INTO STRICT lines, amount FROM line;
        UPDATE tpcc.customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = home AND c_d_id = zone AND c_id = buyer;
        changes := changes + 3 + lines;
        delivered := delivered + 1;
    END LOOP;
END $$;
"""

_STOCK_LEVEL = """
CREATE FUNCTION tpcc.stock_level(
    home integer, zone integer, threshold integer, OUT changes integer, OUT low integer
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    next CONSTANT integer := (SELECT d_next_o_id FROM tpcc.district WHERE d_w_id = home AND d_id = zone);
BEGIN
    SELECT count(DISTINCT s_i_id) INTO low FROM tpcc.order_line
        JOIN tpcc.stock ON s_w_id = home AND s_i_id = ol_i_id
        WHERE ol_w_id = home AND ol_d_id = zone AND ol_o_id >= next - 20 AND ol_o_id < next
            AND s_quantity < threshold;
    changes := 0;
END $$;
"""

# The casts let the server prepare a statement for arguments of unknown type.
CALLS: dict[Kind, bytes] = {
    Kind.NEW_ORDER: b"SELECT * FROM tpcc.place_order(%s::int, %s::int, %s::int, %s::int[], %s::int[], %s::int[])",
    Kind.PAYMENT: b"SELECT * FROM tpcc.pay(%s::int, %s::int, %s::int, %s::int, %s::int, %s::text, %s::numeric)",
    Kind.ORDER_STATUS: b"SELECT * FROM tpcc.order_status(%s::int, %s::int, %s::int, %s::text)",
    Kind.DELIVERY: b"SELECT * FROM tpcc.deliver(%s::int, %s::int)",
    Kind.STOCK_LEVEL: b"SELECT * FROM tpcc.stock_level(%s::int, %s::int, %s::int)",
}
"""The statement for each kind, with the parameters that `Inputs` draws."""


def create_functions(connection: Connection) -> None:
    for function in (_NEW_ORDER, _CUSTOMER, _PAYMENT, _ORDER_STATUS, _DELIVERY, _STOCK_LEVEL):
        connection.execute(function.encode())


def call(connection: Connection, kind: Kind, parameters: list[str | None]) -> int:
    """Run one transaction; returns the number of rows that it changed.

    Raises:
        UnknownItem: a new order was rolled back, as intended for some.
    """
    row = connection.execute(CALLS[kind], parameters).fetchone()
    if row is None:
        raise AssertionError("a function with OUT parameters returns a row")
    return int(row[0])
