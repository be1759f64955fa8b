"""The order-entry load as a workload of the suite."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from bench.tpcc.driver import ROW_CHANGES
from bench.tpcc.inputs import Kind
from bench.tpcc.workload import TpccWorkload
from bench.workload import DATABASE, Connection, Made, Mode, Query, Size, Table, Workload
from server.demo.embedded import EmbeddedPostgres

CLIENTS = 8
_WRITING = (Kind.NEW_ORDER, Kind.PAYMENT, Kind.DELIVERY)


class Tpcc(Workload):
    """Orders, payments and deliveries over nine tables. `scale` is the number of warehouses."""

    name = TpccWorkload.name
    description = TpccWorkload.description
    modes: ClassVar[tuple[Mode, ...]] = (Mode.BACKLOG, Mode.SUSTAINED, Mode.LIVE)
    full = Size(50_000, 2, rate=200)
    quick = Size(4_000, 1, rounds=1, seconds=10, rate=100)

    def tables(self) -> tuple[Table, ...]:
        return tuple(Table(t["name"], t.get("insert_only", False), t["schema"]) for t in TpccWorkload.tables)

    def create(self, connection: Connection, scale: int) -> None:
        TpccWorkload().create(connection, scale)

    def generate(self, postgres: EmbeddedPostgres, amount: int) -> Made:
        """`amount` is the number of transactions in the mix; the result counts only those in the log: no reads, no rollbacks."""

        def connect() -> Connection:
            # fills the log sooner, and does not change its content
            return postgres.connect(DATABASE, options="-c synchronous_commit=off")

        counts = TpccWorkload().generate(connect, amount, CLIENTS, seed=1)
        return Made(sum(counts[kind] for kind in _WRITING), counts[ROW_CHANGES])

    def load_command(self, postgres: EmbeddedPostgres, rate: float) -> list[str]:
        options = ["--clients", str(CLIENTS), "--rate", f"{rate:g}"]
        return [sys.executable, "-m", "bench.tpcc", postgres.dsn(DATABASE), *options]

    def row_changes_per_transaction(self) -> float:
        """The average of the mix: 23 rows for a new order of ten lines, 4 for a payment, 130 for a delivery of ten such orders."""
        return 0.45 * 0.99 * 23 + 0.43 * 4 + 0.04 * 130

    def check(self, source: Connection, query: Query) -> list[str]:
        """Check the consistency conditions on the source and on the copy."""

        def at_source(sql: str) -> list[tuple[Any, ...]]:
            return source.execute(sql.encode()).fetchall()

        found = (("source", TpccWorkload().check(at_source)), ("copy", TpccWorkload().check(query)))
        return [
            f"{name} on the {side}: {count} violations" for side, all_ in found for name, count in all_.items() if count
        ]
