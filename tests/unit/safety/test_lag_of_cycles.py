"""How old the rows of a target are whose source is only queried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.model.cycles import LastCycle
from engine.model.position import ZERO
from engine.model.positions.windows import end_of
from engine.model.source import ReaderStatus
from engine.safety.source_monitor import SourceMonitor


@pytest.fixture
def monitor() -> SourceMonitor:
    parts = SimpleNamespace(spec=SimpleNamespace(patterns=()))
    return SourceMonitor(cast("Any", parts), cast("Any", None), lambda: ZERO)


def found(number: int) -> ReaderStatus:
    """After a cycle with a snapshot of so many seconds."""
    return ReaderStatus(True, last_cycle=LastCycle(number, end_of(number), number * 1_000_000, 0.5, 80))


def test_a_log_has_no_such_time(monitor: SourceMonitor) -> None:
    assert monitor.looked_us(end_of(3)) is None
    monitor.reader = ReaderStatus(True)
    assert monitor.looked_us(end_of(3)) is None


def test_a_cycle_counts_when_its_changes_are_applied(monitor: SourceMonitor) -> None:
    monitor.reader = found(4)
    assert monitor.looked_us(end_of(3)) is None
    assert monitor.looked_us(end_of(4)) == 4_000_000
    monitor.reader = found(5)
    assert monitor.looked_us(end_of(4)) == 4_000_000, "what the newest cycle found is not applied yet"
    assert monitor.looked_us(end_of(5)) == 5_000_000
    monitor.reader = None
    assert monitor.looked_us(end_of(5)) == 5_000_000, "the source does not answer"
