"""A few steps of the random changes of structure, most of them in transactions that are sent while they are open."""

from __future__ import annotations

import pytest

from tests.chaos import ddl_run, ddl_transactions
from tests.chaos.ddl_run import Run
from tests.chaos.ddl_standing import standing

pytestmark = pytest.mark.pg

STEPS = 8


@pytest.mark.parametrize(
    ("target", "captured", "seed"),
    [
        pytest.param("duckdb", False, 1, marks=pytest.mark.chaos),
        ("postgres", True, 2),
        pytest.param("duckdb", True, 3, marks=pytest.mark.chaos),
        pytest.param("postgres", False, 4, marks=pytest.mark.chaos),
    ],
)
def test_what_is_sent_and_undone_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, target: str, captured: bool, seed: int
) -> None:
    monkeypatch.setattr(ddl_run, "_STEPS", (STEPS, STEPS))
    monkeypatch.setattr(ddl_run, "_MEANWHILE", ())
    monkeypatch.setattr(ddl_transactions, "_STREAMED", 0.6)
    with standing(target, 18, "auto", captured) as subscription:
        run = Run(subscription, seed, 0)
        run.go()
    assert run.counts.sent_open
    assert run.counts.stream_count >= run.counts.stream_txns > 0
    assert run.counts.compared
