"""`open-transactions`: thousands of prepared transactions stay open over many tables during a load of small ones.

PREPARE TRANSACTION frees its session, so a few connections can leave any number of transactions open. The source has
very little memory for decoding: it streams their changes long before they end, and Penstock has to store all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import psycopg

from bench.contenders import Side
from bench.environment import Stage, wait_seen
from bench.errors import BenchError
from bench.facts import load_average
from bench.pgbench import PgbenchWorkload
from bench.processes import Usage
from bench.steady import Client, LagSampler, load
from bench.workload import DATABASE, Connection, Mode, Size, Table
from server.demo.embedded import EmbeddedPostgres

Document = dict[str, Any]

_SESSIONS = 4
"""Connections that prepare and end transactions. This many are in progress at once; all others are open without a session."""
_TOUCHED = 5
"""Tables that each open transaction writes to."""
_ROWS = 5
"""Rows that each open transaction updates, and inserts, in each of them."""
_SLOTS = 100
"""Transactions that write to one table. Each has its own rows there, so none waits for another."""
_SMALL_FIRST = _SLOTS * _ROWS + 1
_SMALL_ROWS = 200
_ABORTED_EVERY = 10
_BEFORE_SHARE = 0.25


class OpenTransactions(PgbenchWorkload):
    """`amount` open transactions over `scale` tables, and for `seconds` a load of `rate` small ones while all are open."""

    name = "open-transactions"
    description = (
        "10,000 prepared transactions open over 500 tables, all of them streamed, while small ones flow on;"
        " then a tenth is rolled back and the rest commits"
    )
    modes: ClassVar[tuple[Mode, ...]] = (Mode.OPEN,)
    source_settings: ClassVar[Mapping[str, str]] = {
        "max_prepared_transactions": "10100",
        "max_locks_per_transaction": "32",
        "logical_decoding_work_mem": "'64kB'",
        # The decoder adds every catalog change, such as that of an ANALYZE, to every open transaction: ten thousand
        # entries each time, each sent as an empty chunk. That is a cost of the source, not measured here.
        "autovacuum": "off",
    }
    full = Size(10_000, 500, rounds=1, seconds=60, rate=100)
    quick = Size(1_000, 50, rounds=1, seconds=10, rate=100)
    changes = 2
    clients = 4
    protocol = "simple"
    script = (
        f"\\set table random(1, :tables)\n\\set row random({_SMALL_FIRST}, {_SMALL_FIRST + _SMALL_ROWS - 1})\n"
        "BEGIN;\n"
        "UPDATE ledger_:table SET amount = amount + 1, at = now() WHERE id = :row;\n"
        "INSERT INTO ledger_:table (amount, at, note) VALUES (:row, now(), 'small');\n"
        "END;\n"
    )

    def tables(self) -> tuple[Table, ...]:
        return self.followed(self.full.scale)

    def followed(self, scale: int) -> tuple[Table, ...]:
        return tuple(Table(f"ledger_{number}") for number in range(1, scale + 1))

    def create(self, connection: Connection, scale: int) -> None:
        columns = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount int NOT NULL, at timestamptz, note text"
        rows = f"SELECT n, now(), md5(n::text) FROM generate_series(1, {_SMALL_FIRST + _SMALL_ROWS}) n"
        for table in self.followed(scale):
            connection.execute(f"CREATE TABLE {table.name} ({columns})".encode())
            connection.execute(f"INSERT INTO {table.name} (amount, at, note) {rows}".encode())

    def load_command(self, postgres: EmbeddedPostgres, rate: float) -> list[str]:
        sql = "SELECT count(*) FROM pg_class WHERE relname ~ '^ledger_[0-9]+$'"
        tables = postgres.execute(sql, database=DATABASE)[0][0]
        return [*super().load_command(postgres, rate)[:-1], "-D", f"tables={tables}", DATABASE]


def statements(number: int, tables: int) -> str:
    """One transaction up to its PREPARE, as a single message. Numbers below `tables` * 20 never touch the same rows."""
    parts = ["BEGIN"]
    for place in range(_TOUCHED):
        table = (number + place * max(1, tables // _TOUCHED)) % tables + 1
        first = (number // tables * _TOUCHED + place) * _ROWS
        parts.append(
            f"UPDATE ledger_{table} SET amount = amount + 1000, note = 'open {number}'"
            f" WHERE id > {first} AND id <= {first + _ROWS}"
        )
        parts.append(
            f"INSERT INTO ledger_{table} (amount, at, note)"
            f" SELECT n, now(), md5(n::text) || ' open {number}' FROM generate_series(1, {_ROWS}) n"
        )
    return "; ".join([*parts, f"PREPARE TRANSACTION 'open_{number}'"])


def ending(number: int) -> str:
    """The statement that ends the transaction."""
    fate = "ROLLBACK" if number % _ABORTED_EVERY == 0 else "COMMIT"
    return f"{fate} PREPARED 'open_{number}'"


@dataclass(slots=True)
class _Waits:
    """Waits of a separate client, and the lag, over a period."""

    waits: Document
    lag: Document
    client_late_most_ms: float
    failures: list[str]


def measure(stage: Stage, side: Side, size: Size, waits_per_s: float) -> Document:
    """Open all transactions, catch up, observe for `seconds`, end them, and wait until every row is visible."""
    if size.amount > size.scale * _SLOTS // _TOUCHED:
        raise BenchError(f"{size.scale} tables have rows for at most {size.scale * _SLOTS // _TOUCHED} transactions")
    spilled, streamed = stage.spilled_bytes(side), stage.streamed_transactions(side)
    sampler = stage.sampler(side)
    with load(stage, size.rate):
        before = _watch(stage, side, waits_per_s, size.seconds * _BEFORE_SHARE)
        sampler.start()
        began = perf_counter()
        try:
            _each(stage, size.amount, lambda number: statements(number, size.scale))
            opened = perf_counter()
            caught_up = wait_seen(side.arm(*stage.mark()))
            while_open = _watch(stage, side, waits_per_s, size.seconds)
            watched = perf_counter()
            _each(stage, size.amount, ending)
            decided = perf_counter()
            visible = wait_seen(side.arm(*stage.mark()))
        finally:
            usage = sampler.stop()
    committed = sum(number % _ABORTED_EVERY != 0 for number in range(size.amount))
    changes = committed * _TOUCHED * _ROWS * 2
    return {
        "transactions": size.amount,
        "committed": committed,
        "row_changes": changes,
        "streamed_transactions": stage.streamed_transactions(side) - streamed,
        "source_spilled_mb": round((stage.spilled_bytes(side) - spilled) / 1e6, 1),
        "prepare_s": round(opened - began, 2),
        "caught_up_s": round(caught_up - opened, 2),
        "open_s": round(watched - opened, 2),
        "decide_s": round(decided - watched, 2),
        "all_visible_s": round(visible - decided, 3),
        "memory_growth_while_open_mb": round(_growth(usage, caught_up - began, watched - began) / 1e6, 1),
        "waits": {
            **while_open.waits,
            "failed": len(before.failures) + len(while_open.failures),
            "failures": [*before.failures, *while_open.failures][:5],
        },
        "client_late_most_ms": while_open.client_late_most_ms,
        "lag": while_open.lag,
        "waits_before": before.waits,
        "lag_before": before.lag,
        "load_average": load_average(),
        **usage.document(),
    }


def _each(stage: Stage, amount: int, statement: Callable[[int], str]) -> None:
    """Run one statement for each transaction over a few connections. BenchError if the source refuses one."""

    def run_share(first: int) -> None:
        with stage.connect() as connection:
            for number in range(first, amount, _SESSIONS):
                connection.execute(statement(number).encode())

    try:
        with ThreadPoolExecutor(_SESSIONS, thread_name_prefix="open") as pool:
            for done in [pool.submit(run_share, first) for first in range(_SESSIONS)]:
                done.result()
    except psycopg.Error as error:
        raise BenchError(f"the source refused a prepared transaction: {error}") from error


def _watch(stage: Stage, side: Side, waits_per_s: float, seconds: float) -> _Waits:
    client, lag = Client(stage, side, waits_per_s), LagSampler(side)
    try:
        lag.start()
        try:
            client.run(seconds, keep=True)
        finally:
            lag.stop()
    finally:
        client.close()
    return _Waits(client.waits.summary(), lag.times.summary(), round(client.latest_s * 1000, 2), client.failed)


def _growth(usage: Usage, first: float, last: float) -> float:
    """Growth of memory in bytes over a period: the mean of its last fifth less that of its first fifth."""
    values = [value for at, value in usage.memory if first <= at <= last]
    part = max(1, len(values) // 5)
    return sum(values[-part:]) / part - sum(values[:part]) / part if values else 0.0
