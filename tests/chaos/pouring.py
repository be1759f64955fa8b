"""A transaction that inserts for seconds, repeatedly: its rows reach the target before its commit, and must be invisible."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import psycopg

PIECE_BYTES = 2 * 1024 * 1024
"""Small enough that each of these transactions is several pieces."""
DDL = "CREATE TABLE poured (generation integer, place integer, note text NOT NULL, PRIMARY KEY (generation, place));"
_STEPS = 8
_STEP_ROWS = 1_000
_STEP_S = 0.25
_KEPT = 2
"""Generations that stay; older ones are deleted."""
_ABORTED = 0.3
_UNDONE = "undone"
INVARIANTS = (
    f"(SELECT count(*) FROM (SELECT generation FROM poured GROUP BY generation HAVING count(*) <> {_STEPS * _STEP_ROWS})),"
    f" (SELECT count(*) FROM poured WHERE note = '{_UNDONE}')"
)
EXPECTED = [0, 0]


def pour(
    connection: psycopg.Connection[Any], rng: random.Random, pause: Callable[[float], object], unmarked: str = "true"
) -> bool:
    """Insert a generation, whole, and take it back or let the oldest one go; whether it was committed. `pause`: so many seconds.

    `unmarked`: a condition of the rows that do not count as deleted.
    """
    row = connection.execute("SELECT coalesce(max(generation), 0) + 1 FROM poured").fetchone()
    assert row is not None
    aborts = rng.random() < _ABORTED
    note = f"'{_UNDONE}'" if aborts else "md5(n::text) || repeat('x', 500)"
    connection.execute("BEGIN")
    for step in range(_STEPS):
        first = step * _STEP_ROWS + 1
        numbers = f"generate_series({first}, {first + _STEP_ROWS - 1}) AS n"
        connection.execute(f"INSERT INTO poured SELECT {row[0]}, n, {note} FROM {numbers}".encode())
        pause(_STEP_S)
    connection.execute("ROLLBACK" if aborts else "COMMIT")
    connection.execute(f"DELETE FROM poured WHERE generation <= {row[0] - _KEPT} AND {unmarked}".encode())
    return not aborts
