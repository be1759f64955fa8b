"""Which distribution of a batch's changes over tasks, or over keys, counts as a skew."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.batch import TableChanges
from engine.model.identity import TableId
from engine.pipeline.compute import Scans
from engine.pipeline.skew import SKEW_FACTOR, SKEW_ROWS, SKEW_SHARE, Skew, skew_of_keys, skew_of_tasks

A, B = TableId("a"), TableId("b")


@pytest.mark.parametrize(
    ("tasks", "found"),
    [
        ([], None),
        ([{A: 5_000}], None),
        ([{A: 999}, {}], None),
        ([{A: 500}, {A: 500}], None),
        ([{A: 790}, {A: 210}], None),
        ([{A: 800}, {A: 200}], Skew(2, 800, 1_000, A)),
        ([{}, {A: 300, B: 700}], Skew(2, 1_000, 1_000, B)),
        ([{A: 500}, {A: 200}, {A: 200}, {A: 100}], Skew(4, 500, 1_000, A)),
        ([{A: 490}, {A: 210}, {A: 200}, {A: 100}], None),
        ([{A: 500}, *[{B: 50}] * 10], Skew(11, 500, 1_000, A)),
    ],
)
def test_tasks_are_skewed_if_one_has_most(tasks: list[dict[TableId, int]], found: Skew | None) -> None:
    assert skew_of_tasks(tasks) == found


@given(st.lists(st.dictionaries(st.sampled_from([A, B]), st.integers(0, 5_000), max_size=2), max_size=9))
def test_a_skew_is_that_of_the_largest_task(tasks: list[dict[TableId, int]]) -> None:
    found, sums = skew_of_tasks(tasks), [sum(one.values()) for one in tasks]
    if found is None:
        share = max(sums, default=0) / max(sum(sums), 1)
        assert len(tasks) < 2 or sum(sums) < SKEW_ROWS or share < max(SKEW_SHARE, SKEW_FACTOR / len(tasks))
    else:
        assert (found.tasks, found.rows, found.of_rows) == (len(tasks), max(sums), sum(sums))


def in_order(table: TableId, hashes: list[int]) -> TableChanges:
    rows = pa.table({"h": pa.array(np.array(hashes, np.uint64))})
    return TableChanges(table, truncated=False, in_order=rows)


def test_keys_are_skewed_if_one_has_most_changes() -> None:
    large = 2**64 - 7
    changes = [in_order(A, [large] * 900), in_order(B, list(range(100)))]
    assert skew_of_keys(changes, 2) == Skew(2, 900, 1_000, A)
    assert skew_of_keys(changes, 1) is None
    assert skew_of_keys([in_order(A, list(range(1_000)))], 4) is None
    assert skew_of_keys([TableChanges(A, truncated=False, net_rows=5_000)], 4) is None
    assert skew_of_keys([in_order(A, [])], 4) is None


def test_the_tasks_of_all_slices_count_by_bucket() -> None:
    scans = Scans()
    for bucket, rows in ((0, 10), (1, 700), (0, 20), (1, 600)):
        scans.took(bucket, [TableChanges(A, truncated=False, counts={"insert": rows - 5, "delete": 5})])
    assert list(scans.buckets.values()) == [{A: 30}, {A: 1_300}]
