"""How long an engine waits before it tries a subscription again."""

from __future__ import annotations

import pytest

from engine.control.retry_pauses import RetryPauses
from engine.model.position import Lsn
from tests.fixtures.manual_clock import ManualEngineClock


@pytest.fixture
def clock() -> ManualEngineClock:
    return ManualEngineClock()


def test_they_double_up_to_half_a_minute_while_nothing_is_reached(clock: ManualEngineClock) -> None:
    pauses = RetryPauses(clock)
    assert [pauses.after_failure(None) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    pauses.reset()
    assert pauses.after_failure(None) == 0.5


def test_an_attempt_that_applied_changes_begins_them_again(clock: ManualEngineClock) -> None:
    pauses = RetryPauses(clock)
    assert [pauses.after_failure(at) for at in (Lsn(5), Lsn(5), None, Lsn(5))] == [0.5, 1, 2, 4]
    assert [pauses.after_failure(at) for at in (Lsn(6), Lsn(6), Lsn(7), Lsn(7))] == [0.5, 1, 0.5, 1]


def test_a_long_attempt_begins_them_again(clock: ManualEngineClock) -> None:
    pauses = RetryPauses(clock)
    found = []
    for seconds in (1, 29, 31, 1):
        pauses.begin()
        clock.ms += seconds * 1000
        found.append(pauses.after_failure(None))
    assert found == [0.5, 1, 0.5, 1]
