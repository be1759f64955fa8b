"""Rests between the steps of a comparison."""

from __future__ import annotations

import threading

import pytest

from engine.verify.compare import VerifyLimits
from engine.verify.pace import Pace
from tests.fixtures.manual_clock import ManualEngineClock
from tests.unit.copy.copy_fakes import FakeSource
from tests.unit.verify.test_verify_tables import FakeReader, compare


class Rests(threading.Event):
    """Notes how long was waited for it, and lets the time pass on the clock."""

    def __init__(self, clock: ManualEngineClock) -> None:
        super().__init__()
        self.clock = clock
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        self.clock.ms += 1000 * (timeout or 0.0)
        return self.is_set()


@pytest.mark.parametrize("budget", [0.01, 0.3, 0.5, 0.99])
def test_steps_take_the_share_of_the_time(budget: float) -> None:
    clock = ManualEngineClock()
    rests = Rests(clock)
    pace = Pace(rests, budget, clock)
    clock.ms += 5000  # The cut was waited for.
    pace.begin()
    began, worked = clock.ms, 0.0
    for step_ms in (1000, 10, 0, 250):
        clock.ms += step_ms
        worked += step_ms
        pace.rest()
    assert worked / (clock.ms - began) == pytest.approx(budget)
    assert len(rests.seconds) == 4


def test_a_whole_budget_does_not_rest() -> None:
    clock = ManualEngineClock()
    rests = Rests(clock)
    pace = Pace(rests, 1.0, clock)
    pace.begin()
    clock.ms += 1000
    pace.rest()
    assert rests.seconds == []


def test_cancelling_ends_a_rest() -> None:
    cancelled, clock = threading.Event(), ManualEngineClock()
    pace = Pace(cancelled, 0.01, clock)
    pace.begin()
    clock.ms += 3_600_000  # So that the rest would last 99 hours.
    threading.Timer(0.05, cancelled.set).start()
    pace.rest()
    assert cancelled.is_set()


def test_each_piece_of_rows_is_a_step() -> None:
    rests = Rests(ManualEngineClock())
    source = FakeSource({"a": [[1, 2], [3]], "b": [[4]]})
    verdicts = compare(source, FakeReader({"a": {1, 2, 3}, "b": {4}}), cancelled=rests, limits=VerifyLimits(budget=0.5))
    assert all(verdict.equal for verdict in verdicts)
    assert len(rests.seconds) == 3
