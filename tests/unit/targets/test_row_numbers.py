"""Numbers of rows by hashes of keys, against a list of all of them."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.targets.duckdb import row_numbers
from engine.targets.duckdb.row_numbers import CANDIDATES, MOST_ROWS, RowNumbers

HASHES = (0, 1, 7, MOST_ROWS // 2, MOST_ROWS - 2, MOST_ROWS - 1)
"""Few, so that rows share them, at both ends of their range."""
adding = st.lists(st.sampled_from(HASHES), max_size=30)
steps = st.lists(adding | st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20)
"""Hashes of the rows that follow, or the shares of all rows between which they are forgotten; the last ones are then added again."""


def entries(hashes: list[int], first: int) -> np.ndarray:
    return np.array([(hashed << 32) | row for row, hashed in enumerate(hashes, first)], np.uint64)


def assert_found(numbers: RowNumbers, ever: list[tuple[int, int, bool]]) -> None:
    """Of each hash at most some of the rows that were not forgotten, among them those after which few others got it."""
    positions, found = numbers.find(np.array(HASHES, np.uint64))
    for position, hashed in enumerate(HASHES):
        rows = [(row, kept) for one, row, kept in ever if one == hashed]
        shown = found[positions == position].tolist()
        assert len(shown) == len(set(shown)) <= CANDIDATES
        assert {row for row, kept in rows[-CANDIDATES:] if kept} <= set(shown) <= {row for row, kept in rows if kept}


@pytest.mark.parametrize(
    ("in_memory", "at_once", "small"), [(1 << 20, 1 << 20, 1), (1 << 20, 3, 40), (0, 3, 1), (16, 5, 8)]
)
def test_the_last_rows_of_each_hash_are_found(
    monkeypatch: pytest.MonkeyPatch, in_memory: int, at_once: int, small: int, tmp_path: Path
) -> None:
    monkeypatch.setattr(row_numbers, "_IN_MEMORY", in_memory)
    monkeypatch.setattr(row_numbers, "_SLICE", at_once)
    monkeypatch.setattr(row_numbers, "_SMALL", small)

    @settings(max_examples=60, deadline=None)
    @given(history=steps, first=st.sampled_from([0, 5, MOST_ROWS - 700]))
    def run(history: list[list[int] | tuple[float, float]], first: int) -> None:
        numbers, ever, following = RowNumbers(tmp_path), list[tuple[int, int, bool]](), first
        for step in history:
            if isinstance(step, tuple):
                start, end = sorted(first + round((following - first) * share) for share in step)
                numbers.cut(start, end)
                ever = [(hashed, row, kept and not start <= row < end) for hashed, row, kept in ever]
                following = start if end == following else following
            else:
                numbers.add(entries(step, following))
                ever += [(hashed, row, True) for row, hashed in enumerate(step, following)]
                following += len(step)
            assert_found(numbers, ever)

    run()
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_changes_often_has_few_entries(tmp_path: Path) -> None:
    numbers = RowNumbers(tmp_path)
    for row in range(4096):
        numbers.add(entries([7], row))
    assert numbers.bytes <= 8 * 2 * CANDIDATES
    assert_found(numbers, [(7, row, True) for row in range(4096)])


def test_a_full_disk_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_numbers, "_IN_MEMORY", 0)
    numbers = RowNumbers(tmp_path)
    numbers.add(entries([7], 0))

    class Full:
        @staticmethod
        def TemporaryFile(**_: object) -> None:  # noqa: N802
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(row_numbers, "tempfile", Full)
    with pytest.raises(OSError, match="No space"):
        numbers.add(entries([7], 1))
    assert_found(numbers, [(7, 0, True)])


def test_no_row_is_found_twice(tmp_path: Path) -> None:
    numbers = RowNumbers(tmp_path)
    for _ in range(3):
        numbers.add(entries([7, 8, 7], 0))
    positions, rows = numbers.find(np.array([7, 8], np.uint64))
    assert list(zip(positions.tolist(), rows.tolist(), strict=True)) == [(0, 0), (0, 2), (1, 1)]


def test_what_does_not_fit_on_the_disk_is_not_added(tmp_path: Path) -> None:
    numbers = RowNumbers(tmp_path)
    numbers.add(entries([1] * 3, 0))
    many = np.arange(row_numbers._IN_MEMORY + 1, dtype=np.uint64) << np.uint64(32) | np.uint64(3)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, most))
    try:
        with pytest.raises(OSError, match="too large"):
            numbers.add(many.copy())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert numbers.bytes == 24
    assert_found(numbers, [(1, row, True) for row in range(3)])
    assert list(tmp_path.iterdir()) == []
    numbers.add(many)
    assert numbers.bytes == 24 + many.nbytes
