"""How late answers to waits count, and the slope of memory."""

from __future__ import annotations

import pytest

from tests.bench.lateness import Answered, Committed, Lateness, slope_per_minute

BATCHES = [Committed(100, 10.0), Committed(200, 11.0), Committed(300, 12.0)]


def answered(position: int, applied: int, at: float, *, asked: float = 5.0) -> Answered:
    return Answered(position, applied, asked, at, at - asked)


def most(times: object) -> float:
    return float(times.percentile(100))  # type: ignore[attr-defined]


def test_it_counts_from_the_first_batch_that_contains_the_position() -> None:
    found = Lateness([answered(101, 300, 12.5)], BATCHES)
    assert most(found.after_commit) == pytest.approx(1500, rel=0.01)


def test_the_batch_that_ends_at_the_position_contains_it() -> None:
    found = Lateness([answered(200, 200, 11.25)], BATCHES)
    assert most(found.after_commit) == pytest.approx(250, rel=0.01)


def test_a_wait_for_what_was_applied_counts_from_its_request() -> None:
    found = Lateness([answered(50, 300, 12.2, asked=12.1)], BATCHES)
    assert most(found.after_commit) == pytest.approx(100, rel=0.01)


def test_a_position_that_was_reached_without_a_batch_is_counted_apart() -> None:
    found = Lateness([answered(250, 260, 11.5), answered(900, 900, 13.0)], BATCHES)
    assert (found.without_batch, found.after_commit.count) == (2, 0)


def test_the_first_answer_that_reports_a_position_shows_that_the_server_knew() -> None:
    waits = [answered(150, 200, 11.1), answered(180, 200, 11.4), answered(90, 100, 10.1), answered(190, 300, 12.1)]
    found = Lateness(waits, BATCHES)
    assert found.after_first.count == 4
    assert most(found.after_first) == pytest.approx(1000, rel=0.01)
    assert found.after_first.percentile(50) < 1
    assert found.outside_the_wait.percentile(100) < 1


@pytest.mark.parametrize(
    ("samples", "expected"),
    [([], 0.0), ([(0, 1), (60, 2)], 0.0), ([(0, 10), (30, 15), (60, 20)], 10.0), ([(5, 1), (5, 2), (5, 3)], 0.0)],
    ids=["none", "too few", "steady", "at one time"],
)
def test_the_slope_is_per_minute(samples: list[tuple[float, float]], expected: float) -> None:
    assert slope_per_minute(samples) == pytest.approx(expected)
