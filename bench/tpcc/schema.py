"""The nine tables of the order-entry database, in a schema of their own, and their initial numbers of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]

SCHEMA = "tpcc"
TABLES = ("warehouse", "district", "customer", "history", "new_order", "orders", "order_line", "item", "stock")
KEYLESS = frozenset({"history"})
DISTRICTS = 10
"""Districts of each warehouse, at every scale."""

# Counters are wider than the specification requires, as each row of a scaled-down database is changed far more often.
# Foreign keys are left out, which the specification allows; the consistency conditions find their violations.
DDL = """
CREATE SCHEMA tpcc;
CREATE TABLE tpcc.warehouse (
    w_id integer PRIMARY KEY,
    w_name varchar(10) NOT NULL,
    w_street_1 varchar(20) NOT NULL,
    w_street_2 varchar(20) NOT NULL,
    w_city varchar(20) NOT NULL,
    w_state char(2) NOT NULL,
    w_zip char(9) NOT NULL,
    w_tax numeric(4, 4) NOT NULL,
    w_ytd numeric(14, 2) NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE tpcc.district (
    d_w_id integer,
    d_id integer,
    d_name varchar(10) NOT NULL,
    d_street_1 varchar(20) NOT NULL,
    d_street_2 varchar(20) NOT NULL,
    d_city varchar(20) NOT NULL,
    d_state char(2) NOT NULL,
    d_zip char(9) NOT NULL,
    d_tax numeric(4, 4) NOT NULL,
    d_ytd numeric(14, 2) NOT NULL,
    d_next_o_id integer NOT NULL,
    PRIMARY KEY (d_w_id, d_id)
) WITH (fillfactor = 50);
CREATE TABLE tpcc.customer (
    c_w_id integer,
    c_d_id integer,
    c_id integer,
    c_first varchar(16) NOT NULL,
    c_middle char(2) NOT NULL,
    c_last varchar(16) NOT NULL,
    c_street_1 varchar(20) NOT NULL,
    c_street_2 varchar(20) NOT NULL,
    c_city varchar(20) NOT NULL,
    c_state char(2) NOT NULL,
    c_zip char(9) NOT NULL,
    c_phone char(16) NOT NULL,
    c_since timestamptz NOT NULL,
    c_credit char(2) NOT NULL,
    c_credit_lim numeric(12, 2) NOT NULL,
    c_discount numeric(4, 4) NOT NULL,
    c_balance numeric(14, 2) NOT NULL,
    c_ytd_payment numeric(14, 2) NOT NULL,
    c_payment_cnt integer NOT NULL,
    c_delivery_cnt integer NOT NULL,
    c_data varchar(500) NOT NULL,
    PRIMARY KEY (c_w_id, c_d_id, c_id)
);
CREATE TABLE tpcc.history (
    h_c_id integer NOT NULL,
    h_c_d_id integer NOT NULL,
    h_c_w_id integer NOT NULL,
    h_d_id integer NOT NULL,
    h_w_id integer NOT NULL,
    h_date timestamptz NOT NULL,
    h_amount numeric(6, 2) NOT NULL,
    h_data varchar(24) NOT NULL
);
CREATE TABLE tpcc.new_order (
    no_w_id integer,
    no_d_id integer,
    no_o_id integer,
    PRIMARY KEY (no_w_id, no_d_id, no_o_id)
);
CREATE TABLE tpcc.orders (
    o_w_id integer,
    o_d_id integer,
    o_id integer,
    o_c_id integer NOT NULL,
    o_entry_d timestamptz NOT NULL,
    o_carrier_id smallint,
    o_ol_cnt smallint NOT NULL,
    o_all_local smallint NOT NULL,
    PRIMARY KEY (o_w_id, o_d_id, o_id)
);
CREATE TABLE tpcc.order_line (
    ol_w_id integer,
    ol_d_id integer,
    ol_o_id integer,
    ol_number smallint,
    ol_i_id integer NOT NULL,
    ol_supply_w_id integer NOT NULL,
    ol_delivery_d timestamptz,
    ol_quantity smallint NOT NULL,
    ol_amount numeric(6, 2) NOT NULL,
    ol_dist_info char(24) NOT NULL,
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)
);
CREATE TABLE tpcc.item (
    i_id integer PRIMARY KEY,
    i_im_id integer NOT NULL,
    i_name varchar(24) NOT NULL,
    i_price numeric(5, 2) NOT NULL,
    i_data varchar(50) NOT NULL
);
CREATE TABLE tpcc.stock (
    s_w_id integer,
    s_i_id integer,
    s_quantity smallint NOT NULL,
    s_dist_01 char(24) NOT NULL,
    s_dist_02 char(24) NOT NULL,
    s_dist_03 char(24) NOT NULL,
    s_dist_04 char(24) NOT NULL,
    s_dist_05 char(24) NOT NULL,
    s_dist_06 char(24) NOT NULL,
    s_dist_07 char(24) NOT NULL,
    s_dist_08 char(24) NOT NULL,
    s_dist_09 char(24) NOT NULL,
    s_dist_10 char(24) NOT NULL,
    s_ytd numeric(12) NOT NULL,
    s_order_cnt integer NOT NULL,
    s_remote_cnt integer NOT NULL,
    s_data varchar(50) NOT NULL,
    PRIMARY KEY (s_w_id, s_i_id)
);
"""

INDEXES = """
CREATE INDEX customer_by_name ON tpcc.customer (c_w_id, c_d_id, c_last, c_first);
CREATE INDEX orders_by_customer ON tpcc.orders (o_w_id, o_d_id, o_c_id, o_id);
ANALYZE tpcc.warehouse, tpcc.district, tpcc.customer, tpcc.history, tpcc.new_order, tpcc.orders, tpcc.order_line, tpcc.item,
    tpcc.stock;
"""

_EXTENT = """
SELECT (SELECT max(w_id) FROM tpcc.warehouse), (SELECT max(i_id) FROM tpcc.item),
    (SELECT max(c_id) FROM tpcc.customer WHERE c_w_id = 1 AND c_d_id = 1)
"""


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of the database. The defaults for items and customers are the specification's.

    A district begins with one order per customer, of which seven in ten are delivered; the number of customers is
    therefore a multiple of ten.
    """

    warehouses: int = 1
    items: int = 100_000
    customers: int = 3_000
    """Customers of each district."""

    def __post_init__(self) -> None:
        if self.warehouses < 1 or self.items < 1 or self.customers < 10 or self.customers % 10:
            raise ValueError("at least one warehouse and one item; customers of a district are a multiple of ten")

    @classmethod
    def reduced(cls, warehouses: int, factor: float) -> Scale:
        """The scale of `warehouses` warehouses with this share of items, customers and orders; 1 is the specification's size."""
        return cls(warehouses, max(100, round(100_000 * factor)), max(10, 10 * round(300 * factor)))

    @classmethod
    def from_database(cls, connection: Connection) -> Scale:
        """The scale with which a database was loaded."""
        row = connection.execute(_EXTENT).fetchone()
        if row is None or None in row:
            raise ValueError("the database is not loaded")
        return cls(*row)

    @property
    def delivered(self) -> int:
        """The number of initially delivered orders of a district, which are its first ones."""
        return self.customers // 10 * 7


def create_tables(connection: Connection) -> None:
    """Create the schema and its empty tables, with their keys."""
    connection.execute(DDL.encode())


def create_indexes(connection: Connection) -> None:
    """Create the indexes that the transactions need in addition to the keys; preferably after the load."""
    connection.execute(INDEXES.encode())
