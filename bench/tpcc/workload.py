"""The order-entry load as the suite uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from bench.tpcc.consistency import CONDITIONS
from bench.tpcc.driver import Connect, Driver
from bench.tpcc.load import load
from bench.tpcc.procedures import create_functions
from bench.tpcc.schema import KEYLESS, SCHEMA, TABLES, Connection, Scale, create_indexes, create_tables

Query = Callable[[str], Sequence[Sequence[Any]]]
"""Runs one read; returns its rows."""


class TpccWorkload:
    """Orders, payments and deliveries over nine tables, with conditions that hold at every transaction boundary."""

    name: ClassVar[str] = "tpcc"
    description: ClassVar[str] = (
        "order entry after TPC-C: full mix over nine tables, its consistency conditions checked"
    )
    tables: ClassVar[list[dict[str, Any]]] = [
        {"schema": SCHEMA, "name": name, **({"insert_only": True} if name in KEYLESS else {})} for name in TABLES
    ]
    """In the form of a subscription's `tables`."""

    def create(self, connection: Connection, scale: Scale | int) -> None:
        """Create schema, tables and functions in an empty database, and load the tables.

        A number is that of the warehouses, at the specification's size.
        """
        with connection.transaction():
            create_tables(connection)
            create_functions(connection)
            load(connection, scale if isinstance(scale, Scale) else Scale(scale))
            create_indexes(connection)

    def generate(self, connect: Connect, transactions: int, clients: int, seed: int) -> dict[str, int]:
        """Run this number of transactions at full speed; returns the driver's counts."""
        driver = Driver(connect, clients=clients, seed=seed, transactions=transactions)
        driver.start()
        return driver.join()

    def conditions(self) -> dict[str, str]:
        """Queries for the number of violations, by name; valid on source and target."""
        return dict(CONDITIONS)

    def check(self, query: Query) -> dict[str, int]:
        """The number of violations of each condition."""
        return {name: int(query(sql)[0][0]) for name, sql in CONDITIONS.items()}
