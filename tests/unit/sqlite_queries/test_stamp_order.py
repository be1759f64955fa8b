"""Which rows a cycle by stamps reads of a SQLite table, whatever its column holds: never fewer than those that are new by its order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.model.subscription import TableSpec
from engine.sources.query_diff.stamps import Stamp
from engine.sources.sqlite.catalog import Structure, live_tables
from engine.sources.sqlite.splits import read_lines
from engine.sources.sqlite.types import real_text
from engine.sources.sqlite_queries import stamps
from engine.sources.sqlite_queries.compared import AS_THEY_ARE
from engine.sources.sqlite_queries.stamps import earlier, is_comparable, is_indexed
from tests.fixtures.replication import table

TYPES = ("TEXT", "TEXT COLLATE NOCASE", "INTEGER", "REAL", "DATETIME", "TEXT NOT NULL", "INTEGER NOT NULL")
_TIMES = st.datetimes().flatmap(
    lambda at: st.sampled_from([at.isoformat(" ", "seconds"), at.isoformat("T", "milliseconds") + "Z", str(at.date())])
)
_NEAR = st.integers(0, 30).map(lambda s: f"2026-01-01 00:00:{s:02}")
_TEXTS = st.one_of(_NEAR, _TIMES, st.text(max_size=4), st.sampled_from(["", "'", "Inf", "-9", "2026-01-01 24:00"]))
_NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(1_767_000_000, 1_767_000_009),
    st.floats(allow_nan=False),
    st.floats(2_461_000, 2_461_001),
    st.floats(1.767e9, 1.767e9 + 3),
)
VALUES = st.one_of(st.none(), _TEXTS, _NUMBERS, st.binary(max_size=3))
_NEW = """
WITH newest AS (
    SELECT at FROM orders WHERE id < 0 AND at IS NOT NULL AND typeof(at) <> 'blob' AND NOT (typeof(at) = 'real' AND abs(at) = 9e999)
    ORDER BY at DESC LIMIT 1)
