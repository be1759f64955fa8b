"""Percentiles and the account of a run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.cli.demo.measure import Samples, percentile


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, 0.0), ([7.0], 0.99, 7.0), ([3.0, 1.0, 2.0], 0.5, 2.0), ([1.0, 2.0], 0.5, 1.0), ([1.0, 2.0], 0.51, 2.0)],
)
def test_percentile(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_percentile_covers_its_share(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6


def test_account_counts_waits_that_timed_out() -> None:
    samples = Samples(lag_ms=[10.0, 30.0], waits_ms=[5.0], timed_out=2)
    assert samples.waits() == {"count": 3, "p50_ms": 5.0, "p95_ms": 5.0, "p99_ms": 5.0, "timed_out": 2}
    assert samples.lag() == {"p50": 10.0, "p95": 30.0, "max": 30.0}
