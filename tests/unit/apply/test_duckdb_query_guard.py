"""The guard on syntax trees alone; what it does to real queries is in the contract tests."""

from __future__ import annotations

from typing import Any

import pytest

from engine.apply.duckdb.query_guard import REFUSED_FUNCTIONS, TABLE_FUNCTIONS, refusal


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
