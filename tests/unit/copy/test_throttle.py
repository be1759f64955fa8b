"""Adaptive throttling of copies by the delay of other tables' commits."""

from __future__ import annotations

import pytest

from engine.copy.throttle import BEHIND_MS, LEAST_SHARE, LOOK_SHARE, WINDOW_MS, AdaptiveThrottle


class Course:
    """Batches every 50 ms, and the share that copies get."""

    def __init__(self) -> None:
        self.way = AdaptiveThrottle()
        self.now_ms = 0.0
        self.copying = False

    def go(self, seconds: float, lag_ms: float | None, *, copying: bool, goes_on: bool = False) -> float:
        """Returns the share after this time with this lag; None: nothing is committed. `goes_on`: the copied tables were begun before."""
        if copying and not self.copying:
            self.way.begin(self.now_ms, goes_on=goes_on)
        self.copying = copying
        for _ in range(int(seconds * 20)):
            self.now_ms += 50
            if lag_ms is not None:
                self.way.record_commit(self.now_ms, lag_ms, copying=copying)
            share = self.way.share(self.now_ms, copying=copying)
        return share


@pytest.fixture
def course() -> Course:
    made = Course()
    assert made.go(10, 100.0, copying=False) == 1
    return made


def test_a_copy_that_costs_others_nothing_is_soon_not_slowed_down(course: Course) -> None:
    assert course.go(0.05, 100.0, copying=True) == LEAST_SHARE
    assert course.go(8, 120.0, copying=True) == 1


def test_a_copy_that_costs_others_much_goes_on_slowly(course: Course) -> None:
    assert course.go(5, 400.0, copying=True) == LEAST_SHARE


def test_it_goes_faster_again_once_that_is_over(course: Course) -> None:
    course.go(5, 400.0, copying=True)
    assert course.go(WINDOW_MS / 1000 + 0.5, 100.0, copying=True) < 0.3
    assert course.go(12, 100.0, copying=True) == 1


@pytest.mark.parametrize("lag_ms", [None, 5000.0])
def test_without_anything_to_compare_with_nothing_is_slowed_down(lag_ms: float | None) -> None:
    assert Course().go(5, lag_ms, copying=True) == 1


def test_where_others_write_nothing_any_more_it_is_not_slowed_down(course: Course) -> None:
    course.go(5, 400.0, copying=True)
    assert course.go(20, None, copying=True) == 1


def test_what_a_copy_cost_is_not_taken_for_what_it_is_without(course: Course) -> None:
    course.go(60, 400.0, copying=True)
    course.go(BEHIND_MS / 1000 - 0.1, 400.0, copying=False)
    assert course.go(5, 400.0, copying=True) == LEAST_SHARE


def test_each_copy_begins_slowly_however_fast_the_one_before_went(course: Course) -> None:
    assert course.go(8, 100.0, copying=True) == 1
    course.go(1, 100.0, copying=False)
    assert course.go(0.05, 100.0, copying=True) == LEAST_SHARE


def test_the_next_chunk_of_a_table_goes_on_as_fast_as_the_one_before(course: Course) -> None:
    share = course.go(4, 100.0, copying=True)
    assert LEAST_SHARE < share < 1
    course.go(1, 400.0, copying=False)
    assert course.go(0.05, 100.0, copying=True, goes_on=True) == share


def test_a_chunk_that_comes_late_begins_slowly(course: Course) -> None:
    course.go(4, 100.0, copying=True)
    course.go(BEHIND_MS / 1000 + 1, 100.0, copying=False)
    assert course.go(0.05, 100.0, copying=True, goes_on=True) == LEAST_SHARE


def test_looks_before_a_copy_leave_more_time_than_they_take(course: Course) -> None:
    assert course.way.rest_ms(20.0) == 20.0 / LOOK_SHARE - 20.0


def test_where_nobody_writes_looks_follow_each_other_at_once() -> None:
    assert Course().way.rest_ms(20.0) == 0


def test_clocks_that_differ_slow_nothing_down_for_that() -> None:
    course = Course()
    course.go(10, 3_600_000.0, copying=False)
    assert course.go(8, 3_600_020.0, copying=True) == 1
    assert course.go(5, 3_600_500.0, copying=True) == LEAST_SHARE


def test_lags_of_which_nothing_is_known_allow_a_little() -> None:
    course = Course()
    course.go(10, 0.0, copying=False)
    assert course.go(8, 10.0, copying=True) == 1
