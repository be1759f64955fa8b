"""Workloads of large statements: `night-batch`, `tables-500`, `huge-transaction`, `huge-aborted`."""

from __future__ import annotations

from typing import ClassVar

import psycopg

from bench.pgbench import PgbenchWorkload
from bench.workload import DATABASE, Connection, Made, Mode, Size, Table, Workload, query_number
from server.demo.embedded import EmbeddedPostgres


class NightBatch(Workload):
    """Few transactions, each of very many changes."""

    name = "night-batch"
    description = "UPDATE statements of 50,000 rows each, one a transaction, over a big table"
    unit = "statements"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.BACKLOG, Mode.LIVE)
    full = Size(40, 20)
    quick = Size(4, 2, rounds=1)
    step: ClassVar[int] = 50_000

    def tables(self) -> tuple[Table, ...]:
        return (Table("ledger"),)

    def create(self, connection: Connection, scale: int) -> None:
        connection.execute(
            "CREATE TABLE ledger (id bigint PRIMARY KEY, account int NOT NULL, balance numeric(14, 2) NOT NULL,"
            " settled timestamptz, note text)"
        )
        rows = f"SELECT i, i % 1000, i / 100.0, NULL, md5(i::text) FROM generate_series(0, {scale * self.step} - 1) i"
        connection.execute(f"INSERT INTO ledger {rows}".encode())
        connection.execute("VACUUM ANALYZE ledger")

    def generate(self, postgres: EmbeddedPostgres, amount: int) -> Made:
        changed = 0
        with postgres.connect(DATABASE) as connection:
            parts = query_number(connection, "SELECT max(id) + 1 FROM ledger") // self.step
            for number in range(amount):
                first = number % parts * self.step
                sql = "UPDATE ledger SET balance = balance * 1.01, settled = now() WHERE id >= %s AND id < %s"
                changed += connection.execute(sql, [first, first + self.step]).rowcount
        return Made(amount, changed)


class Tables500(PgbenchWorkload):
    """Every batch touches very many tables."""

    name = "tables-500"
    description = "500 tables; each transaction inserts 100 rows into one of them and updates another 100 there"
    changes = 200
    clients = 4
    protocol = "simple"
    full = Size(10_000, 500, rate=200)
    quick = Size(500, 500, rounds=1, seconds=10, rate=100)
    count: ClassVar[int] = 500
    rows: ClassVar[int] = 1000
    # Each table belongs to one client, so that transactions never wait for each other's rows.
    script = (
        "\\set table random(0, 124) * 4 + :client_id + 1\n\\set first random(0, 9) * 100\nBEGIN;\n"
        "INSERT INTO wide_area_:table (amount, at, note) SELECT n, now(), md5(n::text) FROM generate_series(1, 100) n;\n"
        "UPDATE wide_area_:table SET amount = amount + 1, at = now() WHERE id > :first AND id <= :first + 100;\n"
        "END;\n"
    )

    def tables(self) -> tuple[Table, ...]:
        return tuple(Table(f"wide_area_{number}") for number in range(1, self.count + 1))

    def create(self, connection: Connection, scale: int) -> None:
        columns = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount int NOT NULL, at timestamptz, note text"
        rows = f"SELECT n, now(), md5(n::text) FROM generate_series(1, {self.rows}) n"
        for table in self.tables():
            connection.execute(f"CREATE TABLE {table.name} ({columns})".encode())
            connection.execute(f"INSERT INTO {table.name} (amount, at, note) {rows}".encode())


class HugeTransaction(Workload):
    """A transaction with more changes than any buffer should hold."""

    name = "huge-transaction"
    description = "one transaction that inserts 10 million rows; the clock runs from its commit"
    unit = "rows"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.LIVE, Mode.BACKLOG)
    full = Size(10_000_000, 1, rounds=1)
    quick = Size(300_000, 1, rounds=1)
    commits: ClassVar[bool] = True

    def tables(self) -> tuple[Table, ...]:
        return (Table("huge"),)

    def create(self, connection: Connection, scale: int) -> None:
        connection.execute(
            "CREATE TABLE huge (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount int NOT NULL, at timestamptz,"
            " note text)"
        )

    def generate(self, postgres: EmbeddedPostgres, amount: int) -> Made:
        sql = "INSERT INTO huge (amount, at, note) SELECT n %% 1000, now(), md5(n::text) FROM generate_series(1, %s) n"
        with postgres.connect(DATABASE) as connection, connection.transaction() as transaction:
            connection.execute(sql, [amount])
            if not self.commits:
                raise psycopg.Rollback(transaction)
        return Made(1, amount)


class HugeAborted(HugeTransaction):
    """The same transaction, rolled back."""

    name = "huge-aborted"
    description = "the same transaction, rolled back at its end: its rows are in the log, and must cost little"
    commits = False