SELECT o.id FROM orders o, newest
WHERE o.at IS NULL OR o.at >= newest.at OR replace(typeof(o.at), 'real', 'integer') <> replace(typeof(newest.at), 'real', 'integer')
"""
"""Rows that have to be read: those with equal stamps too, whether they were seen or not."""


@contextmanager
def made(declared: str, seen: list[object], later: list[object]) -> Iterator[tuple[sqlite3.Connection, Structure]]:
    """A table with these stamps, whose rows are numbered; those that were seen have numbers below 0."""
    # A plan that Python keeps would not follow a change of the schema.
    with closing(sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)) as connection:
        connection.create_function("penstock_real", 1, real_text, deterministic=True)
        connection.execute(f"CREATE TABLE orders (id INTEGER PRIMARY KEY, at {declared}, n INTEGER)")
        connection.execute("CREATE INDEX orders_at ON orders (at)")
        rows = [*((-1 - n, value) for n, value in enumerate(seen)), *enumerate(later)]
        connection.executemany("INSERT OR IGNORE INTO orders (id, at) VALUES (?, ?)", rows)
        yield connection, live_tables(connection)["orders"].structure


def newest(connection: sqlite3.Connection, structure: Structure, overlap_s: float) -> str | None:
    """Of the rows that were seen, as the cycle reads it."""
    schema = AS_THEY_ARE.described(live_tables(connection)["orders"], orders())
    assert schema is not None
    later = connection.execute("SELECT * FROM orders WHERE id >= 0").fetchall()
    connection.execute("DELETE FROM orders WHERE id >= 0")
    found = stamps.newest_of(
        read_lines(connection, stamps.newest(schema, structure, "at").sql), structure, "at", overlap_s
    )
    connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", later)
    return found


def orders() -> TableSpec:
    return table("orders", "main")


def read_since(connection: sqlite3.Connection, structure: Structure, value: str) -> list[int]:
    """The numbers of the rows that a cycle reads."""
    schema = AS_THEY_ARE.described(live_tables(connection)["orders"], orders())
    assert schema is not None
    keys = replace(schema, columns=schema.key_columns)
    lines = b"".join(read_lines(connection, stamps.rows_since(keys, structure, Stamp("at", value)).sql))
    return [int(line) for line in lines.splitlines()]


@given(
    st.sampled_from(TYPES),
    st.lists(VALUES, max_size=5),
    st.lists(VALUES, max_size=8),
    st.sampled_from([0.0, 0.25, 1.0, 90.0]),
)
@example("DATETIME", ["2026-01-01 00:00:00"], [5, "2026-01-01 00:00:00", None, b"x"], 0.0)
@example("INTEGER", [5], ["a", 4, 5], 0.0)
@example("REAL", [2_461_000.123456789], [2_461_000.123456789], 0.0)
@example("TEXT", ["1000000000"], ["1000000000"], 5.0)
def test_no_row_with_a_newer_stamp_or_without_a_place_in_the_order_is_left_out(
    declared: str, seen: list[object], later: list[object], overlap_s: float
) -> None:
    with made(declared, seen, later) as (connection, structure):
        value = newest(connection, structure, overlap_s)
        if value is None:
            return  # All rows are compared.
        expected = {number for (number,) in connection.execute(_NEW).fetchall()}
        found = read_since(connection, structure, value)
        assert len(set(found)) == len(found)
        assert expected <= set(found)


@given(st.one_of(_TEXTS, _NUMBERS.map(str)), st.floats(0, 1e6), st.booleans())
def test_an_earlier_stamp_is_never_newer(value: str, seconds: float, textual: bool) -> None:
    found = earlier(value, seconds, textual=textual)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE TABLE each (at {'TEXT' if textual else 'NUMERIC'})")
        connection.execute("INSERT INTO each VALUES (?)", [value])
        kept = connection.execute("SELECT at >= CAST(? AS TEXT) FROM each", [found]).fetchone()[0]
    assert found is None or kept


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("2026-01-01 00:00:01", "2025-12-31 23:59:59"),
        ("2026-01-01T10:00:01.250Z", "2026-01-01T09:59:59"),
        ("2026-01-01 10:01+02:00", "2026-01-01 10:00"),
        ("2026-01-01", "2026-01-01"),
        ("0001-01-01 00:00:00", "0001-01-01 00:00:00"),
        ("1767225601", "1767225599"),
        ("1767225601000", "1767225599500"),
        ("1767225601000000", "1767225599500000"),
        ("7", "7"),
        ("x", "x"),
    ],
)
def test_seconds_are_taken_off_in_the_form_of_the_stamp(value: str, found: str) -> None:
    assert earlier(value, 1.5, textual=False) == found


def test_a_float_that_is_a_time_is_earlier_by_seconds() -> None:
    day = float(earlier("2461042.5", 1.5, textual=False) or 0)
    assert 2461042.5 - day == pytest.approx(1.5 / 86_400, rel=1e-3)
    second = float(earlier("1767225601.25", 1.5, textual=False) or 0)
    assert second == pytest.approx(1767225599.75, abs=1e-4)
    assert earlier("1.7e308", 1.5, textual=False) is None
    assert 0.0999 < float(earlier("0.1", 0.0, textual=False) or 0) < 0.1


def test_infinity_is_no_stamp_of_a_change() -> None:
    with made("REAL", [5.5, float("inf")], []) as (connection, structure):
        assert float(newest(connection, structure, 0.0) or 0) == pytest.approx(5.5)


@pytest.mark.parametrize("declared", ["TEXT", "DATETIME", "INTEGER NOT NULL"])
def test_an_index_on_the_stamp_is_used_for_every_range(declared: str) -> None:
    with made(declared, [1], []) as (connection, structure):
        schema = AS_THEY_ARE.described(live_tables(connection)["orders"], orders())
        assert schema is not None
        queries = [
            stamps.rows_since(schema, structure, Stamp("at", "2026-01-01")),
            stamps.left_since(schema, structure, Stamp("at", "5")),
            stamps.newest(schema, structure, "at"),
        ]
        steps = [row[3] for q in queries for row in connection.execute(f"EXPLAIN QUERY PLAN {q.sql}")]
        assert any("orders_at" in step for step in steps)
        assert [step for step in steps if step.startswith("SCAN") and "subquery" not in step] == []
        assert is_indexed(connection, structure, "at")
        connection.execute("DROP INDEX orders_at")
        assert not is_indexed(connection, structure, "at")


def test_a_collation_that_only_a_program_has_is_noticed() -> None:
    with made("TEXT", [], []) as (connection, _):
        connection.create_collation("own", lambda a, b: (a > b) - (a < b))
        connection.execute("CREATE TABLE others (id INTEGER PRIMARY KEY, at TEXT COLLATE own)")
        structure = live_tables(connection)["others"].structure
        assert is_comparable(connection, structure, "at")
        connection.create_collation("own", None)
        assert not is_comparable(connection, structure, "at")


_ON_WRITES = (
    "INSERT INTO orders (id, at) VALUES (1, CURRENT_TIMESTAMP)",
    "UPDATE orders SET n = 1, at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE id = 1",
    "UPDATE orders SET at = julianday('now')",
)


@pytest.mark.parametrize("statement", _ON_WRITES)
def test_sqlite_computes_a_stamp_after_its_write_began(statement: str) -> None:
    """By the program of the statement: it begins at the end, where the write begins, and continues at instruction 1."""
    with made("TEXT", [], []) as (connection, _):
        steps = [(row[1], row[3]) for row in connection.execute(f"EXPLAIN {statement}")]
    names = [name for name, _ in steps]
    start = steps[0][1]
    assert names[0] == "Init"
    order = [*range(start, len(names)), *range(1, start)]
    begins = next(place for place, at in enumerate(order) if names[at] == "Transaction")
    functions = [place for place, at in enumerate(order) if names[at] in {"Function", "PureFunc"}]
    assert functions
    assert begins < min(functions)
