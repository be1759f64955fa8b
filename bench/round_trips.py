"""Transactions sent to a remote PostgreSQL database without Penstock: one round trip per transaction or per statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any

import psycopg

from bench.errors import BenchError
from bench.workload import Connection

Document = dict[str, Any]
Statement = tuple[str, Sequence[Any]]
_PROBES = 25


@dataclass(frozen=True, slots=True)
class Form:
    """A form of sending a transaction. `together`: all statements in one pipeline, so that it takes one round trip."""

    name: str
    together: bool


FORMS = (Form("a round trip a transaction", together=True), Form("a round trip a statement", together=False))


def measured_ms(connection: Connection) -> float:
    """Milliseconds of a round trip with next to no work, the median of several."""
    times = []
    for _ in range(_PROBES):
        began = perf_counter()
        connection.execute("SELECT 1")
        times.append((perf_counter() - began) * 1000)
    return round(median(times), 3)


def write(
    connect: Callable[[], Connection],
    form: Form,
    connections: int,
    seconds: float,
    first: int,
    statements: Callable[[int], Sequence[Statement]],
) -> Document:
    """Write transactions from number `first` on for `seconds`, those of one connection sequentially.

    The connections are independent: they take the transactions in turn, and wait neither for their turn to commit nor
    for a record of progress. Returns the number written, the time, and `next`: the first number after all of them.

    Raises:
        BenchError: the database refused a transaction.
    """
    opened = [connect() for _ in range(connections)]
    try:
        for connection in opened:
            # As the lanes do: only the last commit of many waits for the disk.
            connection.execute("SET synchronous_commit = off")
        began = perf_counter()
        with ThreadPoolExecutor(connections, thread_name_prefix="round-trips") as pool:
            shares = [
                pool.submit(_share, connection, form, began + seconds, count(first + number, connections), statements)
                for number, connection in enumerate(opened)
            ]
            done = [share.result() for share in shares]
        took = perf_counter() - began
    except psycopg.Error as error:
        raise BenchError(f"the target refused a transaction: {error}") from error
    finally:
        for connection in opened:
            connection.close()
    return {
        "transactions": sum(done),
        "seconds": round(took, 4),
        "transactions_per_s": round(sum(done) / took, 1),
        "next": first + max(done) * connections,
    }


def _share(
    connection: Connection,
    form: Form,
    until: float,
    numbers: Iterator[int],
    statements: Callable[[int], Sequence[Statement]],
) -> int:
    """Write one connection's transactions, at least one; returns their number."""
    done = 0
    while not done or perf_counter() < until:
        whole = [("BEGIN", ()), *statements(next(numbers)), ("COMMIT", ())]
        if form.together:
            with connection.pipeline():
                _send(connection, whole)
        else:
            _send(connection, whole)
        done += 1
    return done


def _send(connection: Connection, statements: Sequence[Statement]) -> None:
    for sql, values in statements:
        connection.execute(sql.encode(), values, prepare=True)
