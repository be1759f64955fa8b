"""Scans of readers give way to commits that are waited for, and to nothing else."""

from __future__ import annotations

import threading

from engine.model.identity import SubscriptionName
from engine.model.position import Lsn
from engine.targets.duckdb.scan_pace import ScanPace

ONE, OTHER = SubscriptionName("one"), SubscriptionName("other")
LONG_S = 60.0
"""Longer than a test may take."""


def scan(pace: ScanPace) -> threading.Thread:
    thread = threading.Thread(target=pace.give_way, daemon=True)
    thread.start()
    return thread


def test_a_scan_waits_until_each_subscription_has_reached_its_position() -> None:
    pace = ScanPace(LONG_S, LONG_S)
    pace.expect(ONE, Lsn(5))
    pace.expect(OTHER, Lsn(7))
    pace.expect(ONE, Lsn(3))
    thread = scan(pace)
    pace.reached(ONE, Lsn(4))
    pace.reached(OTHER, Lsn(9))
    thread.join(0.05)
    assert thread.is_alive()
    pace.reached(ONE, Lsn(5))
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_a_position_that_was_reached_is_not_expected() -> None:
    pace = ScanPace(LONG_S, LONG_S)
    pace.reached(ONE, Lsn(5))
    pace.expect(ONE, Lsn(5))
    pace.give_way()


def test_a_position_is_not_expected_for_ever() -> None:
    pace = ScanPace(LONG_S, 0.01)
    pace.expect(ONE, Lsn(5))
    pace.give_way()


def test_a_pause_ends() -> None:
    pace = ScanPace(0.01, LONG_S)
    pace.expect(ONE, Lsn(5))
    pace.give_way()
