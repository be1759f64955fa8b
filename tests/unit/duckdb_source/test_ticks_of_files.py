"""From when on a file's time of change says that there was no later change."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sources.duckdb.settled import unsettled_ns

_SECOND = 1_000_000_000


@given(st.integers(1, 2**60), st.integers(0, 5 * _SECOND), st.sampled_from([1, 1_000, 1_000_000, _SECOND]))
def test_a_time_counts_once_its_tick_has_ended(now: int, age: int, digits: int) -> None:
    changed = max(0, (now - age) // digits * digits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now)
        wait = unsettled_ns(changed)
        assert (wait == 0) is (now - changed >= (20_000_000 if changed % _SECOND else 2_100_000_000))
        patch.setattr(time, "time_ns", lambda: now + wait)
        assert unsettled_ns(changed) == 0


def test_a_time_in_the_future_is_that_of_no_later_change() -> None:
    assert unsettled_ns(time.time_ns() + 3600 * _SECOND) == 0
