"""The guard on syntax trees alone; what it does to real queries is in the contract tests."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest

from engine.targets.duckdb.query_guard import (
    REFUSED_FUNCTIONS,
    TABLE_FUNCTIONS,
    Named,
    array_parameters,
    bytea_parameters,
    named,
    refusal,
)


@pytest.mark.parametrize("name", sorted(TABLE_FUNCTIONS))
def test_listed_table_functions_pass(name: str) -> None:
    assert refusal({"type": "TABLE_FUNCTION", "function": {"function_name": name.upper()}}) is None


def test_the_guard_refuses_a_tree_it_does_not_know() -> None:
    assert refusal({"type": "TABLE_FUNCTION", "function": {"class": "NEW"}}) is not None
    assert refusal({"type": "TABLE_FUNCTION"}) is not None
    assert refusal({"a": [{"type": "UPDATE_QUERY_NODE"}]}) is not None
    assert refusal({"type": "FUNCTION", "function_name": next(iter(REFUSED_FUNCTIONS)).upper()}) is not None
    assert refusal({"type": "SELECT_NODE", "from_table": {"type": "EMPTY"}}) is None


def test_the_guard_reads_trees_of_any_depth() -> None:
    tree: dict[str, Any] = {"type": "TABLE_FUNCTION", "function": {"function_name": "checkpoint"}}
    for _ in range(50_000):
        tree = {"type": "SELECT_NODE", "from": tree}
    assert refusal(tree) is not None


@pytest.mark.parametrize(
    ("sql", "places", "expressions", "catalog"),
    [
        ("FROM a JOIN s.B ON true", {("", "a"), ("s", "b")}, set(), False),
        ("FROM d.s.t, d.t", {("s", "t"), ("d", "t")}, set(), False),
        (
            "WITH x AS (WITH y AS (FROM t) FROM y) SELECT (SELECT 1 FROM x)",
            {("", "t"), ("", "x"), ("", "y")},
            {"x", "y"},
            False,
        ),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) FROM r", {("", "r")}, {"r"}, False),
        ("FROM range(3), unnest([1])", set(), set(), False),
        ("FROM duckdb_tables()", set(), set(), True),
        ("FROM summary(t)", set(), set(), True),
        ("FROM information_schema.tables", {("information_schema", "tables")}, set(), True),
        ("FROM (DESCRIBE t)", {("", "t")}, set(), True),
    ],
)
def test_what_a_statement_names(
    sql: str, places: set[tuple[str, str]], expressions: set[str], *, catalog: bool
) -> None:
    text = duckdb.connect().execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0]
    found = named(json.loads(text))
    assert found == Named(frozenset(places), frozenset(expressions), catalog)


@pytest.mark.parametrize(
    ("sql", "arrays"),
    [
        ("SELECT 1 WHERE 1 = ANY ($1)", {"1"}),
        ("SELECT 1 WHERE 1 <> ALL ($2::int[]) AND $1 = 1", {"2"}),
        ("SELECT CAST($1 AS text[]), TRY_CAST($2 AS numeric(10, 2)[]), $3::int[3], $4::int[][]", {"1", "2", "3", "4"}),
        ("SELECT CAST($1 AS int), [$2], unnest([$3]), CAST([$4] AS int[])", set()),
        ("FROM unnest($1) AS u(x)", {"1"}),
    ],
)
def test_parameters_that_are_arrays(sql: str, arrays: set[str]) -> None:
    tree = json.loads(duckdb.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0])
    assert array_parameters(tree) == arrays


@pytest.mark.parametrize(
    ("sql", "byteas"),
    [
        ("SELECT $1::bytea, CAST($2 AS BYTEA), $3::bytea[], $4 = ANY (CAST($5 AS bytea[]))", {"1", "2", "3", "5"}),
        ("SELECT $1::blob, $2::text::bytea, $3::blob[], $4::bytea[][]", set()),
    ],
)
def test_parameters_that_are_bytea(sql: str, byteas: set[str]) -> None:
    tree = json.loads(duckdb.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0])
    assert bytea_parameters(tree) == byteas


def test_the_guard_reads_casts_of_any_form() -> None:
    assert array_parameters({"type": "OPERATOR_CAST", "type_expr": {"type_name": "list"}}) == frozenset()
    assert array_parameters([{"type": "OPERATOR_CAST"}, {"type": "FUNCTION", "function_name": "unnest"}]) == frozenset()
