"""The formulas give the figures of the source document; and the costs of Penstock's methods order them as they should."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sources.query_diff import costs
from engine.sources.query_diff.costs import TableFacts, Variables, Way

_N = 1000.0
ORDERS = TableFacts(pages=10_000, rows=700_000, bytes=10_000 * 8192)


@pytest.mark.parametrize(
    ("formula", "figure"),
    [
        (costs.full_join, 2.0),
        (costs.full_join_sorted, 4.0),
        (costs.incremental, 2.001),
        (costs.row_checksum, 1.001),
        (costs.timestamp, 1.11),
        (costs.delete_flag, 0.025),
        (costs.delete_flag_covered, 0.014),
        (costs.delete_flag_projected, 0.007),
    ],
)
def test_formulas_give_the_figures_of_the_document(formula: Callable[[Variables], float], figure: float) -> None:
    assert formula(Variables(table=_N)) / _N == pytest.approx(figure)


def test_about_a_table_is_read_for_checksums_of_ranges() -> None:
    assert costs.range_checksum() / _N == pytest.approx(1.004)


def test_few_rows_by_an_index_cost_two_pages_more_than_their_part() -> None:
    assert costs.full_join_restricted() == pytest.approx(0.03 * _N + 2)


def ways(facts: TableFacts, changed: float = 0.01) -> list[Way]:
    return [cost.way for cost in costs.costs(facts, Variables(changed=changed))]


def test_ranges_are_proposed_for_few_changes_and_rows_for_many() -> None:
    assert ways(ORDERS, 0.000001)[0] is Way.RANGE_CHECKSUM
    assert ways(ORDERS, 0.01)[0] is Way.ROW_CHECKSUM


def test_stamps_are_cheapest_with_an_index_only() -> None:
    stamped = TableFacts(ORDERS.pages, ORDERS.rows, ORDERS.bytes, stamp="at", flag="deleted", indexed=True)
    assert ways(stamped)[0] is Way.DELETE_FLAG
    unindexed = TableFacts(ORDERS.pages, ORDERS.rows, ORDERS.bytes, stamp="at", flag="deleted")
    assert ways(unindexed)[-1] is Way.DELETE_FLAG


def test_a_join_sends_least_and_reads_the_table_and_twice_its_copy() -> None:
    joined = TableFacts(ORDERS.pages, ORDERS.rows, ORDERS.bytes, joins=True)
    by_way = {cost.way: cost for cost in costs.costs(joined)}
    assert by_way[Way.OUTER_JOIN].pages == 3 * ORDERS.pages
    assert by_way[Way.OUTER_JOIN].sent < min(c.sent for way, c in by_way.items() if way is not Way.OUTER_JOIN)


@given(
    st.builds(
        TableFacts,
        st.integers(0, 10**7),
        st.integers(0, 10**9),
        st.integers(0, 10**12),
        ordered=st.booleans(),
        stamp=st.sampled_from([None, "at"]),
        flag=st.sampled_from([None, "deleted"]),
        indexed=st.booleans(),
        covers=st.booleans(),
        unique=st.booleans(),
        joins=st.booleans(),
    )
)
def test_only_possible_methods_are_listed_and_each_once(facts: TableFacts) -> None:
    found = costs.costs(facts)
    named = [cost.way for cost in found]
    assert len(set(named)) == len(named)
    assert {Way.INCREMENTAL, Way.ROW_CHECKSUM} <= set(named)
    assert (Way.RANGE_CHECKSUM in named) is (facts.ordered and facts.unique)
    assert (Way.TIMESTAMP in named or Way.DELETE_FLAG in named) is (facts.stamp is not None and facts.unique)
    assert (Way.OUTER_JOIN in named) is facts.joins
    assert all(cost.pages >= 0 and cost.sent >= 0 for cost in found)
    everything = {cost.way: cost for cost in found}
    assert everything[Way.INCREMENTAL].pages <= everything[Way.ROW_CHECKSUM].pages
