"""What came through between two tickets."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from engine.model.position import Lsn
from engine.sources.postgres_log.position_form import PostgresLogForm
from server.tickets.throughput import Figures, throughput_between

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
FIRST = Figures(
    position=Lsn(5 * 1024**3),
    captured_at=NOON,
    applied_at=NOON + timedelta(seconds=30),
    transactions=1_000,
    commands=7_000,
    counted_since=NOON - timedelta(hours=1),
)
LAST = replace(
    FIRST,
    position=Lsn(7 * 1024**3),
    captured_at=NOON + timedelta(seconds=90),
    applied_at=NOON + timedelta(seconds=120),
    transactions=4_000,
    commands=31_000,
)


def test_the_time_runs_from_the_first_capture_to_the_last_commit() -> None:
    found = throughput_between(FIRST, LAST, PostgresLogForm())
    assert found.seconds == 120
    assert (found.log_bytes, found.transactions, found.commands) == (2 * 1024**3, 3_000, 24_000)
    assert found.log_gib_per_hour == pytest.approx(60)
    assert found.commands_per_second == pytest.approx(200)
    assert found.transactions_per_second == pytest.approx(25)


def test_microseconds_count() -> None:
    found = throughput_between(FIRST, replace(LAST, applied_at=NOON + timedelta(microseconds=250)), PostgresLogForm())
    assert found.seconds == pytest.approx(0.00025)
    assert found.transactions_per_second == pytest.approx(12_000_000)


def test_counts_of_two_runs_are_not_compared_but_the_log_is() -> None:
    found = throughput_between(FIRST, replace(LAST, counted_since=NOON, transactions=5, commands=9), PostgresLogForm())
    assert (found.transactions, found.commands) == (None, None)
    assert (found.transactions_per_second, found.commands_per_second) == (None, None)
    assert found.log_gib_per_hour == pytest.approx(60)


@pytest.mark.parametrize("applied_at", [NOON, NOON - timedelta(seconds=1)])
def test_a_clock_that_went_back_gives_no_rates(applied_at: datetime) -> None:
    found = throughput_between(FIRST, replace(LAST, applied_at=applied_at), PostgresLogForm())
    assert found.commands == 24_000
    assert (found.log_gib_per_hour, found.commands_per_second, found.transactions_per_second) == (None, None, None)
