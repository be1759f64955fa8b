"""The numbers and positions of transactions in their windows, wherever the list of them is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.model.positions.windows import WINDOW_END, WindowForm, places_in
from engine.sources.postgres_triggers.windows import numbered


@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=8), max_size=6))
def test_numbers_count_from_one_in_each_window_across_parts(steps: list[list[int]]) -> None:
    """`steps`: how far the window is ahead of the previous transaction's, less one, in each part."""
    before, number, window = 7, 0, 7
    expected: list[tuple[int, int]] = []
    found: list[tuple[int, int]] = []
    for part in steps:
        windows = []
        for step in part:
            window += step - 1 if expected else step
            last = expected[-1] if expected else (7, 0)
            expected.append((window, last[1] + 1 if window == last[0] else 1))
            windows.append(window)
        numbers = numbered(np.array(windows, np.int64), before, number)
        before, number = windows[-1], int(numbers[-1])
        found += zip(windows, numbers.tolist(), strict=True)
    assert found == expected


def test_a_place_is_the_position_of_its_text() -> None:
    places = places_in(np.array([3, 3, 9], np.int64), np.array([1, 2, 1], np.int64)).tolist()
    form = WindowForm()
    assert [Lsn(place) for place in places] == [form.parse(text)[0].position for text in ("w3.1", "w3.2", "w9.1")]


def test_a_window_with_too_many_transactions_is_refused_by_its_number() -> None:
    with pytest.raises(EngineFault, match="window 4 ") as refused:
        places_in(np.array([3, 4], np.int64), np.array([1, WINDOW_END], np.int64))
    assert refused.value.kind is FaultKind.LOG_UNREADABLE
