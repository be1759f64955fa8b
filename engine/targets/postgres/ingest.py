"""Measures from how many rows on a temporary table is worth its cost, for one connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import psycopg
import pyarrow as pa

from engine.model.values import Kind, ValueType
from engine.postgres.sessions import PostgresConnection
from engine.targets.postgres.staging import LEAST_COPIED, StagedColumn, as_arrays, in_table

MOST_AS_ARRAYS = 20_000
"""Upper bound of the measured threshold in rows, and its value where parameters were not slower: arrays are held in memory. Not
measured."""
_SAMPLE = 2_000
"""Rows of the sample: enough for the difference between the ways to exceed the noise of a statement, within hundredths of a second."""
_TRIES = 3
"""Measurements of each way; their median ignores one that was disturbed."""
_TABLE = "__penstock_sample"
_COLUMNS = [
    StagedColumn("id", ValueType(Kind.INT64), "pg_catalog.int8"),
    StagedColumn("note", ValueType(Kind.TEXT), "pg_catalog.text"),
]


@dataclass(frozen=True, slots=True)
class Ingest:
    """The fixed cost of a temporary table, and the number of rows above which it is cheaper."""

    setup_ms: float
    copy_above: int


def measured_ingest(connection: PostgresConnection) -> Ingest:
    """Stage sample rows in both ways, for some hundredths of a second, without leaving anything. Outside a transaction."""
    ids = pa.array(range(_SAMPLE), pa.int64())
    rows = pa.table({"id": ids, "note": pa.array([f"a note of some length, number {n}" for n in range(_SAMPLE)])})

    def copied(count: int) -> None:
        source = in_table(connection, _TABLE, rows.slice(0, count), _COLUMNS, ())
        connection.execute(f"SELECT count(*) FROM {source.sql}")
        connection.execute(f"DROP TABLE pg_temp.{_TABLE}")

    def as_parameters() -> None:
        source = as_arrays(rows, _COLUMNS)
        psycopg.RawCursor(connection).execute(f"SELECT count(*) FROM {source.sql}".encode(), source.parameters)

    connection.execute("BEGIN")
    try:
        setup = _seconds(lambda: copied(1))
        by_row = _seconds(as_parameters) - (_seconds(lambda: copied(_SAMPLE)) - setup)
    finally:
        connection.execute("ROLLBACK")
    worth = setup / by_row * _SAMPLE if by_row > 0 else MOST_AS_ARRAYS
    return Ingest(setup * 1000, round(min(max(worth, LEAST_COPIED), MOST_AS_ARRAYS)))


def _seconds(work: Callable[[], object]) -> float:
    """Median of a few measurements."""
    took = []
    for _ in range(_TRIES):
        began = perf_counter()
        work()
        took.append(perf_counter() - began)
    return median(took)
