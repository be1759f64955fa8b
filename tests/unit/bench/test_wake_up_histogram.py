"""The server's wake-ups over a period, from two readings of its metrics."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from server.metrics.meters import Meters
from tests.bench.wake_up_histogram import WakeUpHistogram


def _read(meters: Meters) -> WakeUpHistogram:
    return WakeUpHistogram.parse(generate_latest(meters.registry).decode(), "s")


def _recorded(*seconds: float) -> WakeUpHistogram:
    meters = Meters()
    for each in seconds:
        meters.record_wake_up("s", each)
    return _read(meters)


def test_only_the_period_and_the_subscription_count() -> None:
    meters = Meters()
    meters.record_wake_up("s", 4.0)
    before = _read(meters)
    meters.record_wake_up("another", 4.0)
    meters.record_wake_up("s", 0.01)
    found = _read(meters).since(before)
    assert (found.count, found.within(0.3)) == (1, 1)


def test_a_server_without_wake_ups_has_none() -> None:
    empty = _read(Meters())
    assert empty.since(empty).document(300.0) == {
        "count": 0, "p50_ms": 0.0, "p99_ms": 0.0, "above_goal": 0, "goal_met": False,
    }  # fmt: skip
    assert _recorded(0.2).since(empty).count == 1


@pytest.mark.parametrize(("late", "met"), [(0, True), (1, True), (2, False)])
def test_the_goal_is_met_if_one_in_a_hundred_is_above(late: int, met: bool) -> None:
    found = _recorded(*[0.3] * (100 - late), *[0.3001] * late).document(300.0)
    assert (found["above_goal"], found["goal_met"]) == (late, met)


def test_percentiles_lie_in_their_buckets() -> None:
    found = _recorded(*[0.27] * 98, 7.0, 50.0)
    assert 250 < found.percentile_ms(50) <= 300
    assert 5000 < found.percentile_ms(99) <= 10_000
    assert found.percentile_ms(100) == 30_000


def test_what_no_bucket_separates_is_not_known() -> None:
    with pytest.raises(KeyError):
        _recorded(0.1).within(0.31)
